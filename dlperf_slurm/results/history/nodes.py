"""The entries of runs -> the nodes that failed or are slow."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.results.history.entries import read_facts
from dlperf_slurm.stats.stragglers import Machine, SlowMachine, find_slow_machines

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class NodeHistory:
    """A node of a site that failed, did not pass its health check, or is slow.

    `failures` counts array tasks that failed, `measured` valid repeats; `last_reason` is that of
    the last failure; `has_measured_since`: a repeat on the node was valid after it. `slow` is set
    if the node was the slowest of those that did the same work more often than by chance.
    """

    site_name: str
    node: str
    failures: int
    measured: int
    last_failed_at: str
    last_reason: str
    has_measured_since: bool
    slow: Optional[SlowMachine]

    @property
    def is_bad(self) -> bool:
        """Whether jobs should avoid the node: slow, or without a valid repeat since a failure."""
        return self.slow is not None or (self.failures > 0 and not self.has_measured_since)


def read_node_histories(entries: "DataFrame") -> list[NodeHistory]:
    """Return the nodes that failed or are slow, sorted by site and name, from history entries."""
    sites = entries.groupby("site_name")
    return [node for name, own in sites for node in _read_site(name, own)]


def _read_site(site_name: str, entries: "DataFrame") -> list[NodeHistory]:
    """Return the nodes of one site that failed or are slow; `entries` are those of the site."""
    make_machine = cache(Machine)
    contests = [
        {make_machine(node): seconds for node, seconds in contest.items()}
        for text in entries.node_contests
        for contest in read_facts(text)
    ]
    slow = {one.machine.host: one for one in find_slow_machines(contests)}
    failures: dict[str, list[tuple[str, str]]] = {}
    for text in entries.node_failures:
        for node, time, reason in read_facts(text):
            failures.setdefault(node, []).append((time, reason))
    sound: dict[str, tuple[str, int]] = {}
    for text in entries.node_sound:
        for node, (time, count) in read_facts(text).items():
            last, before = sound.get(node, ("", 0))
            sound[node] = max(time, last), before + count
    histories = []
    for node in sorted({*failures, *slow}):
        own = failures.get(node, [])
        failed_at, reason = max(own, default=("", ""))
        measured_at, measured = sound.get(node, ("", 0))
        since = measured_at > failed_at
        histories.append(
            NodeHistory(
                *(site_name, node, len(own), measured, failed_at, reason, since, slow.get(node))
            )
        )
    return histories
