"""Outcomes of a case -> notes on other users of its machines; a banner for the whole run.

Other processes on the host and steal time of a hypervisor are reported separately. The former may
cause the latter, because all processes of a virtual machine share one CPU allowance.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.host_noise import MIN_STOLEN_SHARE, CpuUse, HostNoise
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.footnotes import FootnoteTemplate, Note

if TYPE_CHECKING:
    from pandas import DataFrame


def list_hosts(outcome: Outcome) -> Sequence[HostNoise]:
    """Return what each host of a repeat recorded about other users' processes."""
    noise = outcome.sidecars.noise
    return noise.hosts if noise else ()


def find_worst(outcome: Outcome) -> Optional[CpuUse]:
    """Return the CPU use of the host where processes of others used most; None if unknown."""
    uses = [use for host in list_hosts(outcome) for use in host.window]
    return max(uses, key=lambda use: use.other_share, default=None)


def is_noisy(outcome: Outcome) -> bool:
    """Return whether other users disturbed a repeat; False without a valid record.

    Others used CPUs during the measured steps or a GPU before, or a hypervisor withheld CPU time.
    """
    if outcome.record is None:
        return False
    worst = find_worst(outcome)
    has_other_processes = worst is not None and worst.has_other_processes
    has_gpu_users = bool(list_gpu_users(outcome))
    return has_other_processes or has_gpu_users or outcome.record.stolen_share >= MIN_STOLEN_SHARE


def describe_interference(outcomes: CaseOutcomes) -> Iterator[Note]:
    """Yield notes on other users' processes, steal time and earlier GPU users in valid repeats."""
    valid = [outcome for outcome in outcomes.outcomes if outcome.record is not None]
    beside = [use for use in map(find_worst, valid) if use and use.has_other_processes]
    if beside:
        most = max(beside, key=lambda use: use.other_share)
        yield FootnoteTemplate(
            "other processes used CPU time in {} of {} repeats, at worst {:.0f} % of the machine's "
            "CPUs, while the run used {:.0f} %",
            (len(beside), len(valid), 100 * most.other_share, 100 * most.run_share),
        )
    yield from _describe_stolen(valid, bool(beside))
    yield from _describe_gpus(valid)


def _describe_stolen(
    valid: Sequence[Outcome], has_other_processes: bool
) -> Iterator[FootnoteTemplate]:
    """Yield a footnote on CPU time that a hypervisor withheld (steal) in valid repeats, if any.

    With `has_other_processes`, another footnote already describes other users' processes.
    """
    shares = [o.record.stolen_share for o in valid if o.record is not None]
    found = [share for share in shares if share >= MIN_STOLEN_SHARE]
    if not found:
        return
    figures = (len(found), len(shares), 100 * max(found))
    where, why = "virtual machine on a shared host: ", ""
    if has_other_processes:
        where, why = "", "; other processes on the machine caused some of the steal"
    elif all(find_worst(outcome) for outcome in valid):
        why = "; other processes on this machine used little CPU time"
    yield FootnoteTemplate(
        f"{where}in {{}} of {{}} repeats a hypervisor withheld CPU time (steal), at worst "
        f"{{:.0f}} % of the CPU time that was needed{why}",
        figures,
    )


def _describe_gpus(valid: Sequence[Outcome]) -> Iterator[Note]:
    """Yield texts on who used the GPUs before the measurement, and why clocks were throttled."""
    for host in dict.fromkeys(host for outcome in valid for host in list_hosts(outcome)):
        for gpu in host.gpus:
            where = f"GPU {gpu.device} of {host.host}"
            if gpu.other_processes:
                yield f"{where} was used by other processes before the measurement"
            if gpu.throttle_reasons:
                reasons = ", ".join(gpu.throttle_reasons)
                yield f"clocks of {where} were throttled before the measurement: {reasons}"


def list_other_processes(outcome: Outcome) -> Optional[str]:
    """Return the most affected host's other processes: "python 35 %" of CPU time; None if none."""
    worst = find_worst(outcome)
    if worst is None or not worst.has_other_processes:
        return None
    return ", ".join(f"{one.name} {100 * one.cpu_share:.0f} %" for one in worst.other_processes)


def list_gpu_users(outcome: Outcome) -> list[str]:
    """Return the names of processes that used the GPUs of a repeat before it started."""
    return [name for host in list_hosts(outcome) for gpu in host.gpus
        for name in gpu.other_processes]  # fmt: skip


def make_banner(repeats: "DataFrame") -> str:
    """Return a one-line warning about other users of a run's machines; "" if there were none."""
    noisy = repeats[repeats.is_noisy.fillna(False)]
    if noisy.empty:
        return ""
    parts = []
    beside = noisy[noisy.other_processes.notna()]
    if len(beside):
        most = beside.loc[beside.other_cpu_share.idxmax()]
        parts.append(
            f"other processes on the same machine used up to {100 * most.other_cpu_share:.0f} % "
            "of its CPUs"
        )
    stolen = noisy.stolen_share.max()
    if stolen >= MIN_STOLEN_SHARE:
        parts.append(
            f"a hypervisor withheld up to {100 * stolen:.0f} % of the CPU time that was needed "
            "(steal)"
        )
    if (noisy.gpu_users != "").any():
        parts.append("GPUs were used by other processes")
    valid = int(repeats.samples_per_s.notna().sum())
    return f"NOISY in {len(noisy)} of {valid} repeats: {'; '.join(parts)}"


def list_disturbed_repeats(repeats: "DataFrame") -> list[str]:
    """List the repeats that others disturbed, each as a line with the other processes.

    The lines are for the user's terminal alone: reports, which are sent on, do not name them.
    """
    users = (repeats[name].fillna("") for name in ("other_processes", "gpu_users"))
    found = []
    for case_id, repeat, on_cpus, on_gpus in zip(repeats.case_id, repeats.repeat, *users):
        names = [f"on GPUs: {', '.join(on_gpus.splitlines())}"] if on_gpus else []
        if others := "; ".join(filter(None, (on_cpus, *names))):
            found.append(f"{case_id} repeat {repeat}: {others}")
    return found
