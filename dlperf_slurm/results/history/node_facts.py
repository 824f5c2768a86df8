"""Records and a journal -> facts about nodes: when each failed, and how fast it was."""

from collections.abc import Iterable, Sequence

from dlperf_slurm.contract.record import Record
from dlperf_slurm.jobs.failed_nodes import NODE_FAIL, UNHEALTHY, parse_failed_nodes
from dlperf_slurm.jobs.journal import STATE, Event


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
