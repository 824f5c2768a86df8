"""What formats share: failures, times, marks, windows, figures, parameters, names."""

from pathlib import Path

import pytest
from support.problems import assert_problem

from dlperf_slurm.logs import Identity
from dlperf_slurm.logs.failures import FailureScan
from dlperf_slurm.logs.hardware import scan_hardware
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark, Marks
from dlperf_slurm.logs.path_settings import read_name
from dlperf_slurm.logs.patterns import (
    parse_namespace,
    parse_time,
    read_count,
    subtract_times,
)
from dlperf_slurm.logs.publisher_rules import (
    RuleError,
    average_harmonically,
    take_values,
    time_steps,
)
from dlperf_slurm.logs.settings import SettingScan
from dlperf_slurm.logs.timed_run import TimedFormat, dll_line
from dlperf_slurm.logs.windows import make_rate_window, make_time_window


def scan(*texts):
    failures = FailureScan()
    for text in texts:
        failures.add(LogLine(-1, text, False))
    return failures


@pytest.mark.parametrize(
    "text",
    [
        "train.loss : nan None",
        "{'loss': nan}",
        "Loss = NaN",
        "10 images/sec: 611.8 +/- 0.4 (jitter = 1.2) nan",
    ],
)
def test_loss_that_is_not_finite_is_a_failure(text):
    assert_problem(scan(text).message, says=("loss", "not finite", text))


@pytest.mark.parametrize(
    "text",
    [
        "val.loss : None None",
        "INFO: loss info follows",
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.0GiB",
        "+ echo CUDA out of memory",
        "nan_check : True",
    ],
)
def test_harmless_lines_are_no_failures(text):
    assert scan(text).message == ""


def test_running_out_of_memory_outweighs_what_went_before():
    failures = scan("Traceback (most recent call last)", "torch.cuda.OutOfMemoryError: x")
    assert failures.is_out_of_memory
    assert "out of memory" in failures.message


ALLOCATION = "failed to allocate 2.91G from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"


@pytest.mark.parametrize(
    "head", ["2020-07-10 08:44:04.584959: I tensorflow/x.cc:831] ", "W0710 08:44:04.584959 1 x] "]
)
def test_failed_allocation_counts_only_if_the_run_did_not_end(head):
    failures = scan(head + ALLOCATION)
    assert failures.find_failure(is_complete=True) == ""
    assert not failures.is_out_of_memory
    assert "OUT_OF_MEMORY" in failures.find_failure(is_complete=False)
    assert failures.is_out_of_memory
    assert scan(ALLOCATION).find_failure(is_complete=True) != ""


FRAME = ('File "/a/b.py", line 3, in main', "train(model)", "~~~~~^^^^^^^")
TRACEBACK = "Traceback (most recent call last):"
CHAINED = "During handling of the above exception, another exception occurred:"


@pytest.mark.parametrize(
    ("lines", "exception"),
    [
        ((TRACEBACK, *FRAME, "ImportError: No module named 'x'"), "ImportError: No"),
        ((TRACEBACK, FRAME[0], "KeyError: 'x'", "later: 1"), "KeyError: 'x'"),
        ((TRACEBACK, *FRAME, "my.lib.Oops: 3", "", CHAINED, TRACEBACK, *FRAME, "E: 4"), "E: 4"),
        ((TRACEBACK, *FRAME, "KeyError: 1", "", TRACEBACK, *FRAME, "KeyError: 2"), "KeyError: 1"),
        ((TRACEBACK,), TRACEBACK),
    ],
)
def test_failure_is_the_exception_of_the_traceback(lines, exception):
    assert_problem(scan(*lines).find_failure(is_complete=False), says=("error", exception))


def test_ranks_print_their_tracebacks_at_the_same_time():
    failures = FailureScan()
    printed = [(0, "Exception ignored in: <function x>"), (1, "step 3"), (0, TRACEBACK)]
    for rank, text in printed:
        failures.add(LogLine(rank, text, False))
    assert failures.find_failure(is_complete=False) == ""
    printed = [(1, TRACEBACK), (0, TRACEBACK), *((rank, text) for text in FRAME for rank in (0, 1))]
    for rank, text in [*printed, (0, "KeyError: 0"), (1, "KeyError: 1")]:
        failures.add(LogLine(rank, text, False))
    assert_problem(failures.find_failure(is_complete=False), says=("rank 1", "KeyError: 1"))


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("Compiled cluster using XLA!  This line is logged at most once.", {"compiler": "xla"}),
        ("python train.py --use_xla --mode=inference", {"compiler": "xla", "mode": "infer"}),
        ("use_xla: False  data_backend : syntetic", {"compiler": "none", "data": "device"}),
        ("Namespace(kv_store='dist_sync', mode='pred')",
         {"gradient_sync": "parameter_server", "mode": "infer"}),
        ("use_synthetic_data: False", {"data": "folder"}),
        ("torch_compile=True", {"compiler": "torch.compile"}),
        ("--tf_xla_cpu_global_jit was deprecated; XLA service 0x1; XLA_GPU:0", {}),
    ],
)  # fmt: skip
def test_arguments_and_messages_state_settings(text, stated):
    settings = SettingScan()
    settings.add(LogLine(-1, text, False))
    assert settings.finish() == stated


