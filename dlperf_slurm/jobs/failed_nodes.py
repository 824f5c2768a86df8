"""The state and reason of a failed array task -> the failed nodes; a site that excludes them."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm import slurm_client
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.files.reading import read_text
from dlperf_slurm.jobs.disk_space import is_disk_full_reason
from dlperf_slurm.plain_text import count_things

if TYPE_CHECKING:
    from dlperf_slurm.config.site import Site

NODE_FAIL = "NODE_FAIL"
# a check of a node failed, and nothing was measured
UNHEALTHY = "UNHEALTHY"

# a name may begin with a digit, as 2080ti-1, but is no number
_NODE = (
    r"(?:\b(?:node|on)|^a rank could not be started.*; srun:) "
    r"(?=[\d.-]*[A-Za-z])(\w[\w.-]*)\b(?=:| failed|'|$)"
)
_EXCLUDE = r"(?:--exclude[= ]|-x ?)(.+)"
# names and ranges in a host list, such as "n[1-3,7]"
_HOSTS = r"(?:[^\s,\[]|\[[^\]]*\])+"


def parse_failed_nodes(state: str, detail: str) -> list[str]:
    """Return the nodes that a task's reason for failing (`detail`) names, such as ["n2"].

    Empty if a disk was full, or if the reason does not say which node is the cause. `state` is the
    task's, such as NODE_FAIL.
    """
    if state == UNHEALTHY:
        from dlperf_slurm.contract.nodes import find_unhealthy_nodes

        # the output of a check command is free text, and could match _NODE by accident
        return find_unhealthy_nodes(detail)
    found: list[str] = [] if is_disk_full_reason(detail) else re.findall(_NODE, detail)
    return found


def exclude_nodes(site: "Site", nodes: Sequence[str], needed: int) -> "Site":
    """Return the site with `--exclude` for these nodes; unchanged if too few nodes would be left.

    `needed` is the number of nodes of a job. If the site does not say how many nodes it has
    (`max_nodes`), only jobs of one node exclude any. sbatch uses only the last --exclude, hence a
    single option with all nodes.
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


def drop_usable_nodes(
    failed_at: Mapping[str, str], clusters: str, report: Callable[[str], None]
) -> list[str]:
    """Return the nodes that the cluster still has, and that have not been booted since they failed.

    All if the cluster does not answer. `report` is called with a line for each of the others, as
    sbatch refuses a job that excludes a node that has left the cluster. `failed_at` has the time of
    failure in UTC by node, or "" for a node that stays in the list even after a boot. `clusters` is
    the site's setting, "" for this host's cluster.
    """
    booted_at = slurm_client.read_boot_times(clusters) if failed_at else {}
    kept = []
    for node, time in failed_at.items():
        boot = booted_at.get(node, "")
        if booted_at and node not in booted_at:
            report(f"node {node} is not excluded: the cluster no longer has it")
        elif time and boot and datetime.fromisoformat(boot).astimezone() > parse_time(time):
            report(f"node {node} is not excluded: it was rebooted after it failed")
        else:
            kept.append(node)
    return kept


def describe_too_few(site: "Site", needed: int) -> str:
    """Return why `exclude_nodes` excludes no node for jobs of `needed` nodes."""
    size = "is not set" if site.max_nodes is None else f"is {site.max_nodes}"
    nodes = count_things(needed, "node")
    return (
        f"no node is excluded, as too few might be left for a job of {nodes}: in the site file, "
        f"max_nodes (the number of nodes that jobs may use) {size}"
    )


def _exclude(directives: Sequence[str], nodes: Sequence[str]) -> tuple[str, ...]:
    """Return the directives with these nodes added to those of an `--exclude` among them.

    The value of `--exclude` may be a file, which has a slash for sbatch; its nodes are listed then.
    The directives are unchanged if the file cannot be read, as sbatch will say.
    """
    matches = [re.match(_EXCLUDE, line) for line in directives]
    values = [match[1] for match in matches if match]
    try:
        texts = [read_text(Path(value.strip())) if "/" in value else value for value in values]
    except OSError:
        return tuple(directives)
    names = dict.fromkeys([*re.findall(_HOSTS, ",".join(texts)), *nodes])
    kept = [line for line in directives if not re.match(_EXCLUDE, line)]
    return (*kept, f"--exclude={','.join(names)}")
