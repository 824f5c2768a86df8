"""Runs -> a reference file, with what each case measured; or the figures of a contract, by hand."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import tomli_w
from pydantic import Field, model_validator

from dlperf_slurm.config.toml_tables import (
    OneOrMore,
    OneOrMoreTables,
    ProblemCollector,
    TomlModel,
    read_toml,
    validate,
)
from dlperf_slurm.errors import InputError, raise_problems
from dlperf_slurm.jobs.decode import clean_texts
from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.comparability import WORK, find_other_work, list_provenance, list_work
from dlperf_slurm.results.history.nodes import get_node_name
from dlperf_slurm.stats.median import compute_median

Rates = Annotated[OneOrMore[Annotated[float, Field(gt=0, lt=1e15)]], Field(min_length=1)]
# distinct values over all repeats, by name; a single value may be a plain string
FactTable = dict[str, OneOrMore[str]]


class MeasuredCase(TomlModel):
    """What a run measured of a case: a list of throughputs for each block, or one list."""

    run_id: str
    nodes: OneOrMore[str]
    samples_per_s: Annotated[OneOrMore[Rates], Field(min_length=1)]

    @property
    def units(self) -> tuple[float, ...]:
        """The independent throughputs in samples/s: block medians, or all values without blocks."""
        blocks = self.samples_per_s
        return blocks[0] if len(blocks) == 1 else tuple(map(compute_median, blocks))


class ReferenceCase(TomlModel):
    """What a case is to be compared with: measured `runs`, or the least figure of a contract.

    `case` is a case id; with a figure it selects cases as `history --case` does. `work` and
    `provenance` have the work and the machine facts as in `results.comparability`; what is not
    stated is not compared.
    """

    case: str
    at_least_samples_per_s_per_device: Annotated[Optional[float], Field(gt=0, lt=1e15)] = None
    runs: OneOrMoreTables[MeasuredCase] = ()
    work: FactTable = {}
    provenance: FactTable = {}

    @model_validator(mode="after")
    def _check(self) -> "ReferenceCase":
        if (self.at_least_samples_per_s_per_device is None) != bool(self.runs):
            raise ValueError("a case needs either `runs` or `at_least_samples_per_s_per_device`")
        return self

    def compute_level(self, world_size: int) -> float:
        """Return the expected throughput of all devices in samples/s.

        It is the figure per device x `world_size`, or the geometric mean of the runs' medians.
        """
        if self.at_least_samples_per_s_per_device is not None:
            return world_size * self.at_least_samples_per_s_per_device
        logs = [math.log(compute_median(run.units)) for run in self.runs]
        return math.exp(math.fsum(logs) / len(logs))


class _Reference(TomlModel):
    """A reference file; `work` and `provenance` have the entries that all its cases share."""

    schema_version: Literal[1]
    work: FactTable = {}
    provenance: FactTable = {}
    cases: Annotated[OneOrMoreTables[ReferenceCase], Field(min_length=1)]


def read_reference(path: Path) -> list[ReferenceCase]:
    """Read the cases of a reference file (TOML); raises InputError with all its mistakes."""
    toml = read_toml(path)
    reporter = ProblemCollector(toml)
    found = validate(_Reference, clean_texts(toml.data), reporter)
    tables: list[tuple[tuple[Any, ...], FactTable]] = [(("work",), found.work)] if found else []
    for number, case in enumerate(found.cases if found else ()):
        tables.append((("cases", number, "work"), case.work))
    for place, table in tables:
        for name in {*table} - {*WORK}:
            reporter.add((*place, name), f"unknown key; known: {', '.join(WORK)}")
    raise_problems(reporter.problems)
    assert found is not None
    return [
        case.model_copy(update={
            "work": {**found.work, **case.work},
            "provenance": {**found.provenance, **case.provenance},
        })
        for case in found.cases
    ]  # fmt: skip


def serialize_reference(runs: Sequence[tuple[Manifest, Sequence[CaseOutcomes]]]) -> str:
    """Serialize the measured cases of runs as a reference file (TOML).

    Raises InputError if a run is named twice or has no valid result, or if runs did different work
    in a case.
    """
    by_case: dict[str, list[tuple[Manifest, CaseOutcomes]]] = {}
    for manifest, cases in runs:
        for outcomes in cases:
            if outcomes.records:
                by_case.setdefault(outcomes.case.case_id, []).append((manifest, outcomes))
    run_ids = [manifest.run_id for manifest, _ in runs]
    problems = [f"{one} is named twice" for one in sorted(set(run_ids)) if run_ids.count(one) > 1]
    measured = {manifest.run_id for own in by_case.values() for manifest, _ in own}
    problems += [f"{one} has no valid result" for one in run_ids if one not in measured]
    facts = {case_id: list_facts(own) for case_id, own in by_case.items()}
    for case_id, (work, _) in facts.items():
        problems += [f"{case_id}: {other}" for other in [find_other_work(work, work)] if other]
    if problems:
        raise InputError("\n".join(problems))
    # by place: work, provenance
    shared = [_find_shared([pair[place] for pair in facts.values()]) for place in (0, 1)]
    tables = [
        {
            "case": case_id,
            "work": _shorten(facts[case_id][0], shared[0]),
            "provenance": _shorten(facts[case_id][1], shared[1]),
            "runs": [
                {
                    "run_id": manifest.run_id,
                    "nodes": list_nodes(outcomes),
                    "samples_per_s": outcomes.group_by_block(outcomes.rates),
                }
                for manifest, outcomes in own
            ],
        }
        for case_id, own in by_case.items()
    ]
    return tomli_w.dumps({
        "schema_version": 1,
        "work": _shorten(shared[0]),
        "provenance": _shorten(shared[1]),
        "cases": [{name: value for name, value in table.items() if value} for table in tables],
    })  # fmt: skip


def list_facts(
    runs: Sequence[tuple[Manifest, CaseOutcomes]],
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the work and machine facts of a case over runs: two dicts of distinct texts by name.

    The machine facts include the versions of the tool and the site names.
    """
    records = [record for _, outcomes in runs for record in outcomes.records]
    tools = {"dlperf_slurm": sorted({manifest.tool for manifest, _ in runs}),
             "site": sorted({manifest.site_name for manifest, _ in runs})}  # fmt: skip
    return list_work(records), {**tools, **list_provenance(records)}


def list_nodes(outcomes: CaseOutcomes) -> list[str]:
    """Return the names of the nodes of a case's valid repeats, sorted."""
    return sorted({get_node_name(rank.host) for one in outcomes.records for rank in one.ranks})


def _find_shared(tables: Iterable[Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """Return the entries that all tables (dicts) have with equal values."""
    first, *others = tables
    return {n: value for n, value in first.items() if all(t.get(n) == value for t in others)}


def _shorten(table: Mapping[str, list[str]], shared: Iterable[str] = ()) -> dict[str, Any]:
    """Return a table without the names in `shared`; a list of one text becomes that text."""
    return {n: v[0] if len(v) == 1 else v for n, v in table.items() if n not in shared}
