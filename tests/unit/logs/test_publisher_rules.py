"""Formats of the published logs, on logs made here: other sizes, devices and ends than those."""

from pathlib import Path

import pytest
from reference_logs import FOLDER
from support.problems import assert_problem

from dlperf_slurm.logs.runs import ImportOptions, import_log


def import_text(text, name="some.log"):
    Path(name).write_text(text, encoding="utf-8")
    (run,) = import_log(Path(name), ImportOptions())
    return run


def clock(seconds):
    minutes, rest = divmod(seconds, 60)
    return f"10:{int(minutes):02d}:{rest:09.6f}"


def dll(seconds, text):
    return f"DLL 2023-08-04 {clock(seconds)} - {text} \n"


def make_pytorch_log(devices, iterations, amp=False):
    """Make a log with a first step of 9 s, then 1 s per step; rates fall by 10 % per step."""
    lines = [
        dll(
            0,
            f"PARAMETER data : /d  data_backend : x  batch_size : 64  amp : {amp}  "
            f"world_size : {devices}",
        ),
        "RUNNING EPOCHS FROM 0 TO 1\n",
    ]
    for step in range(1, iterations + 1):
        rate = 64 * devices - step / 10
        rates = f"train.compute_ips : 9999.0 images/s train.total_ips : {rate} images/s"
        lines.append(dll(9 + step, f"Epoch: 0 Iteration: {step}  train.loss : 7.1 None {rates}"))
    lines.append(
        dll(100, "Epoch: 0  train.loss : 7.1 None train.total_ips : 77.5 images/s val.x : 1")
    )
    lines.append(dll(101, "Summary: train.loss : 7.1 None train.total_ips : 77.5 images/s"))
    return "".join(lines)


@pytest.mark.parametrize(
    ("devices", "rule", "figure"),
    [
        (1, "arithmetic mean of rates[9:]", 64 - (10 + 40) / 20),
        (8, "arithmetic mean of rates[8:]", 512 - (9 + 40) / 20),
        (32, "summary", 77.5),
    ],
)
def test_pytorch_rule_is_that_of_the_devices(devices, rule, figure, home):
    run = import_text(make_pytorch_log(devices, 40))
    assert (run.publisher_rule, run.publisher_samples_per_s) == (rule, pytest.approx(figure))
    assert run.samples_per_s == pytest.approx(devices * 64)
    assert run.window.steps == 32


def test_pytorch_log_shorter_than_the_warm_up_has_our_figure_and_no_publishers(home):
    run = import_text(make_pytorch_log(8, 6, amp=True))
    assert (run.status, run.identity.precision) == ("ok", "amp-fp16")
    assert run.samples_per_s == pytest.approx(512)
    assert run.publisher_samples_per_s is None
    assert_problem(run.reason, says=("at least 9 values", "6"))


def test_pytorch_epoch_that_has_no_end_fails(home):
    text = make_pytorch_log(8, 40).replace("FROM 0 TO 1", "FROM 0 TO 2")
    assert_problem(import_text(text).reason, says=("lacks the line", "epoch 1"))


def make_mxnet_log(record=""):
    """Two epochs of 40 steps at one a second; the second's first ten take three times as long."""
    lines = [
        dll(0, "PARAMETER arch : resnetv15  num_layers : 50  gpus : [0, 1]  kv_store : horovod  "
               "dtype : float16  amp : False  batch_size : 32  num_epochs : 2")
    ]  # fmt: skip
    now = 100
    for epoch in (0, 1):
        lines.append(f"2023-08-04 {clock(now)[:8]},000:INFO: Starting epoch {epoch}\n")
        for step in (9, 19, 29, 39):
            now += 30 if (epoch, step) == (1, 9) else 10
            lines.append(
                dll(
                    now,
                    f"Epoch: {epoch} Iteration: {step}  train.loss : 7.1  train.ips : 21.0 img/s",
                )
            )
        lines.append(
            dll(
                now + 2,
                f"Epoch: {epoch}  train.loss : 7.1  train.ips : {30 + epoch} images/s{record}",
            )
        )
        now += 5
    lines.append(dll(now, "Summary: train.loss : 7.1  train.ips : 30.5 images/s"))
    return "".join(lines)


