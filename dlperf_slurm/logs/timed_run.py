"""The skeleton of the formats: lines of a log -> what the named groups in them say -> a Reading.

A line with a group `step`, and maybe `epoch`, is timed: `rate` or `seconds` is its value, and it
may have a `mean` or `mean_ms` beside, and the clock's `time` or `unix_time`. One with `epoch` alone
ends an epoch, maybe with its `rate`; one with a `rate` alone ends a rank's run, whose figure it is.
A `rank` outweighs a launcher's label. `device` says that a process takes part. The arguments of a
`namespace`, `name` with its `value`, and other groups are facts, of which the last one counts.
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

from dlperf_slurm.logs import Identity, Reading
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
    from dlperf_slurm.logs.lines import Line

Handler = Callable[["TimedRun", "Line", Match[str]], None]
Lines = Sequence[Union[Pattern[str], Tuple[Pattern[str], Handler]]]

# NVIDIA's DLLogger prints `DLL time - step metric : value unit ...`
DLL = rf"DLL {DATE_TIME} - "

_PARAMETER = re.compile(r"(?:^|  )([\w.]+) : (.*?)(?=$|  [\w.]+ : )")


class TimedFormat(NamedTuple):
    """What is particular to a format; `start_run` is the function that its module has by this name.

    The first of `lines` that matches takes a line, by a handler of its own if it comes with one;
    `announcements` are tried after them, until a step was timed. `find_problem` may rely on timed
    steps that go forward. With `is_of_job` the lowest rank that prints speaks for all, else each
    has a window of its own. `find_problem` tells what a log lacks, `find_fault` what is wrong with
    one that may be whole. `list_printed` makes the window of the rates that lines print, of formats
    whose figures are taken from times: the two have to agree.
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
    """What a format's handlers keep of the lines of one run.

    While lines are added, `facts` are those of the line's rank, at the end those of all together.
    `series` are printed figures by name, `devices` (rank, name) of those that say that they take
    part, `ranks` the labels of all lines. `ended` has by rank and epoch, or step, what the line of
    its end gives, or 0.
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
        """Whether the rank timed something; -1 asks for any."""
        return bool(self.marks) if rank < 0 else self.marks.has_rank(rank)

    @property
    def first_marks(self) -> List[Mark]:
        """The marks of the lowest rank that printed, which are what publishers' scripts read."""
        return next(iter(self.marks.by_rank.values()), [])

    @property
    def epoch_ends(self) -> Dict[int, float]:
        """The epochs that ended, in order, with the figure that the line of their end gives."""
        return {epoch: self.ended[rank, epoch] for rank, epoch in sorted(self.ended)}

    @property
    def last(self) -> Position:
        """The position of the furthest mark of all ranks, of which there must be one."""
        return max(marks[-1].position for marks in self.marks.by_rank.values())

    def read_count(self, *names: str) -> int:
        """The first of these facts that is a whole number above 0; else 0."""
        return next(filter(None, (read_count(self.facts, name) for name in names)), 0)

    def is_true(self, name: str) -> bool:
        return is_true(self.facts, name)

    def find_precision(self, name: str) -> str:
        """The precision that this fact names in a script's words; empty if it names none."""
        return PRECISIONS.get(self.facts.get(name, ""), "")

    def keep(self, name: str, figure: float) -> None:
        """Appends a figure to the series of this name."""
        self.series.setdefault(name, []).append(figure)

    def add(self, line: "Line") -> None:
        self.ranks.add(line.rank)
        self.facts = self.facts_by_rank.setdefault(line.rank, {})
        if not self._take(line, self.format.lines) and not self.is_under_way(line.rank):
            self._take(line, self.format.announcements)

    def _take(self, line: "Line", entries: Lines) -> bool:
        for entry in entries:
            pattern, handle = entry if isinstance(entry, tuple) else (entry, take_line)
            match = pattern.match(line.text)
            if match is not None:
                handle(self, line, match)
                return True
        return False

    def _join_facts(self) -> Dict[str, str]:
        """The facts of the lowest rank; what it lacks, of the next, and last what no rank said."""
        joined: Dict[str, str] = {}
        for rank in sorted(self.facts_by_rank, key=lambda rank: (rank >= 0, -rank)):
            joined.update(self.facts_by_rank[rank])
        return joined

    def finish(self) -> Reading:
        self.facts = self._join_facts()
        make_windows, first_marks = self.format.make_windows, self.first_marks
        by_rank = {-1: first_marks} if self.format.is_of_job else self.marks.by_rank
        windows = tuple(
            window for rank, marks in by_rank.items() for window in make_windows(self, rank, marks)
        )
        list_printed = self.format.list_printed or (lambda run, rank, marks: ())
        fault = self._find_fault()
        return Reading(
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
        """The problem that ranks which timed steps lack the line of their end; empty if none do."""
        missing = sorted(set(self.marks.by_rank) - self.ended_ranks)
        if not missing:
            return ""
        ranks = f"ranks {', '.join(map(str, missing))}" if missing[-1] >= 0 else "the job"
        return f"the log ends before the run does: {what} missing of {ranks}"


def find_lacking_steps(found: int, announced: int, interval: int = 1) -> str:
    """The problem that a log has fewer lines than its steps, one an interval, make; or empty."""
    if found + max(interval, 1) <= announced:
        return f"the log has {found} of {announced} steps"
    return ""


def find_early_end(run: TimedRun, announced: str, interval: str, first_step: int) -> str:
    """The problem that the last line which these arguments announce is not there; or empty."""
    steps, per_line = run.read_count(announced), run.read_count(interval) or 1
    if not steps:
        return f"the log does not tell how many steps there were to be ({announced})"
    found, last = run.first_marks[-1].position[0], steps // per_line * per_line - 1 + first_step
    return f"the log ends at step {found}, the last line is of step {last}" if found < last else ""


def take_line(run: TimedRun, line: "Line", match: Match[str]) -> None:
    """Keeps what the named groups of a line say."""
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


def _take_mark(run: TimedRun, line: "Line", found: Dict[str, str]) -> None:
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
    """The entry of lines that are not taken where the end of the file may have cut them short."""

    def handle(run: TimedRun, line: "Line", match: Match[str]) -> None:
        if not line.is_last_unended:
            handler(run, line, match)

    return pattern, handle


def dll_line(
    body: str, handler: Handler = take_line, **metrics: str
) -> Tuple[Pattern[str], Handler]:
    """The entry of lines whose body begins so, and has metrics: by group their whole names.

    A line has its group `time` too. It is not taken if a value ends where the file does, for that
    may be cut short.
    """
    values = (
        rf"(?=(?:.*?\s)?{re.escape(name)} : (?P<{group}>{NUMBER})(?=\s|$))"
        for group, name in metrics.items()
    )

    def handle(run: TimedRun, line: "Line", match: Match[str]) -> None:
        is_cut = any(match.end(group) == len(line.text) for group in metrics)
        if not (is_cut and line.is_last_unended):
            handler(run, line, match)

    return re.compile(rf"DLL (?P<time>{DATE_TIME}) - ?{body}{''.join(values)}"), handle


def _keep_parameters(run: TimedRun, line: "Line", match: Match[str]) -> None:
    run.facts.update(_PARAMETER.findall(match.group(1).strip()))


PARAMETERS = (re.compile(rf"DLL {DATE_TIME} - ?PARAMETER(.*)"), _keep_parameters)
"""The entry of lines of parameters, which become facts."""
