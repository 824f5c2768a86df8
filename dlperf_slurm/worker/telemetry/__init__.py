"""A sampling process per host -> telemetry of its CPUs and devices during the measured steps.

It never fails a measurement: if sampling is not possible, the result is empty and says why.
"""

import io
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Dict, Optional, Sequence, Tuple, cast

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.host_noise import CpuUse
from dlperf_slurm.contract.json_files import build_dataclass
from dlperf_slurm.contract.record import Telemetry
from dlperf_slurm.contract.step_archive import SAMPLES_FILE
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.telemetry.gpu_sources import choose_devices
from dlperf_slurm.worker.telemetry.series import (
    END,
    READY,
    START,
    STOP,
    DeviceSeries,
    HostSamples,
    summarize_samples,
)

# long, since a driver may initialize slowly, and the process has the lowest priority
READY_SECONDS = 20.0
STOP_SECONDS = 20.0


class Sampler:
    """One rank's handle of its sampling process; a rank with nothing to sample starts none.

    The process also ends if the rank dies, as its standard input is then closed. The window is the
    time of the measured steps. `cpu_use` is the CPU use of the host in it, set by `finish`.
    """

    def __init__(self, case: Case, rank_info: RankInfo) -> None:
        self.cpu_use: Optional[CpuUse] = None
        self._host = rank_info.host
        self._problem = ""
        self._process: "Optional[subprocess.Popen[bytes]]" = None
        devices = choose_devices(case, rank_info, os.environ)
        is_host = rank_info.local_rank == 0
        interval_seconds = case.telemetry_interval_seconds
        if (is_host or devices) and interval_seconds > 0:
            self._start([self._host, *map(json.dumps, (interval_seconds, is_host, devices))])

    def await_ready(self) -> None:
        """Wait up to READY_SECONDS for the process, else end it; call this before the warm-up."""
        if self._process is None:
            return
        output = cast(IO[bytes], self._process.stdout)
        is_answered = select.select([output], [], [], READY_SECONDS)[0]
        if not is_answered or output.readline() != READY:
            end_process(self._process)
            self._process = None
            self._problem = "the process that samples the telemetry did not start"

    def start_window(self) -> None:
        """Begin to sample, right before the measured steps; costs one write to a pipe."""
        self._say(START)

    def end_window(self) -> None:
        """Take the last sample, right after the measured steps; costs one write to a pipe."""
        self._say(END)

    def finish(self) -> HostSamples:
        """End the process; return the window's samples, or none and why as `problem`.

        `problem` is "" if there was nothing to sample. Sets `cpu_use`.
        """
        process, self._process = self._process, None
        if process is None:
            return HostSamples(self._host, problem=self._problem)
        try:
            output, _ = process.communicate(STOP, timeout=STOP_SECONDS)
            samples = read_samples(output)
            self.cpu_use = samples.cpu_use
            return samples
        except subprocess.TimeoutExpired:
            end_process(process)
            problem = "did not respond"
        except ValueError:
            problem = f"ended with exit code {process.returncode}"
        return HostSamples(self._host, problem=f"the process that samples the telemetry {problem}")

    def _start(self, arguments: Sequence[str]) -> None:
        command = [sys.executable, "-m", "dlperf_slurm.worker.telemetry", *arguments]
        # Inherited: an interrupt of the job ends the rank, whose end ends the process. By itself it
        # would end with a traceback of whatever it imports or waits for.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        except OSError as error:
            self._problem = f"the process that samples the telemetry did not start: {error}"
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _say(self, word: bytes) -> None:
        """Send a command to the sampling process; does nothing if the process has ended."""
        if self._process is None:
            return
        # the process may be gone; `finish` reports how it ended
        with suppress(BrokenPipeError):
            cast(IO[bytes], self._process.stdin).write(word)


def end_process(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and reap it."""
    process.kill()
    process.communicate()


def read_samples(output: bytes) -> HostSamples:
    """Parse the output of the sampling process; raises ValueError if it is incomplete."""
    data: Dict[str, Any] = json.loads(output.decode())
    series = tuple(DeviceSeries(**one) for one in data.pop("series"))
    use = data.pop("cpu_use")
    cpu_use = (
        build_dataclass(CpuUse, use, "the sampling process", is_complete=True) if use else None
    )
    return HostSamples(series=series, cpu_use=cpu_use, **data)


def gather_telemetry(
    world: Any, sampler: Sampler, attempt_dir: Path
) -> Tuple[Tuple[Telemetry, ...], Dict[str, str]]:
    """Gather a summary of each device and host to rank 0, for `Record.telemetry`.

    Also returns {"telemetry": problems} for `Record.platform`, or {} without any. Rank 0 also
    writes all samples to SAMPLES_FILE. All ranks must call this.
    """
    samples = world.gather(sampler.finish())
    problems = [f"{one.host}: {one.problem}" for one in samples if one.problem]
    if any(one.series for one in samples):
        write_samples(attempt_dir / SAMPLES_FILE, samples)
    return summarize_samples(samples), {"telemetry": "; ".join(problems)} if problems else {}


def write_samples(path: Path, samples: Sequence[HostSamples]) -> None:
    """Write all columns of all series to an .npz file, atomically, as HOST/DEVICE/COLUMN."""
    import numpy

    arrays = {
        f"{one.host}/{series.device}/{name}": numpy.array(values)
        for one in samples
        for series in one.series
        for name, values in series.columns.items()
    }
    buffer = io.BytesIO()
    numpy.savez_compressed(buffer, **arrays)
    write_file(path, buffer.getvalue())
