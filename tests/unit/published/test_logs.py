"""Each log format: an excerpt with figures computed by hand; the reason if a part is missing."""

from dataclasses import replace

import pytest
from log_excerpts import EXCERPTS, LOGS, UNTOLD, list_excerpt, read_one, split_content
from reference_logs import FOLDER, list_reference_logs, read_published_rows
from support.problems import assert_problem

from dlperf_slurm.logs import (
    compute_samples_per_s,
    find_formats,
    list_formats,
    load_format,
    read_runs,
)
from dlperf_slurm.logs.lines import read_lines
from dlperf_slurm.logs.runs import ImportOptions, import_log

MEGATRON = (
    " iteration  {0}/   90 | consumed samples: 64 | elapsed time per iteration (ms): {1} | {2}"
    "learning rate: 1E-05 | global batch size:    32 | lm loss: 2.5E+00 | loss scale: 1.0 |"
)
TITAN = "[rank0]:[titan] 2025-01-02 03:04:0{0},5 - root - INFO - step: {0}0  loss:  6.1  memory: 9"
MLLOG = ':::MLLOG {{"namespace": "", "key": "{0}", "value": {1}, "metadata": {{{2}}}}}'
TV = "Epoch: [0]  [ {0}/50]  eta: 0:43:31  lr: 0.1  img/s: {1}  loss: 6.8 (6.9)  time: 2.5"
DETECTRON = "[01/02 03:04:05 d2]:  eta: 1:23:45  iter: {0}  total_loss: 4.6  time: {1}  x"
FAIRSEQ = (
    "2020-01-02 03:04:05 | INFO | train_inner | epoch 001:    {0} / 1000 loss=9, wps=400, ups={1}, "
    "wpb=100, bsz=16, num_updates={0}, lr=0.1"
)

