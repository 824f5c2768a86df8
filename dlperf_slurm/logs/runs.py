"""A log -> throughput of each run in it, by our own definition and by its publisher's rule."""

import dataclasses
import itertools
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from dlperf_slurm.contract.record import FAILED, OK, OUT_OF_MEMORY
from dlperf_slurm.logs import (
    NO_RULE,
    Identity,
    NumberError,
    ParsedRun,
    PublisherRule,
    Tables,
    compute_samples_per_s,
    find_formats,
    list_formats,
    load_format,
    read_runs,
)
from dlperf_slurm.logs.failures import FailureScan
from dlperf_slurm.logs.hardware import LogHardware, scan_hardware
from dlperf_slurm.logs.lines import LogLine, read_lines
from dlperf_slurm.logs.match_limit import MatchClock, SlowMatchError, find_slow_pattern
from dlperf_slurm.logs.path_settings import read_name, read_path_date, read_path_hardware
from dlperf_slurm.logs.publisher_rules import RuleError
from dlperf_slurm.logs.settings import ALL_SETTINGS
from dlperf_slurm.logs.windows import STEPS, TOKENS, Window

SURROUNDINGS = ("hardware", "software", "date")
DEVICES_PER_NODE = 8

ADD_FORMAT = "docs/logs.md shows how to add a format in a few lines of TOML (--format-file)"

INCOMPLETE = "incomplete"
"""Status of a run whose log ends early or has lost lines.

Its only throughput is the one that the publisher's rule computes, if there is a rule. Runs that are
`MEASURED` or `CONTRADICTORY` have no throughput. Records never have one of these three statuses.
"""
MEASURED = "measured"
"""Status of a run whose samples/s are unknown: neither log nor user states a needed setting."""
CONTRADICTORY = "contradictory"
"""Status of a run whose printed rates do not agree with its times."""
MOST_CONTRADICTION = 0.1


@dataclass(frozen=True)
class ImportOptions:
    """Options on the command line for all logs; what is empty is read from each log.

    `tables` are the user's own log formats, by name. A log that ends early counts if each rank has
    `least_steps` measured steps, unless that is 0: a script without an end of its own was ended.
    Of a log with more than `most_lines` only these are read, unless that is 0. With `reads_path`,
    names of the log and its folders fill in what the log does not state.
    """

    format_name: str = ""
    rule_name: str = ""
    settings: Identity = field(default_factory=Identity)
    tables: Tables = field(default_factory=dict)
    least_steps: int = 0
    most_lines: int = 0
    reads_path: bool = True
    clock: MatchClock = field(default_factory=MatchClock, compare=False, repr=False)

    def read_lines(self, path: Path) -> Iterator[LogLine]:
        return self.clock.watch(itertools.islice(read_lines(path), self.most_lines or None))

    def read_name(self, path: Path) -> Identity:
        return read_name(path) if self.reads_path else Identity()


@dataclass(frozen=True)
class ImportedRun:
    """One run of a log; both throughputs are None unless the status is OK.

    An incomplete run may have the publisher's throughput. `log` is the path as given, with #1, #2
    ... if the log contains several runs. `reason` says why the run failed, or why a valid run has
    no publisher's figure. `window` has the measured steps of the slowest rank. `label`
    distinguishes the case from others with the same settings. `measured` is the figure of the log
    alone, such as "894 ms a step", `prints` what its trainer makes of it, such as the MFU, by unit.
    `started` and `ended` are seconds by the log's clock, 0 if it
    has no times. `is_stopped` means that the log ends early, with the `least_steps` of the options.
    """

    log: str
    path: Path
    format_name: str
    identity: Identity
    status: str
    reason: str
    samples_per_s: Optional[float] = None
    publisher_samples_per_s: Optional[float] = None
    publisher_rule: str = ""
    window: Optional[Window] = None
    label: str = ""
    started: float = 0.0
    ended: float = 0.0
    notes: Tuple[str, ...] = ()
    measured: str = ""
    prints: Dict[str, float] = field(default_factory=dict)
    is_stopped: bool = False