def test_mxnet_epochs_are_timed_from_their_start_to_their_record(home):
    run = import_text(make_mxnet_log())
    assert run.samples_per_s == pytest.approx(40 * 32 / 62)
    assert run.publisher_samples_per_s == 31.0
    assert (run.identity.batch_size_per_device, run.identity.precision) == (16, "amp-fp16")
    # validation is no training time
    run = import_text(make_mxnet_log(record=" val.ips : 99999.0 images/s"))
    assert run.samples_per_s == pytest.approx(40 * 32 / 60)


def test_mxnet_epoch_that_is_missing_or_lacks_its_last_steps_fails(home):
    text = make_mxnet_log()
    (lost,) = (line for line in text.splitlines(True) if "Epoch: 0 Iteration: 39" in line)
    reason = import_text(text.replace(lost, "")).reason
    assert_problem(reason, says=("epochs of rank -1", "{0: 29, 1: 39}"))
    reason = import_text(text.replace("num_epochs : 2", "num_epochs : 3")).reason
    assert_problem(reason, says=("2 of 3",))


ENDS = (
    "[2023/07/28 10:02:03] ppcls INFO: END epoch:7   train  loss:  6.8 batch_cost_sum: 120.0 s,\n",
    "LAUNCH INFO 2023-07-28 10:02:05,474 Exit code 0\n",
)


@pytest.mark.parametrize("end", ["", *ENDS])
def test_paddleclas_comes_to_its_end_by_itself_or_by_its_launcher(end, home):
    (log,) = FOLDER.rglob("PaddleClas*")
    (whole,) = import_log(log, ImportOptions())
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    # that run was stopped by a signal
    lines = [line for line in lines if " with signal " not in line]
    last = max(index for index, line in enumerate(lines) if "train step:" in line)
    run = import_text("".join([*lines[: last + 1], end]))
    expected = ("ok", whole.samples_per_s) if end else ("incomplete", None)
    assert (run.status, run.samples_per_s) == expected


def test_updates_that_loss_scaling_skips_are_steps(home):
    config = "Namespace(fp16=True, gradient_accumulation_steps=4, max_steps=3.0, phase2=False)"
    lines = [
        *(
            f"device: cuda:{index} n_gpu: 1, distributed training: True, 16-bits\n"
            for index in (1, 0)
        ),
        dll(0, f'PARAMETER Config : ["{config}"]'),
        dll(0, "PARAMETER batch_size_per_gpu : 8"),
    ]
    for seconds, (step, skipped) in enumerate([(0, 1), (1, 1), (0, 3), (1, 3), (2, 3)], start=1):
        text = f"Training Epoch: 0 Training Iteration: {step}  skipped_steps : {skipped}"
        lines.append(dll(10 * seconds, text))
    lines.append(dll(60, "Training Epoch: 0 Training Iteration: 3  final_loss : 8.5 None"))
    lines.append(
        dll(61, " e2e_train_time : 61.0 s training_sequences_per_second : 5.5 sequences/s")
    )
    run = import_text("".join(lines))
    assert run.status == "ok", run.reason
    assert run.window.steps == 5 * 4
    assert run.samples_per_s == pytest.approx(5 * 4 * 16 / 50)
    assert run.publisher_samples_per_s == 5.5


def test_bert_steps_that_the_script_skips_are_warm_up(home):
    lines = ["+ num_gpus=2\n", "+ precision=fp16\n", "+ batch_size=8\n"]
    for step in range(1, 8):
        if step < 4:
            lines.append(
                f"Skipping time record for  {step}  due to checkpoint-saving/warmup overhead\n"
            )
        rate = 10.0 if step < 4 else 100.0 + step
        lines.append(
            dll(10 * step, f"Iteration: {step + 1}  throughput_train : {rate} seq/s mlm_loss : 9.5")
        )
    lines.append(dll(90, " throughput_train : 105.0 seq/s"))
    run = import_text("".join(lines))
    assert run.status == "ok", run.reason
    assert run.samples_per_s == pytest.approx(4 / (1 / 104 + 1 / 105 + 1 / 106 + 1 / 107))
    assert run.publisher_samples_per_s == pytest.approx((3 * 10 + 104 + 105 + 106 + 107) / 7)
    assert (run.identity.devices, run.identity.precision) == (2, "amp-fp16")
