"""Groups -> the tables of their array tasks, the file of cases and the file of external scripts.

The tab-separated columns of a row are: the script part (framework) that starts the array task, the
attempt's folder, the bash function that starts it (`find_starter`), the shared job ("-" for none),
the seed, the byte offset of the case in the file of cases and, for an external script, its byte
offset in the file of scripts.
"""

import dataclasses
import json
import shlex
from collections.abc import Iterable, Mapping

from dlperf_slurm.config.overrides import JobKind, get_job_kind
from dlperf_slurm.config.site import Site
from dlperf_slurm.config.toml_tables import ProblemCollector
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import SCHEMA_VERSION
from dlperf_slurm.errors import InputError, raise_problems
from dlperf_slurm.jobs.framework_script import find_starter
from dlperf_slurm.jobs.grouping import Group
from dlperf_slurm.jobs.plan import compute_seed, make_case
from dlperf_slurm.jobs.run_directory import CASES_FILE, EXTERNAL_SCRIPTS_FILE
from dlperf_slurm.jobs.sandbox import begin_all, render_command, render_setting
from dlperf_slurm.matrix.expand import MatrixCase
from dlperf_slurm.matrix.file import MatrixFile
from dlperf_slurm.matrix.tables import ScriptTable
from dlperf_slurm.worker.models import list_models, load_model

# the fields of a case that differ between its array tasks
_OF_TASK = ("attempt", "repeat", "seed")


class StringTable:
    """The text of a file that is a list of distinct texts, each followed by the terminator `end`.

    It begins with `earlier`, the present text of the file.
    """

    def __init__(self, earlier: str, end: str) -> None:
        self._end = end.encode()
        self._offsets: dict[bytes, int] = {}
        self._size = 0
        *whole, cut_short = earlier.encode().split(self._end)
        for piece in [*whole, cut_short] if cut_short else whole:
            self._append(piece)

    def add(self, text: str) -> int:
        """Append a text unless the table has it; return its byte offset in the table."""
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
    """The task tables of a run's groups, and the files of cases and scripts that they refer to.

    `earlier` has the present text of these files, by name.
    """

    def __init__(self, site: Site, run_id: str, earlier: Mapping[str, str]) -> None:
        self._site = site
        self._run_id = run_id
        self._cases = StringTable(earlier.get(CASES_FILE, ""), "\n")
        self._scripts = StringTable(earlier.get(EXTERNAL_SCRIPTS_FILE, ""), "\0")
        self._case_offsets: dict[str, int] = {}

    def make_table(
        self, group: Group, names: Mapping[JobKind, str], sites: Mapping[JobKind, Site]
    ) -> str:
        """Return the text of an array job's task table, with one line per array task.

        `names` has the script part of each kind of job ("pytorch"), `sites` the resolved site.
        Adds to `files`, which the caller must write, the cases and scripts that the lines refer to.
        Raises InputError if the command of an external script cannot be rendered.
        """
        lines = []
        for index, task in enumerate(group.array_tasks):
            case, kind = task.case, get_job_kind(task.case.axes)
            offset = self._case_offsets.get(case.case_id)
            if offset is None:
                planned = make_case(case, sites[kind], self._run_id, 1, 1)
                offset = self._cases.add(format_case(planned))
                self._case_offsets[case.case_id] = offset
            job = "-" if group.tasks_per_job is None else str(index // group.tasks_per_job)
            seed = str(compute_seed(case, task.repeat))
            row = [names[kind], task.attempt_dir, find_starter(task), job, seed, str(offset)]
            if script := case.script_table:
                text = render_external_script(case, script, task.repeat, self._site.device)
                if "\0" in text:
                    raise InputError(
                        f"scripts.{case.axes.script}.command: contains a NUL character, which is "
                        "not allowed"
                    )
                row.append(str(self._scripts.add(text)))
            lines.append("\t".join(row) + "\n")
        return "".join(lines)

    @property
    def files(self) -> dict[str, str]:
        """The file of cases and the file of external scripts: name -> text, without empty ones."""
        texts = {CASES_FILE: self._cases.text, EXTERNAL_SCRIPTS_FILE: self._scripts.text}
        return {name: text for name, text in texts.items() if text}


def format_case(case: Case) -> str:
    """Return a case as one line of JSON, without attempt, repeat and seed."""
    values = {**vars(case), "axes": vars(case.axes), "training": vars(case.training)}
    values = {name: value for name, value in values.items() if name not in _OF_TASK}
    return json.dumps({**values, "schema_version": SCHEMA_VERSION}, sort_keys=True)


def check_commands(file: MatrixFile, cases: Iterable[MatrixCase], device: str) -> None:
    """Raise InputError if a command of an external script cannot be rendered for one of the cases.

    The message has file and line. `device` is a value that commands may use: "cuda" or "cpu".
    """
    reporter = ProblemCollector(file.toml)
    wrong: set[str] = set()
    begin_all()
    for case in cases:
        name, script = case.axes.script, case.script_table
        if script is None or name in wrong:
            continue
        try:
            render_command(script.command, list_script_values(case, 1, device))
        except ValueError as error:
            wrong.add(name)
            reporter.add(("scripts", name, "command"), f"{case.case_id}: {error}")
    raise_problems(reporter.problems)


def render_external_script(case: MatrixCase, script: ScriptTable, repeat: int, device: str) -> str:
    """Return the bash script that runs the user's command instead of our worker for a repeat.

    Raises InputError, which names the key, if the command is not a valid template or uses an
    unknown value.
    """
    values = list_script_values(case, repeat, device)
    command = render_setting(script.command, values, f"scripts.{case.axes.script}.command")
    exports = [f"export {name}={shlex.quote(value)}" for name, value in sorted(script.env.items())]
    return "\n".join(["#!/bin/bash", *exports, command.rstrip("\n"), ""])


def list_script_values(case: MatrixCase, repeat: int, device: str) -> dict[str, object]:
    """Return the values that the template of an external script's command may use, by name.

    They are the axes, `model`, `device`, sizes of the topology, numbers of steps, `seed`, `repeat`
    and `parameters`: the model's, with defaults filled in; none for a model of the script's own.
    """
    is_own = case.model not in list_models()
    definition = None if is_own else load_model(case.model).Definition(**case.model_parameters)
    return {
        **dataclasses.asdict(case.axes),
        "model": case.model,
        "device": device,
        "parameters": dataclasses.asdict(definition) if definition else {},
        "nodes": case.topology.nodes,
        "devices_per_node": case.topology.devices_per_node,
        "world_size": case.topology.world_size,
        "global_batch_size": case.axes.samples_per_step,
        "warmup_steps": case.protocol.warmup_steps,
        "measured_steps": case.protocol.measured_steps,
        "seed": case.protocol.seed,
        "repeat": repeat,
    }
