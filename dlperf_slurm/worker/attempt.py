"""A case -> its measurement by joined ranks, and the record of the attempt."""

import math
import os
import socket
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Sequence, Union

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.host_noise import HOST_NOISE_FILE
from dlperf_slurm.contract.json_files import read_json, write_json, write_sidecar
from dlperf_slurm.contract.peaks import PEAKS_FILE
from dlperf_slurm.contract.phases import (
    FIRST_STEP,
    FRAMEWORK,
    GATHER,
    LOOK,
    RANKS,
    SAMPLER,
    SESSION,
    WARMUP,
    WINDOW,
)
from dlperf_slurm.contract.record import (
    DATA_WAIT_SECONDS_FILE,
    OK,
    RECORD_FILE,
    STEP_SECONDS_FILE,
    TOKEN_SECONDS_FILE,
    WARMUP_STEP_SECONDS_FILE,
    Clock,
    RankResult,
    Record,
    find_record_problem,
)
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.files.arrays import write_array
from dlperf_slurm.worker import ending, servers
from dlperf_slurm.worker.accuracy import train_to_accuracy
from dlperf_slurm.worker.data_sources import open_batches
from dlperf_slurm.worker.determinism import SWITCH, make_deterministic
from dlperf_slurm.worker.failures import report_failure, write_failure
from dlperf_slurm.worker.frameworks import load_adapter, start_session
from dlperf_slurm.worker.host import read_cpu_name
from dlperf_slurm.worker.host_noise import gather_noise, probe_host
from dlperf_slurm.worker.measure import measure_steps
from dlperf_slurm.worker.nodes.copies import read_on_node
from dlperf_slurm.worker.nvml import refuse_shared_gpus
from dlperf_slurm.worker.out_of_memory import OutOfMemory
from dlperf_slurm.worker.parity import CaseMismatchError, check_parameter_count
from dlperf_slurm.worker.peaks.measure import gather_peaks, measure_peak
from dlperf_slurm.worker.phases import ImportTimer, Phases
from dlperf_slurm.worker.profiled_attempt import TorchTrace
from dlperf_slurm.worker.progress import Position
from dlperf_slurm.worker.provenance import describe_job, describe_python, gather_platforms
from dlperf_slurm.worker.ranks import PlacementError, SingleProcess
from dlperf_slurm.worker.rendezvous import RendezvousSettings
from dlperf_slurm.worker.rendezvous.communicators import RankWorld
from dlperf_slurm.worker.rendezvous.network import choose_network
from dlperf_slurm.worker.telemetry import Sampler, gather_telemetry
from dlperf_slurm.worker.watchdog import watch_rank
from dlperf_slurm.worker.weights import sum_weights

MIB = 2**20


def run_attempt(
    attempt_dir: Path,
    work: Callable[[Case, Any, Path], None],
    join: Callable[[Case], Union[RankWorld, SingleProcess]],
) -> int:
    """Join the other ranks and do `work` on the case of this directory; return the exit code.

    `join` connects the ranks; `work` gets the case, the joined ranks and the directory. After any
    exception, SystemExit too, the failure is written to a file, the other ranks are ended, and the
    exit code is 1. After success, the process exits here if an adapter has set `ending.is_at_once`.
    """
    world: Union[RankWorld, SingleProcess, None] = None
    signs = OutOfMemory(())
    try:
        case = read_json(attempt_dir / CASE_FILE, Case)
        check_python()
        world = join(case)
        servers.report_early_end = partial(write_failure, attempt_dir, world.rank)
        signs = load_adapter(case.axes.framework).OUT_OF_MEMORY
        work(case, world, attempt_dir)
    # SystemExit too: a rank that left alone would wait for the others in MPI_Finalize
    except BaseException as error:
        try:
            rank = world.rank if world is not None else None
            report_failure(attempt_dir, rank, signs, error)
        except OSError as problem:
            print(f"cannot write the error of this rank: {problem}", file=sys.stderr)
        finally:
            if world is not None:
                world.end_after_failure()
        return 1
    if ending.is_at_once and not isinstance(world, SingleProcess):
        ending.end_at_once(world)
    return 0


