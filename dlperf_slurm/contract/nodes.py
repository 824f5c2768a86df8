"""The node work (setup, checks, copies) before ranks start, and node reports, as JSON files."""

import dataclasses
import re
from pathlib import Path
from typing import Dict, List, Tuple

from dlperf_slurm.contract.json_files import format_json, read_sidecar, write_sidecar
from dlperf_slurm.contract.record import Failure, Record

# in the folder of a start: one report file per node
NODES_DIR = "nodes"
# the `error` of a failure of a node, not of a rank
UNHEALTHY_NODE = "UnhealthyNode"
_UNHEALTHY = re.compile(r"(?:^|; )node ([\w.-]+) is unhealthy: ")


@dataclasses.dataclass(frozen=True)
class NodeChecks:
    """The checks of a node, as in [node.check] of a site file; none by default."""

    devices: bool = False
    ecc: bool = False
    xid_hours: float = 0.0
    clocks: bool = False
    links: bool = False
    ports: bool = False
    stale_processes: bool = False
    free_memory_mib: int = 0
    free_device_memory_mib: int = 0
    open_files: int = 0
    locked_memory_mib: int = 0
    shared_memory_mib: int = 0
    commands: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class NodeWork:
    """The work of each node of a job before the ranks start.

    `timeout_seconds` is the limit for each line of setup and each check. `copies` maps the path of
    a data set to the path of its copy on the node.
    """

    setup: Tuple[str, ...]
    check: NodeChecks
    timeout_seconds: float
    copies: Dict[str, str]


@dataclasses.dataclass(frozen=True)
class NodeCopy:
    """A copy of a data set on a node; `was_there` if an earlier job had made it."""

    source: str
    path: str
    files: int
    size_bytes: int
    seconds: float
    was_there: bool


@dataclasses.dataclass(frozen=True)
class NodeReport:
    """The report of a node on its setup, checks and data copies.

    A node with `problems` is UNHEALTHY. `node` is the name in Slurm, `host` the host name.
    `unknown` lists checks without a result.
    """

    node: str
    host: str
    setup_seconds: float
    check_seconds: float
    problems: Tuple[str, ...] = ()
    unknown: Tuple[str, ...] = ()
    copies: Tuple[NodeCopy, ...] = ()


def format_node_work(work: NodeWork) -> str:
    """Format node work (a node's setup, checks and data copies) as JSON, for the job script."""
    return format_json(dataclasses.asdict(work))


def write_node_report(folder: Path, report: NodeReport) -> None:
    """Write a node's report into the attempt's folder; raises FileProblem if that fails."""
    (folder / NODES_DIR).mkdir(exist_ok=True)
    write_sidecar(folder / NODES_DIR / f"{report.node}.json", report)


def read_node_reports(folder: Path) -> List[NodeReport]:
    """Read an attempt's node reports, sorted by node name; raises FileProblem if one is invalid."""
    paths = sorted((folder / NODES_DIR).glob("*.json"))
    return [read_sidecar(path, NodeReport, root=folder) for path in paths]


def make_node_failure(report: NodeReport) -> Failure:
    """Make the Failure of an unhealthy node, with the problems that its report lists."""
    return Failure(
        rank=-1,
        host=report.node,
        error=UNHEALTHY_NODE,
        message=f"node {report.node} is unhealthy: {', '.join(report.problems)}",
        traceback="",
        is_out_of_memory=False,
    )


def describe_unhealthy(record: Record) -> str:
    """Describe the unhealthy nodes of a record and their problems, or ''."""
    return "; ".join(f.message for f in record.failures if f.error == UNHEALTHY_NODE)


def find_unhealthy_nodes(text: str) -> List[str]:
    """Parse the text that `describe_unhealthy` made; return the names of the nodes in it."""
    return _UNHEALTHY.findall(text)
