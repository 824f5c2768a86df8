"""The verdicts of `accept` -> a table, JSON, checks for a CI system, and the error of a CI job."""

from typing import Optional

from dlperf_slurm.errors import CasesFailedError, DlperfError, InconclusiveError, SlowerError
from dlperf_slurm.plain_text import list_some
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.reports.ci_checks import ERROR, FAILURE, PASSED, Check
from dlperf_slurm.reports.comparison_text import (
    SPEED,
    describe_pair,
    format_percent,
    make_interval_cells,
    make_median_cell,
)
from dlperf_slurm.reports.formats.json import serialize_document
from dlperf_slurm.reports.tables import ShownColumn, TableSpec, tabulate_rows
from dlperf_slurm.results.acceptance import ACCEPTED, MISSING, REJECTED, Acceptance
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.number_formats import RATIO, ScaledFormat
from dlperf_slurm.results.significance import NOT_COMPARABLE, UNDECIDED

_RATIO = "measured / expected"
# verdict -> the outcome of its check, and the error of a run that has one
_OUTCOMES: dict[str, tuple[str, Optional[type[DlperfError]]]] = {
    REJECTED: (FAILURE, SlowerError),
    MISSING: (ERROR, CasesFailedError),
    NOT_COMPARABLE: (ERROR, CasesFailedError),
    UNDECIDED: (ERROR, InconclusiveError),
    ACCEPTED: (PASSED, None),
}


def tabulate_acceptance(accepted: Acceptance) -> tuple[Table, tuple[str, ...]]:
    """Return a table of verdicts with a row per case, and the texts of its footnotes in order."""
    cases = accepted.cases
    percent = ScaledFormat(".1f", factor=100, unit=" %")
    spec = TableSpec(
        "acceptance",
        title=name_acceptance(accepted),
        words=lambda rows: [ShownColumn("case_id"), ShownColumn("unit", missing="none")],
        figures=lambda rows: [
            ShownColumn("basis", "reference"),
            ShownColumn("expected", None, RATIO, "none", bounds=False),
            ShownColumn("tolerance", None, percent, "none", bounds=False),
            ShownColumn("bound", "at least", RATIO, "none", bounds=False),
            ShownColumn("measured", cells=lambda rows: [
                make_median_cell(samples, RATIO) for samples in rows.samples
            ]),
            ShownColumn("speed_ratio", _RATIO, SPEED, "none", bounds=False),
            ShownColumn("95 % interval", missing="none", cells=make_interval_cells),
            ShownColumn("verdict", marks=True),
        ],
        caption=describe_method(accepted),
    )  # fmt: skip
    texts = ((reason, *own) for reason, own in zip(cases.reason, cases.changes))
    (table,), notes = tabulate_rows(spec, cases, texts)
    return table, notes


def name_acceptance(accepted: Acceptance) -> str:
    return f"{accepted.manifest.run_id} against {accepted.reference}"


def describe_method(accepted: Acceptance) -> str:
    """Describe how the bounds and verdicts are computed, for the caption of the table."""
    stated = accepted.tolerance
    lines = [
        "tolerance: " + (
            "computed from the variation between the reference's runs. About 1 in 20 further runs "
            "on the same machine would have a case below its bound. For a contract's figures: 0"
            if stated is None else f"{format_percent(stated)}, as given"
        ),
        "accepted: above the bound with 95 % confidence; rejected: below the bound with 95 % "
        "confidence, adjusted for the number of cases; undecided: neither (docs/statistics.md, "
        "accept)",
    ]  # fmt: skip
    if accepted.others:
        lines.append(
            f"measured cases that the reference does not have: {list_some(accepted.others)}"
        )
    return "\n".join(lines)


def serialize_acceptance(accepted: Acceptance) -> str:
    """Serialize the verdicts of `accept` as JSON, with all numbers in full precision."""
    data = {
        "run_id": accepted.manifest.run_id,
        "reference": accepted.reference,
        "tolerance": accepted.tolerance,
        "not_in_reference": [*accepted.others],
        "cases": list_records(accepted.cases),
    }
    return serialize_document(data)


def list_checks(accepted: Acceptance) -> list[Check]:
    """Return a CI check per case; `guard_acceptance` raises an error if one does not pass."""
    return [
        Check("accept", row["case_id"], _OUTCOMES[row["verdict"]][0], describe_pair(row, _RATIO))
        for row in list_records(accepted.cases)
    ]


def count_verdicts(accepted: Acceptance) -> str:
    """Count the cases of each verdict: "1 rejected, 5 accepted"."""
    verdicts = accepted.cases.verdict.tolist()
    return ", ".join(f"{verdicts.count(one)} {one}" for one in _OUTCOMES if one in verdicts)


def guard_acceptance(accepted: Acceptance) -> None:
    """Raise an error, which fails a CI job, unless every case is accepted.

    Raises SlowerError if any case is rejected, else CasesFailedError if any is missing or not
    comparable, else InconclusiveError.
    """
    rows = list_records(accepted.cases)
    for error in (SlowerError, CasesFailedError, InconclusiveError):
        lines = [
            f"{row['case_id']}: {describe_pair(row, _RATIO)}"
            for row in rows
            if _OUTCOMES[row["verdict"]][1] is error
        ]
        if lines:
            raise error("\n  ".join([count_verdicts(accepted), *lines]))
