"""The commands that check: parity of frameworks, and audit of derived cells in tables."""

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.cli.options import (
    add_command,
    add_json_option,
    add_results_option,
    add_set_option,
)
from dlperf_slurm.cli.output import make_console, print_json, say
from dlperf_slurm.errors import CasesFailedError, EnvironmentMissingError, InputError
from dlperf_slurm.plain_text import count_things

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.published.audit import Audit
    from dlperf_slurm.published.audit.rounding import Discrepancy
    from dlperf_slurm.published.audit.severity import KindSummary
    from dlperf_slurm.reports.plain_console import PlainConsole


def add_commands(commands: "Commands") -> None:
    """Add the commands `parity` and `audit` to the parser."""
    command = add_command(commands, "parity", run_parity)
    command.add_argument(
        "frameworks", nargs="*", metavar="FRAMEWORK", help="framework to check (default: all)"
    )
    command.add_argument(
        "--model",
        action="append",
        default=[],
        help="model to compare; may be repeated (default: all models)",
    )
    for axis in ("precision", "compiler", "memory-format"):
        text = (
            f"{axis.replace('-', ' ')} of the cases; may be repeated (default: the axis's default)"
        )
        command.add_argument(f"--{axis}", action="append", default=[], help=text)
    command.add_argument("--site", default="local", help="name or file of the site; default: local")
    add_set_option(command)
    add_results_option(command)

    command = add_command(commands, "audit", run_audit)
    command.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="CSV or Markdown file, run directory, or name of published results",
    )
    command.add_argument(
        "--threshold",
        metavar="PERCENT",
        default="1%",
        help=(
            "report only cells that are off by at least this percentage more than rounding "
            "explains (default: 1%%)"
        ),
    )
    add_json_option(command)
    add_results_option(command)


def run_parity(options: argparse.Namespace) -> None:
    """Compare how frameworks compute a model, and print the tables of values and differences.

    Writes a new folder of arrays, logs and proofs to the results folder. Raises InputError for an
    unknown framework, model or value of an axis; EnvironmentMissingError if PyTorch, the reference,
    or a framework that the command line names has no environment, or none of those could be
    compared; CasesFailedError if frameworks compute different results.
    """
    from dlperf_slurm.checks.parity import tolerances, verify
    from dlperf_slurm.checks.parity.run_case import make_workplace
    from dlperf_slurm.config.site import load_site
    from dlperf_slurm.config.suggestions import describe_unknown
    from dlperf_slurm.contract.json_files import write_json
    from dlperf_slurm.contract.parity import PROOFS_FILE
    from dlperf_slurm.jobs.stage import make_run_id
    from dlperf_slurm.matrix.value_types import list_choices
    from dlperf_slurm.worker.frameworks import list_frameworks
    from dlperf_slurm.worker.models import list_models

    for values, known, what in (
        (options.frameworks, list_frameworks(), "a framework"),
        (options.model, list_models(), "a model"),
        (options.precision, verify.PRECISIONS, "a precision"),
        (options.compiler, list_choices("compiler"), "a compiler"),
        (options.memory_format, list_choices("memory_format"), "a memory_format"),
    ):
        if wrong := [value for value in values if value not in known]:
            raise InputError(f"parity: {describe_unknown(wrong[0], known, what)}")
    loaded = load_site(options.site, None, options.set)
    frameworks = options.frameworks or list_frameworks()
    problems = (verify.find_missing_environment(one, loaded.site) for one in frameworks)
    missing = [problem for problem in problems if problem]
    if missing and options.frameworks:
        raise EnvironmentMissingError("\n".join(missing))
    for line in missing:
        say(f"left out: {line}")
    workplace = make_workplace(
        loaded.site,
        options.results / make_run_id("parity", loaded.name),
        lambda line: print(line, flush=True),
    )
    variants = verify.list_variants(options.precision, options.compiler, options.memory_format)
    models = options.model or list_models()
    parity, data_parallel = verify.verify_frameworks(frameworks, models, workplace, variants)
    write_json(workplace.folder / PROOFS_FILE, verify.collect_proofs((*parity, *data_parallel)))
    console = make_console()
    rows = tolerances.make_parity_rows(parity)
    _print_verdicts(
        tolerances.PARITY_HEADER, rows, console, "one rank: values and relative differences"
    )
    rows = tolerances.make_data_parallel_rows(data_parallel)
    title = "two ranks: relative differences of averaged gradients"
    _print_verdicts(tolerances.DATA_PARALLEL_HEADER, rows, console, title)
    print(f"Arrays and logs: {workplace.folder}", flush=True)
    compared = [line for line in (*parity, *data_parallel) if not line.is_left_out]
    unlike = [line for line in compared if not line.is_same]
    if unlike:
        raise CasesFailedError(
            f"{len(unlike)} of {len(compared)} comparisons failed, see the table above"
        )
    if options.frameworks and not compared:
        raise EnvironmentMissingError("\n".join(line.problem for line in parity))


