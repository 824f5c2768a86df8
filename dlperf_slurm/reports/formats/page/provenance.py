"""Outcomes -> tables that say with what, on what and how completely a run was measured."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dlperf_slurm.contract.record import Record
from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.number_formats import COUNT

# of a fact, such as a job's id; more of them tell a reader nothing
MOST_VALUES = 4


def tabulate_missing(cases: Sequence[CaseOutcomes]) -> Iterator[Table]:
    """The repeats without a sound record and the cases left out; none when there are none."""
    rows = []
    for outcomes in cases:
        case = outcomes.case
        if case.reason:
            rows.append((case.case_id, "all", f"left out: {case.reason}"))
        rows += [(case.case_id, str(o.repeat), o.problem) for o in outcomes.outcomes if o.problem]
    if rows:
        header = ("case", "repeat", "why")
        caption = "each attempt's own files have more"
        yield make_table("Not measured", header, rows, 3, caption)


def tabulate_provenance(cases: Sequence[CaseOutcomes]) -> Iterator[Table]:
    """Versions by framework, hosts with their devices, facts of the machine and of the jobs."""
    records = [record for outcomes in cases for record in outcomes.records]
    if not records:
        return
    if any(record.versions for record in records):
        yield _make_version_table(records)
    if any(rank.host for record in records for rank in record.ranks):
        yield _make_host_table(records)
    is_of_logs = all(record.case.log_format and "log" in record.job for record in records)
    jobs = ("Logs", "what was read") if is_of_logs else ("Jobs", "as the scheduler told it")
    machine = "as the logs or their folders tell" if is_of_logs else "what rank 0 saw"
    facts = (
        ("Machine", machine, [record.platform for record in records]),
        (*jobs, [record.job for record in records]),
    )
    for title, caption, dictionaries in facts:
        rows = list(_list_facts(dictionaries))
        if rows:
            yield make_table(title, ("fact", "value"), rows, 2, caption)


def _make_version_table(records: Sequence[Record]) -> Table:
    frameworks = list(dict.fromkeys(record.case.axes.framework for record in records))
    names = sorted({name for record in records for name in record.versions})
    rows = (
        (name, *(_describe_version(records, name, framework) for framework in frameworks))
        for name in names
    )
    width = len(frameworks) + 1
    header = ("software", *frameworks)
    return make_table("Versions", header, rows, width, "as each framework's Python said")


def _describe_version(records: Sequence[Record], name: str, framework: str) -> str:
    own = (record for record in records if record.case.axes.framework == framework)
    return _join_values(record.versions.get(name, "") for record in own) or "none"


def _make_host_table(records: Sequence[Record]) -> Table:
    devices: dict[str, list[str]] = {}
    repeats: Counter[str] = Counter()
    for record in records:
        for rank in record.ranks:
            devices.setdefault(rank.host, []).append(rank.device_name)
        repeats.update({rank.host for rank in record.ranks})
    rows = (
        (host, ", ".join(dict.fromkeys(devices[host])), Cell(repeats[host], COUNT))
        for host in sorted(devices)
    )
    header = ("host", "devices", "repeats")
    return make_table("Hosts", header, rows, 2, "where sound repeats ran")


def _list_facts(dictionaries: Sequence[dict[str, str]]) -> Iterator[tuple[str, str]]:
    names = sorted({name for facts in dictionaries for name in facts})
    for name in names:
        text = _join_values(facts.get(name, "") for facts in dictionaries)
        if text:
            yield name, text


def _join_values(values: Iterable[str]) -> str:
    """One value, or each with the number of repeats that had it, the most frequent first."""
    counts = Counter(value or "not said" for value in values)
    if list(counts) == ["not said"]:
        return ""
    if len(counts) == 1:
        return next(iter(counts))
    if len(counts) > MOST_VALUES:
        return f"{len(counts)} different ones"
    return "; ".join(f"{value} (in {count} repeats)" for value, count in counts.most_common())
