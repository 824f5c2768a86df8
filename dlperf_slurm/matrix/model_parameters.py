"""The parameters of a model -> the mistakes in them, in a matrix or in a record.

The module does not import pydantic, so that reports, which validate records, start fast.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from dlperf_slurm.config.suggestions import suggest
from dlperf_slurm.worker.models import load_model


def find_preset(model: str, name: Any) -> tuple[Mapping[str, Any], list[tuple[str, str]]]:
    """Return the parameters of a model's preset, and the mistakes in the preset's name.

    Without a preset ("") there are neither. A mistake is (key, message).
    """
    presets = load_model(model).PRESETS
    if not isinstance(name, str) or not name or name in presets:
        # a value that is not a string is reported by the table's own validation
        return presets.get(name, {}) if isinstance(name, str) else {}, []
    if not presets:
        return {}, [("preset", f"{model} has no presets; set its parameters instead")]
    known = ", ".join(presets)
    message = f"{name!r} is not a preset of {model}; known: {known}{suggest(name, presets)}"
    return {}, [("preset", message)]


def find_parameter_problems(model: str, parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the mistakes in a model's parameters, as (parameter, message)."""
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
    # a definition's messages begin with the field: "heads is 7; allowed: a divisor of hidden_size"
    problems += [(text.split(" ", 1)[0], text) for text in definition(**sizes).find_problems()]
    return problems