def import_log(path: Path, options: ImportOptions) -> List[ImportedRun]:
    """Import the runs of one log.

    A log that is unreadable, of no format or of several, lacks a number where its format needs one,
    or whose lines take too long to match, gives one failed run. Raises FormatError if
    `options` have an unknown format or an invalid table.
    """
    options = dataclasses.replace(options, clock=MatchClock())
    try:
        with options.clock.limited():
            return _import_log(path, options)
    except SlowMatchError:
        reason = _explain_slow_match(options)
    identity = _merge(options.settings, options.read_name(path))
    return [ImportedRun(str(path), path, "", identity, FAILED, reason)]


def _explain_slow_match(options: ImportOptions) -> str:
    """Describe the line that took too long to match, with the slow pattern if it is found."""
    text = options.clock.line or ""
    names = [name for name in (options.format_name or "", *options.tables) if name]
    where = ", ".join(f"formats.{name}" for name in dict.fromkeys(names)) or "log formats"
    for name in names:
        patterns = getattr(load_format(name, options.tables), "PATTERNS", {})
        key = find_slow_pattern(patterns, text)
        if key:
            where = f"formats.{name}: {key}"
            break
    return (
        f"{where}: a pattern takes too long to match {text[:80]!r}: nested repeats, such as "
        "(a+)+, try all ways to split a line; write a+ instead"
    )


def _import_log(path: Path, options: ImportOptions) -> List[ImportedRun]:
    try:
        names = [options.format_name]
        if not options.format_name:
            names = find_formats(options.read_lines(path), options.tables)
        if len(names) == 1:
            log_format = load_format(names[0], options.tables)
            parsed_runs = _drop_attempts(read_runs(log_format, options.read_lines(path)))
            around = scan_hardware(options.read_lines(path))
            runs = [
                _place_run(
                    _import_run(path, names[0], log_format.RULES, parsed, options), around, options
                )
                for parsed in parsed_runs
            ]
            if len(runs) == 1:
                return runs
            return [
                dataclasses.replace(run, log=f"{path}#{number}")
                for number, run in enumerate(runs, start=1)
            ]
        reason, status = _explain_format(path, names)
    except (OSError, EOFError, zlib.error) as error:
        reason, status = f"cannot be read to its end: {error}", FAILED
    except NumberError as error:
        reason, status = str(error), FAILED
    identity = _merge(options.settings, options.read_name(path))
    return [ImportedRun(str(path), path, "", identity, status, reason)]


def _place_run(run: ImportedRun, around: LogHardware, options: ImportOptions) -> ImportedRun:
    """Add hardware, software and date to a run: the user's, else the log's, else its path's.

    `around` is what the log states.
    """
    settings = options.settings
    versions = {**around.versions, **run.identity.versions}
    named = read_path_hardware(run.path) if options.reads_path else ""
    notes = list(run.notes)
    in_log = around.hardware.replace(" ", "").upper()
    if in_log and named and named not in in_log and not settings.hardware:
        notes.append(
            f"hardware is {around.hardware} in the log and {named} in its path; the value in "
            "the log is used"
        )
    day = time.strftime("%Y-%m-%d", time.gmtime(around.started)) if around.started else ""
    identity = dataclasses.replace(
        run.identity,
        versions=versions,
        hardware=settings.hardware or around.hardware or named,
        software=settings.software or ", ".join(f"{n} {v}" for n, v in sorted(versions.items())),
        date=settings.date or day or (read_path_date(run.path) if options.reads_path else ""),
    )
    return dataclasses.replace(
        run,
        identity=identity,
        notes=tuple(notes),
        started=0.0 if settings.date else around.started,
        ended=0.0 if settings.date else around.ended,
    )


def _explain_format(path: Path, names: Sequence[str]) -> Tuple[str, str]:
    """Return why a log has no format of its own, and the status: FAILED or OUT_OF_MEMORY.

    `names` are the formats that match the log: none or several.
    """
    if names:
        return f"matches several formats: {' and '.join(names)}; choose one with --format", FAILED
    failures, is_empty = FailureScan(), True
    for line in read_lines(path):
        is_empty = is_empty and not line.text.strip()
        failures.add(line)
    if is_empty:
        return "the log is empty", FAILED
    failure = failures.find_failure(is_complete=False)
    status = OUT_OF_MEMORY if failures.is_out_of_memory else FAILED
    known = f"known: {', '.join(list_formats())}"
    return (
        failure or f"no line has a step time in a known log format; {known}; {ADD_FORMAT}",
        status,
    )


