"""Logs that lost lines or their end: no interval counts for two, and no figure is wrong."""

import gzip

import pytest
from log_excerpts import list_excerpt, read_one
from reference_logs import (
    FOLDER,
    import_bytes,
    import_one,
    list_all_logs,
    list_figures,
    list_reference_logs,
)
from support.problems import assert_problem

from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.runs import ImportOptions, import_log
from dlperf_slurm.logs.windows import count_timed_steps

(PYTORCH,) = FOLDER.rglob("pytorch_gpu8_fp32_bs256.txt")
(TENSORFLOW1,) = FOLDER.rglob("tf_gpu8_fp32_bs256.txt")


def _step_seconds(reading):
    (window,) = reading.windows
    return window.seconds / window.steps


@pytest.mark.parametrize("lost", range(1, 4))
def test_a_lost_epoch_of_tensorpack_is_none_of_the_next_one_s_time(lost):
    lines = [
        "[0802 10:00:00 @t.py:48] Running on 4 towers. Batch size per tower: 64",
        *(
            f"[0802 10:00:00 @base.py:282] Epoch {number} (global_step {number * 100}) finished, "
            "time:40 seconds."
            for number in range(1, 5)
        ),
        "[0802 10:06:00 @base.py:288] Training has finished!",
    ]
    del lines[lost]
    assert _step_seconds(read_one("tensorpack", lines)) == pytest.approx(0.4)


@pytest.mark.parametrize("lost", [49, 99, 149])
@pytest.mark.parametrize("has_arguments", [True, False])
def test_a_lost_line_of_gluonnlp_is_none_of_the_next_one_s_time(lost, has_arguments):
    lines = list_excerpt("gluonnlp_bert/one_process_2019.log")
    left = [line for line in lines if f"[step {lost}]" not in line]
    if not has_arguments:
        left = [line for line in left if "Namespace" not in line]
    assert len(left) < len(lines)
    # the arguments say that an update has two micro-batches
    seconds = 0.3 if has_arguments else 0.6
    assert _step_seconds(read_one("gluonnlp_bert", left)) == pytest.approx(seconds, rel=0.03)


def test_without_its_arguments_gluonnlp_s_micro_batches_are_unknown_and_not_one():
    lines = list_excerpt("gluonnlp_bert/one_process_2019.log")
    left = [line for line in lines if "Namespace" not in line]
    reading = read_one("gluonnlp_bert", [*left, "INFO:root:Train cost=123.4s"])
    assert_problem(reading.problem, says=("micro-batches", "(accumulate)"))


def test_lines_that_become_rare_are_not_lost():
    steps = [10, 20, 30, 40, 140, 240, 340]
    marks = [Mark((step,), value=float(step - before)) for before, step in zip([0, *steps], steps)]
    assert count_timed_steps(marks) == [10, 10, 10, 10, 100, 100, 100]


def test_tensorflow2_log_without_the_line_of_its_last_steps_is_incomplete(tmp_path):
    log = next(FOLDER.rglob("1n8g/rn50_b128_fp32_1.log"))
    lines = log.read_bytes().splitlines(True)
    del lines[max(number for number, line in enumerate(lines) if b"TimeHistory: " in line)]
    (run,) = import_bytes(tmp_path, log, b"".join(lines))
    assert (run.status, run.samples_per_s) == ("incomplete", None)
    assert_problem(run.reason, says=(" of ", "steps"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"world_size : 8", b"world_size : 4"),
        (b"batch_size : 256", b"batch_size : 512"),
    ],
)
def test_times_that_contradict_the_printed_rates_are_no_figure(old, new, tmp_path):
    data = PYTORCH.read_bytes()
    assert old in data
    (run,) = import_bytes(tmp_path, PYTORCH, data.replace(old, new))
    assert (run.status, run.samples_per_s) == ("contradictory", None)
    assert run.publisher_samples_per_s is None
    assert_problem(run.reason, says=("samples/s", "2234"))


def test_whether_the_batch_is_a_replica_s_is_asked_for_where_its_line_is_lost(tmp_path):
    data = next(FOLDER.rglob("1n8g/rn50_b128_fp32_1.log")).read_bytes()
    lost = b"".join(
        line for line in data.splitlines(True) if b"'use_per_replica_batch_size'" not in line
    )
    assert len(lost) < len(data)
    path = tmp_path / "some.log"
    path.write_bytes(lost)
    (run,) = import_log(path, ImportOptions())
    assert run.samples_per_s is None
    assert "--set batch_size_per_device=" in run.reason
    key = b"'use_per_replica_batch_size': "
    # of all devices of four hosts
    hosts = b"'worker_hosts': "
    data = data.replace(hosts + b"None", hosts + b"'a:1,b:1,c:1,d:1'")
    path.write_bytes(data.replace(key + b"True", key + b"False"))
    (run,) = import_log(path, ImportOptions())
    assert (run.identity.devices, run.identity.batch_size_per_device) == (32, 4)


