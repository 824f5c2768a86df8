"""What earlier runs say of a site's nodes -> those that a submission leaves out, said aloud."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.output import say, warn

if TYPE_CHECKING:
    from dlperf_slurm.config.site import LoadedSite
    from dlperf_slurm.jobs.plan import Plan


def leave_out_bad_nodes(loaded: "LoadedSite", plan: "Plan", results: Path) -> "LoadedSite":
    """The site whose jobs run on none of its bad nodes; itself where too few others may be left."""
    from dlperf_slurm.jobs.failed_nodes import describe_too_few, exclude_nodes

    nodes = list_bad_nodes(results, loaded.name)
    needed = max((group.topology.nodes for group in plan.groups), default=1)
    site = exclude_nodes(loaded.site, nodes, needed)
    if nodes and site is loaded.site:
        warn(describe_too_few(site, needed))
    return dataclasses.replace(loaded, site=site)


def list_bad_nodes(results: Path, site_name: str) -> list[str]:
    """The nodes of a site that failed and have not measured since, or are slow; each is named."""
    from dlperf_slurm.jobs.run_directory import list_run_ids
    from dlperf_slurm.reports.history_text import describe_node
    from dlperf_slurm.results.history.catalogue import read_catalogue
    from dlperf_slurm.results.history.nodes import read_node_histories

    if not list_run_ids(results):
        return []
    histories = read_node_histories(read_catalogue(results).entries)
    bad = [node for node in histories if node.site_name == site_name and node.is_bad]
    for node in bad:
        say(f"bad {describe_node(node)}")
    return [node.node for node in bad]
