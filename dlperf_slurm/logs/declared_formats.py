"""A log format's table -> its patterns, identity, window, end and rules.

The keys are explained in docs/logs.md. A pattern may use parts of `logs.patterns`, such as
`{NUMBER}`; the named groups of a line are explained in `logs.timed_run`.
"""

import json
import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Pattern,
    Sequence,
    Tuple,
    cast,
)

from dlperf_slurm.logs import FormatError, Identity, ParsedRun, PublisherRule, patterns
from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.marks import Mark, format_position
from dlperf_slurm.logs.patterns import join_patterns
from dlperf_slurm.logs.publisher_rules import (
    Compute,
    average_epochs,
    average_lines,
    average_seconds,
    take_final,
    take_last,
    time_between,
    time_lines,
)
from dlperf_slurm.logs.settings import ALL_SETTINGS, WORDS
from dlperf_slurm.logs.timed_run import (
    DLL,
    INTERVAL,
    PARAMETERS,
    SECONDS,
    VALUES,
    Handler,
    TimedFormat,
    TimedRun,
    dll_line,
    find_early_end,
    find_missing_steps,
    if_whole,
    take_line,
    take_values,
)
from dlperf_slurm.logs.windows import (
    Window,
    count_steps,
    drop_warmup,
    list_between,
    list_since_last,
    list_timed,
    make_printed_window,
    make_rate_window,
    make_seconds_window,
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
    "line": {"pattern": str, "is_whole": bool, "dll": str, "metrics": dict, "parameters": bool,
        "json": str, "where": dict, "csv": str, "columns": dict, "pairs": str, "steps": int},
    "identity": dict.fromkeys(Identity.__dataclass_fields__, object),
    "value": {"fact": str, "names": dict, "otherwise": str, "counts": list, "over": object,
        "flags": list, "precision": str},
    "window": {"kind": str, "warmup_lines": int, "warmup_steps": int, "is_per_device": bool,
        "has_printed_rates": bool, "is_of_first_epoch": bool},
    "end": {"closing_line": str, "epochs": list, "last_epoch": str, "last_step": str,
        "step_interval": str, "first_step": int, "samples_per_epoch": str, "epoch_count": list,
        "reaches": list, "refuse": dict, "cycles": str, "steps": str, "steps_if": dict,
        "spare_steps": int, "epoch_line": str, "first_epoch": int},
    "rule": {"name": str, "average": list, "seconds": list, "time_lines": list,
        "time_between": list, "final": bool, "last": str, "epochs": bool, "digits": int,
        "line_digits": int, "is_per_device": bool, "after_step": int, "devices": list,
        "is_of_every_step": bool},
}  # fmt: skip
# the types of the values in lists and tables
_ELEMENTS: Dict[str, type] = {
    **dict.fromkeys(("average", "seconds", "time_lines", "time_between"), int),
    **dict.fromkeys(("columns", "counts", "flags", "framework", "metrics", "over"), str),
}


FACTS = (*ALL_SETTINGS, "total_batch_size", "sequence_length")
"""Settings of a run, read from values of these names in the log unless `identity` sets them."""
_PAIR = re.compile(r"(\w+)=(\S+)")
_NUMBER = re.compile(rf"{patterns.NUMBER}$")


class TableFormat(NamedTuple):
    """A log format that a TOML table declares; it has the attributes of `logs.Format`.

    `PATTERNS` has the patterns of the table by key, such as "lines[0]".
    """

    SIGNATURE: Pattern[str]
    START: Optional[Pattern[str]]
    RULES: Tuple[PublisherRule, ...]
    start_run: Callable[[], TimedRun]
    PATTERNS: Dict[str, Pattern[str]]


