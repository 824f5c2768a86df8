"""The watchdog files of an attempt's ranks -> the failures and partial steps of its record."""

from itertools import groupby
from pathlib import Path
from typing import Collection, Dict, List, Sequence, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.record import (
    PARTIAL_STEP_SECONDS_FILE,
    TERMINATED,
    WHOLE_JOB,
    Failure,
)
from dlperf_slurm.files.arrays import write_array
from dlperf_slurm.worker.host import read_text
from dlperf_slurm.worker.provenance.machine import format_ranges
from dlperf_slurm.worker.stall_evidence import (
    SILENT,
    STACKS,
    STATUS,
    find_wait,
    get_rank_path,
    read_evidence,
    read_native_stack,
    read_valid,
)
from dlperf_slurm.worker.watchdog import PREEMPTED, STALLED, TIME_LIMIT, RankStatus

ANSWERED_NOTHING = "does not respond: its process is suspended (SIGSTOP), or blocked in file I/O"
HELD = "in native code that holds the GIL"
STOPPED = "does not respond: its process is suspended (by SIGSTOP or a debugger)"
# process states of proc_pid_stat(5)
STATES = {"R": HELD, "S": HELD, "T": STOPPED, "t": STOPPED}


def read_statuses(attempt_dir: Path, case: Case) -> Tuple[RankStatus, ...]:
    """Read the state of each rank that a watchdog ended (RankStatus), in rank order.

    Empty if no watchdog ended a rank.
    """
    paths = [get_rank_path(attempt_dir, rank, STATUS) for rank in range(case.world_size)]
    found = (read_valid(path, RankStatus) for path in paths)
    return tuple(status for status in found if status is not None)


def describe_stall(attempt_dir: Path, case: Case) -> Tuple[Failure, ...]:
    """Return the job's failure, which summarizes all ranks in one line, then one of each rank.

    Its cause is a stall, the time limit or a preemption. Empty if the watchdog ended no rank.
    """
    statuses = read_statuses(attempt_dir, case)
    ranks = range(case.world_size)
    stacks = {rank: read_text(get_rank_path(attempt_dir, rank, STACKS)) for rank in ranks}
    if not statuses and not any(stacks.values()):
        return ()
    hosts = next((status.hosts for status in statuses if status.hosts), ())
    evidence = read_evidence(attempt_dir)
    states = {int(rank): state for one in evidence for rank, state in one.states.items()}
    native = {rank: read_native_stack(attempt_dir, rank) for rank in ranks}
    # the likeliest causes come first
    told = {status.rank: _describe_place(status) for status in _sort(statuses)}
    held = {r for r in ranks if stacks[r] and not get_rank_path(attempt_dir, r, SILENT).exists()}
    quiet = {
        rank: STATES.get(states.get(rank, ""), HELD if rank in held else ANSWERED_NOTHING)
        for rank in ranks
        if rank not in told
    }
    words = {**quiet, **told}
    parts = [
        f"{_name_ranks([rank for rank, _ in group], hosts)}: {text}"
        for text, group in groupby(words.items(), key=lambda item: item[1])
    ]
    cause = _describe_cause(statuses)
    if cause.startswith(STALLED):
        waits = {rank: find_wait(stack) for rank, stack in native.items()}
        compared = _compare_ranks(statuses, [*quiet], waits)
        cause += f"; {compared}" if compared else ""
        parts += [f"{device} on {one.host}" for one in evidence for device in one.devices]
    message = f"{cause}: {'; '.join(parts)}"
    is_preempted = any(status.cause == PREEMPTED for status in statuses)
    return (
        Failure(WHOLE_JOB, "", TERMINATED if is_preempted else "", message, "", False),
        *(
            Failure(
                rank,
                hosts[rank] if hosts else "",
                "",
                text,
                stacks[rank] + (f"\nNative stack:\n{native[rank]}" if native[rank] else ""),
                False,
            )
            for rank, text in words.items()
        ),
    )


def _compare_ranks(
    statuses: Sequence[RankStatus], quiet: Collection[int], waits: Dict[int, str]
) -> str:
    """Say whether ranks of a stalled job are behind, or all wait in the same call.

    Returns "" for a single rank, and if no rank responds. `quiet` are the ranks without a
    status; `waits` has the native function in which a rank waits.
    """
    if not statuses or len(statuses) + len(quiet) == 1:
        return ""
    most = max((status.phases, status.step) for status in statuses)
    behind = {
        *quiet,
        *(s.rank for s in statuses if s.stopped_seconds or (s.phases, s.step) < most),
    }
    if behind:
        verb = "is" if len(behind) == 1 else "are"
        return f"{_name_ranks([*behind], ())} {verb} behind the other ranks"
    calls = {(status.at, waits[status.rank]) for status in statuses}
    if len(calls) > 1:
        return "no rank is behind, but ranks are in different calls"
    wait = calls.pop()[1]
    return "no rank is behind, all wait in the same call" + (f" ({wait})" if wait else "")


def write_partial_steps(attempt_dir: Path, case: Case) -> int:
    """Write the measured steps' times that ended ranks reported; return the number common to all.

    They are seconds [ranks, steps] in PARTIAL_STEP_SECONDS_FILE, NaN where missing. Without any
    step, nothing is written, and 0 returned. Only ranks with a RankStatus count.
    """
    statuses = read_statuses(attempt_dir, case)
    steps = [len(status.step_seconds) for status in statuses]
    if not any(steps):
        return 0
    import numpy

    seconds = numpy.full((case.world_size, max(steps)), numpy.nan)
    for status in statuses:
        seconds[status.rank, : len(status.step_seconds)] = status.step_seconds
    write_array(attempt_dir / PARTIAL_STEP_SECONDS_FILE, seconds)
    return min(steps)


def _sort(statuses: Sequence[RankStatus]) -> List[RankStatus]:
    """Sort the ranks that the watchdog ended, the most likely cause of a stall first.

    Stopped processes come first, then ranks by least progress; of equals, the rarest position.
    """
    places = [(status.phases, status.step, status.at) for status in statuses]
    return sorted(
        statuses,
        key=lambda one: (
            not one.stopped_seconds,
            one.phases,
            one.step,
            places.count((one.phases, one.step, one.at)),
            one.at,
            one.rank,
        ),
    )


def _describe_cause(statuses: Sequence[RankStatus]) -> str:
    """Describe why the watchdog ended the ranks: preemption, the time limit, or a stall."""
    causes = {status.cause for status in statuses}
    if PREEMPTED in causes:
        return f"{PREEMPTED}: Slurm preempted the job before its time limit"
    if TIME_LIMIT in causes:
        return f"{TIME_LIMIT}: the job reached its time limit"
    seconds = max((status.quiet_seconds for status in statuses), default=0.0)
    return f"{STALLED}: no step ended for {seconds:.0f} s" if seconds else STALLED


def _describe_place(status: RankStatus) -> str:
    """Describe where a rank was when its watchdog ended it: its phase, step and code line."""
    stopped = status.stopped_seconds
    silence = f"no response for {stopped:.0f} s, then " if stopped else ""
    if not status.steps:
        return f"{silence}{status.phase}, at {status.at}"
    number = min(status.step + 1, status.steps)
    return f"{silence}step {number} of {status.steps} ({status.phase}), at {status.at}"


def _name_ranks(ranks: Sequence[int], hosts: Sequence[str]) -> str:
    """Return ranks as text, "ranks 0-2, 5", or "rank 3 on n2" by `hosts`, the host of each rank."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}" + (f" on {hosts[ranks[0]]}" if hosts else "")
    return f"ranks {format_ranges(sorted(ranks)).replace(',', ', ')}"