# format: lines, measured, samples/s or None; four equal intervals, of which the first is warm-up
TRAINER_LOGS = {
    "dlperf_log": (
        ["dlperf-log/1 devices=2 batch_size_per_device=8 precision=fp32 mode=train"]
        + [f"dlperf-log/1 step={step} seconds={0.9 if step == 5 else 0.1}" for step in (5, 10, 15)]
        + ["dlperf-log/1 end"],
        ("100 ms a step", 160.0),
    ),
    "megatron": (
        [
            MEGATRON.format(10, "9000.0", ""),
            MEGATRON.format(20, "2000.0", "throughput per GPU (TFLOP/s/GPU): 100.0 | "),
            MEGATRON.format(30, "2000.0", "throughput per GPU (TFLOP/s/GPU): 100.0 | "),
            MEGATRON.format(40, "2000.0", ""),
        ],
        ("2000 ms a step", 16.0),
    ),
    "nemo": (
        [
            f"Training epoch 0, iteration {step}/99 | lr: 1e-4 | global_batch_size: 64 | "
            f"global_step: {step} | train_step_timing in s: {seconds} | consumed_samples: 9"
            for step, seconds in ((0, 9.0), (1, 2.0), (2, 2.0), (3, 2.0))
        ],
        ("2000 ms a step", 32.0),
    ),
    "torchtitan": (
        [
            "[titan] 2025-01-02 03:04:00,1 - root - INFO - Trainer is initialized with local batch "
            "size 4, global batch size 8, gradient accumulation steps 1, sequence length 100, "
            "total steps 40 (warmup 2).",
            *(TITAN.format(i) + f"  tps: 1,{i and 0}00  mfu: 34.3%" for i in range(4)),
        ],
        ("1000 tokens/s per device", 20.0),
    ),
    "maxtext": (
        [
            "Num_devices: 4, shape (4,)",
            "Config param max_target_length: 2048",
            *(
                f"completed step: {i}, seconds: 1.0, TFLOP/s/device: 150.0, Tokens/s/device: "
                f"{rate}, total_weights: 9, loss: 9.1"
                for i, rate in enumerate((10.0, 2048.0, 2048.0, 2048.0))
            ),
        ],
        ("2048 tokens/s per device", 4.0),
    ),
    "nanogpt": (
        [f"iter {i}0: loss 3.2, time {ms}ms, mfu 16.7%" for i, ms in enumerate((9e3, 50, 50, 50))],
        ("50 ms a step", None),
    ),
    "hf_trainer": (
        [
            "***** Running training *****",
            "  Instantaneous batch size per device = 4",
            "  Total train batch size (w. parallel, distributed & accumulation) = 16",
            "  Gradient Accumulation steps = 2",
            "  Total optimization steps = 1,000",
            "{'loss': 0.6347, 'learning_rate': 4.8e-05, 'epoch': 0.08}",
            "{'train_runtime': 58.1, 'train_samples_per_second': 189.3, 'train_loss': 0.4, "
            "'train_tokens_per_second': 6500.0}",
        ],
        ("189.3 samples/s", 189.3),
    ),
    "lightning": (
        [f"Epoch {i}: 100%|##| 40/40 [00:02<00:00, {rate}it/s, v_num=0]"
         for i, rate in enumerate((5.0, 20.0, 20.0))]
        + ["`Trainer.fit` stopped: `max_epochs=3` reached."],
        ("20 steps/s", None),
    ),
    "deepspeed": (
        [f"[2022-01-02 03:04:05,6] [INFO] [timer.py:197:stop] 0/{step}, RunningAvgSamplesPerSec="
         f"{rate}, CurrSamplesPerSec=9.0, MemAllocated=1GB"
         for step, rate in ((10, 150.0), (20, 160.5))],
        ("160.5 samples/s", 160.5),
    ),
    "mllog": (
        [
            MLLOG.format("global_batch_size", 64, ""),
            MLLOG.format("tracked_stats", '{"throughput": 70.5}', '"epoch_num": 5'),
            MLLOG.format("run_stop", "null", '"status": "success"'),
            MLLOG.format("tracked_stats", '{"throughput": 72.5, "epoch_num": 9}', '"step": [2, 9]'),
        ],
        ("72.5 samples/s", 72.5),
    ),
    "keras": (
        ["Epoch 1/2", "100/100 [====] - 9s 90ms/step - loss: 1.0",
         "Epoch 2/2", "100/100 [====] - 2s 20ms/step - loss: 1.0"],
        ("20 ms a step", None),
    ),
    "timm": (
        [f"Train: 0 [ {step}/1251 (  4%)]  Loss: 6.9 (6.9)  Time: 0.3s,  {rate}/s  (0.3s,  7.5/s)  "
         "LR: 1.0e-05" for step, rate in ((0, 9.0), (50, 80.0), (100, 80.0))],
        ("80 samples/s", 80.0),
    ),
    "torchvision_references": (
        ["Namespace(batch_size=32, model='resnet50', amp=True, world_size=2, data_path='/d')",
         *(TV.format(step, rate) for step, rate in ((10, 9.5), (20, 64.0), (30, 64.0)))],
        ("64 samples/s per device", 128.0),
    ),
    "mmengine": (
        ["01/02 03:04:05 - mmengine - INFO - Epoch(train)   [1]"
         f"[ {step}/733]  lr: 1.9e-03  eta: 1:00:00  time: {seconds}  data_time: 0.04  loss: 2.0"
         for step, seconds in ((50, 0.9), (100, 0.5), (150, 0.5))],
        ("500 ms a step", None),
    ),
    "detectron2": (
        [DETECTRON.format(step, seconds) for step, seconds in ((19, 0.3), (39, 0.25))],
        ("250 ms a step", None),
    ),
    "fairseq": (
        [FAIRSEQ.format(step, rate) for step, rate in ((10, 1.0), (20, 4.0), (30, 4.0))]
        + ["2020-01-02 03:04:05 | INFO | fairseq_cli.train | done training in 9.1 seconds"],
        ("4 steps/s", 64.0),
    ),
    "nvidia_dlll": (
        ['DLLL {"step": "PARAMETER", "data": {"num_layers": 50, "gpus": "0", "batch_size": 192}}',
         'DLLL {"step": [0, 19], "data": {"train.loss": 7.1, "train.ips": 1400.0}}',
         'DLLL {"step": [], "data": {"train.ips": 1430.5}}'],
        ("1430 samples/s", 1430.5),
    ),
}  # fmt: skip


@pytest.fixture(params=sorted(TRAINER_LOGS))
def name(request):
    return request.param


def _import(tmp_path, lines):
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (run,) = import_log(tmp_path / "a.log", ImportOptions())
    return run


def test_figures_are_those_computed_by_hand(tmp_path, name):
    lines, (measured, samples_per_s) = TRAINER_LOGS[name]
    run = _import(tmp_path, lines)
    assert (run.format_name, run.measured) == (name, measured)
    assert run.samples_per_s == (samples_per_s and pytest.approx(samples_per_s))
    assert run.status == ("ok" if samples_per_s else "measured")
    assert samples_per_s or "--set batch_size_per_device=..." in run.reason


