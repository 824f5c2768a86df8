"""Lines of a log -> a ParsedRun, by the named groups of a format's patterns.

A line with the group `step`, and possibly `epoch` or `in_epoch` of an earlier line, is timed; its
value is one of VALUES, of which `rate` is another name of `samples_per_s`. `mean` or `mean_ms`, and
the clock's `time` or `unix_time`, are optional. A line with `epoch` and no `step` ends an epoch,
possibly with its `rate`. A line with a rate and neither of these ends a rank's run and gives the
run's throughput; a line with `end` ends it too. `rank` takes precedence over a launcher's label.
`device` reports a device that takes part. `tflops` (per device), `mfu` (%) and
`printed_tokens_per_s` are shown beside our figures; `average` is the rate since the start, for
rules. `cycle_end` ends one of several cycles of training. The arguments of a `namespace`, `name`
with its `value`, and other groups are facts, of which the last value counts.
"""

import re
from dataclasses import dataclass, field
from statistics import median
from typing import (
    Callable,
    Dict,
    List,
    Match,
    NamedTuple,
    Optional,
    Pattern,
    Sequence,
    Set,
    Tuple,
    Union,
)

from dlperf_slurm.logs import Identity, NumberError, ParsedRun
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark, Marks, Position, RankMarks
from dlperf_slurm.logs.patterns import (
    DATE_TIME,
    NUMBER,
    PRECISIONS,
    is_true,
    parse_namespace,
    parse_number,
    parse_time,
    read_count,
)
from dlperf_slurm.logs.windows import SAMPLES, STEPS, TOKENS, Window, merge_unlabelled

Handler = Callable[["TimedRun", LogLine, Match[str]], Optional[bool]]
"""Function that handles a matching line; it returns False to pass the line to later patterns."""
Lines = Sequence[Union[Pattern[str], Tuple[Pattern[str], Handler]]]

# NVIDIA's DLLogger prints `DLL time - step metric : value unit ...`
DLL = rf"DLL {DATE_TIME} - "

# the value of a step, of the interval that a line ends, or of a second
SECONDS, INTERVAL = "seconds", "interval"
VALUES: Dict[str, Tuple[str, float]] = {
    "rate": (SAMPLES, 1.0),
    "samples_per_s": (SAMPLES, 1.0),
    "tokens_per_s": (TOKENS, 1.0),
    "steps_per_s": (STEPS, 1.0),
    "seconds": (SECONDS, 1.0),
    "milliseconds": (SECONDS, 1e-3),
    "interval_seconds": (INTERVAL, 1.0),
    "microseconds_per_sample": (SAMPLES, -1e6),
}
"""Named group -> unit, factor. The result is value x factor; if factor < 0, -factor / value."""
_RATES = [name for name, (unit, _) in VALUES.items() if unit in (SAMPLES, TOKENS, STEPS)]
PRINTED = {"tflops": "TFLOP/s per device", "mfu": "% MFU", "printed_tokens_per_s": "tokens/s"}
_KEPT = {*PRINTED, "average"}

_PARAMETER = re.compile(r"(?:^|  )([\w.]+) : (.*?)(?=$|  [\w.]+ : )")


class TimedFormat(NamedTuple):
    """The parts of one log format; its module exports the method `start_run`.

    The first of `lines` that matches takes a line, with its own handler if it has one;
    `announcements` are tried after them, until the first timed step. `make_windows` gives the
    measured steps (Window) of a rank. With `is_of_job` the lowest rank that prints stands for the
    job; otherwise each rank has a window of its own. `find_problem` reports what a log is missing,
    `find_fault` what is wrong with a log that may be complete; `find_problem` may assume that there
    are timed steps in increasing order. `list_printed` makes the window of the printed rates, for
    formats whose throughput comes from times: the two must agree. `is_total` means that throughput
    is the run's own total, and timed steps are not needed.
    """

    lines: Lines
    identify: "Callable[[TimedRun], Identity]"
    make_windows: "Callable[[TimedRun, int, List[Mark]], Tuple[Window, ...]]"
    find_problem: "Callable[[TimedRun], str]"
    announcements: Lines = ()
    make_series: "Callable[[TimedRun], Dict[str, List[float]]]" = lambda run: run.series
    find_fault: "Callable[[TimedRun], str]" = lambda run: ""
    list_printed: "Optional[Callable[[TimedRun, int, List[Mark]], Tuple[Window, ...]]]" = None
    make_marks: Callable[[], Union[Marks, RankMarks]] = Marks
    is_of_job: bool = False
    is_total: bool = False

    def start_run(self) -> "TimedRun":
        return TimedRun(self, self.make_marks())


