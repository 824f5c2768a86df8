"""Setup commands, checks and data copies of a node -> its report, and a failure if one failed.

Runs once on each node of a job before the ranks start, on the host, in one process without MPI.
"""

import os
import signal
import socket
import sys
import time
from itertools import islice
from pathlib import Path
from typing import List

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, read_sidecar, write_json
from dlperf_slurm.contract.nodes import (
    NodeCopy,
    NodeReport,
    NodeWork,
    make_node_failure,
    write_node_report,
)
from dlperf_slurm.contract.record import FAILURES_DIR
from dlperf_slurm.worker.nodes.checks import check_node
from dlperf_slurm.worker.nodes.commands import run_line
from dlperf_slurm.worker.nodes.copies import CopyError, copy_dataset


def prepare_node(work_file: Path, attempt_dir: Path) -> int:
    """Run the setup commands, check this node and copy the case's data to it; return 0 or 1.

    `work_file` has the site's NodeWork. Each stage runs only if those before it found no problem. A
    node with problems also writes a failure, from which the failed record is made.
    """
    # the warning before the time limit is meant for ranks
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    work = read_sidecar(work_file, NodeWork)
    case = read_json(attempt_dir / CASE_FILE, Case)
    unknown: List[str] = []
    copies: List[NodeCopy] = []

    started = time.monotonic()
    found = (run_line(line, "setup", work.timeout_seconds) for line in work.setup)
    # later lines may need the first one that failed
    problems = list(islice(filter(None, found), 1))
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
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
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
    if not problems:
        return 0
    failure = make_node_failure(report)
    print(failure.message, file=sys.stderr, flush=True)
    folder = attempt_dir / FAILURES_DIR
    folder.mkdir(exist_ok=True)
    write_json(folder / f"node-{report.node}.json", failure)
    return 1