def _drop_attempts(parsed_runs: Sequence[ParsedRun]) -> List[ParsedRun]:
    """Return the runs without those that failed and were retried in the same log.

    A note of the next run has the failed run's problem.
    """
    kept = []
    attempts: List[str] = []
    for parsed, following in zip(parsed_runs, (*parsed_runs[1:], None)):
        if following is not None and parsed.problem and parsed.identity == following.identity:
            attempts.append(f"an earlier attempt in the log is left out: {parsed.problem}")
            continue
        kept.append(dataclasses.replace(parsed, notes=(*attempts, *parsed.notes)))
        attempts = []
    return kept


def _import_run(
    path: Path,
    format_name: str,
    rules: Sequence[PublisherRule],
    parsed: ParsedRun,
    options: ImportOptions,
) -> ImportedRun:
    """Make the ImportedRun of a parsed run: settings, throughput and publisher's figure."""
    named = options.read_name(path)
    identity = complete_identity(options.settings, parsed.identity, named)
    # the rule that the user chose, else those that suit the run
    suiting = [
        rule
        for rule in rules
        if (rule.name == options.rule_name if options.rule_name else rule.suits(parsed, identity))
    ] or [*rules[-1:], NO_RULE]
    run = ImportedRun(
        log=str(path),
        path=path,
        format_name=format_name,
        identity=identity,
        status=OUT_OF_MEMORY if parsed.is_out_of_memory else FAILED,
        reason=parsed.problem,
        publisher_rule=suiting[0].name,
        measured=_describe_slowest(parsed.windows),
        prints=parsed.prints,
        notes=(*parsed.notes, *_find_contradictions(options.settings, parsed.identity, named)),
    )
    figure, rule, reason = None, suiting[0], ""
    if rules and options.rule_name and rule.name != options.rule_name:
        known = ", ".join(repr(rule.name) for rule in rules)
        rule, reason = (
            rules[0],
            f"the log format has no rule {options.rule_name!r} to compute a throughput; "
            f"known: {known}",
        )
    elif rule is not NO_RULE:
        figure, rule, reason = _apply_rules(suiting, parsed, identity)
    if parsed.problem and parsed.is_gapless and _has_steps(parsed, options.least_steps):
        reason, run = (
            f"the script was stopped early: {parsed.problem}",
            dataclasses.replace(run, reason="", is_stopped=True),
        )
    elif parsed.problem and parsed.is_incomplete:
        return dataclasses.replace(
            run, status=INCOMPLETE, publisher_samples_per_s=figure, publisher_rule=rule.name
        )
    if run.reason:
        return run
    status, gap = _find_gap(parsed.windows, identity)
    if status != OK:
        return dataclasses.replace(run, status=status, reason=gap)
    contradiction = _find_contradiction(parsed, identity)
    if contradiction:
        return dataclasses.replace(run, status=CONTRADICTORY, reason=contradiction)
    rate, window = min(
        ((compute_samples_per_s([w], identity), w) for w in parsed.windows),
        key=lambda pair: pair[0],
    )
    return dataclasses.replace(
        run,
        status=OK,
        reason=reason,
        samples_per_s=rate,
        publisher_samples_per_s=figure,
        publisher_rule=rule.name,
        window=window,
    )


def complete_identity(settings: Identity, stated: Identity, named: Identity) -> Identity:
    """Return the settings of a run, each from the first source that has it, else inferred.

    The sources are, in this order, the user's `settings`, those `stated` in the log, and those in
    its path (`named`).
    """
    return _infer_settings(_merge(settings, stated, named))


def _merge(*identities: Identity) -> Identity:
    """Merge settings of a run: each field has the first value that is not empty or 0."""
    return Identity(
        **{
            key.name: next(
                (value for value in (getattr(i, key.name) for i in identities) if value),
                getattr(Identity(), key.name),
            )
            for key in dataclasses.fields(Identity)
        }
    )


