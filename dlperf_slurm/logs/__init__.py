"""Lines of a benchmark script's log, by the log's format -> the timed steps of each run.

Runs on Python 3.7 with the standard library only, because a job may parse its own log with the
framework's Python.
"""

from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Pattern,
    Sequence,
    Set,
    Tuple,
    cast,
)

from dlperf_slurm.logs.failures import FailureScan
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark
from dlperf_slurm.logs.patterns import join_patterns
from dlperf_slurm.logs.settings import SettingScan
from dlperf_slurm.logs.windows import STEPS, TOKENS, Window

if TYPE_CHECKING:
    from typing import Protocol

    class RunParser(Protocol):
        """Parser of one run's lines, in log order and in little memory."""

        def is_under_way(self, rank: int) -> bool:
            """Return whether the rank (-1: any rank) has printed a timed step.

            The next START line of the rank then begins another run.
            """

        def add(self, line: LogLine) -> None: ...

        def finish(self) -> "ParsedRun":
            """Return the result of the lines so far; `problem` is set if the run is incomplete."""

    class Format(Protocol):
        """A log format: a module of the package FORMATS, or a TOML table there.

        Patterns are matched at the beginning of a line's text. Most formats get `start_run` from
        `logs.timed_run.TimedFormat`.
        """

        SIGNATURE: Pattern[str]
        """Lines that only this format prints; one such line identifies a log's format."""

        START: Optional[Pattern[str]]
        """The line that begins a run; a log may contain several runs."""

        RULES: Tuple["PublisherRule", ...]
        """How publishers compute throughput from logs of this format; the first is the default."""

        def start_run(self) -> RunParser: ...


# package with one table or module per format; imported by this name only
FORMATS = "dlperf_slurm.published.logs"
Tables = Mapping[str, Mapping[str, Any]]
"""Tables of log formats, by name."""
NO_TABLES: Tables = {}
# a run directory has the tables as JSON: Python before 3.11 cannot read TOML
_SUFFIXES = (".py", ".toml", ".json")


@dataclass(frozen=True)
class Identity:
    """Configuration of a run; "" or 0 where its log does not report it.

    `framework` and `model` are this project's names of adapters and models. `batch_size_per_device`
    is that of a micro-batch: with gradient accumulation a step is one micro-batch. `hardware` is
    the device name, `software` the versions in one text, `date` the day. `mode`, `data`, `compiler`
    and `gradient_sync` are values of the axes with these names. `total_batch_size` has the samples
    of a step on all devices, `sequence_length` the tokens of a sample, `flops_per_sample` the
    floating-point operations of its forward pass.
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
    mode: str = ""
    data: str = ""
    compiler: str = ""
    gradient_sync: str = ""
    total_batch_size: int = 0
    sequence_length: int = 0
    flops_per_sample: float = 0.0

    @property
    def global_batch_size(self) -> int:
        return self.total_batch_size or self.batch_size_per_device * self.devices


@dataclass(frozen=True)
class ParsedRun:
    """Result of parsing one run; if it has a `problem`, its figures must not be used.

    `windows` has the measured steps of each rank, or of the job. Publishers' rules use `marks`, the
    timed lines of the lowest rank that printed any, and `series`, other printed figures by name,
    both in log order. `is_incomplete` means that the problem is a log that ends early or has lost
    lines; with `is_gapless` it lost none. `printed` has the rates that the log prints for the same
    steps, if `windows` are computed from its times; `prints` other figures that it prints, by unit.
    """

    identity: Identity
    windows: Tuple[Window, ...]
    series: Dict[str, Tuple[float, ...]]
    problem: str
    is_out_of_memory: bool = False
    is_incomplete: bool = False
    is_gapless: bool = False
    printed: Tuple[Window, ...] = ()
    prints: Dict[str, float] = field(default_factory=dict)
    notes: Tuple[str, ...] = ()
    marks: Tuple[Mark, ...] = ()


class FormatError(ValueError):
    """Error in a format's table: the file, the key, and the allowed values."""


class NumberError(ValueError):
    """Error of a log with a text that is no number where its format expects a number."""


class PublisherRule(NamedTuple):
    """How the publisher of a script computes the throughput of a run from its log.

    `compute` raises RuleError if values are missing. `suits` selects the runs whose throughput was
    published by this rule: the default is the first rule that suits and gives a figure. `name` is a
    description; indices in it are Python's, from 0.
    """

    name: str
    compute: Callable[[ParsedRun, Identity], float]
    suits: Callable[[ParsedRun, Identity], bool] = lambda parsed, identity: True


NO_RULE = PublisherRule("", lambda parsed, identity: 0.0)
"""Placeholder for a log format without a publisher's rule; its `compute` is never called."""


def list_formats() -> List[str]:
    """Return the sorted names of all log formats of the package."""
    names = (path.stem for path in _find_folder().iterdir() if path.suffix in _SUFFIXES)
    return sorted({name for name in names if not name.startswith("_")})


