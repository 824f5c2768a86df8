"""Facts about nodes in records and journals -> the nodes that failed or are slow."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.record import Record
from dlperf_slurm.jobs.failed_nodes import NODE_FAIL, UNHEALTHY, parse_failed_nodes
from dlperf_slurm.jobs.journal import STATE, Event
from dlperf_slurm.results.history.run_cache import read_facts
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


def _read_site(site_name: str, entries: "DataFrame") -> Iterator[NodeHistory]:
    """Yield the nodes of one site that failed or are slow; `entries` are those of the site."""
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
    for node in sorted({*failures, *slow}):
        own = failures.get(node, [])
        failed_at, reason = max(own, default=("", ""))
        measured_at, measured = sound.get(node, ("", 0))
        since = measured_at > failed_at
        yield NodeHistory(
            *(site_name, node, len(own), measured, failed_at, reason, since, slow.get(node))
        )


# facts about the nodes of a single run, for its history entries


def list_node_failures(events: Iterable[Event]) -> list[list[str]]:
    """List [node, time, reason] of each node failure or failed health check in journal events."""
    return [
        [node, event.time, event.detail]
        for event in events
        if event.event == STATE and event.state in (NODE_FAIL, UNHEALTHY)
        for node in parse_failed_nodes(event.state, event.detail)
    ]


def list_valid_repeats(records: Sequence[Record]) -> dict[str, tuple[str, int]]:
    """Return by node the end of its last repeat with a valid record, and the number of these."""
    found: dict[str, tuple[str, int]] = {}
    for record in records:
        for node in {get_node_name(host) for host in {rank.host for rank in record.ranks}}:
            time, count = found.get(node, ("", 0))
            found[node] = max(time, record.ended_at), count + 1
    return dict(sorted(found.items()))


def group_comparable_nodes(records: Sequence[Record]) -> list[dict[str, float]]:
    """Group nodes that did the same work; return each group as {node: seconds of measured steps}.

    A group is the nodes of one repeat (the slowest rank of each), or the nodes that ran single-node
    repeats of the case: the first repeat of each node, the second, and so on.
    """
    contests: list[dict[str, float]] = []
    alone: dict[str, list[float]] = {}
    for record in records:
        seconds: dict[str, float] = {}
        for rank in record.ranks:
            node = get_node_name(rank.host)
            seconds[node] = max(seconds.get(node, 0.0), rank.window_seconds)
        if len(seconds) > 1:
            contests.append(seconds)
        else:
            for node, window_seconds in seconds.items():
                alone.setdefault(node, []).append(window_seconds)
    for repeat in range(max(map(len, alone.values()), default=0)):
        nodes = sorted(node for node, seconds in alone.items() if len(seconds) > repeat)
        if len(nodes) > 1:
            contests.append({node: alone[node][repeat] for node in nodes})
    return contests


def get_node_name(host: str) -> str:
    """Return Slurm's name of a node from its host name: without the domain."""
    return host.partition(".")[0]