def read_table(path: Path) -> Table:
    """Read a format's TOML, or its JSON copy in a run directory (for Python without tomllib).

    Raises FormatError for text that is not TOML.
    """
    frozen = path.with_suffix(".json")
    if frozen.exists():
        return cast(Table, json.loads(frozen.read_text(encoding="utf-8")))
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return cast(Table, tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{path.name}: is not valid TOML: {error}") from error


def make_format(name: str, table: Table) -> TableFormat:
    """Make a format from its table; raises FormatError, with name and key, if it is invalid."""
    _check(name, table, "format", "lines")
    window, end = table.get("window", {}), dict(table.get("end", {}))
    _check(f"{name}: window", window, "window")
    _check(f"{name}: end", end, "end")
    kind, warmup = window.get("kind", "values"), window.get("warmup_lines", 0)
    lines, refused = _make_lines(f"{name}: lines", table["lines"]), end.get("refuse", {})
    ends = ("(?P<end>" in line.get("pattern", "") or "end" in line.get("columns", ())
            for line in table["lines"])  # fmt: skip
    if any(ends):
        end.setdefault("closing_line", "the closing line is")
    kinds = sorted((*WINDOWS, *OF_RUN, "values"))
    if kind not in kinds:
        raise FormatError(f"{name}: window.kind: {kind!r} is not one of {', '.join(kinds)}")
    timed = TimedFormat(
        lines=lines,
        announcements=_make_lines(f"{name}: announcements", table.get("announcements", ())),
        identify=_make_identify(f"{name}: identity", table.get("identity", {})),
        make_windows=lambda run, rank, marks: _make_windows(kind, run, rank, marks, window),
        # a reason to refuse a log applies if the log has all facts that the reason names
        find_fault=lambda run: next(
            (reason for reason, names in refused.items() if {*names} <= run.facts.keys()), ""
        ),
        find_problem=lambda run: find_end(run, end),
        list_printed=(lambda run, rank, marks: make_printed_window(rank, marks, warmup))
        if window.get("has_printed_rates")
        else None,
        is_of_job=table.get("speaks_for_job", kind in OF_RUN),
        is_total=kind == "total",
    )
    start = _compile(f"{name}: start", table["start"]) if "start" in table else None
    rules = [_make_rule(f"{name}: rules[{i}]", r) for i, r in enumerate(table.get("rules", ()))]
    signature = (
        _compile(f"{name}: signature", table["signature"])
        if "signature" in table
        else _make_signature(name, lines)
    )
    found = {"start": start, "signature": signature if "signature" in table else None}
    for key, entries in (("lines", lines), ("announcements", timed.announcements)):
        if len(entries) == len(table.get(key, ())):
            found.update((f"{key}[{i}]", _get_pattern(entry)) for i, entry in enumerate(entries))
    named = {key: pattern for key, pattern in found.items() if pattern is not None}
    return TableFormat(signature, start, tuple(rules), timed.start_run, named)


def _get_pattern(entry: Any) -> Pattern[str]:
    """Return the pattern of an entry of a format's lines: a pattern, or (pattern, handler)."""
    return cast("Pattern[str]", entry[0] if isinstance(entry, tuple) else entry)


def _make_signature(name: str, lines: Sequence[Any]) -> Pattern[str]:
    """Return a pattern of all lines that may have a timed step, by which to recognize the format.

    `name` is that of the format. Raises FormatError if there are no such lines.
    """
    compiled = [_get_pattern(line) for line in lines]
    timed = {"step", "json", "csv", "pairs", *VALUES}
    found = [pattern for pattern in compiled if timed & pattern.groupindex.keys()]
    if not found:
        raise FormatError(
            f"{name}: no line pattern has one of the named groups {', '.join(sorted(VALUES))}"
        )
    try:
        return join_patterns(*found)
    except re.error as error:
        raise FormatError(
            f"{name}: the line patterns cannot be combined into one regular expression: {error}; "
            "add the key `signature`"
        ) from error


def _check(where: str, table: Table, kind: str, *needed: str) -> None:
    """Raise FormatError if a table has unknown keys or wrong types, or lacks one of `needed`.

    `kind` is that of the table in KEYS, which has the keys and types. `where` is its place.
    """
    known = KEYS[kind]
    if not isinstance(table, dict):
        raise FormatError(f"{where}: must be a table with the keys {', '.join(known)}")
    for key, value in table.items():
        if key not in known:
            raise FormatError(f"{where}: unknown key {key!r}; known: {', '.join(known)}")
        if not isinstance(value, known[key]):
            raise FormatError(f"{where}: {key} must be of type {known[key].__name__}")
        elements = value.values() if kind == "line" and isinstance(value, dict) else [value]
        for one in value if isinstance(value, list) else elements:
            if not isinstance(one, (dict, _ELEMENTS.get(key, object))):
                raise FormatError(f"{where}: {key} must have values of type "
                    f"{_ELEMENTS[key].__name__}")  # fmt: skip
    for key in needed:
        if key not in table:
            raise FormatError(f"{where}: {key} is missing")


def _compile(where: str, pattern: str) -> Pattern[str]:
    """Compile a pattern of a format's table; `{NUMBER}` and others stand for patterns of PIECES.

    Raises FormatError, with the place `where`, if it is invalid.
    """

    def put_in(match: "re.Match[str]") -> str:
        if match[1] not in PIECES:
            raise FormatError(f"{where}: unknown pattern {match[0]}; known: {', '.join(PIECES)}")
        return PIECES[match[1]]

    with _named_errors(where):
        return re.compile(re.sub(r"\{([A-Z_]+)\}", put_in, pattern))


@contextmanager
def _named_errors(where: str) -> Iterator[None]:
    """Convert errors of regular expressions in this context to FormatError at the place `where`."""
    try:
        yield
    except (re.error, OverflowError, RecursionError) as error:
        raise FormatError(f"{where}: is not a valid regular expression: {error}") from error


# names that `dll_line` and its pattern have already
_NO_METRICS = ("body", "handler", "time")


def _make_lines(where: str, lines: Sequence[Table]) -> List[Any]:
    """Return the (pattern, handler) entries that the tables `lines` of a format declare."""
    made: List[Any] = []
    for index, line in enumerate(lines):
        _check(f"{where}[{index}]", line, "line")
        for key, other in (("csv", "columns"), ("dll", "metrics")):
            _check(f"{where}[{index}]", line, "line", *(other,) * (key in line))
        for name in line.get("metrics", ()):
            if not name.isidentifier() or name in _NO_METRICS:
                raise FormatError(
                    f"{where}[{index}]: metrics: {name!r} is not a valid name; allowed: letters, "
                    f"digits and _, but not {', '.join(_NO_METRICS)}"
                )
        with _named_errors(f"{where}[{index}]"):
            made += _make_entries(f"{where}[{index}]", line)
    return made


def _make_entries(where: str, line: Table) -> List[Any]:
    """Return the (pattern, handler) entries of one of a format's lines; `where` is its place."""
    if line.get("parameters"):
        return [PARAMETERS]
    if "dll" in line:
        return [dll_line(line["dll"], **line["metrics"])]
    if "json" in line:
        prefix = _compile(f"{where}.json", line["json"]).pattern
        return [(re.compile(rf"(?:{prefix})(?P<json>\{{.*\}})\s*$"), _take_json(line))]
    if "csv" in line:
        return _make_csv(line)
    if "pairs" in line:
        prefix = _compile(f"{where}.pairs", line["pairs"]).pattern
        return [(re.compile(rf"(?:{prefix})(?P<pairs>.*\S)\s*$"), _take_pairs)]
    pattern = _compile(f"{where}.pattern", line.get("pattern", ""))
    handler = _number_steps(line["steps"]) if "steps" in line else take_line
    return [if_whole(pattern, handler) if line.get("is_whole") else (pattern, handler)]


def _number_steps(steps: int) -> Handler:
    """Return the handler of timed lines without a step number: each is `steps` after the last."""

    def handle(run: TimedRun, line: LogLine, match: "re.Match[str]") -> None:
        run.counted[line.rank] = run.counted.get(line.rank, 0) + steps
        found = {name: text for name, text in match.groupdict().items() if text is not None}
        take_values(run, line, {**found, "step": str(run.counted[line.rank])})

    return handle


def _take_json(table: Table) -> Handler:
    """Return the handler that stores the values of lines with a JSON object, by name.

    `columns` of the table maps names to keys, of which `a.b` is b in the object a. A line is left
    to other patterns unless it has all columns, and the values of `where`.
    """

    def handle(run: TimedRun, line: LogLine, match: "re.Match[str]") -> Optional[bool]:
        try:
            data = json.loads(match.group("json"))
        except ValueError:
            return False
        if any(_look_up(data, key) != value for key, value in table.get("where", {}).items()):
            return False
        found = {name: _look_up(data, key) for name, key in table.get("columns", {}).items()}
        if any(value is None for value in found.values()):
            return False
        # repr keeps all digits of a float, but would write a large one with an exponent
        take_values(run, line, {
            name: repr(value) if isinstance(value, float) and value < 1e15 else str(value)
            for name, value in found.items()
        })  # fmt: skip
        return True

    return handle


def _look_up(data: Any, key: str) -> Any:
    """Return the value of a key such as "a.b" in nested objects; None without the key.

    Names in the data may contain dots themselves.
    """
    if not isinstance(data, dict) or key in data:
        return data.get(key) if isinstance(data, dict) else None
    parts = key.split(".")
    for count in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:count])
        if name in data:
            return _look_up(data[name], ".".join(parts[count:]))
    return None