@pytest.mark.parametrize("cut", ["dlperf_log", "hf_trainer", "mllog", "lightning", "fairseq"])
def test_log_without_its_end_is_incomplete(tmp_path, cut):
    run = _import(tmp_path, TRAINER_LOGS[cut][0][:-1])
    assert run.samples_per_s is None
    assert run.status in ("incomplete", "failed")


@pytest.mark.parametrize(
    ("trainer", "prints"),
    [
        ("megatron", {"TFLOP/s per device": 100.0}),
        ("maxtext", {"TFLOP/s per device": 150.0}),
        ("nanogpt", {"% MFU": 16.7}),
        ("fairseq", {"tokens/s": 400.0}),
        ("hf_trainer", {"tokens/s": 6500.0}),
        ("keras", {}),
    ],
)
def test_own_figures_of_the_trainer_are_beside_ours(tmp_path, trainer, prints):
    assert _import(tmp_path, TRAINER_LOGS[trainer][0]).prints == prints


def test_time_of_a_sample_that_is_called_that_of_a_step_is_refused(tmp_path):
    run = _import(tmp_path, ["Train on 100 samples", *TRAINER_LOGS["keras"][0]])
    assert (run.status, run.samples_per_s) == ("failed", None)
    assert "Keras before 2.4" in run.reason


# the same on any Python, and hundreds


def _read(format_name, content):
    return read_runs(load_format(format_name), split_content(content))


def _read_figure(excerpt, content):
    """(samples/s, problem) of a log that is to hold one run; no samples/s with a problem."""
    (reading,) = _read(excerpt.split("/")[0], content)
    if reading.problem:
        return None, reading.problem
    expected = LOGS[excerpt]
    identity = reading.identity
    identity = replace(
        identity,
        devices=identity.devices or expected.devices,
        batch_size_per_device=identity.batch_size_per_device or expected.batch_size_per_device,
    )
    return compute_samples_per_s(reading.windows, identity), ""


def _content(excerpt):
    return (EXCERPTS / excerpt).read_bytes()


@pytest.fixture(params=sorted(LOGS))
def excerpt(request):
    return request.param


@pytest.mark.slow
def test_every_format_has_a_log_with_its_expected_figure():
    published = {path for row in read_published_rows() for path in FOLDER.glob(row.log)}
    claims = [find_formats(read_lines(path)) for path in published & set(list_reference_logs())]
    covered = {excerpt.split("/")[0] for excerpt in LOGS}.union(TRAINER_LOGS, *claims)
    assert [excerpt for excerpt in list_formats() if excerpt not in covered] == []


@pytest.mark.slow
def test_one_format_claims_the_excerpt(excerpt):
    assert find_formats(split_content(_content(excerpt))) == [excerpt.split("/")[0]]


@pytest.mark.slow
def test_throughput_is_warm_samples_over_their_time(excerpt):
    samples_per_s, problem = _read_figure(excerpt, _content(excerpt))
    assert problem == ""
    assert samples_per_s == pytest.approx(LOGS[excerpt].samples_per_s, rel=1e-8)


@pytest.mark.slow
def test_identity_is_what_the_log_tells(excerpt):
    (reading,) = _read(excerpt.split("/")[0], _content(excerpt))
    expected = LOGS[excerpt]
    untold = (0,) if excerpt.startswith(UNTOLD) else ()
    assert reading.identity.devices in (expected.devices, *untold)
    assert reading.identity.batch_size_per_device in (expected.batch_size_per_device, *untold)


@pytest.mark.slow
def test_an_empty_log_has_no_timed_step(excerpt):
    (reading,) = _read(excerpt.split("/")[0], b"")
    assert "no timed step" in reading.problem or "missing" in reading.problem
    assert reading.windows == ()


@pytest.mark.slow
def test_no_log_of_another_format_is_taken_for_one_of_these_formats():
    own = {excerpt.split("/")[0] for excerpt in LOGS}
    logs = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".csv"]
    assert logs, f"{FOLDER} holds no logs"
    claims = {str(path): own & set(find_formats(read_lines(path))) for path in logs}
    assert {path: names for path, names in claims.items() if names} == {}


def without(*texts):
    """Leaves out the lines that hold one of the texts."""
    return lambda lines: [line for line in lines if not any(text in line for text in texts)]


def only(text):
    return lambda lines: [line for line in lines if text in line]


def told(before, after):
    return lambda lines: [line.replace(before, after) for line in lines]