def test_evaluation_during_training_is_training():
    settings = SettingScan()
    for text in ("mode: train", "mode: val", "use_synthetic: True", "use_synthetic: False"):
        settings.add(LogLine(-1, text, False))
    assert settings.finish() == {"mode": "train"}


@pytest.mark.parametrize(
    ("text", "hardware"),
    [
        ("(device: 0, name: Quadro RTX 8000, pci bus id: 0000:1a)", "Quadro RTX 8000"),
        ("name: GeForce GTX 1080 Ti major: 6 minor: 1", "GeForce GTX 1080 Ti"),
        ("name='NVIDIA RTX 6000 Ada Generation', major=8", "RTX 6000 Ada"),
        ("GPU 0: NVIDIA GeForce RTX 4090 (UUID: x)", "GeForce RTX 4090"),
        ("gpu: A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA H100 80GB HBM3", "H100 80GB HBM3"),
        ("AMD Instinct MI250X", "MI250X"),
        ("AMD Radeon RX 7900 XTX", "Radeon RX 7900 XTX"),
        ("Cloud TPU v3-8", "TPU v3-8"),
        ("name: GPU, pci bus id; NVIDIA Release 20.03; T4, A10", ""),
    ],
)
def test_devices_are_read_by_their_names(text, hardware):
    assert scan_hardware([LogLine(-1, text, False)]).hardware == hardware


def test_quoted_line_is_fit_for_a_terminal():
    message = scan("Segmentation fault \x07\x1b]0;title \u202e").message
    assert message.endswith(": Segmentation fault ??]0;title ?")
    assert len(scan("Segmentation fault " + "x" * 5000).message) < 220


def test_times_differ_by_what_passed():
    assert parse_time("2023-07-31 09:01:00.500000") - parse_time("2023/07/31 09:00:59") == 1.5
    assert parse_time("I0827 00:00:01.250000") - parse_time("I0826 23:59:59.000000") == 2.25
    assert parse_time("2020-12-16 08:02:11,659") % 1 == pytest.approx(0.659)


def test_new_year_lies_between_times_without_a_year():
    before, after = parse_time("I1231 23:59:59.000000"), parse_time("I0101 00:00:02.000000")
    assert subtract_times(after, before) == 3


def fill_marks(*positions, rank=0, may_repeat=False):
    marks = Marks(may_repeat)
    for index, position in enumerate(positions):
        marks.add(LogLine(rank, "", False), Mark(position, 10.0 * index, 1.0))
    return marks


def test_line_that_is_there_twice_counts_once():
    marks = fill_marks((1,), (2,))
    marks.add(LogLine(0, "", False), Mark((2,), 10.0, 1.0))
    assert len(marks.by_rank[0]) == 2
    assert (marks.fault, marks.gap) == ("", "")


def test_training_that_goes_back_is_a_problem():
    says = ("goes back", "from step 2 to step 1")
    assert_problem(fill_marks((1,), (2,), (1,), rank=-1).fault, says=("training", *says))
    assert fill_marks((1,), (1,)).fault
    assert not fill_marks((1,), (1,), may_repeat=True).fault


def test_window_leaves_out_the_first_interval_of_every_epoch():
    (window,) = make_time_window(0, fill_marks((0, 9), (0, 19), (1, 9), (1, 19)).by_rank[0])
    assert (window.steps, window.seconds, window.step_seconds) == (20, 20.0, ())


def test_micro_batches_multiply_steps_and_have_no_times_of_their_own():
    marks = fill_marks((1,), (2,), (2,), may_repeat=True)
    (window,) = make_time_window(0, marks.by_rank[0], micro_batches=4)
    assert (window.steps, window.step_seconds) == (8, ())


def test_window_needs_times_that_go_forward():
    marks = Marks()
    for step, time in ((1, 10.0), (2, 20.0), (3, 15.0)):
        marks.add(LogLine(0, "", False), Mark((step,), time, 1.0))
    assert make_time_window(0, marks.by_rank[0]) == ()
    assert make_time_window(0, marks.by_rank[0][:1]) == ()