def _make_csv(table: Table) -> List[Any]:
    """Return two (pattern, handler) entries for a CSV table: of its header, and of its rows.

    The header's handler stores the indices of the columns for the rows of its rank. `csv` of the
    format's table is the separator; `columns` maps names of values to headings.
    """
    columns, separator = table["columns"], table["csv"]

    def split(line: LogLine) -> List[str]:
        return [cell.strip().strip('"') for cell in line.text.split(separator)]

    def take_header(run: TimedRun, line: LogLine, match: "re.Match[str]") -> Optional[bool]:
        cells = split(line)
        if not set(columns.values()) <= set(cells):
            return False
        run.headers[line.rank] = {group: cells.index(name) for group, name in columns.items()}
        return True

    def take_row(run: TimedRun, line: LogLine, match: "re.Match[str]") -> Optional[bool]:
        cells, places = split(line), run.headers.get(line.rank, {})
        if not places or len(cells) <= max(places.values()) or line.is_last_unended:
            return False
        found = {group: cells[place] for group, place in places.items() if cells[place]}
        if not all(_NUMBER.match(found.get(name, "0")) for name in ("step", *VALUES)):
            return False
        take_values(run, line, found)
        return True

    named = "".join(rf"(?=.*{re.escape(name)})" for name in columns.values())
    return [(re.compile(f"(?P<csv>{named})"), take_header), (re.compile("."), take_row)]


