"""How an array task ended -> the nodes that are named as its cause; and a site without these."""

import re
from collections.abc import Sequence

from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.nodes import find_unhealthy_nodes
from dlperf_slurm.jobs.room import is_for_want_of_room

NODE_FAIL = "NODE_FAIL"
# a node was not fit to measure, and nothing was measured
UNHEALTHY = "UNHEALTHY"

_NODE = re.compile(r"\b(?:node|on) ([A-Za-z][\w.-]*)\b(?=:| failed|'|$)")
_EXCLUDE = re.compile(r"(?:--exclude[= ]|-x ?)(.+)")


def find_failed_nodes(state: str, detail: str) -> list[str]:
    """The nodes that a state and its reason name; none where all nodes share the cause."""
    if state == UNHEALTHY:
        # what a check says of its own may name all sorts of things
        return find_unhealthy_nodes(detail)
    found: list[str] = [] if is_for_want_of_room(detail) else _NODE.findall(detail)
    return found


def exclude_nodes(site: Site, nodes: Sequence[str], needed: int) -> Site:
    """The site whose jobs do not run on these nodes; itself where fewer than `needed` may be left.

    What a site does not say of its size is enough for jobs of one node alone.

    sbatch heeds the last --exclude alone, hence one for all.
    """
    left = 1 if site.max_nodes is None else site.max_nodes - len(nodes)
    if not nodes or left < needed:
        return site
    overrides = [
        override.model_copy(update={"directives": _exclude(override.directives, nodes)})
        if "directives" in override.model_fields_set
        else override
        for override in site.override
    ]
    directives = _exclude(site.directives, nodes)
    return site.model_copy(update={"directives": directives, "override": tuple(overrides)})


def describe_too_few(site: Site, needed: int) -> str:
    """Why `exclude_nodes` leaves no node out where jobs need so many."""
    size = "does not say its max_nodes" if site.max_nodes is None else f"has {site.max_nodes}"
    return f"no node is left out: a job takes {needed}, and the site {size}"


def _exclude(directives: Sequence[str], nodes: Sequence[str]) -> tuple[str, ...]:
    matches = [_EXCLUDE.match(line) for line in directives]
    before = [name for match in matches if match for name in match[1].split(",")]
    names = dict.fromkeys([*before, *nodes])
    kept = [line for line in directives if not _EXCLUDE.match(line)]
    return (*kept, f"--exclude={','.join(names)}")
