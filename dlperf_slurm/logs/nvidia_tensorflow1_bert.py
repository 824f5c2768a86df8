"""Logs of NVIDIA DeepLearningExamples' TensorFlow 1 BERT pretraining (`throughput_train`).

Rank 0 prints the job's rate and the time every `display_loss_steps` optimizer steps. Throughput is
taken from the times. Left out as warm-up is the first interval, and those that the script itself
leaves out of its mean: "Skipping time record", after the first steps and around checkpoints. Where
the arguments are not in the log, which tell how many micro-batches a step has, throughput is the
harmonic mean of the printed rates, the same ones left out. Updates that loss scaling skips are
steps too.

A run came to its end when it printed its mean of training, `throughput_train` without a step, and
made the steps that it announced. If it announced an evaluation, that must have ended too, though
its rate is not used.
"""

import re
from typing import Dict, List, Set, Tuple

from dlperf_slurm.logs import Identity, Reading, Rule
from dlperf_slurm.logs.reading.dll import DLL, DllRecord, parse_dll
from dlperf_slurm.logs.reading.figures import RuleError, average, take_values, time_steps
from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.marks import Mark, Marks, make_time_windows
from dlperf_slurm.logs.reading.parameters import is_true, read_count
from dlperf_slurm.logs.reading.windows import Window, make_rate_window

_STEP = re.compile(r"Iteration: (\d{1,15}) ")
_SKIPPED = "Skipping time record for "
_LOGGED = r"(?:INFO:tensorflow:|I\d{4} [\d:.]+ \d+ run_pretraining\.py:\d+\] )"
_ARGUMENT = re.compile(rf"{_LOGGED}\s*(\w+): (\S+)$")
_SENTENCES = re.compile(rf"{_LOGGED}Total Training Time = \S+ for Sentences = (\d+)$")
# what the launching script assigns, in the words of its trace
_TRACE = re.compile(r"\++ (num_gpus|precision|batch_size)=(\w+)$")

SIGNATURE = re.compile(rf"{DLL}(?:Iteration: \d+ | )\s*throughput_train : ")
START = re.compile(rf"{_LOGGED}\*\*\*\*\* Configuaration \*\*\*\*\*")


class _Run:
    def __init__(self) -> None:
        self._marks = Marks(may_repeat=True)
        self._parameters: Dict[str, str] = {}
        self._trace: Dict[str, str] = {}
        self._ended_ranks: Set[int] = set()
        self._skips: Dict[int, List[bool]] = {}
        self._is_skipped = False
        self._is_evaluated = False
        self._sentences = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._marks)

    def add(self, line: Line) -> None:
        record = parse_dll(line)
        if record is not None:
            self._add_record(line.rank, record)
        elif line.text.startswith(_SKIPPED):
            self._is_skipped = True
        elif line.text.startswith(("INFO:", "I", "+")):
            self._add_argument(line.text)

    def _add_record(self, rank: int, record: DllRecord) -> None:
        rate = record.find_metric("throughput_train")
        step = _STEP.match(record.body)
        if rate is None:
            self._is_evaluated |= record.find_metric("throughput_val") is not None
            return
        if step is None:
            self._ended_ranks.add(rank)
            return
        self._marks.add(rank, (int(step.group(1)),), record.time, rate)
        skips = self._skips.setdefault(rank, [])
        if len(skips) < len(self._marks.by_rank[rank]):
            skips.append(self._is_skipped)
        self._is_skipped = False

    def _add_argument(self, text: str) -> None:
        argument, trace, sentences = _ARGUMENT.match(text), _TRACE.match(text), None
        if argument is not None:
            self._parameters.setdefault(argument.group(1), argument.group(2))
        elif trace is not None:
            self._trace[trace.group(1)] = trace.group(2)
        else:
            sentences = _SENTENCES.match(text)
        if sentences is not None:
            self._sentences = int(sentences.group(1)[:18])

    def finish(self) -> Reading:
        marks = self._marks.by_rank[min(self._marks.by_rank)] if self._marks else []
        return Reading(
            identity=self._make_identity(),
            windows=tuple(
                window
                for rank, marks in sorted(self._marks.by_rank.items())
                for window in self._make_windows(rank, marks)
            ),
            series={
                "rates": self._marks.list_values(),
                "steps": tuple(float(mark.position[0]) for mark in marks),
                "times": tuple(mark.time for mark in marks),
            },
            problem=self._find_problem(),
        )

    def _make_windows(self, rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
        skips = self._skips[rank]
        micro_batches = read_count(self._parameters, "num_accumulation_steps")
        if not micro_batches:
            rates = [(1, mark.value) for mark, skip in zip(marks[1:], skips[1:]) if not skip]
            return (make_rate_window(rank, rates),) if rates else ()
        # an interval that ends at a skipped mark lies between two epochs of this numbering
        numbered = [
            mark._replace(position=(sum(skips[: index + 1]), *mark.position))
            for index, mark in enumerate(marks)
        ]
        return make_time_windows(rank, numbered, 0, micro_batches)

    def _make_identity(self) -> Identity:
        batch_size = read_count(self._parameters, "train_batch_size")
        samples = (
            read_count(self._parameters, "num_train_steps")
            * batch_size
            * read_count(self._parameters, "num_accumulation_steps")
        )
        devices = self._sentences // samples if samples else 0
        return Identity(
            framework="tensorflow1",
            model="bert",
            devices=devices or read_count(self._trace, "num_gpus"),
            batch_size_per_device=batch_size or read_count(self._trace, "batch_size"),
            precision=self._name_precision(),
        )

    def _name_precision(self) -> str:
        if "amp" not in self._parameters:
            return {"fp32": "fp32", "fp16": "amp-fp16"}.get(self._trace.get("precision", ""), "")
        is_half = is_true(self._parameters, "amp") or is_true(self._parameters, "manual_fp16")
        return "amp-fp16" if is_half else "fp32"

    def _find_problem(self) -> str:
        if not self._marks:
            return "the log holds no timed step"
        if self._marks.problem:
            return self._marks.problem
        missing = self._marks.describe_ranks_without(self._ended_ranks)
        if missing:
            return f"the log ends before training does: its mean throughput is missing{missing}"
        if is_true(self._parameters, "do_eval") and not self._is_evaluated:
            return "the log ends before the evaluation does that follows training"
        steps = read_count(self._parameters, "num_train_steps")
        found = max(marks[-1].position[0] for marks in self._marks.by_rank.values())
        if found + max(read_count(self._parameters, "display_loss_steps"), 1) <= steps:
            return f"the log has {found} of {steps} steps"
        return ""


def start_run() -> _Run:
    return _Run()


def _average_all(reading: Reading, identity: Identity) -> float:
    return average(take_values(reading.series["rates"], 0, None))


def _time_100_steps(reading: Reading, identity: Identity) -> float:
    times = dict(zip(reading.series["steps"], reading.series["times"]))
    if not {20.0, 120.0} <= set(times):
        raise RuleError("takes the lines of iterations 20 and 120, and not both are in the log")
    return round(time_steps((times[20.0], times[120.0]), 1, 2, 100 * identity.global_batch_size), 2)


RULES = (
    Rule("arithmetic mean of all values", _average_all),
    Rule("DLPerf: 100 steps over their time, from iteration 20", _time_100_steps),
)
