"""A log format's table -> its patterns, identity, window, end and rules.

The keys are explained in docs/adding.md. A pattern may use parts of `logs.patterns`, such as
`{NUMBER}`; the named groups of a line are explained in `logs.timed_run`.
"""

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Pattern, Sequence, Tuple, cast

from dlperf_slurm.logs import Identity, ParsedRun, PublisherRule, patterns
from dlperf_slurm.logs.marks import Mark, name_position
from dlperf_slurm.logs.publisher_rules import (
    Compute,
    average_epochs,
    average_lines,
    take_final,
    time_between,
    time_lines,
)
from dlperf_slurm.logs.timed_run import (
    DLL,
    PARAMETERS,
    TimedFormat,
    TimedRun,
    dll_line,
    find_early_end,
    if_whole,
)
from dlperf_slurm.logs.windows import (
    Window,
    list_since_last,
    list_timed,
    make_printed_window,
    make_time_or_rate_window,
    make_time_window,
    make_warm_rate_window,
    make_warm_window,
    spread_over_epochs,
)

Table = Dict[str, Any]
MakeValue = Callable[[TimedRun], Any]

PIECES: Dict[str, str] = {
    "DLL": DLL,
    **{
        name: getattr(patterns, name)
        for name in ("COUNT", "NUMBER", "DECIMAL", "DATE_TIME", "GLOG_TIME", "LOGGER_PREFIX")
    },
    "NAMESPACE": patterns.NAMESPACE,
}
# the keys of each table, with the types of their values
KEYS: Dict[str, Dict[str, type]] = {
    "format": {"signature": str, "start": str, "lines": list, "announcements": list,
        "speaks_for_job": bool, "identity": dict, "window": dict, "end": dict, "rules": list},
    "line": {"pattern": str, "is_whole": bool, "dll": str, "metrics": dict, "parameters": bool},
    "identity": dict.fromkeys(Identity.__dataclass_fields__, object),
    "value": {"fact": str, "names": dict, "otherwise": str, "counts": list, "over": str,
        "flags": list, "precision": str},
    "window": {"kind": str, "warmup_lines": int, "is_per_device": bool, "has_printed_rates": bool},
    "end": {"closing_line": str, "epochs": list, "last_epoch": str, "last_step": str,
        "step_interval": str, "first_step": int, "samples_per_epoch": str, "epoch_count": list,
        "reaches": list},
    "rule": {"name": str, "average": list, "time_lines": list, "time_between": list, "final": bool,
        "epochs": bool, "digits": int, "is_per_device": bool, "after_step": int, "devices": list},
}  # fmt: skip


class FormatError(ValueError):
    """Error in a format's table: the file, the key, and the allowed values."""


class TableFormat(NamedTuple):
    """A `Format` that a table declares."""

    SIGNATURE: Pattern[str]
    START: Optional[Pattern[str]]
    RULES: Tuple[PublisherRule, ...]
    start_run: Callable[[], TimedRun]


