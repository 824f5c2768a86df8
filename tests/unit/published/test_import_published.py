"""Published figures come out of the logs that they were made from, to the printed digit."""

import json
from pathlib import Path
from statistics import mean, median

import pytest
from reference_logs import FOLDER, list_reference_logs, read_published_rows

from dlperf_slurm.cli import main
from dlperf_slurm.logs import find_formats
from dlperf_slurm.logs.lines import read_lines
from dlperf_slurm.logs.runs import ImportOptions, import_log

ROWS = read_published_rows()
OF_ONE_LOG = [row for row in ROWS if "..." not in row.log]
OF_REPEATS = [row for row in ROWS if "..." in row.log]
TIMES_RULE = "DLPerf: 5 intervals over their time, from the first line, 2 decimals"


def import_one(path, **options):
    (run,) = import_log(path, ImportOptions(**options))
    assert run.status == "ok", run.reason
    return run


def import_repeats(pattern, **options):
    topology = Path(pattern).parent.name
    (folder,) = FOLDER.rglob(topology)
    return [import_one(path, **options) for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("row", OF_ONE_LOG, ids=lambda row: "/".join(Path(row.log).parts[-2:]))
def test_publishers_figure_of_a_log_is_reproduced(row):
    run = import_one(FOLDER / row.log)
    assert run.publisher_samples_per_s == pytest.approx(row.expected, abs=row.tolerance)
    assert run.publisher_rule


@pytest.mark.parametrize("row", OF_REPEATS, ids=lambda row: f"{row.log[-17:-10]} {row.rule[:12]}")
def test_publishers_figure_over_repeats_is_reproduced(row):
    rule = "" if "arith" in row.rule else TIMES_RULE
    runs = import_repeats(row.log, rule_name=rule)
    combine = mean if row.rule.startswith("mean") else median
    figure = combine(run.publisher_samples_per_s for run in runs)
    assert len(runs) == 5
    assert figure == pytest.approx(row.expected, abs=row.tolerance)


@pytest.mark.parametrize(
    "row", [row for row in OF_REPEATS if "median of 5 repeats of 500" in row.rule]
)
def test_median_of_our_own_figures_is_that_of_times(row):
    runs = import_repeats(row.log)
    figure = median(run.samples_per_s for run in runs)
    assert figure == pytest.approx(row.expected, abs=row.tolerance)


def test_every_log_is_claimed_by_one_format():
    for path in list_reference_logs():
        assert len(find_formats(read_lines(path))) == 1, path


def test_identity_is_what_the_logs_tell():
    told = {
        path.name: (
            run.identity.framework,
            run.identity.model,
            run.identity.devices,
            run.identity.batch_size_per_device,
            run.identity.precision,
        )
        for path in list_reference_logs()
        for run in import_log(path, ImportOptions())
        if "4n8g" not in path.parts and "1n8g" not in path.parts
    }
    assert told == {
        "rn50_b128_fp32_1.log": ("tensorflow2", "resnet50", 1, 128, "fp32"),
        "bert_base_lamb_pretraining.pyt_bert_pretraining_phase1_fp32_bs96_gpu8.log": (
            "pytorch",
            "bert",
            8,
            96,
            "fp32",
        ),
        "tf_bert_pretraining_lamb_base_fp32_bs96_gpu8.log": ("tensorflow1", "bert", 8, 96, "fp32"),
        "base_bs96_fp32_gpu32.log": ("paddle", "bert", 32, 96, "fp32"),
        "mxnet_gpu1_fp32_bs128.txt": ("mxnet", "resnet50", 1, 128, "fp32"),
        "mxnet_gpu8_fp32_bs128.txt": ("mxnet", "resnet50", 8, 128, "fp32"),
        "pytorch_gpu8_fp32_bs256.txt": ("pytorch", "resnet50", 8, 256, "fp32"),
        "tf_gpu8_fp32_bs256.txt": ("tensorflow1", "resnet50", 8, 256, "fp32"),
        "PaddleClas_ResNet50_bs256_fp32_DP_N1C8_log": ("paddle", "resnet50", 8, 256, "fp32"),
        "mxnet_gpu1_gpu8_fp32_bs96.txt": ("mxnet", "resnet50", 8, 96, "fp32"),
    }


def test_two_runs_in_one_log_are_two_runs():
    path = FOLDER / "paddle_perf_2020-12" / "mxnet_gpu1_gpu8_fp32_bs96.txt"
    alone, eight = import_log(path, ImportOptions())
    assert (alone.log, eight.log) == (f"{path}#1", f"{path}#2")
    assert (alone.identity.devices, eight.identity.devices) == (1, 8)
    # the log's own table: 387.07 and 2998.1 over all batches but the first
    assert alone.samples_per_s == pytest.approx(387.07, rel=0.005)
    assert eight.samples_per_s == pytest.approx(2998.1, rel=0.005)
    assert alone.publisher_samples_per_s is None
    assert "needs at least 2 values" in alone.reason


def test_slowest_rank_decides():
    path = FOLDER / "paddle_perf_2020-12" / "mxnet_gpu1_gpu8_fp32_bs96.txt"
    _, run = import_log(path, ImportOptions())
    # rank 7's times between steps 19 and 499 of epochs 1 and 2: the largest sum of the eight
    assert run.window.rank in range(8)
    assert run.samples_per_s == pytest.approx(run.window.steps * 768 / run.window.seconds)


def test_dry_run_prints_one_json_list_and_writes_nothing(home, capsys):
    arguments = [
        "import-logs",
        "--dry-run",
        "--json",
        *(str(FOLDER / row.log) for row in OF_ONE_LOG),
    ]
    code = main(arguments)
    printed = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [entry["log"] for entry in printed] == arguments[3:]
    assert {tuple(entry) for entry in printed} == {
        (
            "log",
            "format",
            "status",
            "reason",
            "measured",
            "samples_per_s",
            "publisher_samples_per_s",
            "publisher_rule",
            "identity",
            "notes",
        )
    }
    assert not list(home.iterdir())
