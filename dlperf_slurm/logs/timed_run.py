"""Lines of a log -> a Reading, by the named groups of a format's patterns.

A line with the group `step`, and possibly `epoch`, is timed: `rate` or `seconds` is its value;
`mean` or `mean_ms`, and the clock's `time` or `unix_time`, are optional. A line with `epoch` and no
`step` ends an epoch, possibly with its `rate`. A line with `rate` and neither of these ends a
rank's run and gives the run's throughput. `rank` takes precedence over a launcher's label. `device`
reports a device that takes part. The arguments of a `namespace`, `name` with its `value`, and other
groups are facts, of which the last value counts.
"""

import re
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
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

from dlperf_slurm.logs import Identity, ParsedRun
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
from dlperf_slurm.logs.windows import Window, merge_unlabelled

if TYPE_CHECKING:
    from dlperf_slurm.logs.lines import LogLine

Handler = Callable[["TimedRun", "LogLine", Match[str]], None]
Lines = Sequence[Union[Pattern[str], Tuple[Pattern[str], Handler]]]

# NVIDIA's DLLogger prints `DLL time - step metric : value unit ...`
DLL = rf"DLL {DATE_TIME} - "

_PARAMETER = re.compile(r"(?:^|  )([\w.]+) : (.*?)(?=$|  [\w.]+ : )")


class TimedFormat(NamedTuple):
    """The parts of one log format; its module exports the method `start_run`.

    The first of `lines` that matches takes a line, with its own handler if it has one;
    `announcements` are tried after them, until the first timed step. With `is_of_job` the lowest
    rank that prints stands for the job; otherwise each rank has a window of its own. `find_problem`
    reports what a log is missing, `find_fault` what is wrong with a log that may be complete;
    `find_problem` may assume that there are timed steps in increasing order. `list_printed` makes
    the window of the printed rates, for formats whose throughput comes from times: the two must
    agree.
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

    def start_run(self) -> "TimedRun":
        return TimedRun(self, self.make_marks())


@dataclass
class TimedRun:
    """State that a format's handlers keep of the lines of one run.

    `facts` are those of the current line's rank, and in `finish` those of all ranks. `series` are
    printed figures by name, `devices` the (rank, name) of devices that take part, `ranks` the
    labels of all lines. `ended` has, by rank and epoch (or step), the figure on the line that ends
    it, or 0.
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

    def is_under_way(self, rank: int) -> bool:
        """Return whether the rank (-1: any) timed a step."""
        return bool(self.marks) if rank < 0 else self.marks.has_rank(rank)

    @property
    def first_marks(self) -> List[Mark]:
        """The marks of the lowest rank that printed, which are what publishers' scripts read."""
        return next(iter(self.marks.by_rank.values()), [])

    @property
    def epoch_ends(self) -> Dict[int, float]:
        """The figure on the line that ends each epoch, in epoch order."""
        return {epoch: self.ended[rank, epoch] for rank, epoch in sorted(self.ended)}

    @property
    def last(self) -> Position:
        """The furthest position of all ranks; there must be a mark."""
        return max(marks[-1].position for marks in self.marks.by_rank.values())

    def read_count(self, *names: str) -> int:
        """Return the first of these facts that is a whole number above 0, or 0."""
        return next(filter(None, (read_count(self.facts, name) for name in names)), 0)

    def is_true(self, name: str) -> bool:
        return is_true(self.facts, name)

    def find_precision(self, name: str) -> str:
        """Return the precision in this fact in this project's words, or ""."""
        return PRECISIONS.get(self.facts.get(name, ""), "")

    def keep(self, name: str, figure: float) -> None:
        """Append a figure to the series of this name."""
        self.series.setdefault(name, []).append(figure)

    def add(self, line: "LogLine") -> None:
        self.ranks.add(line.rank)
        self.facts = self.facts_by_rank.setdefault(line.rank, {})
        if not self._take(line, self.format.lines) and not self.is_under_way(line.rank):
            self._take(line, self.format.announcements)

    def _take(self, line: "LogLine", entries: Lines) -> bool:
        for entry in entries:
            pattern, handle = entry if isinstance(entry, tuple) else (entry, take_line)
            match = pattern.match(line.text)
            if match is not None:
                handle(self, line, match)
                return True
        return False

    def _join_facts(self) -> Dict[str, str]:
        """Merge the facts of all ranks: lower ranks take precedence, unlabelled lines come last."""
        joined: Dict[str, str] = {}
        for rank in sorted(self.facts_by_rank, key=lambda rank: (rank >= 0, -rank)):
            joined.update(self.facts_by_rank[rank])
        return joined

    def finish(self) -> ParsedRun:
        self.facts = self._join_facts()
        make_windows, first_marks = self.format.make_windows, self.first_marks
        by_rank = {-1: first_marks} if self.format.is_of_job else self.marks.by_rank
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
            problem=fault or self._find_lack(),
            is_incomplete=not fault,
            printed=tuple(
                window
                for rank, marks in by_rank.items()
                for window in list_printed(self, rank, marks)
            ),
        )

    def _find_fault(self) -> str:
        if not self.marks:
            return "the log holds no timed step"
        return self.marks.fault or self.format.find_fault(self)

    def _find_lack(self) -> str:
        return self.marks.gap or self.format.find_problem(self)

    def find_unended_ranks(self, what: str) -> str:
        """Return a message about ranks that timed steps but have no closing line, or ""."""
        missing = sorted(set(self.marks.by_rank) - self.ended_ranks)
        if not missing:
            return ""
        ranks = f"ranks {', '.join(map(str, missing))}" if missing[-1] >= 0 else "the job"
        return f"the log ends before the run does: {what} missing of {ranks}"


