"""Groups -> the tables of their array tasks, and the files of what these do, each thing once.

A row has, between tabs: the part of the script that starts it, the folder of its attempt, the
starter, the job that it shares ("-" for none), its seed, and the bytes at which its case begins in
the file of cases, and what runs instead of our worker in that of scripts.
"""

import json
from collections.abc import Iterator, Mapping

from dlperf_slurm.config.overrides import JobKind, find_job_kind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import SCHEMA_VERSION
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.external_script import render_external_script
from dlperf_slurm.jobs.framework_script import find_starter
from dlperf_slurm.jobs.grouping import ArrayTask, Group
from dlperf_slurm.jobs.plan import find_seed, make_case
from dlperf_slurm.jobs.run_directory import CASES_FILE, EXTERNAL_SCRIPTS_FILE

# what of a case is that of the array task
_OF_TASK = ("attempt", "repeat", "seed")


class Pieces:
    """Texts one after the other, each of them once, and each with the same end."""

    def __init__(self, earlier: str, end: str) -> None:
        self._end = end.encode()
        self._offsets: dict[bytes, int] = {}
        self._size = 0
        *whole, cut_short = earlier.encode().split(self._end)
        for piece in [*whole, cut_short] if cut_short else whole:
            self._append(piece)

    def add(self, text: str) -> int:
        """Where a text begins, in bytes; it is added where it is not there yet."""
        piece = text.encode()
        found = self._offsets.get(piece)
        return self._append(piece) if found is None else found

    def _append(self, piece: bytes) -> int:
        offset = self._size
        self._offsets[piece] = offset
        self._size += len(piece) + len(self._end)
        return offset

    @property
    def text(self) -> str:
        return b"".join(piece + self._end for piece in self._offsets).decode()


class TaskTables:
    """The tables of groups of one run, which share the file of cases and that of scripts.

    `earlier` has what these files have already, by their names.
    """

    def __init__(self, site: Site, run_id: str, earlier: Mapping[str, str]) -> None:
        self._site = site
        self._run_id = run_id
        self._cases = Pieces(earlier.get(CASES_FILE, ""), "\n")
        self._scripts = Pieces(earlier.get(EXTERNAL_SCRIPTS_FILE, ""), "\0")
        self._case_offsets: dict[str, int] = {}

    def make_table(
        self, group: Group, names: Mapping[JobKind, str], sites: Mapping[JobKind, Site]
    ) -> str:
        """The text of a group's table; `names` are those of the parts of its script.

        Raises InputError for a command of somebody else's script that cannot be filled in.
        """
        return "".join("\t".join(fields) + "\n" for fields in self._list_rows(group, names, sites))

    def _list_rows(
        self, group: Group, names: Mapping[JobKind, str], sites: Mapping[JobKind, Site]
    ) -> Iterator[list[str]]:
        for index, task in enumerate(group.array_tasks):
            case, kind = task.case, find_job_kind(task.case.axes)
            offset = self._case_offsets.get(case.case_id)
            if offset is None:
                planned = make_case(case, sites[kind], self._run_id, 1, 1)
                offset = self._cases.add(format_case(planned))
                self._case_offsets[case.case_id] = offset
            job = "-" if group.tasks_per_job is None else str(index // group.tasks_per_job)
            seed = str(find_seed(case, task.repeat))
            row = [names[kind], task.attempt_dir, find_starter(task), job, seed, str(offset)]
            yield row if case.script_table is None else [*row, self._add_script(task)]

    def _add_script(self, task: ArrayTask) -> str:
        assert task.case.script_table is not None, "only a case of a script has a text of its own"
        text = render_external_script(
            task.case, task.case.script_table, task.repeat, self._site.device
        )
        if "\0" in text:
            raise InputError(
                f"scripts.{task.case.axes.script}.command: has a NUL, which no script can have"
            )
        return str(self._scripts.add(text))

    @property
    def files(self) -> dict[str, str]:
        """The files that all tables point into, by name; none that is empty."""
        texts = {CASES_FILE: self._cases.text, EXTERNAL_SCRIPTS_FILE: self._scripts.text}
        return {name: text for name, text in texts.items() if text}


def format_case(case: Case) -> str:
    """Format a case as one line of JSON, without what is that of the array task."""
    values = {**vars(case), "axes": vars(case.axes), "training": vars(case.training)}
    values = {name: value for name, value in values.items() if name not in _OF_TASK}
    return json.dumps({**values, "schema_version": SCHEMA_VERSION}, sort_keys=True)