def before_last(text):
    """Cuts the log before the last line that holds the text."""
    return lambda lines: lines[: max(i for i, line in enumerate(lines) if text in line)]


def without_first(text):
    return lambda lines: [
        line for line in lines if line is not next(each for each in lines if text in each)
    ]


def each_of_two_ranks(lines):
    return [f"[1,{rank}]<stdout>:{line}" for line in lines for rank in (0, 1)]


NO_STEP = ("no timed step",)
OF_LOGS = {
    "gluoncv_imagenet/four_gpus.log": [
        (told("num_epochs=2", "num_epochs=3"), ("ends after epoch 1", "2"))
    ],
    "gluoncv_horovod/four_ranks.log": [
        (without("Rank[2] Batch[24]\tTime cost"), ("epoch 0", "'Time cost'", "ranks 2"))
    ],
    "gluonnlp_bert/one_process_2020.log": [
        (without("Namespace", "Train cost"), ("ends at step 40", "'Train cost'"))
    ],
    "horovod_synthetic/eight_gpus.log": [
        (told("Number of GPUs: 8", "Number of GPUs: 16"), ("8 devices", "16")),
        (without("Iter #3:"), ("lacks lines", "steps 2 and 4")),
        (without("Iter #0:"), ("lacks iteration 0",)),
        (without(*(f"Iter #{index}:" for index in range(2, 10))), ("mean", "268.0", "269.9")),
        (each_of_two_ranks, ("several ranks",)),
    ],
    "mindspore_models/two_ranks.log": [
        (before_last("epoch time"), ("step 7 was printed by 1", "step 0 by 2")),
        (without("args_opt"), ("how many steps", "(train_steps)")),
    ],
    "mxnet_module/two_nodes.log": [
        (without("Node[1] Epoch[1] Time"), ("node 1", "'Time cost'", "epoch 1"))
    ],
    "oneflow_benchmark_cnn/two_nodes.log": [
        (without("num_examples"), ("how many iterations", "the script's arguments"))
    ],
    "oneflow_benchmark_bert/one_node.log": [
        (without("iter_num"), ("how many steps", "(iter_num)"))
    ],
    "oneflow_models_resnet50/two_ranks.log": [
        (without("[rank:1] [train], epoch: 0/1, iter: 40"), ("rank 1", "epoch 0", "step 30"))
    ],
    "paddle_models_resnet50/without_times.log": [
        (
            without(*(f"{digit}] \tloss" for digit in range(1, 10))),
            ("only some of the batches", "no timestamps"),
        )
    ],
    "paddleclas_engine/one_rank.log": [
        (told("ips: 1", "ips: 2"), ("batch size", "64, 101, 102, 103")),
        (only("[Eval]"), NO_STEP),
    ],
    "pytorch_examples/four_ranks.log": [
        (without_first("[0][11/"), ("epoch 0 step 11 was printed by 3", "epoch 0 step 0 by 4"))
    ],
    "tensorflow1_models/two_cycles.log": [
        (before_last("Loss for final step"), ("ends at step 800", "1 of 2 cycles")),
        (only("accuracy"), NO_STEP),
        (only("average_examples_per_sec"), NO_STEP),
    ],
    "tf_cnn_benchmarks/horovod_four_ranks.log": [
        (told("Num batches: 30", "Num batches: 40"), ("30 of 40 steps",)),
        (without("total images/sec: 1160.39"), ("3 of 4 workers", "'total images/sec'")),
        (
            told("Variables:   horovod", "Variables:   parameter_server"),
            ("4 independent benchmarks", "same time"),
        ),
    ],
}


@pytest.mark.parametrize(
    ("excerpt", "change", "says"),
    [(name, change, says) for name, changes in OF_LOGS.items() for change, says in changes],
)
def test_what_is_missing_or_does_not_fit_is_named(excerpt, change, says):
    lines = list_excerpt(excerpt)
    changed = change(lines)
    assert changed
    assert changed != lines
    assert_problem(read_one(excerpt.split("/")[0], changed).problem, says=says)


def test_validation_of_nvidias_mxnet_script_is_inference(tmp_path):
    lines = [
        'DLLL {"step": "PARAMETER", "data": {"num_layers": 50, "gpus": "0", "batch_size": 64, '
        '"mode": "val"}}',
        'DLLL {"step": [], "data": {"val.ips": 5200.5, "val.latency_avg": 0.0123}}',
    ]
    run = _import(tmp_path, lines)
    assert (run.identity.mode, run.identity.total_batch_size) == ("infer", 64)
    assert run.samples_per_s == 5200.5