def find_lacking_steps(found: int, announced: int, interval: int = 1) -> str:
    """Return a message if the log has fewer steps than announced, or "".

    The last line may be up to `interval` - 1 steps before the announced step.
    """
    if found + max(interval, 1) <= announced:
        return f"the log has {found} of {announced} steps"
    return ""


def find_early_end(run: TimedRun, announced: str, interval: str, first_step: int) -> str:
    """Return a message if the last line that these arguments announce is missing, or ""."""
    steps, per_line = run.read_count(announced), run.read_count(interval) or 1
    if not steps:
        return f"the log does not tell how many steps there were to be ({announced})"
    found, last = run.first_marks[-1].position[0], steps // per_line * per_line - 1 + first_step
    return f"the log ends at step {found}, the last line is of step {last}" if found < last else ""


def take_line(run: TimedRun, line: "LogLine", match: Match[str]) -> None:
    """Keep the values in the named groups of a line."""
    found = {name: text for name, text in match.groupdict().items() if text is not None}
    line = line._replace(rank=int(found.pop("rank", line.rank)))
    if "step" in found:
        _take_mark(run, line, found)
    elif "epoch" in found:
        run.ended[line.rank, int(found["epoch"])] = parse_number(found.get("rate", "0"))
    elif "rate" in found:
        run.keep("final_rates", parse_number(found.pop("rate")))
        run.ended_ranks.add(line.rank)
        run.facts.update(found)
    elif "namespace" in found:
        run.facts.update(parse_namespace(found["namespace"]))
    elif "name" in found:
        run.facts[found["name"]] = found["value"].strip()
    elif "device" in found:
        run.devices |= {(line.rank, each.group("device")) for each in match.re.finditer(line.text)}
    else:
        run.facts.update(found)


def _take_mark(run: TimedRun, line: "LogLine", found: Dict[str, str]) -> None:
    position = tuple(int(found.pop(name)) for name in ("epoch", "step") if name in found)
    time = parse_time(found.pop("time")) if "time" in found else float(found.pop("unix_time", 0))
    mark = Mark(
        position,
        time,
        value=parse_number(found.pop("rate", "") or found.pop("seconds", "0")),
        mean=float(found.pop("mean", "") or float(found.pop("mean_ms", 0)) / 1000),
    )
    run.marks.add(line, mark)
    run.facts.update(found)


def if_whole(pattern: Pattern[str], handler: Handler = take_line) -> Tuple[Pattern[str], Handler]:
    """Return an entry of `lines` that ignores a last line that may be cut short."""

    def handle(run: TimedRun, line: "LogLine", match: Match[str]) -> None:
        if not line.is_last_unended:
            handler(run, line, match)

    return pattern, handle


def dll_line(
    body: str, handler: Handler = take_line, **metrics: str
) -> Tuple[Pattern[str], Handler]:
    """Return an entry for DLLogger lines that begin with `body` and have these metrics.

    `metrics` has the full metric name by group. A line has the group `time` too. A last line that
    ends with a value is ignored, because the value may be cut short.
    """
    values = (
        rf"(?=(?:.*?\s)?{re.escape(name)} : (?P<{group}>{NUMBER})(?=\s|$))"
        for group, name in metrics.items()
    )

    def handle(run: TimedRun, line: "LogLine", match: Match[str]) -> None:
        is_cut = any(match.end(group) == len(line.text) for group in metrics)
        if not (is_cut and line.is_last_unended):
            handler(run, line, match)

    return re.compile(rf"DLL (?P<time>{DATE_TIME}) - ?{body}{''.join(values)}"), handle


def _keep_parameters(run: TimedRun, line: "LogLine", match: Match[str]) -> None:
    run.facts.update(_PARAMETER.findall(match.group(1).strip()))


PARAMETERS = (re.compile(rf"DLL {DATE_TIME} - ?PARAMETER(.*)"), _keep_parameters)
"""Entry for DLLogger's PARAMETER lines, whose values become facts."""