def check_python() -> None:
    """Raise PlacementError if the node cannot run DLPERF_SLURM_PYTHON, the environment's python."""
    python = os.environ.get("DLPERF_SLURM_PYTHON", "")
    if python and not os.access(python, os.X_OK):
        raise PlacementError(
            f"the environment's python cannot be run on {socket.gethostname()}: {python}"
        )


def describe_compilation(session: Any) -> Dict[str, str]:
    """Return {"compilation": "cached", "partly cached" or "compiled"}, {} without such a cache."""
    told = getattr(session, "compilation", "")
    return {"compilation": told} if told else {}


def watch_case(
    case: Case,
    world: RankWorld,
    attempt_dir: Path,
    rendezvous: RendezvousSettings,
    phases: Phases,
    is_traced: bool = False,
) -> None:
    """Measure the case, ended by a watchdog at a stall, near the time limit or at a preemption.

    The parameters are those of `measure_case`.
    """
    phases.end(RANKS)
    with watch_rank(attempt_dir, case.stall_seconds, world) as position:
        measure_case(case, world, attempt_dir, rendezvous, position, phases, is_traced)


def measure_case(
    case: Case,
    world: RankWorld,
    attempt_dir: Path,
    rendezvous: RendezvousSettings,
    position: Position,
    phases: Phases,
    is_traced: bool = False,
) -> None:
    """Build, warm up, measure and gather; rank 0 writes step times first and the record last.

    `rendezvous` has the network to use. `position` receives the progress for the watchdog, `phases`
    the durations of the phases. With `is_traced`, torch.profiler records the measured steps. Raises
    CaseMismatchError if the model or the record does not match the case.
    """
    rank_info = choose_network(world.place(case), world, rendezvous)
    refuse_shared_gpus(case, rank_info, world, os.environ)
    started_at = format_now()
    before = probe_host(case, rank_info, world)
    peak = measure_peak(case, rank_info, world, attempt_dir)
    phases.end(LOOK)
    # created here so that its process starts while the session is built
    sampler = Sampler(case, rank_info)
    # inference needs no communication between ranks
    framework_size = 1 if case.axes.mode == INFER else rank_info.world_size
    read = read_on_node(case, attempt_dir)
    if os.environ.get(SWITCH) == "1":
        make_deterministic(case.axes.framework)
    with ImportTimer() as imports:
        session = start_session(read, replace(rank_info, world_size=framework_size))
    check_parameter_count(case, session)
    phases.end(SESSION)
    sampler.await_ready()
    phases.end(SAMPLER)

    trace = TorchTrace(attempt_dir, rank_info.rank) if is_traced else None

    def start_window() -> None:
        phases.end(WARMUP)
        if trace is not None:
            trace.start()
        sampler.start_window()

    def end_window() -> None:
        sampler.end_window()
        if trace is not None:
            trace.stop()

    if case.is_to_accuracy:
        measurement = train_to_accuracy(session, world, read, rank_info, sampler, position)
    else:
        measurement = measure_steps(
            session,
            world.barrier,
            case,
            open_batches(read, rank_info, session),
            start_window,
            end_window,
            position,
            lambda steps: max(world.exchange(steps)),
        )
    phases.end(WINDOW)
    peak_memory_bytes = read_peak_memory_bytes(session)
    check_memory_limit(case, peak_memory_bytes)
    result = RankResult(
        rank=rank_info.rank,
        local_rank=rank_info.local_rank,
        host=rank_info.host,
        device_name=session.device_name or read_cpu_name(),
        window_seconds=measurement.window_seconds,
        peak_memory_bytes=peak_memory_bytes,
        final_loss=session.read_loss(),
        data_wait_seconds=sum(measurement.data_wait_seconds),
        weight_sum=sum_weights(case, session),
    )
    attention = session.describe_attention()
    platform, hosts = gather_platforms(case, world, rank_info)
    telemetry, telemetry_problems = gather_telemetry(world, sampler, attempt_dir)
    noise = gather_noise(case, world, before, sampler.cpu_use)
    peaks = gather_peaks(case, world, peak, session.parameter_count)
    results = world.gather(result)
    step_seconds = world.gather_rows(measurement.step_seconds)
    warmup_step_seconds = world.gather_rows(measurement.warmup_step_seconds)
    data_wait_seconds = world.gather_rows(measurement.data_wait_seconds)
    token_seconds = world.gather_rows(measurement.token_seconds)
    if world.rank == 0:
        record = Record(
            status=OK,
            reason="",
            case=case,
            started_at=started_at,
            ended_at=format_now(),
            parameter_count=session.parameter_count,
            clock=Clock(measurement.clock, measurement.boundary_seconds),
            ranks=tuple(results),
            failures=(),
            versions={
                **describe_python(),
                **world.describe_versions(),
                **session.versions,
                **({"attention": attention} if attention else {}),
            },
            platform={**platform, **telemetry_problems, **describe_compilation(session)},
            job=describe_job(),
            telemetry=telemetry,
            hosts=hosts,
            epochs=measurement.epochs,
            trained_samples=measurement.trained_samples,
            warmup_steps=count_more(measurement.warmup_step_seconds, case.warmup_steps),
            measured_steps=0
            if case.is_to_accuracy
            else count_more(measurement.step_seconds, case.measured_steps),
        )
        problem = find_record_problem(record)
        if problem:
            raise CaseMismatchError(problem)
        write_array(attempt_dir / STEP_SECONDS_FILE, step_seconds)
        write_array(attempt_dir / WARMUP_STEP_SECONDS_FILE, warmup_step_seconds)
        if measurement.data_wait_seconds:
            write_array(attempt_dir / DATA_WAIT_SECONDS_FILE, data_wait_seconds)
        if measurement.token_seconds:
            shape = (*step_seconds.shape, case.axes.output_tokens)
            write_array(attempt_dir / TOKEN_SECONDS_FILE, token_seconds.reshape(shape))
        if peaks.devices:
            write_sidecar(attempt_dir / PEAKS_FILE, peaks)
        phases.end(GATHER)
        parts = {SESSION: (FRAMEWORK, imports.seconds)}
        if measurement.warmup_step_seconds:
            parts[WARMUP] = (FIRST_STEP, measurement.warmup_step_seconds[0])
        listed = phases.list_phases(parts)
        write_sidecar(attempt_dir / HOST_NOISE_FILE, replace(noise, phases=listed))
        write_json(attempt_dir / RECORD_FILE, record)
    session.close()