def read_table(path: Path) -> Table:
    """Read a format's TOML, or its JSON copy in a run directory (for Python without tomllib)."""
    frozen = path.with_suffix(".json")
    if frozen.exists():
        return cast(Table, json.loads(frozen.read_text(encoding="utf-8")))
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return cast(Table, tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{path.name}: is no TOML: {error}") from error


def make_format(name: str, table: Table) -> TableFormat:
    """Make a format from its table; raises FormatError, with file and key, if it is invalid."""
    _check(name, table, "format", "signature", "lines", "identity", "window", "rules")
    window, end = table["window"], table.get("end", {})
    _check(f"{name}: window", window, "window", "kind")
    _check(f"{name}: end", end, "end")
    kind, warmup = window["kind"], window.get("warmup_lines", 0)
    if kind not in WINDOWS:
        raise FormatError(f"{name}: window.kind: {kind!r} is none of {', '.join(sorted(WINDOWS))}")
    timed = TimedFormat(
        lines=_make_lines(f"{name}: lines", table["lines"]),
        announcements=_make_lines(f"{name}: announcements", table.get("announcements", ())),
        identify=_make_identify(f"{name}: identity", table["identity"]),
        make_windows=lambda run, rank, marks: WINDOWS[kind](rank, marks, window),
        find_problem=lambda run: find_end(run, end),
        list_printed=(lambda run, rank, marks: make_printed_window(rank, marks, warmup))
        if window.get("has_printed_rates")
        else None,
        is_of_job=table.get("speaks_for_job", False),
    )
    start = _compile(f"{name}: start", table["start"]) if "start" in table else None
    rules = [_make_rule(f"{name}: rules[{i}]", rule) for i, rule in enumerate(table["rules"])]
    signature = _compile(f"{name}: signature", table["signature"])
    return TableFormat(signature, start, tuple(rules), timed.start_run)


def _check(where: str, table: Table, kind: str, *needed: str) -> None:
    known = KEYS[kind]
    for key, value in table.items():
        if key not in known:
            raise FormatError(f"{where}: {key!r} is no key; known: {', '.join(known)}")
        if not isinstance(value, known[key]):
            raise FormatError(f"{where}: {key} is to be of the type {known[key].__name__}")
    for key in needed:
        if key not in table:
            raise FormatError(f"{where}: {key} is missing")


def _compile(where: str, pattern: str) -> Pattern[str]:
    def put_in(match: "re.Match[str]") -> str:
        if match[1] not in PIECES:
            raise FormatError(f"{where}: {{{match[1]}}} is no piece; known: {', '.join(PIECES)}")
        return PIECES[match[1]]

    try:
        return re.compile(re.sub(r"\{([A-Z_]+)\}", put_in, pattern))
    except re.error as error:
        raise FormatError(f"{where}: is no regular expression: {error}") from error


def _make_lines(where: str, lines: Sequence[Table]) -> List[Any]:
    made: List[Any] = []
    for index, line in enumerate(lines):
        _check(f"{where}[{index}]", line, "line")
        if line.get("parameters"):
            made.append(PARAMETERS)
        elif "dll" in line:
            made.append(dll_line(line["dll"], **line["metrics"]))
        else:
            pattern = _compile(f"{where}[{index}].pattern", line.get("pattern", ""))
            made.append(if_whole(pattern) if line.get("is_whole") else pattern)
    return made


def _make_identify(where: str, table: Table) -> Callable[[TimedRun], Identity]:
    _check(where, table, "identity")
    makers = {key: _make_value(f"{where}.{key}", value) for key, value in table.items()}
    return lambda run: Identity(**{key: make(run) for key, make in makers.items()})


def _make_value(where: str, value: Any) -> MakeValue:
    """Make the function that returns one field of a run: a constant, or from the log's facts."""
    if not isinstance(value, dict):
        return lambda run: value
    _check(where, value, "value")
    if "fact" in value:
        return lambda run: _translate(run.facts.get(value["fact"], ""), value)
    if "counts" in value:
        return lambda run: _multiply(run, value)
    if "flags" in value:
        return lambda run: patterns.name_precision(run.facts, *value["flags"])
    if "precision" in value:
        return lambda run: run.find_precision(value["precision"])
    raise FormatError(f"{where}: is to have fact, counts, flags or precision")


def _translate(text: str, value: Table) -> str:
    """Return this project's name for a word of the log, or else `otherwise`, or the word."""
    return str(value.get("names", {}).get(text, value.get("otherwise", text)))


def _multiply(run: TimedRun, value: Table) -> int:
    """Multiply counts, and divide by another one; returns 0 if one of them is missing."""
    product = 1
    for name in value["counts"]:
        product *= run.read_count(name)
    if "over" not in value:
        return product
    divisor = run.read_count(value["over"])
    return product // divisor if divisor else 0


def _make_warm_times(rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Make the window from times; the first interval is always left out as warm-up.

    The first line's seconds are not known.
    """
    first = [(mark.position[0], 0.0) for mark in marks[:1]]
    return make_warm_window(rank, [*first, *list_timed(marks)])


WINDOWS: Dict[str, Callable[[int, List[Mark], Table], Tuple[Window, ...]]] = {
    "times": lambda rank, marks, table: make_time_window(rank, marks, table.get("warmup_lines", 0)),
    "times or rates": lambda rank, marks, _: make_time_or_rate_window(rank, marks),
    "warm times": lambda rank, marks, _: _make_warm_times(rank, marks),
    "warm rates": lambda rank, marks, table: make_warm_rate_window(
        rank, list_since_last(marks), table.get("is_per_device", False)
    ),
    "warm rates of epochs": lambda rank, marks, _: make_warm_rate_window(
        rank, spread_over_epochs(marks)
    ),
}


def find_end(run: TimedRun, end: Table) -> str:
    """Return what the log is missing of the end that the table requires, or ""."""
    problem = run.find_unended_ranks(end["closing_line"]) if "closing_line" in end else ""
    if not problem and "epochs" in end:
        first, stop = (int(run.facts.get(name, 0)) for name in end["epochs"])
        unended = [epoch for epoch in range(first, stop) if epoch not in run.epoch_ends]
        problem = f"the log has no end of epoch {unended[0]}" if unended else ""
    if not problem and "last_epoch" in end:
        problem = _find_last_epoch(run, end["last_epoch"])
    if not problem and "last_step" in end:
        announced = (end["last_step"], end["step_interval"], end["first_step"])
        problem = find_early_end(run, *announced)
    if not problem and "samples_per_epoch" in end:
        problem = _find_short_epoch(run, end)
    if not problem and "reaches" in end:
        problem = _find_short_rank(run, end["reaches"])
    return problem


def _find_last_epoch(run: TimedRun, name: str) -> str:
    announced, begun = run.read_count(name), run.last[0]
    if not announced:
        return f"the log does not tell how many epochs there were to be ({name})"
    if begun not in run.epoch_ends:
        return f"the log ends in epoch {begun}: the line with its speed is missing"
    if begun + 1 < announced:
        return f"the log ends after epoch {begun}, the last was to be {announced - 1}"
    return ""


def _find_short_epoch(run: TimedRun, end: Table) -> str:
    """Return where the log ends before the last line of the last epoch, or "".

    The steps of an epoch are rounded up.
    """
    per_step = run.format.identify(run).global_batch_size
    epochs = run.read_count(*end["epoch_count"])
    steps = -(-run.read_count(end["samples_per_epoch"]) // per_step) if per_step else 0
    lines = steps // (run.read_count(end["step_interval"]) or 1)
    if not lines or not epochs:
        return "the log does not tell how many iterations there were to be (its arguments)"
    found = [mark.position[0] for mark in run.first_marks]
    if len(set(found)) < epochs or found.count(found[-1]) < lines:
        return f"the log ends at {name_position(run.first_marks[-1].position)}, before the run does"
    return ""


def _find_short_rank(run: TimedRun, reaches: Sequence[str]) -> str:
    """Return a message about a rank that ends before the announced epoch and step, or "".

    Epochs count from 0, steps from 1.
    """
    last = [int(run.facts[name]) for name in reaches]
    if len(last) > 1:
        last[0] -= 1
    for rank, marks in run.marks.by_rank.items():
        if any(found < announced for found, announced in zip(marks[-1].position, last)):
            whose = f" of rank {rank}" if rank >= 0 else ""
            found = name_position(marks[-1].position)
            return f"the log{whose} ends at {found}, the run at {name_position(tuple(last))}"
    return ""


def _make_rule(where: str, table: Table) -> PublisherRule:
    _check(where, table, "rule", "name")
    known = [name for name in RULES if name in table]
    if len(known) != 1:
        raise FormatError(f"{where}: is to have one of {', '.join(RULES)}")
    fewest, most = table.get("devices", [0, sys.maxsize])

    def suits(_: ParsedRun, identity: Identity) -> bool:
        return bool(fewest <= identity.devices <= most)

    try:
        return PublisherRule(table["name"], RULES[known[0]](table), suits)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{where}: {known[0]} takes numbers such as [20, 120]") from error


def _average(table: Table) -> Compute:
    start, stop = (*table["average"], None)[:2]
    is_per_device = table.get("is_per_device", False)
    return average_lines(start, stop, is_per_device, table.get("digits"))


def _time_lines(table: Table) -> Compute:
    first, last = table["time_lines"]
    return time_lines(first, last, table.get("after_step", -1))


def _time_between(table: Table) -> Compute:
    first, last = table["time_between"]
    return time_between(first, last)


RULES: Dict[str, Callable[[Table], Compute]] = {
    "average": _average,
    "time_lines": _time_lines,
    "time_between": _time_between,
    "final": lambda table: take_final,
    "epochs": lambda table: average_epochs,
}
