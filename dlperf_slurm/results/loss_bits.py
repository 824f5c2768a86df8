"""Deterministic repeats of a sweep -> the nodes whose losses differ in a bit from most others'."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlperf_slurm.contract.record import Record
from dlperf_slurm.results.provenance import NOT_COMPARED
from dlperf_slurm.worker.determinism import SWITCH

LEAST_NODES = 3
LEAST_BLOCKS = 2
# facts of the platform that may change how a framework computes
_SOFTWARE = ("cgroup_cpus", "cpus_allowed", "cuda_driver", "gpu_driver", "gpu_mig", "libraries")

# loss and sum of the weights of each rank, after the last step
Bits = tuple[tuple[float, float], ...]


@dataclass
class BitVerdicts:
    """The nodes that compute differently in all of their blocks, or in some, with the reason.

    `notes` says for each group of equal nodes what was compared, or why nothing could be.
    """

    different: dict[str, str] = field(default_factory=dict)
    unsure: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compare_bits(
    records: Mapping[str, Sequence[Record]], kinds: Mapping[str, str], verdicts: BitVerdicts
) -> None:
    """Compare the losses and weights of one case's repeats between nodes, and add to `verdicts`.

    Only nodes with LEAST_BLOCKS or more repeats, all deterministic, are compared: with those of
    their kind (hardware) that have the same software. More than half of them must have computed the
    same bits in all of their blocks.
    """
    groups: dict[object, dict[str, list[Record]]] = {}
    for node, own in records.items():
        if len(own) >= LEAST_BLOCKS and all(map(is_deterministic, own)):
            alike = (kinds.get(node, ""), _list_software(own[0]))
            groups.setdefault(alike, {})[node] = list(own)
    for group in groups.values():
        if len(group) < LEAST_NODES:
            verdicts.notes.append(
                f"{', '.join(group)}: losses and weights not compared bitwise: fewer than "
                f"{LEAST_NODES} nodes have this hardware and software"
            )
            continue
        steps = {
            (record.warmup_steps, record.measured_steps, record.case.seed)
            for own in group.values()
            for record in own
        }
        if len(steps) > 1:
            verdicts.notes.append(
                "losses and weights not compared bitwise: the number of steps or the seed differs"
            )
            continue
        bits = {
            node: [tuple((rank.final_loss, rank.weight_sum) for rank in r.ranks) for r in own]
            for node, own in group.items()
        }
        _compare_group(bits, verdicts)


def is_deterministic(record: Record) -> bool:
    """Return whether a repeat had deterministic kernels switched on; False for imported logs."""
    return record.platform.get(f"env.{SWITCH}") == "1" and not record.case.log_format


def _list_software(record: Record) -> frozenset[tuple[str, str]]:
    names = [name for name in record.platform if name in _SOFTWARE or name.startswith("env.")]
    facts = {**{name: record.platform[name] for name in names}, **record.versions}
    return frozenset((name, facts[name]) for name in facts if name not in NOT_COMPARED)


def _compare_group(bits: Mapping[str, Sequence[Bits]], verdicts: BitVerdicts) -> None:
    """Add the verdicts on equal nodes; `bits` has the losses and weights of each block, by node."""
    varying = [node for node, own in bits.items() if len({*own}) > 1]
    counts = Counter(own[0] for node, own in bits.items() if node not in varying)
    usual, count = counts.most_common(1)[0] if counts else (None, 0)
    if usual is None or 2 * count <= len(bits):
        why = f"no more than half of the {len(bits)} nodes have bitwise equal results"
        if 2 * len(varying) >= len(bits):
            why = (
                f"on {len(varying)} nodes they are not deterministic: different blocks of repeats "
                "have different losses or weights"
            )
        verdicts.notes.append(f"losses and weights are not compared bitwise: {why}")
        return
    verdicts.notes.append(f"losses and weights are bitwise equal on {count} of {len(bits)} nodes")
    for node, own in bits.items():
        others = [one for one in own if one != usual]
        if others:
            words = f"in {len(others)} of {len(own)} blocks, losses or weights"
            words += f"{_name_ranks(usual, others)} differ bitwise from the equal results of "
            words += f"{count} other nodes"
            if len(others) == len(own):
                verdicts.different[node] = words
            else:
                verdicts.unsure[node] = f"{words}; to decide, sweep again with more --blocks"


def _name_ranks(usual: Bits, others: Sequence[Bits]) -> str:
    """Return " of rank 1, 3", the ranks whose bits differ from `usual`; "" if all ranks' do."""
    found = {
        rank
        for other in others
        for rank, (one, right) in enumerate(zip(other, usual))
        if one != right
    }
    return f" of rank {', '.join(map(str, sorted(found)))}" if len(found) < len(usual) else ""
