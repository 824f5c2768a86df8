"""A run directory -> the rows of its report, and the cells that its records do not give."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from dlperf_slurm.audit.files import read_csv
from dlperf_slurm.audit.interpret import NotAudited
from dlperf_slurm.audit.printed import STALE, Finding, Row
from dlperf_slurm.collect import collect_outcomes
from dlperf_slurm.errors import InputError
from dlperf_slurm.reports import csv_format
from dlperf_slurm.run import REPORT_DIR, open_run
from dlperf_slurm.summarize import summarize

Records = Mapping[str, Mapping[str, str]]


def read_run(path: Path) -> tuple[list[Row], list[NotAudited], list[Finding]]:
    """What its report.csv says; where it has none, what its records give.

    InputError when the directory is no run, or its report no CSV.
    """
    run = open_run(path)
    fresh = csv_format.serialize(summarize(run.manifest, collect_outcomes(run)))
    file = path / REPORT_DIR / csv_format.FILE_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        rows, gaps = read_csv(fresh, str(path))
        reason = "is not there; the figures are those of the records"
        return rows, [NotAudited(str(file), 1, "the report", reason), *gaps], []
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from error
    rows, gaps = read_csv(text, str(file))
    return rows, gaps, list(_compare(str(file), text, fresh))


def _compare(file: str, text: str, fresh: str) -> Iterator[Finding]:
    """Cells, case by case, that are not what the records give; columns that both have."""
    found, expected = _index_cases(text), _index_cases(fresh)
    lines = {case_id: number for number, case_id in enumerate(found, start=2)}
    for case_id, record in expected.items():
        if case_id not in found:
            reason = "the run has this case, the report has not"
            yield Finding(file, 1, "", f"case_id: {case_id}", "", case_id, STALE, reason)
            continue
        for column, value in record.items():
            printed = found[case_id].get(column, value)
            if printed != value:
                cell = f"{column}: {case_id}"
                reason = "the records give another value: the report is older, or was edited"
                yield Finding(file, lines[case_id], "", cell, printed, value, STALE, reason)


def _index_cases(text: str) -> dict[str, dict[str, str]]:
    records = csv.DictReader(io.StringIO(text, newline=""))
    return {record["case_id"]: record for record in records if record["case_id"]}
