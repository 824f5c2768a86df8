"""What the nodes of a job do before its ranks start, and what each says of itself: JSON files."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from dlperf_slurm.contract.json_files import ContractError, build_dataclass
from dlperf_slurm.contract.record import Failure, Record
from dlperf_slurm.files import FileProblem, reading
from dlperf_slurm.files.writing import write_file

# in the folder of a start: a file for each node that made ready
NODES_DIR = "nodes"
# the `error` of a failure that is a node's, and no rank's
UNHEALTHY_NODE = "UnhealthyNode"
_UNHEALTHY = re.compile(r"(?:^|; )node ([\w.-]+) is unhealthy: ")


@dataclasses.dataclass(frozen=True)
class NodeChecks:
    """What is asked of a node; nothing is by default.

    `xid_hours` is how far back the kernel's log may have no Xid error of the hardware, 0 is not at
    all. The others are as in a site file's [node.check].
    """

    devices: bool = False
    ecc: bool = False
    xid_hours: float = 0.0
    clocks: bool = False
    stale_processes: bool = False
    free_memory_mib: int = 0
    free_device_memory_mib: int = 0
    commands: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class NodeWork:
    """All that each node of a job does; a line of bash or a check may take `timeout_seconds`.

    `copies` says by the path of a data set where on the node it is copied to.
    """

    setup: Tuple[str, ...]
    check: NodeChecks
    timeout_seconds: float
    copies: Dict[str, str]


@dataclasses.dataclass(frozen=True)
class NodeCopy:
    """A data set on a node; `was_there` says that an earlier job had copied it."""

    source: str
    path: str
    files: int
    size_bytes: int
    seconds: float
    was_there: bool


@dataclasses.dataclass(frozen=True)
class NodeReport:
    """What a node did, and found of itself: it is fit to measure if it has no `problems`.

    `node` is its name in Slurm, `host` its own. `unknown` is what it could not be asked.
    """

    node: str
    host: str
    setup_seconds: float
    check_seconds: float
    problems: Tuple[str, ...] = ()
    unknown: Tuple[str, ...] = ()
    copies: Tuple[NodeCopy, ...] = ()


def format_node_work(work: NodeWork) -> str:
    """The text of the file that a job script hands to its nodes."""
    return json.dumps(dataclasses.asdict(work), indent=1, sort_keys=True) + "\n"


def read_node_work(path: Path) -> NodeWork:
    """Raises ContractError for a file that cannot be used, FileNotFoundError for none."""
    try:
        return build_dataclass(NodeWork, reading.read_json(path), str(path), is_complete=True)
    except FileProblem as error:
        raise ContractError(str(error)) from error


def write_node_report(folder: Path, report: NodeReport) -> None:
    """Write it into the folder of a start as `write_file` does, and raise as it does."""
    text = json.dumps(dataclasses.asdict(report), indent=1, sort_keys=True) + "\n"
    (folder / NODES_DIR).mkdir(exist_ok=True)
    write_file(folder / NODES_DIR / f"{report.node}.json", text.encode())


def read_node_reports(folder: Path) -> List[NodeReport]:
    """What all nodes of a start reported, by name; raises ContractError for a report of no use."""
    return list(_read_reports(folder))


def _read_reports(folder: Path) -> Iterator[NodeReport]:
    for path in sorted((folder / NODES_DIR).glob("*.json")):
        try:
            data = reading.read_json(path, root=folder)
        except FileProblem as error:
            raise ContractError(str(error)) from error
        yield build_dataclass(NodeReport, data, str(path), is_complete=True)


def make_node_failure(report: NodeReport) -> Failure:
    """The failure of a node that is not fit to measure."""
    return Failure(
        rank=-1,
        host=report.node,
        error=UNHEALTHY_NODE,
        message=f"node {report.node} is unhealthy: {', '.join(report.problems)}",
        traceback="",
        is_out_of_memory=False,
    )


def describe_unhealthy(record: Record) -> str:
    """Which nodes were not fit to measure, and why; empty for a record that ended otherwise."""
    return "; ".join(f.message for f in record.failures if f.error == UNHEALTHY_NODE)


def find_unhealthy_nodes(text: str) -> List[str]:
    """The names of the nodes in a text that `describe_unhealthy` made."""
    return _UNHEALTHY.findall(text)
