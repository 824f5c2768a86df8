"""The command import: what it takes and writes, its exit codes, and figures of publishers."""

import json
from pathlib import Path
from statistics import mean, median

import numpy
import pytest
from log_excerpts import list_excerpt
from reference_logs import FOLDER, list_reference_logs, read_published_rows
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.record import Record, find_record_problem
from dlperf_slurm.jobs.run_directory import list_run_ids, open_run
from dlperf_slurm.logs import list_formats
from dlperf_slurm.logs.runs import ImportOptions, import_log
from dlperf_slurm.published.import_options import parse_settings

PADDLE_BERT = FOLDER / "paddle_perf" / "Bert" / "logs" / "V100_LOG" / "base_bs96_fp32_gpu32.log"
(PYTORCH,) = FOLDER.rglob("pytorch_gpu8_fp32_bs256.txt")
(FIVE,) = FOLDER.rglob("1n8g")


def run_main(arguments, capsys):
    code = main(["import-logs", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def copy_log(log, path):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(log.read_bytes())
    return Path(path)


def open_only_run():
    (run_id,) = list_run_ids(Path("results"))
    return open_run(Path("results") / run_id)


def read_record(run, case_id, repeat=1):
    return read_json(run.path / f"cases/{case_id}/r{repeat}/a1/s0/record.json", Record)


def test_repeats_become_one_case_that_report_shows_with_its_median(home, capsys):
    code, _, _ = run_main([FIVE, "--name", "dlperf"], capsys)
    run = open_only_run()
    report = main(["report", "--plots", "none", str(run.path)])
    printed = capsys.readouterr().out
    assert (code, report) == (0, 0)
    assert run.manifest.title == "dlperf"
    assert [case.repeats for case in run.manifest.cases] == [5]
    assert [[*case.protocol] for case in run.manifest.cases] == [["measured_steps"]]
    assert "2458 {2441 to 2494}" in printed


def test_record_holds_both_figures_and_the_log_itself(home, capsys):
    run_main([PYTORCH], capsys)
    case_id = "pytorch-resnet50-1n8g-bs256-fp32-nvidia_pytorch_resnet50"
    record = read_record(open_only_run(), case_id)
    folder = open_only_run().path / "cases" / case_id / "r1" / "a1" / "s0"
    (imported,) = import_log(PYTORCH, ImportOptions())
    assert record.samples_per_s == pytest.approx(imported.samples_per_s)
    assert record.publisher_samples_per_s == pytest.approx(2791.98, abs=0.006)
    assert record.publisher_rule == "arithmetic mean of rates[8:]"
    assert record.case.axes.script == "nvidia_pytorch_resnet50"
    assert [rank.rank for rank in record.ranks] == [-1]
    assert find_record_problem(record) == ""
    assert (folder / "log").read_bytes() == PYTORCH.read_bytes()
    step_seconds = numpy.load(folder / "step_seconds.npy")
    assert step_seconds.shape == (1, record.case.measured_steps)
    assert step_seconds.sum() == pytest.approx(record.window_seconds)


def test_failed_log_becomes_a_failed_record_beside_sound_ones(home, capsys):
    logs = home / "1n8g"
    copy_log(FIVE / "rn50_b128_fp32_1.log", logs / "rn50_b128_fp32_1.log")
    cut = copy_log(FIVE / "rn50_b128_fp32_2.log", logs / "rn50_b128_fp32_2.log")
    cut.write_bytes(cut.read_bytes()[:-3000])
    code, printed, error = run_main([logs], capsys)
    failed = read_record(
        open_only_run(), "tensorflow2-resnet50-1n8g-bs128-fp32-tensorflow_models", 2
    )
    assert code == 5
    assert "1 of 2 runs" in error
    assert (failed.status, failed.samples_per_s if failed.ranks else None) == ("failed", None)
    assert failed.reason in printed
    assert main(["report", "--plots", "none", str(open_only_run().path)]) == 5


def test_directory_stands_for_all_files_below_it_but_hidden_ones(home, capsys):
    copy_log(PYTORCH, "logs/b/run.log")
    copy_log(PADDLE_BERT, "logs/a.log")
    copy_log(PYTORCH, "logs/.hidden/run.log")
    _, printed, _ = run_main(["logs", "--dry-run", "--json"], capsys)
    assert [entry["log"] for entry in json.loads(printed)] == ["logs/a.log", "logs/b/run.log"]


def test_figures_that_need_what_the_log_does_not_tell_ask_for_it(home, capsys):
    copy_log(PADDLE_BERT, "some.log")
    code, printed, _ = run_main(["some.log", "--dry-run", "--json"], capsys)
    (entry,) = json.loads(printed)
    assert (code, entry["status"]) == (0, "measured")
    assert_problem(entry["reason"], says=("devices", "--set devices="))


def test_command_line_outweighs_the_log_and_the_log_its_name(home):
    path = copy_log(PYTORCH, "other_gpu4_bs64_amp.log")
    (told,) = import_log(path, ImportOptions())
    (said,) = import_log(path, ImportOptions(settings=parse_settings(["devices=16", "nodes=2"])))
    assert told.identity.devices == 8
    assert_problem(told.notes[0], says=("devices", "8 in the log", "4 in its path"))
    assert len(told.notes) == 3
    assert (said.identity.devices, said.identity.nodes) == (16, 2)
    # the log's own rates are those of 8 devices
    assert (said.status, said.samples_per_s) == ("contradictory", None)
    assert_problem(said.reason, says=("4650 samples/s", "2234"))


@pytest.mark.parametrize(
    ("devices", "nodes"), [(1, 1), (4, 1), (8, 1), (16, 2), (32, 4), (12, 1), (17, 1), (20, 2)]
)
def test_nodes_that_nothing_tells_hold_eight_devices_each(devices, nodes, home):
    path = copy_log(PYTORCH, "some.log")
    (run,) = import_log(path, ImportOptions(settings=parse_settings([f"devices={devices}"])))
    assert (run.identity.devices, run.identity.nodes) == (devices, nodes)


def test_folder_s_name_tells_the_nodes_unless_the_file_s_tells_other_devices(home):
    paths = [
        copy_log(PADDLE_BERT, "4n4g/some.log"),
        copy_log(PADDLE_BERT, "4n4g/gpu32.log"),
        copy_log(PADDLE_BERT, "gpu32/2n16g.log"),
    ]
    found = [import_log(path, ImportOptions())[0].identity for path in paths]
    assert [(i.nodes, i.devices) for i in found] == [(4, 16), (4, 32), (2, 32)]


def test_contradiction_is_a_warning(home, capsys):
    copy_log(PYTORCH, "run_gpu4.log")
    code, _, error = run_main(["run_gpu4.log", "--dry-run"], capsys)
    key, says = "warning: run_gpu4.log", ("devices", "8 in the log", "4 in its path")
    assert code == 0
    assert_problem(error, key=key, says=says)


def test_rule_is_chosen_by_its_name_and_one_of_another_format_gives_no_figure(home, capsys):
    rule = "arithmetic mean of rates[1:6], 2 decimals"
    code, printed, _ = run_main([PYTORCH, "--dry-run", "--json", "--rule", rule], capsys)
    (entry,) = json.loads(printed)
    assert code == 0
    assert entry["publisher_samples_per_s"] is None
    assert_problem(entry["reason"], says=("format", f"{rule!r}"))
    _, printed, _ = run_main([PYTORCH, "--dry-run", "--json", "--rule", "summary"], capsys)
    (entry,) = json.loads(printed)
    assert (entry["publisher_rule"], entry["publisher_samples_per_s"]) == ("summary", 2751.91)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "x"], ", ".join(list_formats())),
        (["--rule", "sumary"], "Did you mean 'summary'?"),
        (["--set", "device=8"], "known: framework, model, nodes, devices"),
        (["--set", "devices=0"], "at least 1"),
        (["--set", "devices"], "write KEY=VALUE"),
        (["nowhere.log"], "nowhere.log: "),
    ],
)
def test_wrong_options_are_errors_and_nothing_is_written(options, message, home, capsys):
    code, _, error = run_main([PYTORCH, *options], capsys)
    assert code == 2
    assert message in error
    assert not list(home.iterdir())