def _infer_settings(identity: Identity) -> Identity:
    """Infer missing settings: nodes, assuming 8 devices per node, and batch size per device."""
    total, devices = identity.total_batch_size, identity.devices
    if total and devices and not identity.batch_size_per_device and total % devices == 0:
        identity = dataclasses.replace(identity, batch_size_per_device=total // devices)
    if identity.nodes or not identity.devices:
        return identity
    nodes = max(1, identity.devices // DEVICES_PER_NODE)
    return dataclasses.replace(identity, nodes=nodes if identity.devices % nodes == 0 else 1)


def _find_contradictions(settings: Identity, told: Identity, named: Identity) -> List[str]:
    """Return notes on settings that differ between the log (`told`) and its path (`named`).

    Settings that the user gave (`settings`) are left out.
    """
    return [
        f"{name} is {getattr(told, name)} in the log and {getattr(named, name)} in its path; the "
        "value in the log is used"
        for name in ALL_SETTINGS
        if getattr(told, name)
        and getattr(named, name)
        and getattr(told, name) != getattr(named, name)
        and not getattr(settings, name)
    ]


def _find_gap(windows: Sequence[Window], identity: Identity) -> Tuple[str, str]:
    """Return (status, reason) if settings or steps that the throughput needs are missing.

    The status is MEASURED without settings, FAILED without steps. Else returns (OK, "").
    """
    if not windows:
        return FAILED, (
            "the log has too few timed steps after the warm-up, or all of them have the same time"
        )
    needed: Set[str] = set()
    for window in windows:
        if window.seconds > 0 or window.unit == STEPS:
            if not identity.global_batch_size:
                needed |= {"devices", "batch_size_per_device"}
        elif window.is_per_device:
            needed.add("devices")
        if window.unit == TOKENS:
            needed.add("sequence_length")
    missing = sorted(name for name in needed if not getattr(identity, name))
    if missing:
        options = " ".join(f"--set {name}=..." for name in missing)
        return MEASURED, (
            f"{_describe_slowest(windows)}; samples/s need {' and '.join(missing)}, which neither "
            f"the log nor its path states; add {options}"
        )
    if not compute_samples_per_s(windows, identity) > 0:
        return FAILED, "the rates in the log give a throughput of 0 or less"
    return OK, ""


def _has_steps(parsed: ParsedRun, least: int) -> bool:
    """Return whether each rank has at least `least` measured steps; False if `least` is 0."""
    return least > 0 and bool(parsed.windows) and min(w.steps for w in parsed.windows) >= least


def _describe_slowest(windows: Sequence[Window]) -> str:
    """Describe what the slowest rank measured: "894 ms a step"; "" without windows.

    A window has the steps that a rank timed.
    """
    slowest = max(
        windows,
        key=lambda window: (
            window.seconds / window.steps if window.seconds else -window.samples_per_s
        ),
        default=None,
    )
    return slowest.describe() if slowest else ""


def _find_contradiction(parsed: ParsedRun, identity: Identity) -> str:
    """Return a message if throughput by times and throughput by printed rates differ, or "".

    They differ by more than MOST_CONTRADICTION, as a fraction of the latter.
    """
    if not parsed.printed or any(w.is_per_device and not identity.devices for w in parsed.printed):
        return ""
    ours = compute_samples_per_s(parsed.windows, identity)
    printed = compute_samples_per_s(parsed.printed, identity)
    if printed <= 0 or abs(ours / printed - 1) <= MOST_CONTRADICTION:
        return ""
    return (
        f"the times in the log give {ours:.4g} samples/s, but the printed rates give "
        f"{printed:.4g}: the batch size, the number of devices or another setting is wrong or "
        "missing, or the lines are of several runs"
    )


def _apply_rules(
    suiting: Sequence[PublisherRule], parsed: ParsedRun, identity: Identity
) -> Tuple[Optional[float], PublisherRule, str]:
    """Return throughput and rule by the first rule that gives a throughput, and "".

    Without one, return None, the first rule, and the reason why it gives none.
    """
    reasons = []
    for rule in suiting:
        try:
            return rule.compute(parsed, identity), rule, ""
        except RuleError as error:
            reasons.append(f"the publisher's rule {rule.name!r} gives no throughput: {error}")
    return None, suiting[0], reasons[0]
