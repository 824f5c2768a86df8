"""Report -> Parquet: a row for each case, with the columns of the CSV, each repeat, each step."""

from dlperf_slurm.reports.formats import Report
from dlperf_slurm.reports.parquet import serialize_frame
from dlperf_slurm.results.columns import make_case_columns
from dlperf_slurm.results.detail_frames import make_repeat_frame, make_step_frame

SHOWS_PLOTS = False


def serialize(report: Report) -> dict[str, bytes]:
    """The frames with their types; a figure that does not exist is NULL."""
    frames = {
        "cases.parquet": make_case_columns(report.summary.frame),
        "repeats.parquet": make_repeat_frame(report.cases),
        "steps.parquet": make_step_frame(report.cases),
    }
    return {name: serialize_frame(frame) for name, frame in frames.items()}
