"""The command import-logs: logs of runs made elsewhere -> records, and a run to report on."""

import argparse
import dataclasses
import itertools
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.cli.options import (
    add_command,
    add_json_option,
    add_results_option,
    add_set_option,
)
from dlperf_slurm.cli.output import make_console, print_json
from dlperf_slurm.errors import CasesFailedError, InputError
from dlperf_slurm.plain_text import make_one_line
from dlperf_slurm.program import COMMAND, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.logs.runs import ImportedRun

# A larger relative difference between the publisher's rule and ours is printed.
NOTED_DIFFERENCE = 0.02
PARTIAL = " *"


def add_commands(commands: "Commands") -> None:
    """Add the command `import-logs` to the parser."""
    command = add_command(commands, "import-logs", run_import_logs)
    command.add_argument(
        "logs", nargs="+", type=Path, metavar="LOG", help="log file, or directory of logs"
    )
    command.add_argument("--format", help="log format; default: detected in each log")
    text = (
        "TOML file that defines log formats of your own, in tables [formats.NAME]; examples: "
        f"{COMMAND} docs logs"
    )
    command.add_argument("--format-file", type=Path, metavar="FILE", help=text)
    text = (
        "rule that computes the throughput from a log as the log's publisher does (default: the "
        "format's rule)"
    )
    command.add_argument("--rule", help=text)
    text = "set a value that the logs lack: devices, nodes, batch_size_per_device, precision, ..."
    add_set_option(command, text)
    command.add_argument("--name", default="logs", help="name of the run (default: logs)")
    command.add_argument(
        "--dry-run", action="store_true", help="show what would be imported; write nothing"
    )
    add_json_option(command)
    add_results_option(command)


def run_import_logs(options: argparse.Namespace) -> None:
    """Read logs of runs made elsewhere, and write a run directory with their results.

    With --dry-run, only print them. Raises InputError for a log that cannot be read; at the end,
    CasesFailedError if a log is of a run that is incomplete, failed, or lacks a setting.
    """
    from dlperf_slurm.contract.record import OK
    from dlperf_slurm.logs import FormatError
    from dlperf_slurm.logs.runs import MEASURED, ImportOptions, import_log
    from dlperf_slurm.published import import_options
    from dlperf_slurm.published.import_groups import join_ranks
    from dlperf_slurm.published.nvidia_report import read_report

    tables = import_options.read_format_file(options.format_file) if options.format_file else {}
    settings = import_options.parse_settings(options.set)
    chosen = ImportOptions(options.format or "", options.rule or "", settings, tables)
    import_options.check_options(chosen)
    try:
        imported = [
            run
            for path in import_options.list_logs(options.logs)
            for run in read_report(path, chosen) or import_log(path, chosen)
        ]
    except FormatError as error:
        raise InputError(str(error)) from error
    runs = join_ranks(imported)
    for run in runs:
        for note in run.notes:
            print(f"{PROGRAM}: warning: {make_one_line(run.log)}: {note}", file=sys.stderr)
    if options.json:
        print_json([_describe(run) for run in runs])
    else:
        _print_runs(runs)
    if not options.dry_run:
        _write_run(runs, options)
    fine = (OK, MEASURED) if options.dry_run else (OK,)
    failed = sum(run.status not in fine for run in runs)
    if failed:
        raise CasesFailedError(
            f"{failed} of {len(runs)} runs in the logs are incomplete or failed; see above"
        )


def _describe(run: "ImportedRun") -> dict[str, object]:
    """Return an imported run as JSON object: status, throughputs, `identity` (settings), notes."""
    return {
        "log": run.log,
        "format": run.format_name,
        "status": run.status,
        "reason": run.reason,
        "measured": run.measured,
        "samples_per_s": run.samples_per_s,
        "publisher_samples_per_s": run.publisher_samples_per_s,
        "publisher_rule": run.publisher_rule,
        "prints": run.prints,
        "identity": dataclasses.asdict(run.identity),
        "notes": list(run.notes),
    }


