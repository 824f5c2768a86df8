"""What a node is to do before the ranks start -> its report, and a failure if it is not fit.

Runs once on each node of a job, on the host, in one process without MPI.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import List

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.nodes import (
    NodeCopy,
    NodeReport,
    make_node_failure,
    read_node_work,
    write_node_report,
)
from dlperf_slurm.contract.record import FAILURES_DIR
from dlperf_slurm.worker.nodes.checks import check_node
from dlperf_slurm.worker.nodes.copies import CopyError, copy_dataset
from dlperf_slurm.worker.nodes.lines import run_lines


def prepare_node(work_file: Path, attempt_dir: Path) -> int:
    """Set this node up, look whether it is fit, and copy the case's data to it; 0 if all is well.

    What comes first spares the rest: a node that is not fit copies nothing. A node that fails says
    why in a file of `failures`, of which the record is made.
    """
    # the warning before the time limit is for ranks
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    work = read_node_work(work_file)
    case = read_json(attempt_dir / CASE_FILE, Case)
    problems: List[str] = []
    unknown: List[str] = []
    copies: List[NodeCopy] = []

    started = time.monotonic()
    problems += run_lines(work.setup, "setup", work.timeout_seconds)
    set_up = time.monotonic()
    if not problems:
        problems, unknown = check_node(work.check, case, work.timeout_seconds)
    checked = time.monotonic()
    if not problems and case.data_dir in work.copies:
        try:
            copies.append(copy_dataset(case.data_dir, work.copies[case.data_dir], os.environ))
        except CopyError as error:
            problems.append(str(error))

    report = NodeReport(
        node=find_node_name(),
        host=socket.gethostname(),
        setup_seconds=set_up - started,
        check_seconds=checked - set_up,
        problems=tuple(problems),
        unknown=tuple(unknown),
        copies=tuple(copies),
    )
    for words in report.unknown:
        print(f"node {report.node}: {words}", file=sys.stderr, flush=True)
    write_node_report(attempt_dir, report)
    return fail(report, attempt_dir) if problems else 0


def find_node_name() -> str:
    """The name of this node as Slurm has it; its host name where there is no Slurm."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def fail(report: NodeReport, attempt_dir: Path) -> int:
    """Say why this node is not fit, in words and in a file; the exit code of its process."""
    failure = make_node_failure(report)
    print(failure.message, file=sys.stderr, flush=True)
    folder = attempt_dir / FAILURES_DIR
    folder.mkdir(exist_ok=True)
    write_json(folder / f"node-{report.node}.json", failure)
    return 1
