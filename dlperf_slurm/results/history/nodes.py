"""What runs say of their nodes -> the nodes that failed, and those that are slow over runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.results.history.entries import Entry
from dlperf_slurm.stats.stragglers import Machine, SlowMachine, find_slow_machines


@dataclass(frozen=True)
class NodeHistory:
    """A node of a site that failed, was not fit to measure, or is slow.

    `failures` counts array tasks; `last_reason` is that of the last one, `has_measured_since`
    whether a later one was sound. `slow` is there where chance does not explain how often it was
    the slowest of the nodes of a case.
    """

    site_name: str
    node: str
    failures: int
    last_failed_at: str
    last_reason: str
    has_measured_since: bool
    slow: Optional[SlowMachine]

    @property
    def is_bad(self) -> bool:
        """Whether jobs had better not run on it: one that measured since it failed is mended."""
        return self.slow is not None or (self.failures > 0 and not self.has_measured_since)


def read_node_histories(entries: Iterable[Entry]) -> list[NodeHistory]:
    """The nodes that failed or are slow, by site and name."""
    sites: dict[str, list[Entry]] = {}
    for entry in entries:
        sites.setdefault(entry.site_name, []).append(entry)
    return [node for name in sorted(sites) for node in _read_site(name, sites[name])]


def _read_site(site_name: str, entries: Sequence[Entry]) -> list[NodeHistory]:
    contests = [
        {Machine(node): seconds for node, seconds in contest.items()}
        for entry in entries
        for contest in entry.node_contests
    ]
    slow = {one.machine.host: one for one in find_slow_machines(contests)}
    failures: dict[str, list[tuple[str, str]]] = {}
    for entry in entries:
        for node, time, reason in entry.node_failures:
            failures.setdefault(node, []).append((time, reason))
    return [
        _make_history(site_name, node, failures.get(node, []), slow.get(node), entries)
        for node in sorted({*failures, *slow})
    ]


def _make_history(
    site_name: str,
    node: str,
    failures: Sequence[tuple[str, str]],
    slow: Optional[SlowMachine],
    entries: Sequence[Entry],
) -> NodeHistory:
    last_failed_at, last_reason = max(failures, default=("", ""))
    sound: Iterable[Mapping[str, str]] = (entry.node_sound for entry in entries)
    measured_at = max((times.get(node, "") for times in sound), default="")
    has_measured_since = measured_at > last_failed_at
    return NodeHistory(
        site_name, node, len(failures), last_failed_at, last_reason, has_measured_since, slow
    )
