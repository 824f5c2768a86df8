"""Formats of the published logs, on logs made here: other sizes, devices and ends than those."""

from pathlib import Path

import pytest
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


def test_mxnet_validation_is_no_training_time(home):
    run = import_text(make_mxnet_log(record=" val.ips : 99999.0 images/s"))
    assert run.samples_per_s == pytest.approx(40 * 32 / 60)


def test_mxnet_epoch_that_is_missing_fails(home):
    text = make_mxnet_log().replace("num_epochs : 2", "num_epochs : 3")
    assert_problem(import_text(text).reason, says=("2 of 3",))


def test_mxnet_epoch_that_lacks_its_last_steps_fails(home):
    text = make_mxnet_log()
    (lost,) = (line for line in text.splitlines(True) if "Epoch: 0 Iteration: 39" in line)
    reason = import_text(text.replace(lost, "")).reason
    assert_problem(reason, says=("epochs of rank -1", "{0: 29, 1: 39}"))


def make_paddleclas_log(end):
    head = "[2023/07/28 10:00:00] ppcls INFO: "
    lines = [
        "LAUNCH INFO 2023-07-28 10:00:00,627 devices: 0,1\n",
        "LAUNCH INFO 2023-07-28 10:00:00,628 nnodes: 2\n",
        f"{head}Global : \n",
        f"{head}    epochs : 1\n",
        f"{head}Arch : \n",
        f"{head}    name : ResNet50\n",
        f"{head}DataLoader : \n",
        f"{head}    Train : \n",
        f"{head}        sampler : \n",
        f"{head}            batch_size : 16\n",
        f"{head}    Eval : \n",
        f"{head}        sampler : \n",
        f"{head}            batch_size : 64\n",
        f"{head}AMP : \n",
        f"{head}    use_amp : True\n",
    ]
    for line in range(1, 13):
        lines.append(
            f"[2023/07/28 {clock(10 * line)[:8]}] ppcls INFO: epoch:0   train step:{10 * line:<5} "
            f"lr: 0.1, loss:  7.0 batch_cost: 1.0 s, ips: {20 + line} samples/sec.\n"
        )
    return "".join(lines) + end


ENDS = (
    "[2023/07/28 10:02:03] ppcls INFO: END epoch:0   train  loss:  6.8 batch_cost_sum: 120.0 s,\n",
    "LAUNCH INFO 2023-07-28 10:02:05,474 Exit code 0\n",
    "LAUNCH INFO 2023-07-28 10:02:07,218 Terminating with signal 15\n",
)


@pytest.mark.parametrize("end", ENDS)
def test_paddleclas_comes_to_its_end_in_three_ways(end, home):
    run = import_text(make_paddleclas_log(end))
    assert run.status == "ok", run.reason
    assert run.samples_per_s == pytest.approx(64)
    assert run.publisher_samples_per_s == pytest.approx(4 * (29 + 30 + 31 + 32) / 4)
    assert (run.identity.nodes, run.identity.devices, run.identity.precision) == (2, 4, "amp-fp16")
    assert run.identity.batch_size_per_device == 16


def test_paddleclas_without_an_end_fails(home):
    reason = import_text(make_paddleclas_log("")).reason
    assert_problem(reason, says=("ends in epoch 0 of 1", "step 120"))


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


def make_tensorflow2_log(lines, steps, log_steps=20, end="}"):
    text = (
        "I0826 10:00:00.000000 1 classifier_trainer.py:180] Base params: {'evaluation': {}}\n"
        "I0826 10:00:00.000000 1 classifier_trainer.py:189] Final model parameters: "
        "{'evaluation': {}\n"
        " 'model': {'loss': {'name': 'x'},\n           'name': 'resnet',\n"
        " 'runtime': {'num_gpus': 4,\n             'worker_hosts': None},\n"
        f" 'train': {{'epochs': 1,\n           'steps': {steps},\n"
        f"           'time_history': {{'log_steps': {log_steps}}}}},\n"
        " 'train_dataset': {'batch_size': 128,\n                   'dtype': 'float16',\n"
        "                   'use_per_replica_batch_size': False},\n"
        " 'validation_dataset': {'batch_size': 999,\n                   'dtype': 'float32'}}\n"
    )
    for index in range(1, lines + 1):
        text += (
            f"I0826 {clock(10 * index)} 1 keras_utils.py:133] TimeHistory: 10.00 seconds, "
            f"{250 + index}.5 examples/second between steps {(index - 1) * 20} and {index * 20}\n"
        )
    return f"{text}I0826 10:05:00.000000 1 classifier_trainer.py:447] Run stats:\n" + (
        f"{{'loss': 5.3, 'train_finish_time': 1598449181.3{end}\n"
    )


def test_tensorflow2_steps_need_be_no_multiple_of_the_lines(home):
    run = import_text(make_tensorflow2_log(lines=7, steps=150))
    assert run.status == "ok", run.reason
    assert run.samples_per_s == pytest.approx(20 * 128 / 10)
    assert run.publisher_samples_per_s == 254.5
    assert (run.identity.devices, run.identity.batch_size_per_device) == (4, 32)
    assert run.identity.precision == "amp-fp16"


def test_tensorflow2_devices_are_those_of_all_hosts(home):
    text = make_tensorflow2_log(lines=7, steps=150)
    identity = import_text(text.replace("None},", "'a:1,b:1,c:1,d:1'},")).identity
    assert (identity.nodes, identity.devices, identity.batch_size_per_device) == (4, 16, 8)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (make_tensorflow2_log(lines=7, steps=160), ("140 of 160 steps",)),
        (make_tensorflow2_log(lines=7, steps=150, end=""), ("'Run stats' are missing",)),
    ],
)
def test_tensorflow2_log_that_lacks_steps_or_stats_fails(text, says, home):
    run = import_text(text)
    assert run.status == "incomplete"
    assert_problem(run.reason, says=says)


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
