"""What every rank tells of its host and itself -> the facts of rank 0's host, and what differs."""

from typing import Dict, List, Tuple

from dlperf_slurm.contract.record import HostPlatform

Facts = Dict[str, str]

# host of a rank, what is true of the host (its first rank tells it), what is of the rank
Told = Tuple[str, Facts, Facts]


def merge_platforms(told: List[Told]) -> Tuple[Facts, Tuple[HostPlatform, ...]]:
    """`Record.platform` and `Record.hosts` of what the ranks told, by rank.

    Nothing of nothing, as on ranks to which nothing was gathered.
    """
    ranks: Dict[str, List[Told]] = {}
    for one in told:
        ranks.setdefault(one[0], []).append(one)
    merged = {host: _merge_ranks(of_host) for host, of_host in ranks.items()}
    if not merged:
        return {}, ()
    platform = next(iter(merged.values()))
    differing = (HostPlatform(host, _find_other(facts, platform)) for host, facts in merged.items())
    return platform, tuple(host for host in differing if host.facts)


def _merge_ranks(ranks: List[Told]) -> Facts:
    """A fact on which the ranks of a host differ has all their values, by local rank."""
    facts: Facts = {}
    for _, of_host, _ in ranks:
        facts.update(of_host)
    for name in dict.fromkeys(name for _, _, of_rank in ranks for name in of_rank):
        values = [of_rank.get(name, "") for _, _, of_rank in ranks]
        same = len(set(values)) == 1
        facts[name] = values[0] if same else "; ".join(value or "none" for value in values)
    return facts


def _find_other(facts: Facts, platform: Facts) -> Facts:
    """What is not as in `platform`, "" for what is missing."""
    names = dict.fromkeys([*facts, *platform])
    return {
        name: facts.get(name, "") for name in names if facts.get(name, "") != platform.get(name, "")
    }
