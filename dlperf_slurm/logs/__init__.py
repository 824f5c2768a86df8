"""The lines of a benchmark script's log -> what each run of it timed, by the log's format.

All of this loads on Python 3.7 with nothing but the standard library, because a job may read its
own log in the framework's Python.
"""

from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Pattern,
    Sequence,
    Set,
    Tuple,
    cast,
)

from dlperf_slurm.logs.failures import FailureScan
from dlperf_slurm.logs.lines import Line
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import join_patterns
from dlperf_slurm.logs.windows import Window

if TYPE_CHECKING:
    from typing import Protocol

    class Run(Protocol):
        """Takes the lines of one run, in the order of the log, and keeps little of them."""

        def is_under_way(self, rank: int) -> bool:
            """Whether the rank, -1 for any, timed something: its next START begins the next run."""

        def add(self, line: Line) -> None: ...

        def finish(self) -> "Reading":
            """What the lines so far amount to; a problem if the run did not come to its end."""

    class Format(Protocol):
        """A module of FORMATS, or what a table there declares.

        Patterns are matched at the beginning of a line's text.

        Most of them have what reads their lines from `logs.timed_run.TimedFormat`.
        """

        SIGNATURE: Pattern[str]
        """Lines that no other format prints; one of them in a log makes it of this format."""

        START: Optional[Pattern[str]]
        """The line by which a run says that it begins; a log may hold several runs."""

        RULES: Tuple["Rule", ...]
        """How publishers made their figures of such logs; the first is the default."""

        def start_run(self) -> Run: ...


# a package with a table or module for each format; nothing imports it but by this name
FORMATS = "dlperf_slurm.published.logs"
# code of a run has tables as JSON, which each Python reads
_SUFFIXES = (".py", ".toml", ".json")


@dataclass(frozen=True)
class Identity:
    """What a run was; empty or 0 where its log does not say.

    `framework` and `model` are names of this project's adapters and models. `batch_size_per_device`
    is what a device takes at once: with gradient accumulation a step is one such micro-batch.
    `hardware` is the device's name, `software` the versions in one text, `date` the day.
    """

    framework: str = ""
    model: str = ""
    nodes: int = 0
    devices: int = 0
    batch_size_per_device: int = 0
    precision: str = ""
    versions: Dict[str, str] = field(default_factory=dict)
    hardware: str = ""
    software: str = ""
    date: str = ""

    @property
    def global_batch_size(self) -> int:
        return self.batch_size_per_device * self.devices


@dataclass(frozen=True)
class Reading:
    """One run as its log tells it; with a `problem` its figures are not to be used.

    Publishers' rules take their values from `marks`, the timed lines of the lowest rank that
    printed, and from `series`, other printed figures by name, in the log's order. A problem that
    `is_incomplete` is that of a log which ends early, or has lost lines. `printed` are rates that
    the log prints of the same steps, where the windows are made from its times.
    """

    identity: Identity
    windows: Tuple[Window, ...]
    series: Dict[str, Tuple[float, ...]]
    problem: str
    is_out_of_memory: bool = False
    is_incomplete: bool = False
    printed: Tuple[Window, ...] = ()
    notes: Tuple[str, ...] = ()
    marks: Tuple[Mark, ...] = ()


def suits_all(reading: Reading, identity: Identity) -> bool:
    return True


class Rule(NamedTuple):
    """A publisher's way to make one figure; `compute` raises RuleError where it cannot.

    `suits` tells the runs whose figures were published by it: the default is the first rule that
    suits and gives a figure. A name says what is taken; positions in it are Python's, from 0.
    """

    name: str
    compute: Callable[[Reading, Identity], float]
    suits: Callable[[Reading, Identity], bool] = suits_all


def list_formats() -> List[str]:
    """Names of the formats, sorted."""
    names = (path.stem for path in _find_folder().iterdir() if path.suffix in _SUFFIXES)
    return sorted({name for name in names if not name.startswith("_")})


def _find_folder() -> Path:
    return Path(cast(str, import_module(FORMATS).__file__)).parent


def load_format(name: str) -> "Format":
    """The format's module, or what its table declares; ModuleNotFoundError for an unknown name."""
    if (_find_folder() / f"{name}.py").exists():
        return cast("Format", import_module(f"{FORMATS}.{name}"))
    from dlperf_slurm.logs.tables import make_format, read_table

    path = _find_folder() / f"{name}.toml"
    return cast("Format", make_format(path.name, read_table(path)))


def find_formats(lines: Iterable[Line]) -> List[str]:
    """All formats that claim the log, sorted; the whole log is read."""
    signatures = {name: load_format(name).SIGNATURE for name in list_formats()}
    # nearly all lines of a log are of no format: one match for each instead of one per format
    any_signature = join_patterns(*signatures.values())
    claims: Set[str] = set()
    for line in lines:
        if any_signature.match(line.text):
            claims |= {name for name, each in signatures.items() if each.match(line.text)}
    return sorted(claims)


def read_runs(log_format: "Format", lines: Iterable[Line]) -> List[Reading]:
    """The runs of a log, in its order; without any timed step, one reading that says so.

    A rank that says so again, after it timed something, begins its next run: blocks of lines of
    other ranks, which are still in the one before, may follow. Ranks that never say so, and lines
    without a label, are in the run that began last.
    """
    runs = [_RunLines(log_format.start_run())]
    places: Dict[int, int] = {}
    for line in lines:
        start = log_format.START.match(line.text) if log_format.START is not None else None
        if start is not None:
            rank = int(start.groupdict().get("rank") or line.rank)
            place = places.get(rank, len(runs) - 1)
            place += runs[place].has_begun(rank)
            if place == len(runs):
                _move_idle_ranks(places, runs)
                runs.append(_RunLines(log_format.start_run()))
            runs[place].started.add(rank)
            if rank >= 0:
                places[rank] = place
        runs[places.get(line.rank, len(runs) - 1)].add(line)
    return [run.finish() for run in runs]


class _RunLines:
    """The lines of one run; `started` are ranks that said that they begin it."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.failures = FailureScan()
        self.started: Set[int] = set()

    def add(self, line: Line) -> None:
        self.run.add(line)
        self.failures.add(line)

    def has_begun(self, rank: int) -> bool:
        """Whether another START of the rank is that of another run."""
        has_failed = bool(self.failures.message) and (rank < 0 or rank in self.started)
        return self.run.is_under_way(rank) or has_failed

    def finish(self) -> Reading:
        return _finish(self.run, self.failures)


def _move_idle_ranks(places: Dict[int, int], runs: Sequence[_RunLines]) -> None:
    """Let ranks that began in the last run, and timed nothing, be in the next one.

    They said so before the rank by which the next one shows.
    """
    last = len(runs) - 1
    for rank, place in places.items():
        if place == last and not runs[last].run.is_under_way(rank):
            places[rank] = last + 1


def _finish(run: "Run", failures: FailureScan) -> Reading:
    reading = run.finish()
    if not failures.message:
        return reading
    return replace(
        reading,
        windows=(),
        problem=failures.message,
        is_incomplete=False,
        is_out_of_memory=failures.is_out_of_memory,
    )


def compute_samples_per_s(windows: Iterable[Window], identity: Identity) -> float:
    """Samples over time of the slowest rank, in samples/s of the whole job.

    A log of times needs the global batch size, one of rates per device the devices.
    """
    return min(_compute_rate(window, identity) for window in windows)


def _compute_rate(window: Window, identity: Identity) -> float:
    if window.seconds > 0:
        return window.steps * identity.global_batch_size / window.seconds
    return window.samples_per_s * (identity.devices if window.is_per_device else 1)
