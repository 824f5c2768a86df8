"""The report of NVIDIA's benchmark.py (`-o`), read and written: a figure for each GPUs and batch.

    {"model": "", "ngpus": [1, 8], "bs": [192], "metric_keys": ["train.ips"],
     "metrics": {"1": {"192": {"train.ips": 1430.1}}, "8": {"192": {"train.ips": 11135.2}}}}

Batch sizes are those of one GPU, images/s those of all. NVIDIA's own have no model, as all are of
ResNet-50 in MXNet. A run of several models, frameworks or precisions is a list of reports.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.contract.record import FAILED, OK
from dlperf_slurm.files.reading import open_file
from dlperf_slurm.logs import Identity
from dlperf_slurm.logs.runs import ImportedRun, ImportOptions, complete_identity
from dlperf_slurm.logs.windows import Window
from dlperf_slurm.published.layouts.parts.figures import NO_SOURCE, list_figures
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame

    from dlperf_slurm.published.layouts.parts.figures import Figure

FORMAT = "nvidia_benchmark_report"
MODES = {
    **{"train.ips": TRAIN, "val.ips": INFER},
    # names of the metrics before 2020
    **{"train.total_ips": TRAIN, "val.total_ips": INFER},
}
"""Mode of a report, by the name of its throughput metric."""
LARGEST_BYTES = 1 << 20

# figures with equal values of these share a report
_find_kind = attrgetter(
    *("model_title", "label", "source", "precision", "compiler", "data_location", "hardware")
)
_UNNAMED = ("", "none", NO_SOURCE)


def read_report(path: Path, options: ImportOptions) -> list[ImportedRun]:
    """Return a run per figure of NVIDIA's JSON report or reports; [] if the file is none.

    Settings of `options` go before those in the report, and these before those in the file's name.
    Also [] if the file cannot be read, or is larger than LARGEST_BYTES.
    """
    try:
        with open_file(path) as file:
            text = file.read(LARGEST_BYTES).lstrip()
        data = json.loads(text) if text.startswith((b"{", b"[")) else None
    except (OSError, ValueError):
        return []
    reports: list[Any] = data if isinstance(data, list) else [data]
    if not all(isinstance(r, dict) and {"ngpus", "bs", "metrics"} <= r.keys() for r in reports):
        return []
    runs = []
    for report in reports:
        # "model" names the software that was run, by which the cases of several reports differ
        words = str(report.get("model") or "")
        known = Identity(software=words) if words else Identity("mxnet", "resnet50")
        for gpus, size, metric, value in _list_figures(report["metrics"]):
            stated = replace(
                known, devices=int(gpus), batch_size_per_device=int(size), mode=MODES[metric]
            )
            identity = complete_identity(options.settings, stated, options.read_name(path))
            runs.append(_make_run(path, identity, metric, value))
    if len(runs) == 1:
        return runs
    return [replace(run, log=f"{path}#{number}") for number, run in enumerate(runs, start=1)]


def _list_figures(metrics: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Yield (GPUs, batch size, metric, value) of the throughputs in a report's `metrics`."""
    for gpus, sizes in metrics.items() if isinstance(metrics, dict) else ():
        for size, values in sizes.items() if isinstance(sizes, dict) else ():
            for metric, value in values.items() if isinstance(values, dict) else ():
                if metric in MODES and gpus.isdecimal() and size.isdecimal():
                    yield gpus, size, metric, value


def _make_run(path: Path, identity: Identity, metric: str, value: Any) -> ImportedRun:
    """Make the run of one figure of a report; failed if the value is no positive number."""
    run = ImportedRun(str(path), path, FORMAT, identity, FAILED, f"{metric} is {value!r}")
    if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        return run
    window = Window(rank=-1, steps=1, samples_per_s=float(value))
    return replace(
        run,
        status=OK,
        reason="",
        samples_per_s=float(value),
        publisher_samples_per_s=float(value),
        publisher_rule=metric,
        window=window,
        measured=window.describe(),
    )


def serialize_figures(figures: "DataFrame") -> str:
    """Format figures as NVIDIA's JSON report; several models or precisions make a list of reports.

    So do several frameworks. A case without a figure has null.
    """
    reports: dict[tuple[str, ...], dict[str, Any]] = {}
    for figure in (*list_figures(figures, TRAIN), *list_figures(figures, INFER)):
        kind = _find_kind(figure)
        metrics = _list_metrics(figure)
        gpus, size = str(figure.topology.world_size), figure.batch_sizes or figure.batch_group
        # the same GPUs on fewer nodes have a report of their own
        while metrics.keys() & _find_place(reports, kind, gpus, size).keys():
            kind = (*kind, str(figure.topology))
        _find_place(reports, kind, gpus, size).update(metrics)
    texts = [*map(_complete, reports.values())]
    return json.dumps(texts[0] if len(texts) == 1 else texts, indent=4, allow_nan=False)


def _find_place(
    reports: dict[tuple[str, ...], dict[str, Any]], kind: tuple[str, ...], gpus: str, size: str
) -> dict[str, Any]:
    """Return the dict of metrics for these GPUs and this batch size; add it if missing.

    `reports` has the reports by `kind`: model, framework, precision etc.
    """
    report = reports.setdefault(
        kind, {"model": " ".join(name for name in kind if name not in _UNNAMED), "metrics": {}}
    )
    place: dict[str, Any] = report["metrics"].setdefault(gpus, {}).setdefault(size, {})
    return place


def _complete(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report with its lists of GPU counts, batch sizes and metric names added."""
    by_size = [pair for sizes in report["metrics"].values() for pair in sizes.items()]
    return {
        "model": report["model"],
        "ngpus": [*map(int, report["metrics"])],
        "bs": [int(s) if s.isdecimal() else s for s in dict.fromkeys(size for size, _ in by_size)],
        "metric_keys": [*dict.fromkeys(name for _, values in by_size for name in values)],
        "metrics": report["metrics"],
    }


def _list_metrics(figure: "Figure") -> dict[str, Any]:
    """Return the values of a figure by NVIDIA's metric names, such as "train.ips".

    Throughputs are in samples/s (of NVIDIA's models: images/s), None if not measured; for
    inference, known latencies of a batch ("val.latency_99") are in seconds.
    """
    if figure.mode == TRAIN:
        return {"train.ips": figure.samples_per_s}
    latencies = {
        f"val.latency_{name.lstrip('p')}": getattr(figure, f"latency_{name}_ms")
        for name in LATENCY_NAMES
    }
    return {
        "val.ips": figure.samples_per_s,
        **{name: round(value / 1000, 9) for name, value in latencies.items() if value is not None},
    }
