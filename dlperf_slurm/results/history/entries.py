"""A run -> its entries: the results, software and machine of each case."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from dlperf_slurm.contract.record import Record
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.journal import Event, read_journal
from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.jobs.run_directory import Run, open_run
from dlperf_slurm.results.collect import CaseOutcomes, collect_outcomes
from dlperf_slurm.results.comparability import list_provenance, list_work
from dlperf_slurm.results.history.nodes import (
    group_comparable_nodes,
    list_node_failures,
    list_valid_repeats,
)
from dlperf_slurm.results.history.run_cache import EntryRow, read_facts
from dlperf_slurm.results.labels import list_identity
from dlperf_slurm.results.repeats import classify_problem

# machine facts that are also software versions
_DRIVERS = ("gpu_driver", "cuda_driver")


def read_entries(run_dir: Path) -> list[EntryRow]:
    """Read the history entries of a run from its records: one row per case not left out.

    Raises InputError if the run cannot be read.
    """
    try:
        run = open_run(run_dir)
        cases = collect_outcomes(run)
        own = {c.case.case_id: make_entry(run_dir, run.manifest, c) for c in cases}
        return complete_entries(run, own)
    except (OSError, RecursionError, ValueError, LookupError) as error:
        # a damaged run must not hide the other runs
        raise InputError(f"{run_dir}: cannot be read as a run: {error!r}") from error


def complete_entries(run: Run, by_case: Mapping[str, EntryRow]) -> list[EntryRow]:
    """Return the entries of a run in order, with the node failures in its journal.

    `by_case` has what `make_entry` returned, by case id; cases that were left out have no entry.
    Raises ValueError for rates that cannot be printed, or invalid text.
    """
    cases = {task.marker: task.case_id for task in run.read_all_tasks()}
    events: dict[str, list[Event]] = {}
    for event in read_journal(run.path):
        case_id = cases.get(f"{event.group_id}.{event.array_task_id}", "")
        events.setdefault(case_id, []).append(event)
    planned = [case.case_id for case in run.manifest.cases if not case.reason]
    entries = [
        (*by_case[case_id][:-1], _write_json(list_node_failures(events.get(case_id, []))))
        for case_id in planned
    ]
    # JSON may contain lone surrogates, which cannot be encoded
    _write_json(entries).encode()
    return entries


def make_entry(run_dir: Path, manifest: Manifest, outcomes: CaseOutcomes) -> EntryRow:
    """Return the history entry of a case; `complete_entries` adds the failures of nodes."""
    case, records = outcomes.case, outcomes.records
    problems = dict.fromkeys(o.problem for o in outcomes.outcomes if o.problem)
    facts = (
        list_work(records) if records else {},
        list_provenance(records) if records else {},
        _list_versions(records),
        group_comparable_nodes(records),
        list_valid_repeats(records),
    )
    return (
        *(str(run_dir), manifest.run_id, manifest.created_at, manifest.site_name, manifest.tool),
        *list_identity(case),
        case.blocks if outcomes.has_blocks else case.repeats,
        [*outcomes.units],
        "" if records else classify_problem(*problems),
        "; ".join(problems),
        json.dumps(records[0].case.model_parameters, sort_keys=True) if records else "",
        *map(_write_json, facts),
        "[]",
    )


def _write_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _list_versions(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return the distinct versions of each software over the records of a case, by its name."""
    names = dict.fromkeys(name for record in records for name in record.versions)
    return {
        name: sorted({record.versions[name] for record in records if name in record.versions})
        for name in names
    }


def describe_software(versions: str, provenance: str, tool: str) -> str:
    """Describe the software of an entry: "pytorch 2.4, gpu_driver 550.54, dlperf_slurm 1.0".

    The first two parameters are JSON texts of the columns of the same name; `tool` is the version
    of this tool.
    """
    around = read_facts(provenance)
    drivers = {name: around[name] for name in _DRIVERS if name in around}
    facts = {**read_facts(versions), **drivers, "dlperf_slurm": [tool]}
    return ", ".join(f"{name} {' and '.join(values)}" for name, values in facts.items())


def describe_machine(provenance: str) -> str:
    """Name a run's GPUs, or else CPUs, from the JSON of its column `provenance`; "" if unknown."""
    facts = read_facts(provenance)
    return " and ".join(facts.get("gpu_models") or facts.get("cpu_model") or ())