def count_more(step_seconds: Sequence[float], asked: int) -> int:
    """Return the number of steps if it exceeds `asked`, the number that was planned; else 0."""
    return len(step_seconds) if len(step_seconds) > asked else 0


def read_peak_memory_bytes(session: Any) -> int:
    """Return the peak of this process's memory on its device; 0 if the framework fails to read it.

    Allocators chosen by variables such as TF_GPU_ALLOCATOR may count nothing.
    """
    try:
        return int(session.read_peak_memory_bytes())
    # the measurement is complete: no error of a framework may lose it
    except Exception as error:
        print(f"cannot read the peak memory: {error!r}", file=sys.stderr, flush=True)
        return 0


def check_memory_limit(case: Case, peak_memory_bytes: int) -> None:
    """Raise MemoryError if the peak is above the case's limit, like a device with less memory.

    Raises RuntimeError if there is a limit, but the peak is unknown.
    """
    limit_bytes = case.memory_limit_bytes
    if limit_bytes and not peak_memory_bytes:
        raise RuntimeError(
            "memory_limit_mib_per_device needs the peak memory, which neither the framework's "
            "allocator nor NVML reports here"
        )
    if limit_bytes and peak_memory_bytes > limit_bytes:
        peak_mib, limit_mib = math.ceil(peak_memory_bytes / MIB), limit_bytes // MIB
        raise MemoryError(
            f"memory peak of {peak_mib} MiB exceeds memory_limit_mib_per_device, {limit_mib} MiB"
        )