@dataclass
class TimedRun:
    """State that a format's handlers keep of the lines of one run.

    `facts` are texts in the log by name, such as arguments of the script: those of the current
    line's rank, and in `finish` those of all ranks. `series` are printed figures by name, `devices`
    the (rank, name) of devices that take part, `ranks` the labels of all lines. `ended` has, by
    rank and epoch (or step), the figure on the line that ends it, or 0. `unit` is what the values
    of timed lines, or else the total, count. `counted` are the steps of each rank whose lines have
    no number, `headers` the indices of a table's columns.
    """

    format: TimedFormat
    marks: Union[Marks, RankMarks]
    facts: Dict[str, str] = field(default_factory=dict)
    facts_by_rank: Dict[int, Dict[str, str]] = field(default_factory=dict)
    series: Dict[str, List[float]] = field(default_factory=dict)
    devices: Set[Tuple[int, str]] = field(default_factory=set)
    ended: Dict[Tuple[int, int], float] = field(default_factory=dict)
    ended_ranks: Set[int] = field(default_factory=set)
    ranks: Set[int] = field(default_factory=set)
    unit: str = SAMPLES
    counted: Dict[int, int] = field(default_factory=dict)
    headers: Dict[int, Dict[str, int]] = field(default_factory=dict)

    def is_under_way(self, rank: int) -> bool:
        """Return whether the rank (-1: any rank) has timed a step in this run.

        For a format with `is_total`, the printed total of the run is enough.
        """
        if self.format.is_total and self.series.get("final_rates"):
            return True
        return bool(self.marks) if rank < 0 else self.marks.has_rank(rank)

    @property
    def first_marks(self) -> List[Mark]:
        """The timed lines of the lowest rank that printed any, which publishers' scripts read."""
        return next(iter(self.marks.by_rank.values()), [])

    @property
    def epoch_ends(self) -> Dict[int, float]:
        """The figure on the line that ends each epoch, by epoch in ascending order."""
        return {epoch: self.ended[rank, epoch] for rank, epoch in sorted(self.ended)}

    @property
    def last(self) -> Position:
        """The furthest position of all ranks, such as (epoch, step); there must be a timed line."""
        return max(marks[-1].position for marks in self.marks.by_rank.values())

    def read_count(self, *names: str) -> int:
        """Return the first of these facts (values by name) that is a whole number above 0, or 0."""
        return next(filter(None, (read_count(self.facts, name) for name in names)), 0)

    def is_true(self, name: str) -> bool:
        return is_true(self.facts, name)

    def find_precision(self, name: str) -> str:
        """Return this project's name of the precision in the fact `name`; "" if it is unknown."""
        return PRECISIONS.get(self.facts.get(name, ""), "")

    def keep(self, name: str, figure: float) -> None:
        """Append a printed figure to the list of figures with this name, such as "final_rates"."""
        self.series.setdefault(name, []).append(figure)

    def add(self, line: LogLine) -> None:
        self.ranks.add(line.rank)
        self.facts = self.facts_by_rank.setdefault(line.rank, {})
        if not self._take(line, self.format.lines) and not self.is_under_way(line.rank):
            self._take(line, self.format.announcements)

    def _take(self, line: LogLine, entries: Lines) -> bool:
        """Handle a line by the first matching entry that takes it; return whether there is one."""
        for entry in entries:
            pattern, handle = entry if isinstance(entry, tuple) else (entry, take_line)
            match = pattern.match(line.text)
            if match is not None and _handle(self, line, match, handle):
                return True
        return False

    def _join_facts(self) -> Dict[str, str]:
        """Merge the facts of all ranks: lower ranks take precedence, unlabelled lines come last."""
        joined: Dict[str, str] = {}
        for rank in sorted(self.facts_by_rank, key=lambda rank: (rank >= 0, -rank)):
            joined.update(self.facts_by_rank[rank])
        return joined

    def finish(self) -> ParsedRun:
        """Return the result of the lines so far; `problem` says why it must not be used."""
        self.facts = self._join_facts()
        make_windows, first_marks = self.format.make_windows, self.first_marks
        is_one = self.format.is_of_job or (self.format.is_total and not self.marks)
        by_rank = {-1: first_marks} if is_one else self.marks.by_rank
        windows = tuple(
            window for rank, marks in by_rank.items() for window in make_windows(self, rank, marks)
        )
        list_printed = self.format.list_printed or (lambda run, rank, marks: ())
        fault = self._find_fault()
        return ParsedRun(
            identity=self.format.identify(self),
            windows=merge_unlabelled(windows) if isinstance(self.marks, RankMarks) else windows,
            series={
                "epoch_rates": tuple(self.epoch_ends.values()),
                **{name: tuple(values) for name, values in self.format.make_series(self).items()},
            },
            marks=tuple(first_marks),
            problem=fault or self.marks.gap or self.format.find_problem(self),
            is_incomplete=not fault,
            is_gapless=bool(self.marks) and not fault and not self.marks.gap,
            prints=self._find_printed(),
            printed=tuple(
                window
                for rank, marks in by_rank.items()
                for window in list_printed(self, rank, marks)
            ),
        )

    def _find_printed(self) -> Dict[str, float]:
        """Return the median of each of the PRINTED figures in the log, by unit, without warm-up."""
        found = {
            unit: median(values[len(values) // 4 :])
            for name, unit in PRINTED.items()
            for values in [self.series.get(name, [])]
            if values
        }
        return {unit: value for unit, value in found.items() if value > 0}

    def _find_fault(self) -> str:
        if not self.marks and not (self.format.is_total and "final_rates" in self.series):
            return "the log contains no timed step"
        return self.marks.fault or self.format.find_fault(self)

    def find_unended_ranks(self, what: str) -> str:
        """Return a message about ranks that timed steps but have no closing line, or "".

        `what` describes that line, such as "the closing line is".
        """
        missing = sorted(set(self.marks.by_rank) - self.ended_ranks)
        if not missing:
            return ""
        ranks = f" for ranks {', '.join(map(str, missing))}" if missing[-1] >= 0 else ""
        return f"the log ends before the end of the run: {what} missing{ranks}"


def _handle(run: TimedRun, line: LogLine, match: Match[str], handle: Handler) -> bool:
    """Call the handler of a matching line; return whether the handler used the line.

    Raises NumberError if a value is no number.
    """
    try:
        return handle(run, line, match) is not False
    except (ValueError, OverflowError) as error:
        raise NumberError(
            f"a line matches the log format, but its value is not a number: {line.text[:80]!r}"
        ) from error


def find_missing_steps(found: int, announced: int, interval: int = 1) -> str:
    """Return a message if the log has fewer steps (`found`) than announced, else "".

    The last line may be up to `interval` - 1 steps before the announced step.
    """
    if found + max(interval, 1) <= announced:
        return f"the log has {found} of {announced} steps"
    return ""


def find_early_end(run: TimedRun, announced: str, interval: str, first_step: int) -> str:
    """Return a message if the last line of a complete run is missing, or "".

    `announced` and `interval` name the facts (what the log states) with the run's steps and the
    steps between lines; `first_step` is the number of the first step, 0 or 1.
    """
    steps, per_line = run.read_count(announced), run.read_count(interval) or 1
    if not steps:
        return f"the log does not state how many steps were planned ({announced})"
    found, last = run.first_marks[-1].position[0], steps // per_line * per_line - 1 + first_step
    return f"the log ends at step {found}; the last planned step is {last}" if found < last else ""


def take_line(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    """Store the values in the named groups of a matching line in the run."""
    take_values(run, line, {k: text for k, text in match.groupdict().items() if text is not None})
    if "device" in match.re.groupindex:
        run.devices |= {(line.rank, each.group("device")) for each in match.re.finditer(line.text)}


def take_values(run: TimedRun, line: LogLine, found: Dict[str, str]) -> None:
    """Store the values of a line in the run; `found` has their texts by group name.

    With a step the line becomes a Mark; with an epoch alone it ends the epoch, with a rate alone
    the rank's run, whose throughput it gives; other values become facts. Values that become no
    facts are removed from `found`. Raises ValueError if a text is no number.
    """
    line = line._replace(rank=int(found.pop("rank", line.rank)))
    for name in _KEPT & found.keys():
        run.keep(name, parse_number(found.pop(name)))
    if "end" in found:
        run.ended_ranks.add(line.rank)
    if found.pop("cycle_end", None) is not None:
        # the key is the last step, because `tee` may print the line twice
        run.ended[-1, run.last[0] if run.marks else 0] = 0.0
    if "step" in found:
        _take_mark(run, line, found)
    elif "epoch" in found:
        run.ended[line.rank, int(found["epoch"])] = parse_number(found.get("rate", "0"))
    elif any(name in found for name in _RATES):
        run.keep("final_rates", _take_value(run, found))
        run.ended_ranks.add(line.rank)
        run.facts.update(found)
    elif "namespace" in found:
        run.facts.update(parse_namespace(found["namespace"]))
    elif "name" in found:
        run.facts[found["name"]] = found["value"].strip()
    else:
        found.pop("device", None)
        run.facts.update(found)


def _take_value(run: TimedRun, found: Dict[str, str]) -> float:
    """Remove a line's value (see VALUES) from `found` and return it; 0 without a value.

    The value's unit is stored in the run.
    """
    for name in VALUES.keys() & found.keys():
        run.unit, factor = VALUES[name]
        value = parse_number(found.pop(name))
        return value * factor if factor > 0 else -factor / value if value > 0 else 0.0
    return 0.0


def _take_mark(run: TimedRun, line: LogLine, found: Dict[str, str]) -> None:
    if "in_epoch" in run.facts:
        found.setdefault("epoch", run.facts["in_epoch"])
    names = [name for name in ("epoch", "step") if name in found]
    position = tuple(int(parse_number(found.pop(name))) for name in names)
    time = parse_time(found.pop("time")) if "time" in found else float(found.pop("unix_time", 0))
    mark = Mark(
        position,
        time,
        value=_take_value(run, found),
        mean=float(found.pop("mean", "") or float(found.pop("mean_ms", 0)) / 1000),
    )
    run.marks.add(line, mark)
    run.facts.update(found)


def if_whole(pattern: Pattern[str], handler: Handler = take_line) -> Tuple[Pattern[str], Handler]:
    """Return the pattern, and a handler that ignores a log's last line if that may be cut short."""

    def handle(run: TimedRun, line: LogLine, match: Match[str]) -> None:
        if not line.is_last_unended:
            handler(run, line, match)

    return pattern, handle


def dll_line(
    body: str, handler: Handler = take_line, **metrics: str
) -> Tuple[Pattern[str], Handler]:
    """Return pattern and handler of DLLogger lines that begin with `body` and have these metrics.

    `metrics` maps names of pattern groups, such as `step`, to metrics in the log; each line also
    has the group `time`. A last line that ends with a value is ignored, because the value may be
    cut short.
    """
    values = (
        rf"(?=(?:.*?\s)?{re.escape(name)} : (?P<{group}>{NUMBER})(?=\s|$))"
        for group, name in metrics.items()
    )

    def handle(run: TimedRun, line: LogLine, match: Match[str]) -> None:
        is_cut = any(match.end(group) == len(line.text) for group in metrics)
        if not (is_cut and line.is_last_unended):
            handler(run, line, match)

    return re.compile(rf"DLL (?P<time>{DATE_TIME}) - ?{body}{''.join(values)}"), handle


def _keep_parameters(run: TimedRun, line: LogLine, match: Match[str]) -> None:
    run.facts.update(_PARAMETER.findall(match.group(1).strip()))


PARAMETERS = (re.compile(rf"DLL {DATE_TIME} - ?PARAMETER(.*)"), _keep_parameters)
"""Pattern and handler of DLLogger's PARAMETER lines, whose values become facts of the run."""
