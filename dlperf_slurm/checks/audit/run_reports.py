"""A run directory -> the rows of its report, and the cells that its records do not give."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from dlperf_slurm.checks.audit.files import read_csv, read_records
from dlperf_slurm.checks.audit.interpret import NotAudited
from dlperf_slurm.checks.audit.printed import STALE, Finding, Row
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.run_directory import REPORT_DIR, open_run
from dlperf_slurm.reports import csv_format
from dlperf_slurm.reports.summarize import summarize
from dlperf_slurm.results.collect import collect_outcomes

# line and cells by case_id
Cases = Mapping[str, tuple[int, Mapping[str, str]]]


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
    found = _index_cases(text)
    for case_id, (_, record) in _index_cases(fresh).items():
        if case_id not in found:
            reason = "the run has this case, the report has not"
            yield Finding(file, 1, "", f"case_id: {case_id}", "", case_id, STALE, reason)
            continue
        line, texts = found[case_id]
        for column, value in record.items():
            printed = texts.get(column, value)
            if printed != value:
                cell = f"{column}: {case_id}"
                reason = "the records give another value: the report is older, or was edited"
                yield Finding(file, line, "", cell, printed, value, STALE, reason)


def _index_cases(text: str) -> Cases:
    """Without the lines that are of no case: points that are not in the matrix."""
    (_, header), *records = read_records(text)
    named = [(line, dict(zip(header, cells))) for line, cells in records]
    return {texts["case_id"]: (line, texts) for line, texts in named if texts.get("case_id")}