def _take_pairs(run: TimedRun, line: LogLine, match: "re.Match[str]") -> None:
    """Store the values of a line such as "step=20 seconds=1.5"; the word `end` ends a run."""
    found = dict(_PAIR.findall(match.group("pairs")))
    if "end" in match.group("pairs").split():
        found["end"] = ""
    if not line.is_last_unended:
        take_values(run, line, found)


def _make_identify(where: str, table: Table) -> Callable[[TimedRun], Identity]:
    """Return the function that makes the Identity of a run, as the table of a format declares.

    Fields in FACTS that the table does not have are facts (what the log states) of these names.
    """
    _check(where, table, "identity")
    makers = {key: _make_value(f"{where}.{key}", value) for key, value in table.items()}
    return lambda run: Identity(
        **{
            **{key: _read_fact(run, key) for key in FACTS if key in run.facts},
            **{key: make(run) for key, make in makers.items()},
        }
    )


def _read_fact(run: TimedRun, name: str) -> Any:
    """Convert what the log's patterns captured as `name` to the `Identity` field of that name.

    Returns 0 for text that is no count, "" for a word that is not in WORDS, if `name` is, and any
    other text as it is: also an unknown precision.
    """
    if isinstance(getattr(Identity(), name), int):
        return run.read_count(name)
    text = run.facts[name].strip()
    if name == "precision":
        return patterns.PRECISIONS.get(text.lower(), text)
    return WORDS[name].get(text.lower(), "") if name in WORDS else text


def _make_value(where: str, value: Any) -> MakeValue:
    """Make the function that returns one field of `Identity`: a constant, or from the log's facts.

    `where` is the place of `value` in the format's table, for messages.
    """
    if not isinstance(value, dict):
        return lambda run: value
    _check(where, value, "value")
    if "fact" in value:
        names = value.get("names", {})

        def translate(run: TimedRun) -> str:
            text = run.facts.get(value["fact"], "")
            return str(names.get(text, value.get("otherwise", text)))

        return translate
    if "counts" in value:
        return lambda run: _multiply(run, value)
    if "flags" in value:
        return lambda run: patterns.get_precision(run.facts, *value["flags"])
    if "precision" in value:
        return lambda run: run.find_precision(value["precision"])
    raise FormatError(
        f"{where}: the table must have one of the keys fact, counts, flags or precision"
    )


def _multiply(run: TimedRun, value: Table) -> int:
    """Multiply the facts in `value["counts"]`, and divide by those in `value["over"]`, if any.

    Returns 0 if one of them is missing.
    """
    product = 1
    for name in value["counts"]:
        product *= run.read_count(name)
    if "over" not in value:
        return product
    over = value["over"]
    divisor = _multiply(run, {"counts": [over] if isinstance(over, str) else over})
    return product // divisor if divisor else 0


def _make_warm_times(rank: int, marks: List[Mark]) -> Tuple[Window, ...]:
    """Make the window of a rank's steps after the warm-up from the times of the lines.

    The first line is always part of the warm-up, because the seconds before it are not known.
    """
    first = [(mark.position[0], 0.0) for mark in marks[:1]]
    return make_warm_window(rank, [*first, *list_timed(marks)])


