"""A case whose data was copied to its nodes -> the case as a rank reads it there."""

import os
import socket
from dataclasses import replace
from pathlib import Path

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.nodes import NODES_DIR, read_node_reports

# a search starts its ranks in folders below that of the start
_FOLDERS_ABOVE = 2


def read_on_node(case: Case, attempt_dir: Path) -> Case:
    """The case with the folder of this node's copy of its data, if there is one.

    A container may have a name of its own: there the folder is that of all nodes, where they agree.
    Raises FileNotFoundError where they do not, and ContractError for a report that cannot be used.
    """
    folders = [attempt_dir, *list(attempt_dir.parents)[:_FOLDERS_ABOVE]]
    start = next((folder for folder in folders if (folder / NODES_DIR).is_dir()), None)
    if not case.data_dir or start is None:
        return case
    own = {os.environ.get("SLURMD_NODENAME", ""), socket.gethostname()}
    reports = read_node_reports(start)
    here = [one for one in reports if own & {one.node, one.host}] or reports
    paths = {c.path for one in here for c in one.copies if c.source == case.data_dir}
    if not paths:
        return case
    if len(paths) > 1:
        raise FileNotFoundError(f"no copy of {case.data_dir} is of {socket.gethostname()}")
    return replace(case, data_dir=paths.pop())
