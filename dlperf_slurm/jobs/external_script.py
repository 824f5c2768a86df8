"""The command of an external script x a case -> the bash script that runs instead of our worker."""

import dataclasses
import shlex
from collections.abc import Iterable

from dlperf_slurm.config.toml_tables import ProblemCollector
from dlperf_slurm.errors import InputError, raise_problems
from dlperf_slurm.jobs.sandbox import begin_all, render_command
from dlperf_slurm.matrix.expand import MatrixCase
from dlperf_slurm.matrix.file import MatrixFile
from dlperf_slurm.matrix.tables import ScriptTable
from dlperf_slurm.worker.models import list_models, load_model


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
    try:
        command = render_command(script.command, list_script_values(case, repeat, device))
    except ValueError as error:
        raise InputError(f"scripts.{case.axes.script}.command: {error}") from error
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
