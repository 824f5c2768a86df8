"""The [model] tables of a matrix, and overrides of them -> whether such models can be built."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dlperf_slurm.config.known_names import suggest
from dlperf_slurm.config.toml_tables import Reporter, TomlTable
from dlperf_slurm.worker.models import list_models, load_model

# the keys of a [model] table that are no parameters of the model
OWN_KEYS = ("name", "dataset")


def check_models(data: TomlTable, reporter: Reporter) -> None:
    """Report what is wrong with the parameters of [model] tables and of overrides."""
    # The raw tables are checked, since a mistake elsewhere in the file must not hide one here.
    tables = data.get("model")
    is_list = isinstance(tables, list)
    for index, model in enumerate(tables if isinstance(tables, list) else [tables]):
        if not isinstance(model, dict) or model.get("name") not in list_models():
            continue
        name = model["name"]
        base = {key: value for key, value in model.items() if key not in OWN_KEYS}
        problems = find_parameter_problems(name, base)
        for key, message in problems:
            reporter.add(("model", index, key) if is_list else ("model", key), message)
        if not problems:
            _check_model_overrides(name, base, data.get("override"), reporter)


def _check_model_overrides(name: str, base: TomlTable, overrides: Any, reporter: Reporter) -> None:
    for index, override in enumerate(overrides if isinstance(overrides, list) else ()):
        changes = override.get("model") if isinstance(override, dict) else None
        when = override.get("when") if isinstance(override, dict) else None
        named = when.get("model", name) if isinstance(when, dict) else name
        if isinstance(changes, dict) and name in (named if isinstance(named, list) else [named]):
            for key, message in find_parameter_problems(name, {**base, **changes}):
                reporter.add(("override", index, "model", key), message)


def find_parameter_problems(model: str, parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The mistakes in a model's parameters, as (parameter, message)."""
    definition = load_model(model).Definition
    known = [field.name for field in dataclasses.fields(definition)]
    problems = [
        (key, f"unknown parameter of {model}; known: {', '.join(known)}{suggest(key, known)}")
        for key in parameters
        if key not in known
    ]
    sizes = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in parameters.items()
        if key in known
    }
    # a definition names the field first: "heads is 7; allowed: a divisor of hidden_size"
    problems += [(text.split(" ", 1)[0], text) for text in definition(**sizes).find_problems()]
    return problems