def test_log_of_two_formats_names_both(home):
    (mxnet,) = FOLDER.rglob("mxnet_gpu1_fp32_bs128.txt")
    Path("joined.log").write_bytes(PYTORCH.read_bytes() + mxnet.read_bytes())
    (run,) = import_log(Path("joined.log"), ImportOptions())
    (chosen,) = import_log(Path("joined.log"), ImportOptions(format_name="nvidia_pytorch_resnet50"))
    says = ("nvidia_mxnet_resnet50 and nvidia_pytorch_resnet50", "--format")
    assert_problem(run.reason, says=says)
    # the second log's batch size is half the first one's
    assert chosen.status == "contradictory"


def test_log_of_no_known_format_fails_with_the_list_or_for_lack_of_memory(home):
    Path("some.log").write_text("hello\n", encoding="utf-8")
    (run,) = import_log(Path("some.log"), ImportOptions())
    assert (run.status, run.format_name) == ("failed", "")
    assert_problem(run.reason, says=list_formats())
    Path("some.log").write_text("RuntimeError: CUDA out of memory.\n", encoding="utf-8")
    (run,) = import_log(Path("some.log"), ImportOptions())
    assert run.status == "oom"


def test_sound_run_without_a_place_in_the_tables_is_an_error(home, capsys):
    (log,) = FOLDER.rglob("tf_gpu8_fp32_bs256.txt")
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    Path("some.log").write_text("".join(lines[1:]), encoding="utf-8")
    options = ["some.log", "--set", "batch_size_per_device=256"]
    code, _, error = run_main(options, capsys)
    assert code == 2
    assert_problem(error, file="some.log", says=("precision", "--set precision="))
    assert not Path("results").exists()
    assert run_main([*options, "--set", "precision=fp32"], capsys)[0] == 0
    # nine devices are on no two nodes
    copy_log(PADDLE_BERT, "uneven.log")
    uneven = ["uneven.log", "--set", "devices=9", "--set", "nodes=2", "--set"]
    code, _, error = run_main([*uneven, "batch_size_per_device=96"], capsys)
    assert_problem(error, file="uneven.log", says=("states devices", "--set devices="))
    assert code == 2


