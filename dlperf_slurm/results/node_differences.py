"""Records of runs -> the facts, such as a driver, in which nodes differ from most of their kind."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.record import Record
from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.history.nodes import get_node_name
from dlperf_slurm.results.provenance import NOT_COMPARED, OF_RUN, list_hosts, quote

# facts by which nodes are of one kind; all other facts are compared within a kind
KIND = ("gpu_models", "cpu_model")
# the code may differ between runs that are compared
_OF_MACHINE = frozenset(OF_RUN) - {"code_digest"}

# (run id, case id), or ("", "") for facts of the machine, which no case changes
Scope = tuple[str, str]
# scope -> fact -> node -> its last recorded value
NodeFacts = Mapping[Scope, Mapping[str, Mapping[str, str]]]
_MACHINE: Scope = ("", "")


@dataclass(frozen=True)
class NodeDifference:
    """A value of a fact that only the `nodes` have, while most nodes of their kind have another.

    `usual` is the value of more than half of the `compared` nodes, or None; "" is a fact that was
    not recorded. `kind` is "" if all nodes are of one kind, and for the facts that make a kind.
    """

    fact: str
    usual: Optional[str]
    value: str
    nodes: tuple[str, ...]
    compared: int
    kind: str = ""

    def describe(self) -> str:
        """Describe the difference: "gpu_driver '550.54' (most: '570.86')"."""
        most = "no majority" if self.usual is None else f"most: {quote(self.usual)}"
        return f"{self.fact} {quote(self.value)} ({most})"


def read_node_facts(runs: Iterable[tuple[Manifest, Sequence[CaseOutcomes]]]) -> NodeFacts:
    """Return the last recorded value of each fact of each node: {scope: {fact: {node: value}}}.

    A scope is (run id, case id), or ("", "") for facts of the machine. A failed repeat counts only
    on nodes without others: a failed record was written outside the ranks' container, so that its
    missing facts mean nothing.
    """
    found: dict[Scope, dict[str, dict[str, str]]] = {}
    records = [
        (outcome.record is not None, record.ended_at, manifest.run_id, record)
        for manifest, cases in runs
        for case in cases
        for outcome in case.outcomes
        for record in [outcome.record or outcome.failed_record]
        if record
    ]
    for is_valid, _, run_id, record in sorted(records, key=lambda one: one[:2]):
        for node, facts in _list_nodes(record):
            for name, value in {**facts, **_list_troubles(record, node)}.items():
                is_of_machine = name in _OF_MACHINE
                if name in NOT_COMPARED or not (value if is_of_machine else is_valid):
                    continue
                scope = _MACHINE if is_of_machine else (run_id, record.case.case_id)
                found.setdefault(scope, {}).setdefault(name, {})[node] = value
    return found


def _list_nodes(record: Record) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield Slurm's name of each node of a record, and its facts."""
    node = record.job.get("SLURM_JOB_NODELIST", "")
    if record.case.nodes == 1 and node:
        # use Slurm's node name: a rank's host name may be a container's, or unknown, as in a log
        yield node, {**record.platform, **record.versions}
    else:
        for host, facts in list_hosts(record):
            if host:
                yield get_node_name(host), facts


def _list_troubles(record: Record, node: str) -> dict[str, str]:
    """Return a node's throttle reasons and growing error counters, by these names; "" if none."""
    own = [
        one for one in record.telemetry if record.case.nodes == 1 or get_node_name(one.host) == node
    ]
    found = {
        "throttle reasons": {reason for one in own for reason in one.throttle_reasons},
        "growing error counters": {name for one in own for name in one.errors},
    }
    return {name: ", ".join(sorted(values)) for name, values in found.items()}


def name_kinds(facts: NodeFacts) -> dict[str, str]:
    """Return each node's kind: the values of KIND that differ between nodes; "" if none do."""
    own = [facts.get(_MACHINE, {}).get(name, {}) for name in KIND]
    names = [values for values in own if len({*values.values()}) > 1]
    return {
        node: ", ".join(filter(None, (values.get(node, "") for values in names)))
        for node in sorted({node for values in own for node in values})
    }


def list_differences(facts: NodeFacts) -> list[NodeDifference]:
    """List the values of facts that differ from those of most nodes of a kind, the rarest first.

    A fact with another value on each of more than two nodes identifies them, and is left out.
    """
    kinds = name_kinds(facts)
    found: dict[tuple[str, str, Optional[str], str], dict[str, None]] = {}
    compared: Counter[tuple[str, str]] = Counter()
    for scope, by_name in facts.items():
        measured = dict.fromkeys(node for values in by_name.values() for node in values)
        for name, known in by_name.items():
            # a missing fact of the machine may just have been invisible to the job: leave it out
            values = known if scope == _MACHINE else {n: known.get(n, "") for n in measured}
            of_kind: dict[str, dict[str, str]] = {}
            for node, value in values.items():
                kind = "" if name in KIND else kinds.get(node, "")
                of_kind.setdefault(kind, {})[node] = value
            for kind, own in of_kind.items():
                counts = Counter(own.values())
                if len(counts) == 1 or len(counts) == len(own) > 2:
                    continue
                compared[name, kind] = max(compared[name, kind], len(own))
                (most, count), *_ = counts.most_common(1)
                usual = most if 2 * count > len(own) else None
                for node, value in own.items():
                    if value != usual:
                        found.setdefault((name, kind, usual, value), {})[node] = None
    rows = [
        NodeDifference(name, usual, value, tuple(nodes), compared[name, kind], kind)
        for (name, kind, usual, value), nodes in found.items()
    ]
    return sorted(rows, key=lambda row: len(row.nodes))
