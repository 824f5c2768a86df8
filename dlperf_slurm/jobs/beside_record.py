"""The folder of a record -> what else was written of the same repeat, or what contradicts it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.contract.record import Record
from dlperf_slurm.contract.surroundings import (
    SURROUNDINGS_FILE,
    Surroundings,
    read_surroundings,
)
from dlperf_slurm.jobs.record_ranges import find_range_problem


@dataclass(frozen=True)
class Beside:
    """What stands in files of its own; None for what was not written."""

    surroundings: Optional[Surroundings] = None


NOTHING_BESIDE = Beside()


def read_beside(folder: Path, run_dir: Path) -> Beside:
    """What lies beside a record; raises ContractError for a file that cannot be used."""
    return Beside(read_surroundings(folder, run_dir))


def find_beside_problem(beside: Beside, record: Record) -> str:
    """The file and field that are not of this record, or cannot be; empty when all are."""
    told = beside.surroundings
    if told is None:
        return ""
    for name in ("run_id", "case_id", "repeat", "attempt"):
        found, expected = getattr(told, name), getattr(record.case, name)
        if found != expected:
            return f"{SURROUNDINGS_FILE}: {name} is {found!r:.80}, its record has {expected!r}"
    strangers = {one.host for one in told.hosts} - {rank.host for rank in record.ranks}
    if strangers:
        return f"{SURROUNDINGS_FILE}: hosts has {min(strangers)!r:.80}, where no rank was"
    problem = find_range_problem(told)
    return f"{SURROUNDINGS_FILE}: {problem}" if problem else ""
