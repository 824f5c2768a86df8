"""Model sizes and devices of cases -> their description, as titles and headlines say it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.results.columns import list_values
from dlperf_slurm.worker.models import list_models, load_model

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# sizes that are not written as name and value
SIZES = {"image_size": "{} px", "sequence_length": "{} tokens", "layers": "{} layers",
    "heads": "{} heads", "classes": "{} classes"}  # fmt: skip
MAX_SIZES = 3


def describe_model(model: str, parameters: Mapping[str, Any], count: Optional[int] = None) -> str:
    """Describe a model, with the sizes that are not the published ones and its parameter count.

    "ResNet-50", or "ResNet-50 (64 px, width 24; 3.4 M parameters)". `parameters` are those that a
    matrix sets; `count` is the parameter count, None if unknown. The name of a model that the tool
    does not have, as of a user's script, is returned unchanged.
    """
    if model not in list_models():
        return model
    module = load_model(model)
    # as in JSON, where tuples are lists
    defaults = json.loads(json.dumps(asdict(module.Definition())))
    sizes = {**defaults, **parameters}
    published = {module.PUBLISHED_NAME: defaults}
    published |= {name: {**defaults, **own} for name, own in module.PRESETS.items()}
    changed = {
        name: [key for key in sizes if sizes[key] != own.get(key)]
        for name, own in published.items()
    }
    name = min(changed, key=lambda name: len(changed[name]))
    words = [_write_size(key, sizes[key]) for key in changed[name]]
    if len(words) > MAX_SIZES + 1:
        words[MAX_SIZES:] = [f"{len(words) - MAX_SIZES} other changes"]
    # the default sizes of some models were never published
    is_published = not module.PRESETS or {} in module.PRESETS.values() or name in module.PRESETS
    if not words and is_published:
        return name
    counted = [f"{_write_count(count)} parameters"] if count else []
    return f"{name} ({'; '.join(filter(None, (', '.join(words), *counted)))})"


def describe_models(models: "Series", parameters: "Series", counts: "Series") -> "Series":
    """Return the description of each case's model, from its JSON `parameters` and parameter count.

    A case not measured, whose parameters are missing, has the sizes of the run's other cases.
    """
    known: dict[str, str] = {}
    for model, own, count in zip(models, parameters, counts):
        if isinstance(own, str) and model not in known:
            known[model] = describe_model(model, json.loads(own), count)
    return models.map({model: known.get(model) or describe_model(model, {}) for model in {*models}})


def describe_devices(cases: "DataFrame") -> str:
    """Describe the devices of the measured cases: "up to 16x NVIDIA H200, 2 nodes"; "" if none."""
    known = [
        one for one in zip(list_values(cases.hardware), list_values(cases.world_size)) if one[0]
    ]
    most = max((size for _, size in known), default=0)
    largest = dict.fromkeys(hardware for hardware, size in known if size == most)
    return f"{'up to ' * (len(dict(known)) > len(largest))}{' or '.join(largest)}"


def _write_size(key: str, value: Any) -> str:
    """Format a model parameter: "64 px", "1 layer", "width 24"."""
    text = SIZES.get(key, f"{key.replace('_', ' ')} {{}}").format(value)
    return text.rstrip("s") if value == 1 else text


def _write_count(count: int) -> str:
    """Format a number of parameters: "3.4 M"."""
    factor, prefix = next(
        (one for one in ((1e9, "B"), (1e6, "M"), (1e3, "k")) if count >= one[0]), (1.0, "")
    )
    return f"{count / factor:.3g} {prefix}".rstrip()
