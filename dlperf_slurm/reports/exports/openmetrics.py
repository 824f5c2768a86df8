"""A run -> metrics in OpenMetrics, which node_exporter's textfile collector reads too.

There are no timestamps, which that collector refuses; the age of a run is a metric.
"""

from collections.abc import Iterable, Iterator, Mapping

from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.results.columns import list_records

# name -> (column of the cases, help)
_OF_CASES = {
    "dlperf_throughput": (
        "samples_per_s",
        "Median throughput over repeats; the label `unit` has the unit.",
    ),
    "dlperf_throughput_low": ("interval_low", "Lower end of the 95 % interval of the median."),
    "dlperf_throughput_high": ("interval_high", "Upper end of the 95 % interval of the median."),
    "dlperf_repeats_planned": ("repeats_planned", "Repeats planned."),
    "dlperf_repeats_measured": ("repeats_measured", "Repeats with a valid record."),
}
_LABELS = ("case_id", "model", "mode", "framework", "topology", "precision", "unit")

Sample = tuple[Mapping[str, object], float]


def serialize(summary: Summary) -> str:
    """Serialize a run as OpenMetrics text: a gauge per figure, with a sample per case that has it.

    Two more gauges have the run's time and its id.
    """
    manifest = summary.manifest
    site = {"site": manifest.site_name, "matrix": manifest.matrix_name}
    cases = list_records(summary.results.cases)
    lines: list[str] = []
    for name, (column, text) in _OF_CASES.items():
        samples = [
            ({**site, **{label: case[label] for label in _LABELS}}, case[column])
            for case in cases
            if case[column] is not None
        ]
        lines += _list_lines(name, text, samples)
    created = parse_time(manifest.created_at).timestamp()
    text = "When the newest run was made, in seconds since 1970."
    lines += _list_lines("dlperf_run_created_seconds", text, [(site, created)])
    run = {**site, "run_id": manifest.run_id, "version": manifest.tool_version}
    lines += _list_lines("dlperf_run_info", "The run that the metrics are from.", [(run, 1)])
    return "\n".join([*lines, "# EOF"]) + "\n"


def _list_lines(name: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of one gauge: help `text`, type, and a line per sample (labels, value)."""
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        words = ",".join(f'{key}="{_escape(str(word))}"' for key, word in labels.items())
        yield f"{name}{{{words}}} {float(value)!r}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
