"""The command of somebody else's script x a case -> the text that runs instead of our worker."""

import dataclasses
import shlex
from collections.abc import Iterable

from dlperf_slurm.config.toml_tables import Reporter
from dlperf_slurm.errors import InputError, raise_problems
from dlperf_slurm.jobs.sandbox import render_command
from dlperf_slurm.matrix.expand import MatrixCase
from dlperf_slurm.matrix.file import MatrixFile
from dlperf_slurm.matrix.tables import ScriptTable
from dlperf_slurm.worker.models import load_model


def check_commands(file: MatrixFile, cases: Iterable[MatrixCase], device: str) -> None:
    """Raises InputError, with file and line, for commands of scripts that a case cannot have."""
    reporter = Reporter(file.toml)
    wrong: set[str] = set()
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
    """The text of what runs instead of our worker: the script's command over a case's values.

    Raises InputError, which names the key, when the command is no template, or asks for a value
    that there is not.
    """
    try:
        command = render_command(script.command, list_script_values(case, repeat, device))
    except ValueError as error:
        raise InputError(f"scripts.{case.axes.script}.command: {error}") from error
    exports = [f"export {name}={shlex.quote(value)}" for name, value in sorted(script.env.items())]
    return "\n".join(["#!/bin/bash", *exports, command.rstrip("\n"), ""])


def list_script_values(case: MatrixCase, repeat: int, device: str) -> dict[str, object]:
    """The values that a script's command may ask for.

    `parameters` are the model's, defaults included.
    """
    definition = load_model(case.model).Definition(**case.model_parameters)
    return {
        **dataclasses.asdict(case.axes),
        "model": case.model,
        "device": device,
        "parameters": dataclasses.asdict(definition),
        "nodes": case.topology.nodes,
        "devices_per_node": case.topology.devices_per_node,
        "world_size": case.topology.world_size,
        "global_batch_size": case.axes.global_batch_size,
        "warmup_steps": case.protocol.warmup_steps,
        "measured_steps": case.protocol.measured_steps,
        "seed": case.protocol.seed,
        "repeat": repeat,
    }