def _find_folder() -> Path:
    return Path(cast(str, import_module(FORMATS).__file__)).parent


def load_format(name: str, tables: Tables = NO_TABLES) -> "Format":
    """Return a log format's module, or the format that its table declares.

    `tables` are the user's, by name. Raises FormatError for an unknown name or invalid table.
    """
    if name not in tables and (_find_folder() / f"{name}.py").exists():
        return cast("Format", import_module(f"{FORMATS}.{name}"))
    from dlperf_slurm.logs.declared_formats import make_format, read_table

    if name in tables:
        return cast("Format", make_format(f"formats.{name}", dict(tables[name])))
    if name not in list_formats():
        raise FormatError(f"{name!r} is not a log format; known: {', '.join(list_formats())}")
    path = _find_folder() / f"{name}.toml"
    return cast("Format", make_format(path.name, read_table(path)))


def find_formats(lines: Iterable[LogLine], tables: Tables = NO_TABLES) -> List[str]:
    """Return the sorted names of all formats whose SIGNATURE matches a line; reads the whole log.

    `tables` has the user's own formats by name; if one of these matches, only these are returned.
    """
    names = {*list_formats(), *tables}
    signatures = {name: load_format(name, tables).SIGNATURE for name in names}
    # few lines match any SIGNATURE: one joined match per line instead of one per format
    any_signature = join_patterns(*(signatures[name] for name in names - set(tables)))
    own = [signatures[name] for name in tables]
    claims: Set[str] = set()
    for line in lines:
        if any_signature.match(line.text) or any(each.match(line.text) for each in own):
            claims |= {name for name, each in signatures.items() if each.match(line.text)}
    return sorted(claims & set(tables) or claims)


def read_runs(log_format: "Format", lines: Iterable[LogLine]) -> List[ParsedRun]:
    """Parse the runs of a log, in log order; a log without a timed step gives one with a problem.

    A rank that prints the format's START line again after a timed step or a failure begins its next
    run; lines of other ranks that are still in the run before may follow. Lines of ranks without a
    START line, and lines without a rank label, belong to the run that began last.
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
    """The parsers that get the lines of one run: the format's, and those for all formats.

    `started` are the ranks whose START line belongs to this run.
    """

    def __init__(self, run: "RunParser") -> None:
        self.run = run
        self.failures = FailureScan()
        self.settings = SettingScan()
        self.started: Set[int] = set()

    def add(self, line: LogLine) -> None:
        self.run.add(line)
        self.failures.add(line)
        self.settings.add(line)

    def has_begun(self, rank: int) -> bool:
        """Return whether the next START line of the rank (-1: any rank) begins another run.

        It does after a timed step of the rank, or after any failure if the rank has begun this run.
        """
        has_failed = bool(self.failures.message) and (rank < 0 or rank in self.started)
        return self.run.is_under_way(rank) or has_failed

    def finish(self) -> ParsedRun:
        """Return the run's result, with settings from `self.settings` that the format did not read.

        A failure in the lines becomes the result's problem.
        """
        parsed = self.run.finish()
        stated: Dict[str, Any] = {
            name: value
            for name, value in self.settings.finish().items()
            if not getattr(parsed.identity, name)
        }
        parsed = replace(parsed, identity=replace(parsed.identity, **stated))
        failure = self.failures.find_failure(is_complete=not parsed.problem)
        if not failure:
            return parsed
        return replace(
            parsed,
            windows=(),
            problem=failure,
            is_incomplete=False,
            is_out_of_memory=self.failures.is_out_of_memory,
        )


def _move_idle_ranks(places: Dict[int, int], runs: Sequence[_RunLines]) -> None:
    """Move ranks that timed no step in the last run to the run that begins now.

    `places` has the index of each rank's run. These ranks printed START before the rank whose START
    line shows that there is a next run.
    """
    last = len(runs) - 1
    for rank, place in places.items():
        if place == last and not runs[last].run.is_under_way(rank):
            places[rank] = last + 1


def compute_samples_per_s(windows: Iterable[Window], identity: Identity) -> float:
    """Return the throughput of the slowest rank's window, in samples/s of the whole job.

    A window is a rank's measured steps. Windows of times or of steps/s need the global batch size
    of `identity`, windows of rates per device its device count, of tokens/s its sequence length.
    """
    return min(_compute_rate(window, identity) for window in windows)


def _compute_rate(window: Window, identity: Identity) -> float:
    """Return the throughput of one window in samples/s; see `compute_samples_per_s`."""
    if window.seconds > 0:
        return window.steps * identity.global_batch_size / window.seconds
    rate = window.samples_per_s * (identity.devices if window.is_per_device else 1)
    if window.unit == STEPS:
        return rate * identity.global_batch_size
    return rate / identity.sequence_length if window.unit == TOKENS else rate