def test_failed_logs_that_nothing_places_are_named(home, capsys):
    copy_log(PYTORCH, "a.log")
    Path("b.log").write_bytes(b"")
    code, _, error = run_main(["a.log", "b.log"], capsys)
    assert code == 5
    assert "b.log: " in error
    assert len(open_only_run().manifest.cases) == 1


def test_table_marks_figures_that_differ_by_more_than_two_percent(home, capsys):
    _, printed, _ = run_main([PADDLE_BERT, FIVE / "rn50_b128_fp32_1.log", "--dry-run"], capsys)
    assert "+9.7%" in printed
    assert printed.count("%") == 1


def test_status_of_an_imported_run_asks_no_scheduler(home, capsys):
    run_main([PYTORCH], capsys)
    assert main(["status"]) == 0
    assert "1 COMPLETED" in capsys.readouterr().out


ROWS = read_published_rows()
OF_ONE_LOG = [row for row in ROWS if "..." not in row.log]
OF_REPEATS = [row for row in ROWS if "..." in row.log]
TIMES_RULE = "DLPerf: samples / time between line 1 and line 6, 2 decimals"


def import_one(path, **options):
    (run,) = import_log(path, ImportOptions(**options))
    assert run.status == "ok", run.reason
    return run


def import_repeats(pattern, **options):
    (folder,) = FOLDER.rglob(Path(pattern).parent.name)
    return [import_one(path, **options) for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("row", OF_ONE_LOG, ids=lambda row: "/".join(Path(row.log).parts[-2:]))
def test_publishers_figure_of_a_log_is_reproduced(row):
    run = import_one(FOLDER / row.log)
    assert run.publisher_samples_per_s == pytest.approx(row.expected, abs=row.tolerance)
    assert run.publisher_rule


@pytest.mark.parametrize("row", OF_REPEATS, ids=lambda row: f"{row.log[-17:-10]} {row.rule[:12]}")
def test_publishers_figure_over_repeats_is_reproduced(row):
    runs = import_repeats(row.log, rule_name="" if "arith" in row.rule else TIMES_RULE)
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


IDENTITIES = """
tensorflow2 resnet50 1 128 fp32 rn50_b128_fp32_1.log
pytorch bert 8 96 fp32 bert_base_lamb_pretraining.pyt_bert_pretraining_phase1_fp32_bs96_gpu8.log
tensorflow1 bert 8 96 fp32 tf_bert_pretraining_lamb_base_fp32_bs96_gpu8.log
paddle bert 32 96 fp32 base_bs96_fp32_gpu32.log
mxnet resnet50 1 128 fp32 mxnet_gpu1_fp32_bs128.txt
mxnet resnet50 8 128 fp32 mxnet_gpu8_fp32_bs128.txt
pytorch resnet50 8 256 fp32 pytorch_gpu8_fp32_bs256.txt
tensorflow1 resnet50 8 256 fp32 tf_gpu8_fp32_bs256.txt
paddle resnet50 8 256 fp32 PaddleClas_ResNet50_bs256_fp32_DP_N1C8_log
mxnet resnet50 8 96 fp32 mxnet_gpu1_gpu8_fp32_bs96.txt
"""


def test_identity_is_what_the_logs_tell():
    told = {
        path.name: f"{i.framework} {i.model} {i.devices} {i.batch_size_per_device} {i.precision}"
        for path in list_reference_logs()
        for i in (run.identity for run in import_log(path, ImportOptions()))
        if "4n8g" not in path.parts and "1n8g" not in path.parts
    }
    assert sorted(f"{text} {name}" for name, text in told.items()) == sorted(
        IDENTITIES.strip().splitlines()
    )


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


def test_dry_run_prints_one_json_list_and_writes_nothing(home, capsys):
    logs = [str(FOLDER / row.log) for row in OF_ONE_LOG]
    code, out, _ = run_main([*logs, "--dry-run", "--json"], capsys)
    printed = json.loads(out)
    assert (code, [entry["log"] for entry in printed]) == (0, logs)
    keys = "log format status reason measured samples_per_s publisher_samples_per_s publisher_rule"
    assert {tuple(entry) for entry in printed} == {(*keys.split(), "prints", "identity", "notes")}
    assert not list(home.iterdir())


@pytest.mark.parametrize("total", ["0.00", "-3.00"])
def test_total_that_is_not_positive_is_named(tmp_path, total):
    lines = list_excerpt("tf_cnn_benchmarks/one_process.log")
    path = tmp_path / "log"
    path.write_text("\n".join(lines).replace("images/sec: 611.87", f"images/sec: {total}") + "\n")
    (run,) = import_log(path, ImportOptions())
    assert run.samples_per_s is None
    assert_problem(run.reason, says=("throughput", "0 or less"))