def _print_runs(runs: "Sequence[ImportedRun]") -> None:
    from dlperf_slurm.contract.record import OK
    from dlperf_slurm.reports.terminal import print_table

    runs = [dataclasses.replace(run, log=make_one_line(run.log)) for run in runs]
    header = ["log", "format", "what", "status", "measured", "samples/s", "publisher's", "differs"]
    folder = _find_common_folder([run.log for run in runs])
    rows = [_make_row(run, folder) for run in runs]
    if any(run.prints for run in runs):
        header.append("prints")
        for row, run in zip(rows, runs):
            row.append(", ".join(f"{value:.4g} {unit}" for unit, value in run.prints.items()))
    title = f"logs below {folder}" if folder else ""
    print_table(header, rows, make_console(), title, text_columns=5)
    for run in runs:
        if run.reason:
            print(f"{run.log}: {run.reason}")
    rules = dict.fromkeys(
        (run.format_name, run.publisher_rule) for run in runs if run.publisher_samples_per_s
    )
    if any(run.status != OK and run.publisher_samples_per_s for run in runs):
        words = "incomplete log: its throughput is computed from the lines that the log has"
        print(f"{PARTIAL.strip()} {words}")
    for format_name, rule in rules:
        print(f"throughput of {format_name} logs by the publisher's rule: {rule}")


def _find_common_folder(paths: "Sequence[str]") -> str:
    """Return the deepest folder that contains all logs, with a trailing slash; '' for one log."""
    folders = [path.rpartition("/")[0].split("/") for path in paths]
    same = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*folders))
    common = [names[0] for names in same]
    return "".join(f"{name}/" for name in common) if len(paths) > 1 else ""


def _make_row(run: "ImportedRun", folder: str) -> list[str]:
    from dlperf_slurm.contract.record import OK
    from dlperf_slurm.logs.settings import CASE_SETTINGS

    identity = run.identity
    batch_size = f"bs{identity.batch_size_per_device}" if identity.batch_size_per_device else ""
    devices = {0: "", 1: "1 device"}.get(identity.devices, f"{identity.devices} devices")
    is_partial = run.status != OK and run.publisher_samples_per_s is not None
    words = [identity.framework, identity.model, devices, batch_size, identity.precision]
    words += [
        getattr(identity, name)
        for name, usual in CASE_SETTINGS.items()
        if getattr(identity, name) != usual
    ]
    return [
        run.log[len(folder) :],
        run.format_name,
        " ".join(word for word in words if word),
        run.status,
        run.measured,
        _format_figure(run.samples_per_s),
        _format_figure(run.publisher_samples_per_s) + (PARTIAL if is_partial else ""),
        _describe_difference(run.samples_per_s, run.publisher_samples_per_s),
    ]


def _format_figure(value: Optional[float]) -> str:
    """Format a rate such as samples/s: 2 decimals, or 4 significant digits below 1; '' for None."""
    if value is None:
        return ""
    decimals = 3 - math.floor(math.log10(value)) if 0 < value < 1 else 2
    return f"{value:.{decimals}f}"


def _describe_difference(ours: Optional[float], publisher: Optional[float]) -> str:
    """Format by how many percent the publisher's throughput differs from ours, such as "+1.2%".

    '' if the two are nearly the same, or one is unknown.
    """
    if ours is None or publisher is None:
        return ""
    difference = publisher / ours - 1
    return f"{difference:+.1%}" if abs(difference) > NOTED_DIFFERENCE else ""


def _write_run(runs: "Sequence[ImportedRun]", options: argparse.Namespace) -> None:
    from dlperf_slurm.published.import_run import find_missing, write_imported_run

    run = write_imported_run(options.results, options.name, runs, sys.argv)
    for left_out in runs:
        if missing := find_missing(left_out.identity):
            reason = f"neither the log nor its name states {' and '.join(missing)}"
            print(
                f"{PROGRAM}: warning: {left_out.log}: left out of the run, as {reason}",
                file=sys.stderr,
            )
    # with --json standard output contains nothing but the JSON
    stream = sys.stderr if options.json else sys.stdout
    print(f"Run directory: {run.path}", file=stream)
    print(f"Report: {COMMAND} report {run.path}", file=stream, flush=True)