def test_an_incomplete_log_has_its_publisher_s_figure_and_never_ours(tmp_path):
    lines = TENSORFLOW1.read_bytes().splitlines(True)
    (whole,) = import_log(TENSORFLOW1, ImportOptions())
    cut = next(index for index, line in enumerate(lines) if b"train_throughput" in line)
    (run,) = import_bytes(tmp_path, TENSORFLOW1, b"".join(lines[:cut]))
    (early,) = import_bytes(tmp_path, TENSORFLOW1, b"".join(lines[: cut - 10]))
    assert (run.status, run.samples_per_s) == ("incomplete", None)
    assert run.publisher_samples_per_s == whole.publisher_samples_per_s
    assert (early.status, early.publisher_samples_per_s) == ("incomplete", None)
    assert run.reason


@pytest.mark.parametrize("devices", [1, 8, 16])
def test_nvidia_s_rule_of_a_line_per_step_is_the_log_s_own_mean(devices, tmp_path):
    lines = ["DLL 2023-08-04 10:00:00.000 - PARAMETER batch_size : 64  amp : False  num_iter : 40"]
    lines.append(f"Num GPUs {devices}")
    lines += [
        f"DLL 2023-08-04 10:00:{step:02d}.000 - (0, {step}) total_ips : {64 * devices} "
        for step in range(1, 41)
    ]
    lines.append(f"DLL 2023-08-04 10:00:50.000 - () train_throughput : {63 * devices} ")
    path = tmp_path / "some.log"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (run,) = import_log(path, ImportOptions())
    assert (run.status, run.publisher_rule) == ("ok", "train_throughput")
    assert run.publisher_samples_per_s == 63 * devices


LOGS = list_all_logs()


def list_cuts(data):
    """Every 5 %, and at, before and inside the ends of lines, most of them of the last ones."""
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    chosen = ends[:: max(1, len(ends) // 12)] + ends[-12:]
    cuts = {len(data) * part // 20 for part in range(20)} | {
        end - back for end in chosen for back in (0, 1, 3, 9)
    }
    return sorted(cut for cut in cuts if 0 <= cut < len(data))


@pytest.mark.slow
@pytest.mark.parametrize("log", LOGS, ids=lambda log: "/".join(log.parts[-2:]))
def test_cut_log_fails_or_tells_the_figures_of_the_whole(log, tmp_path):
    data = log.read_bytes()
    whole = list_figures(import_one(log, log))
    failures = 0
    for cut in list_cuts(data):
        runs = import_bytes(tmp_path, log, data[:cut])
        for index, run in enumerate(runs):
            if run.status == "ok":
                # MegEngine's first epoch is our whole figure, and not its publisher's
                compared = 2 if "megengine_models" in log.parts else 3
                assert list_figures([run])[0][:compared] == whole[index][:compared], cut
            else:
                failures += 1
                assert run.samples_per_s is None, cut
                assert run.publisher_samples_per_s is None or run.status == "incomplete", cut
                assert run.reason
                assert "\n" not in run.reason
    assert failures >= 10


@pytest.mark.parametrize("log", list_reference_logs(), ids=lambda log: "/".join(log.parts[-2:]))
def test_half_a_log_fails(log, tmp_path):
    data = log.read_bytes()
    last = import_bytes(tmp_path, log, data[: len(data) // 2])[-1]
    assert last.status in ("failed", "incomplete")
    assert last.samples_per_s is None


def test_lines_lost_before_the_launchers_end_fail(tmp_path):
    (log,) = (log for log in LOGS if log.name.startswith("PaddleClas"))
    lines = log.read_bytes().splitlines(keepends=True)
    *_, stopped = (index for index, line in enumerate(lines) if b"Exit with signal" in line)
    (run,) = import_bytes(tmp_path, log, b"".join(lines[: stopped + 1]))
    assert run.status == "incomplete"
    assert_problem(run.reason, says=("stopped 31 s after",))


def test_gzip_that_was_cut_cannot_be_read(tmp_path):
    data = gzip.compress(LOGS[0].read_bytes())
    (run,) = import_bytes(tmp_path, LOGS[0], data[: len(data) // 2])
    assert run.status == "failed"
    assert "cannot be read" in run.reason


def test_empty_log_fails(tmp_path):
    (run,) = import_bytes(tmp_path, LOGS[0], b"\n\n  \n")
    assert run.status == "failed"
    assert_problem(run.reason, says=("empty",))
