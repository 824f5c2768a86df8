"""The command audit: do the derived cells of tables follow from the others?"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import add_command
from dlperf_slurm.cli.output import make_console
from dlperf_slurm.errors import CasesFailedError

if TYPE_CHECKING:
    from dlperf_slurm.checks.audit import Audit
    from dlperf_slurm.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add `audit`."""
    text = "which cells of tables do not follow from others"
    command = add_command(commands, "audit", text, run_audit)
    command.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="CSV, Markdown, run, published source"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")


def run_audit(options: argparse.Namespace) -> None:
    """Print what an audit finds; raises CasesFailedError when a cell does not follow."""
    from dlperf_slurm.checks.audit import audit_paths

    audit = audit_paths(options.files)
    if options.json:
        print(json.dumps(dataclasses.asdict(audit), indent=1))
    else:
        _print_audit(audit)
    if audit.findings:
        count = len(audit.findings)
        words = "1 cell does" if count == 1 else f"{count} cells do"
        raise CasesFailedError(f"{words} not follow from the others")


def _print_audit(audit: "Audit") -> None:
    from dlperf_slurm.reports.terminal import print_table

    console = make_console()
    if audit.findings:
        rows = [
            [f.where or f"{f.file}:{f.line}", f.cell, f.published, f.follows, f.kind, f.reason]
            for f in audit.findings
        ]
        header = ["where", "cell", "printed", "follows", "kind", "why"]
        print_table(header, rows, console, title="findings", text_columns=None)
    if audit.not_audited:
        gaps = [[f"{gap.file}:{gap.line}", gap.what, gap.reason] for gap in audit.not_audited]
        header = ["where", "what", "why"]
        print_table(header, gaps, console, title="not audited", text_columns=None)
    print(f"{audit.recomputed} speedups recomputed, {len(audit.findings)} findings", flush=True)