def test_rates_are_joined_by_their_times_not_averaged():
    (window,) = make_rate_window(0, [(10, 100.0), (10, 300.0)])
    assert window.samples_per_s == pytest.approx(150.0)
    assert make_rate_window(0, [(10, 0.0)])[0].samples_per_s == 0
    assert make_rate_window(0, []) == ()


def test_rule_with_fewer_values_than_it_takes_has_no_figure():
    with pytest.raises(RuleError, match=r"at least 6 values.* 4$"):
        take_values([1.0] * 4, 1, 6)
    with pytest.raises(RuleError):
        average_harmonically([1.0, 0.0])
    with pytest.raises(RuleError):
        time_steps([2.0, 1.0], 1, 2, 8)


def take_dll(text, is_last_unended=False, **metrics):
    """Return the run after one line of DLLogger, with an entry for these metrics."""
    entry = dll_line("(?:x|Summary:) ", **metrics)
    run = TimedFormat((entry,), lambda run: Identity(), lambda *_: (), lambda run: "").start_run()
    run.add(LogLine(0, f"DLL 2023-08-04 05:48:55.591805 - {text}", is_last_unended))
    return run


def test_metric_is_found_by_its_whole_name():
    text = "x val.ips : 9.0 ips : 3.5 images/s"
    assert take_dll(text, rate="ips").series == {"final_rates": [3.5]}
    assert take_dll(text, rate="total_ips").series == {}


@pytest.mark.parametrize(("end", "figures"), [("", []), (" ", [389.4]), (" ima", [389.4])])
def test_value_at_the_very_end_of_a_log_may_be_cut_short(end, figures):
    run = take_dll(f"Summary: train.ips : 389.4{end}", is_last_unended=True, rate="train.ips")
    assert run.series.get("final_rates", []) == figures


def test_day_that_no_calendar_has_is_no_record():
    pattern, _ = dll_line("Summary: ", rate="x")
    assert pattern.match("DLL 2023-12-31 05:48:55.5 - Summary: x : 1 ")
    assert not pattern.match("DLL 2023-13-41 05:48:55.5 - Summary: x : 1 ")


def test_namespace_values_are_without_quotes():
    values = parse_namespace("a=1, b='x, y', c=[1, 2], d=None, e=20.0")
    assert values == {"a": "1", "b": "x, y", "c": "[1, 2]", "d": "None", "e": "20.0"}
    assert (read_count(values, "e"), read_count(values, "b"), read_count(values, "z")) == (20, 0, 0)


@pytest.mark.parametrize(
    ("path", "identity"),
    [
        ("4n8g/rn50_b128_fp32_1.log", Identity("", "resnet50", 4, 32, 128, "fp32")),
        ("x/tf_gpu8_amp_bs256.txt", Identity("", "", 0, 8, 256, "amp-fp16")),
        (
            "x/PaddleClas_ResNet50_bs256_fp32_DP_N1C8_log",
            Identity("", "resnet50", 1, 8, 256, "fp32"),
        ),
        ("x/gpu1_gpu8_bs96.txt", Identity("", "", 0, 0, 96, "")),
        (
            "real-amp-infer/1gpu/rn50/1",
            Identity("", "resnet50", 0, 0, 0, "amp-fp16", mode="infer", data="folder"),
        ),
        ("no-xla/fp32/a.log", Identity(precision="fp32")),
        ("x/0n8g_gpu0_bs0.log", Identity()),
    ],
)
def test_names_tell_what_people_put_into_them(path, identity):
    assert read_name(Path(path)) == identity


@pytest.mark.parametrize("word", ["nan_loss", "loss: ", "loss_", "nan "])
def test_huge_line_is_searched_once(word):
    # a pattern that tried every beginning with every end would take hours
    assert scan(word * (1_000_000 // len(word))).message == ""


@pytest.mark.parametrize(
    ("steps", "gap"),
    [
        ((10, 20, 30, 40, 70, 80, 90), "steps 40 and 70"),
        ((1, 2, 3, 4, 5, 100, 200, 300), ""),
        ((0, 10, 20, 30, 40, 44), ""),
        ((1, 10, 20, 30), ""),
        ((10, 20, 50), ""),
    ],
)
def test_lines_lost_within_a_run_are_named(steps, gap):
    marks = fill_marks(*((1, step) for step in steps))
    assert marks.fault == ""
    assert marks.gap.endswith(gap)
    assert bool(marks.gap) == bool(gap)
