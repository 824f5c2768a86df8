"""Results -> tables of missing repeats, software versions, hosts and job variables."""

from collections import Counter
from collections.abc import Iterator, Mapping

from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.results.case_summary import DEVICE, HOST, JOB, MACHINE, VERSION
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.number_formats import COUNT
from dlperf_slurm.worker.provenance.machine import format_ranges

# facts with more values than these, such as job ids, are only counted
MOST_VALUES = 4

# the number of repeats with each value of a fact: name -> case id -> value -> count
Counts = dict[str, dict[str, Counter[str]]]


def tabulate_missing(results: Results) -> Iterator[Table]:
    """Yield a table of repeats without a valid record and of excluded cases, unless it is empty."""
    repeats = results.frames.repeats
    problems = dict(iter(repeats[repeats.problem != ""].groupby("case_id")))
    rows: dict[tuple[str, str], list[str]] = {}
    for case_id, reason in results.cases.reason.items():
        if reason:
            rows.setdefault((f"left out: {reason}", "all"), []).append(case_id)
        if case_id in problems:
            for problem, own in problems[case_id].groupby("problem", sort=False):
                rows.setdefault((problem, format_ranges([*own.repeat])), []).append(case_id)
    if rows:
        cells = [(why, repeats, ", ".join(names)) for (why, repeats), names in rows.items()]
        caption = "for details, see the files of each attempt in the run directory"
        yield make_table("Not measured", ("why", "repeats", "cases"), cells, 3, caption)


def tabulate_provenance(results: Results) -> Iterator[Table]:
    """Yield the tables of software versions, hosts, machine and job, as recorded by the repeats."""
    seen: dict[str, Counts] = {}
    rows = results.frames.provenance
    for case_id, kind, name, value, count in zip(*(rows[column] for column in rows)):
        seen.setdefault(kind, {}).setdefault(name, {}).setdefault(case_id, Counter())[value] = count
    if HOST not in seen:
        return
    measured = results.cases.repeats_measured.to_dict()
    if VERSION in seen:
        frameworks = results.cases.framework[results.cases.repeats_measured > 0].to_dict()
        yield _make_version_table(seen[VERSION], measured, frameworks)
    if any(seen[HOST]):
        yield _make_host_table(seen[HOST], seen[DEVICE])
    logs = seen.get(JOB, {}).get("log", {}).values()
    is_of_logs = sum(sum(own.values()) for own in logs) == sum(measured.values())
    jobs = (
        ("Logs", "values from the log files")
        if is_of_logs
        else ("Jobs", "values that the scheduler reported to the jobs")
    )
    machine = (
        "values from the logs or their folders" if is_of_logs else "values of the host of rank 0"
    )
    for kind, title, caption in ((MACHINE, "Machine", machine), (JOB, *jobs)):
        told = seen.get(kind, {})
        texts = [(name, _join_values(told[name], measured)) for name in sorted(told)]
        facts = [(name, text) for name, text in texts if text]
        if facts:
            yield make_table(title, ("fact", "value"), facts, 2, caption)


def _make_version_table(
    versions: Counts, measured: Mapping[str, int], frameworks: Mapping[str, str]
) -> Table:
    """Make a table of software versions with a column for each framework.

    `measured` has the number of valid repeats, `frameworks` the framework, by case id.
    """
    names = list(dict.fromkeys(frameworks.values()))
    of_framework = {
        name: {case_id: measured[case_id] for case_id, own in frameworks.items() if own == name}
        for name in names
    }
    rows = (
        (
            version,
            *(_join_values(versions[version], of_framework[name]) or "none" for name in names),
        )
        for version in sorted(versions)
    )
    header = ("software", *names)
    caption = "software versions that each framework's Python reported"
    return make_table("Versions", header, rows, len(header), caption)


def _make_host_table(hosts: Counts, devices: Counts) -> Table:
    """Make a table of hosts with their devices and number of repeats."""
    rows = (
        (
            host,
            ", ".join(dict.fromkeys(device for own in devices[host].values() for device in own)),
            Cell(sum(sum(own.values()) for own in hosts[host].values()), COUNT),
        )
        for host in sorted(hosts)
    )
    header = ("host", "devices", "repeats")
    return make_table("Hosts", header, rows, 2, "hosts on which the valid repeats ran")


def _join_values(told: Mapping[str, Counter[str]], measured: Mapping[str, int]) -> str:
    """Return a fact's value, or each of several with its number of repeats, most frequent first.

    `told` has the number of repeats by value, for each case id; `measured` has the number of valid
    repeats by case id. Repeats without a value count as "not reported". Returns "" if no repeat
    reported one, and only the number of values if there are many.
    """
    counts: Counter[str] = Counter()
    for case_id, repeats in measured.items():
        for value, count in told.get(case_id, {"": repeats} if repeats else {}).items():
            counts[value or "not reported"] += count
    if list(counts) == ["not reported"]:
        return ""
    if len(counts) == 1:
        return next(iter(counts))
    if len(counts) > MOST_VALUES:
        return f"{len(counts)} different values"
    return "; ".join(f"{value} (in {count} repeats)" for value, count in counts.most_common())