WINDOWS: Dict[str, Callable[[int, List[Mark], Table], Tuple[Window, ...]]] = {
    "times": lambda rank, marks, table: make_time_window(rank, marks, table.get("warmup_lines", 0)),
    "times or rates": lambda rank, marks, _: make_time_or_rate_window(rank, marks),
    "times after warm-up": lambda rank, marks, _: _make_warm_times(rank, marks),
    "rates after warm-up": lambda rank, marks, table: make_warm_rate_window(
        rank, list_since_last(marks), table.get("is_per_device", False)
    ),
    "seconds after warm-up": lambda rank, marks, _: make_warm_window(
        rank, [(n, m.value * n) for n, m in zip([1, *count_steps(marks)[1:]], marks)]
    ),
    "rates of epochs after warm-up": lambda rank, marks, _: make_warm_rate_window(
        rank, spread_over_epochs(marks)
    ),
}


OF_RUN = ("running", "total")
"""Kinds of measurement windows that have one value for the whole run."""


def _make_windows(
    kind: str, run: TimedRun, rank: int, marks: List[Mark], table: Table
) -> Tuple[Window, ...]:
    """Make the Window (measured steps) of a rank, as the table `window` of a format declares.

    `kind` is one of WINDOWS or OF_RUN, or "values".
    """
    if table.get("is_of_first_epoch"):
        marks = [mark for mark in marks if mark.position[0] == marks[0].position[0]]
    if kind in WINDOWS:
        return WINDOWS[kind](rank, marks, table)
    values = _list_values(run, kind, marks, table)
    if run.unit in (SECONDS, INTERVAL):
        is_each = run.unit == SECONDS
        return make_seconds_window(
            rank, [(count, value * count if is_each else value) for count, value in values]
        )
    windows = make_rate_window(rank, values, table.get("is_per_device", False))
    return tuple(replace(window, unit=run.unit) for window in windows)


def _list_values(
    run: TimedRun, kind: str, marks: List[Mark], table: Table
) -> Sequence[Tuple[int, float]]:
    """Return (steps, value) pairs from which to make a window of this `kind`.

    Values are rates or seconds, by the run's unit. "total" is the last throughput of the whole run,
    "running" the running mean on the last line; otherwise each line after the warm-up has a pair.
    """
    if not marks and kind != "total":
        return []
    if kind == "total":
        return [
            (run.read_count("steps") or 1, rate) for rate in run.series.get("final_rates", [])[-1:]
        ]
    if kind == "running":
        last = marks[-1]
        return [(max(last.position[-1] - marks[0].position[-1], 1), last.value)]
    counts = count_steps(marks) or [1]
    if len(marks[0].position) > 1:
        counts = [count for count, _ in spread_over_epochs(marks)]
    return drop_warmup(
        [(count, mark.value) for count, mark in zip(counts, marks)], table.get("warmup_steps", -1)
    )


def find_end(run: TimedRun, end: Table) -> str:
    """Return a message if the log does not reach the end that the table `end` requires, or "".

    The table may require a closing line of each rank, the ends of epochs, a last step or number of
    steps, or a number of cycles, planned by facts that the log states: see `end` in KEYS.
    """
    problem = run.find_unended_ranks(end["closing_line"]) if "closing_line" in end else ""
    if not problem and "epochs" in end:
        first, stop = (int(run.facts.get(name, 0)) for name in end["epochs"])
        unended = [epoch for epoch in range(first, stop) if epoch not in run.epoch_ends]
        problem = f"the log lacks the line at the end of epoch {unended[0]}" if unended else ""
    if not problem and "last_epoch" in end:
        problem = _find_last_epoch(run, end["last_epoch"])
    if not problem and "last_step" in end:
        announced = (end["last_step"], end["step_interval"], end["first_step"])
        problem = find_early_end(run, *announced)
    if not problem and "samples_per_epoch" in end:
        problem = _find_short_epoch(run, end)
    if not problem and "reaches" in end:
        problem = _find_short_rank(run, end["reaches"])
    if not problem and "steps" in end and end.get("steps_if", {}).items() <= run.facts.items():
        interval = max(run.read_count(end.get("step_interval", "")), 1) + end.get("spare_steps", 0)
        problem = find_missing_steps(run.last[-1], run.read_count(end["steps"]), interval)
    if not problem and "epoch_line" in end:
        epoch, step = run.first_marks[-1].position
        if epoch + end.get("first_epoch", 0) not in run.epoch_ends:
            problem = f"the log ends in epoch {epoch} at step {step}: {end['epoch_line']} missing"
    if not problem and "cycles" in end:
        step, cycles = run.last[0], run.read_count(end["cycles"]) or 1
        done = len(run.ended)
        if step not in run.epoch_ends or done < cycles:
            problem = (
                f"the log ends at step {step}: only {done} of {cycles} cycles of training ended"
            )
    return problem


