"""The report of NVIDIA's benchmark.py (`-o`) -> a run for each number of GPUs and batch size.

    {"model": "", "ngpus": [1, 8], "bs": [192], "metric_keys": ["train.ips"],
     "metrics": {"1": {"192": {"train.ips": 1430.1}}, "8": {"192": {"train.ips": 11135.2}}}}

Batch sizes are those of one GPU, images/s those of all.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.contract.record import FAILED, OK
from dlperf_slurm.files.reading import open_file
from dlperf_slurm.logs import Identity
from dlperf_slurm.logs.runs import ImportedRun, ImportOptions, complete_identity
from dlperf_slurm.logs.windows import Window

FORMAT = "nvidia_benchmark_report"
MODES = {"train.ips": TRAIN, "val.ips": INFER}
"""Modes by the metric that is a throughput."""
LARGEST_BYTES = 1 << 20


def read_report(path: Path, options: ImportOptions) -> list[ImportedRun]:
    """Return the runs of a report; none if the file is something else."""
    try:
        with open_file(path) as file:
            text = file.read(LARGEST_BYTES).lstrip()
        data = json.loads(text) if text.startswith(b"{") else None
    except (OSError, ValueError):
        return []
    if not isinstance(data, dict) or not {"ngpus", "bs", "metrics"} <= data.keys():
        return []
    found = [*_list_figures(data["metrics"])]
    return [
        _make_run(f"{path}#{number}" if len(found) > 1 else str(path), path, options, *figure)
        for number, figure in enumerate(found, start=1)
    ]


def _list_figures(metrics: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Yield (GPUs, batch size, metric, value) of the throughputs in a report's `metrics`."""
    for gpus, sizes in metrics.items() if isinstance(metrics, dict) else ():
        for size, values in sizes.items() if isinstance(sizes, dict) else ():
            for metric, value in values.items() if isinstance(values, dict) else ():
                if metric in MODES and gpus.isdecimal() and size.isdecimal():
                    yield gpus, size, metric, value


def _make_run(
    log: str, path: Path, options: ImportOptions, gpus: str, size: str, metric: str, value: Any
) -> ImportedRun:
    """Make the run of one figure of a report; failed if the value is no positive number.

    `log` names the run: the path, with "#2" for the second figure.
    """
    stated = Identity(
        framework="mxnet",
        model="resnet50",
        devices=int(gpus),
        batch_size_per_device=int(size),
        mode=MODES[metric],
    )
    identity = complete_identity(path, options.settings, stated)
    if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        return ImportedRun(log, path, FORMAT, identity, FAILED, f"{metric} is {value!r}")
    window = Window(rank=-1, steps=1, samples_per_s=float(value))
    return ImportedRun(
        log=log,
        path=path,
        format_name=FORMAT,
        identity=identity,
        status=OK,
        reason="",
        samples_per_s=float(value),
        publisher_samples_per_s=float(value),
        publisher_rule=metric,
        window=window,
        measured=window.describe(),
    )