def _print_verdicts(
    header: "Sequence[str]", rows: "Sequence[Sequence[str]]", console: "PlainConsole", title: str
) -> None:
    """Print a table whose last column, the verdict, is wrapped rather than left out."""
    from dlperf_slurm.reports.cells import Cell
    from dlperf_slurm.reports.terminal import print_table

    cells = [[*map(Cell, row)] for row in rows]
    print_table(header, cells, console, title, omit_first=[*reversed(range(2, len(header) - 1))])


def _find_subject(path: Path, results: Path) -> Path:
    """Return the file or run directory to audit; a name may be the beginning of a run id."""
    from dlperf_slurm.jobs.run_directory import find_run, list_run_ids

    name = str(path)
    if path.exists() or not any(run_id.startswith(name) for run_id in list_run_ids(results)):
        return path
    return find_run(name, results).path


def run_audit(options: argparse.Namespace) -> None:
    """Check cells of tables against the cells they derive from, such as speedups; print findings.

    Raises CasesFailedError if a derived cell is off by the threshold (`--threshold`) or more,
    InputError if there is nothing to check.
    """
    from dlperf_slurm.published.audit import audit_paths
    from dlperf_slurm.published.audit.severity import choose_reportable, summarize_kinds
    from dlperf_slurm.reports.regression_check import parse_percent

    threshold = parse_percent(options.threshold) or 0.0
    audit = audit_paths([_find_subject(path, options.results) for path in options.files])
    found = choose_reportable(audit.findings, threshold)
    kinds = summarize_kinds(audit.findings, threshold)
    if options.json:
        values = dataclasses.asdict(dataclasses.replace(audit, findings=tuple(found)))
        values["recomputed"] = audit.checked.derived_cells
        values["kinds"] = [dataclasses.asdict(kind) for kind in kinds]
        print_json(values)
    else:
        _print_audit(audit, found, kinds, threshold)
    if found:
        cells = count_things(len(found), "inconsistent cell")
        raise CasesFailedError(f"{cells} in the tables; see the findings above")
    if not audit.checked.is_anything:
        names = ", ".join(map(str, options.files))
        raise InputError(
            f"{names}: no cell can be recomputed from other cells of its table; see the "
            "reasons above"
        )


def _print_audit(
    audit: "Audit", found: "Sequence[Discrepancy]", kinds: "Sequence[KindSummary]", threshold: float
) -> None:
    """Print the findings of an audit of tables, what was not audited, and how much was checked."""
    from dlperf_slurm.published.audit.rounding import IN_SPREAD
    from dlperf_slurm.published.audit.severity import summarize_gaps
    from dlperf_slurm.reports.terminal import print_table

    console = make_console()
    if found:
        rows = [
            [
                *(f.where or f"{f.file}:{f.line}", f.cell, f.published, f.follows),
                *(_write_share(f.excess), f.kind, f.reason),
            ]
            for f in found
        ]
        header = ["where", "cell", "printed", "expected", "beyond rounding", "kind", "why"]
        title = "findings, largest deviation first"
        print_table(header, rows, console, title, text_columns=None)
    if audit.not_audited:
        gaps = [
            [f"{gap.file}:{gap.line}", gap.what, str(gap.count), gap.reason]
            for gap in summarize_gaps(audit.not_audited)
        ]
        header = ["first location", "what", "count", "why"]
        print_table(header, gaps, console, title="not audited", text_columns=None)
    if kinds:
        lines = [
            [kind.kind, str(kind.findings), _write_share(kind.largest), str(kind.below_threshold)]
            for kind in kinds
        ]
        header = ["kind", "findings", "largest", f"below {100 * threshold:g} %"]
        print_table(header, lines, console, title="findings by kind")
    checked = audit.checked
    in_spread = sum(finding.kind == IN_SPREAD for finding in audit.findings)
    spread = f", {in_spread} differences no larger than the spread of the row's latencies"
    print(
        f"{checked.derived_cells} speedups recomputed, {count_things(len(found), 'finding')}, "
        f"{len(audit.findings) - len(found) - in_spread} smaller differences (below "
        f"{100 * threshold:g} %){spread if in_spread else ''}"
    )
    print(
        f"also checked: percentiles of {checked.latency_rows} rows, "
        f"{checked.throughputs_by_latency} throughputs against the latency in the same row, "
        f"{checked.speedups_compared} speedups against each other, {checked.figures_compared} "
        f"values printed more than once; {checked.derived_cells_unchecked} speedups could not be "
        "checked",
        flush=True,
    )


def _write_share(share: Optional[float]) -> str:
    """Format a fraction as a percentage, with one decimal below 100 %, or '-' for None."""
    return "-" if share is None else f"{share:.1%}" if share < 1 else f"{share:.0%}"