def _find_last_epoch(run: TimedRun, name: str) -> str:
    """Return a message if the log lacks the end of the last epoch, or "".

    `name` is that of the fact (what the log states) with the number of epochs, which count from 0.
    """
    announced, begun = run.read_count(name), run.last[0]
    if not announced:
        return f"the log does not state how many epochs were planned ({name})"
    if begun not in run.epoch_ends:
        return f"the log ends in epoch {begun}: the line with the epoch's speed is missing"
    if begun + 1 < announced:
        return f"the log ends after epoch {begun}, but the last planned epoch is {announced - 1}"
    return ""


def _find_short_epoch(run: TimedRun, end: Table) -> str:
    """Return a message if the log ends before the last line of the last epoch, or "".

    The steps of an epoch, from its samples and the batch size, are rounded up.
    """
    per_step = run.format.identify(run).global_batch_size
    epochs = run.read_count(*end["epoch_count"])
    steps = -(-run.read_count(end["samples_per_epoch"]) // per_step) if per_step else 0
    lines = steps // (run.read_count(end["step_interval"]) or 1)
    if not lines or not epochs:
        return "the log lacks the script's arguments, which state how many iterations were planned"
    found = [mark.position[0] for mark in run.first_marks]
    if len(set(found)) < epochs or found.count(found[-1]) < lines:
        return (
            f"the log ends at {format_position(run.first_marks[-1].position)}, before the end of "
            "the run"
        )
    return ""


def _find_short_rank(run: TimedRun, reaches: Sequence[str]) -> str:
    """Return a message about a rank that ends before the announced epoch and step, or "".

    `reaches` names the facts (what the log states) that announce them: the number of epochs, which
    count from 0, and the last step, or the last step alone.
    """
    last = [int(run.facts[name]) for name in reaches]
    if len(last) > 1:
        last[0] -= 1
    for rank, marks in run.marks.by_rank.items():
        if any(found < announced for found, announced in zip(marks[-1].position, last)):
            whose = f" of rank {rank}" if rank >= 0 else ""
            found, planned = format_position(marks[-1].position), format_position(tuple(last))
            return f"the log{whose} ends at {found}, before the planned end at {planned}"
    return ""


def _make_rule(where: str, table: Table) -> PublisherRule:
    """Return the publisher's rule that a table declares; raises FormatError if it is invalid."""
    _check(where, table, "rule", "name")
    known = [name for name in RULES if name in table]
    if len(known) != 1:
        raise FormatError(f"{where}: the rule must have exactly one of the keys {', '.join(RULES)}")
    fewest, most = table.get("devices", [0, sys.maxsize])
    is_of_every_step = table.get("is_of_every_step", False)

    def suits(parsed: ParsedRun, identity: Identity) -> bool:
        gaps = [steps for steps, _ in list_between(parsed.marks)] or [0]
        return fewest <= identity.devices <= most and (not is_of_every_step or median(gaps) == 1)

    try:
        return PublisherRule(table["name"], RULES[known[0]](table), suits)
    except (TypeError, ValueError) as error:
        raise FormatError(
            f"{where}: {known[0]} must be a list of numbers such as [20, 120]"
        ) from error


def _average(table: Table) -> Compute:
    start, stop = (*table["average"], None)[:2]
    is_per_device = table.get("is_per_device", False)
    digits, line_digits = table.get("digits"), table.get("line_digits")
    return average_lines(start, stop, is_per_device, digits, line_digits=line_digits)


def _time_lines(table: Table) -> Compute:
    first, last = table["time_lines"]
    return time_lines(first, last, table.get("after_step", -1))


RULES: Dict[str, Callable[[Table], Compute]] = {
    "average": _average,
    "time_lines": _time_lines,
    "time_between": lambda table: time_between(*table["time_between"]),
    "seconds": lambda table: average_seconds(*table["seconds"]),
    "final": lambda table: take_final,
    "last": lambda table: take_last(table["last"]),
    "epochs": lambda table: average_epochs,
}
