"""Logs of NVIDIA DeepLearningExamples' PyTorch BERT pretraining (DLLogger).

The time of every `log_freq`-th optimizer step stands in the log. Throughput is taken from these
times. Left out as warm-up is what comes before the first of them: it has no time of its
beginning, and compiles. The publisher's figure is the script's own, which counts that in; it is
also ours where the arguments are not in the log, which tell how many micro-batches a step has.
Updates that loss scaling skips are steps here, and no samples in the script's own figure.

A run came to its end when it printed `training_sequences_per_second`, and made the steps that its
arguments announce.
"""

import re
from typing import List, Tuple

from dlperf_slurm.logs import Identity, Rule
from dlperf_slurm.logs.reading.dll import DLL, DllRecord, handle_records
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks
from dlperf_slurm.logs.reading.patterns import name_precision, parse_namespace
from dlperf_slurm.logs.reading.rules import take_printed, time_lines
from dlperf_slurm.logs.reading.timed_run import TimedFormat, TimedRun, find_lacking_steps
from dlperf_slurm.logs.reading.windows import Window, make_rate_window, make_time_window

_STEP = re.compile(r"Training Epoch: \d{1,9} Training Iteration: (\d{1,15}) ")
_CONFIG = re.compile(r"PARAMETER Config : \[[\"']Namespace\((.*)\)[\"']\]")
_DEVICE = re.compile(r"device: cuda:(?P<device>\d+) n_gpu: \d+, distributed training: ")

START = re.compile(rf"{DLL}PARAMETER Config : \S{{0,4}}Namespace\(.*phase2=")
SIGNATURE = re.compile(
    rf"{START.pattern}|{DLL}(?:Training Epoch: \d+ Training Iteration: \d+ "
    r"| ?e2e_train_time : .*training_sequences_per_second : )"
)


def _add_record(run: TimedRun, line: Line, record: DllRecord) -> None:
    config, step = _CONFIG.match(record.body), _STEP.match(record.body)
    rate = record.find_metric("training_sequences_per_second")
    if config is not None:
        run.facts.update(parse_namespace(config.group(1)))
    elif step is not None:
        skipped = int(record.find_metric("skipped_steps") or run.read_count("skipped"))
        run.facts.update(steps=step.group(1), skipped=str(skipped))
        run.marks.add(line, Mark((int(step.group(1)) + skipped,), record.time))
    elif rate is not None:
        run.keep("final_rates", rate)
        run.keep("raw_seconds", record.find_metric("raw_train_time") or 0.0)
        run.ended_ranks.add(line.rank)


def _identify(run: TimedRun) -> Identity:
    batch_size = run.read_count("batch_size_per_gpu", "train_batch_size")
    return Identity(
        framework="pytorch",
        model="bert",
        devices=_count_devices(run, batch_size) or len(run.devices),
        batch_size_per_device=batch_size,
        precision=name_precision(run.facts, "fp16", "amp"),
    )


def _count_devices(run: TimedRun, batch_size: int) -> int:
    """How many there must have been for the rate that the script computed; 0 if unknown.

    Of several nodes' processes, which name their devices alike, not all lines need be there.
    """
    steps = run.read_count("steps") + run.read_count("skipped")
    samples = steps * batch_size * run.read_count("gradient_accumulation_steps")
    if not samples or "final_rates" not in run.series:
        return 0
    return round(run.series["final_rates"][0] * run.series["raw_seconds"][-1] / samples)


def _make_windows(run: TimedRun, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    micro_batches = run.read_count("gradient_accumulation_steps")
    if micro_batches:
        return make_time_window(rank, marks, micro_batches=micro_batches)
    return make_rate_window(-1, [(1, rate) for rate in run.series.get("final_rates", ())])


def _find_problem(run: TimedRun) -> str:
    announced = run.read_count("steps_this_run", "max_steps")
    return run.find_unended_ranks("its last line is") or find_lacking_steps(
        run.read_count("steps"), announced
    )


start_run = TimedFormat(
    lines=(handle_records(_add_record), _DEVICE),
    identify=_identify,
    make_windows=_make_windows,
    find_problem=_find_problem,
    make_marks=lambda: Marks(may_repeat=True),
).start_run

RULES = (
    Rule("training_sequences_per_second", take_printed("final_rates")),
    Rule(
        "DLPerf: 90 steps over their time, from the 20th iteration after 5",
        time_lines(20, 110, after_step=5),
    ),
)
