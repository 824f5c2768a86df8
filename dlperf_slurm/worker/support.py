"""Which cases a framework supports: its values, and rows of combinations that it does not run."""

import json
from dataclasses import dataclass, fields
from typing import Any, Callable, Dict, Iterable, Mapping, Optional

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import ANY, load_adapter
from dlperf_slurm.worker.models import load_model


@dataclass(frozen=True)
class Not:
    """Any value but this one, in `Unsupported.when`."""

    value: object


@dataclass(frozen=True)
class Unsupported:
    """A combination of values that a framework does not run.

    `when` maps an axis, or a name of FACTS, to the value that it has in the combination: one value,
    a tuple of alternatives, or `Not` one. `{model!r}` in a text, or an axis in such braces, is the
    value of the case.
    """

    when: Mapping[str, object]
    reason: str
    instead: str

    def applies(self, case: Case) -> bool:
        """Return whether the case has this unsupported combination of values."""
        return all(_matches(_read_fact(case, name), value) for name, value in self.when.items())

    def explain(self, case: Case) -> str:
        """Return the message to the user, with the values of the case."""
        text = f"{{framework}}: {self.reason}; {self.instead}"
        return text.format(model=case.model, **vars(case.axes))


# what `Unsupported.when` may name in addition to axes; a model's layers are alternatives to match
FACTS: Dict[str, Callable[[Case], Any]] = {
    "device": lambda case: case.device,
    "world_size": lambda case: case.world_size,
    "to_accuracy": lambda case: case.is_to_accuracy,
    "model input": lambda case: load_model(case.model).INPUT,
    "model layer": lambda case: load_model(case.model).LAYERS,
    "model dropout": lambda case: getattr(_make_definition(case), "dropout", 0.0),
}


def _make_definition(case: Case) -> Any:
    return load_model(case.model).Definition(**case.model_parameters)


def _read_fact(case: Case, name: str) -> Any:
    """Return a case's value of a name in `Unsupported.when`: an axis or one of FACTS."""
    return FACTS[name](case) if name in FACTS else getattr(case.axes, name)


def _matches(value: Any, wanted: object) -> bool:
    """Return whether a value is the wanted one, one of a tuple of these, or not that of a `Not`.

    If the value is a tuple, one of its members suffices.
    """
    if isinstance(wanted, Not):
        return bool(value != wanted.value)
    values = value if isinstance(value, tuple) else (value,)
    return any(one in values for one in (wanted if isinstance(wanted, tuple) else (wanted,)))


# rows of several frameworks

# recomputing a forward pass updates batch normalization's running statistics a second time
CHECKPOINTED_STATISTICS = Unsupported(
    {"activation_checkpointing": True, "model layer": "batch normalization"},
    "activation_checkpointing computes forward passes twice, and would update the running "
    "statistics of {model!r} twice a step",
    "use activation_checkpointing = false",
)
CHANNELS_LAST_WITHOUT_IMAGES = Unsupported(
    {"memory_format": "channels_last", "model input": Not("images")},
    "memory_format {memory_format!r} needs images",
    "use memory_format 'default' for {model!r}",
)


def needs_gpu(instead: str, *precisions: str) -> Unsupported:
    """Return the Unsupported combination: these precisions, which need a GPU, on the CPU.

    `instead` says what to use there, such as "'fp32'".
    """
    return Unsupported(
        {"device": "cpu", "precision": precisions},
        "precision {precision!r} needs device 'cuda'",
        f"on the CPU use precision {instead}",
    )


def find_unsupported(case: Case) -> Optional[str]:
    """Return why a case's framework cannot run it and what to use instead, or None if it can.

    The message has every value that the adapter does not support, and the first of its unsupported
    combinations of values.
    """
    reasons = find_unknown_values(case)
    combinations = []
    for row in load_adapter(case.axes.framework).UNSUPPORTED:
        if not row.when.keys() <= reasons.keys():
            combinations.append(row)
        elif row.applies(case):
            # explains an unsupported value better than a list of the supported ones
            reasons.update(dict.fromkeys(row.when, row.explain(case)))
    # rows may ask for facts of the model, which an unsupported model need not have
    known = combinations if "model" not in reasons else []
    first = next((row.explain(case) for row in known if row.applies(case)), None)
    return join_reasons([*reasons.values(), first])


def find_unknown_values(case: Case) -> Dict[str, str]:
    """Return axis -> sentence of what the adapter supports, for each value that it does not."""
    framework = case.axes.framework
    supported = load_adapter(framework).SUPPORTED
    defaults = {axis.name: axis.default for axis in fields(case.axes)}
    values = {"model": case.model, "device": case.device, **vars(case.axes)}
    reasons = {}
    for axis, value in values.items():
        known = supported.get(axis, (defaults.get(axis),))
        if known is ANY or value in known:
            continue
        if axis in supported:
            listed = ", ".join(one if isinstance(one, str) else json.dumps(one) for one in known)
            shown = repr(value) if isinstance(value, str) else json.dumps(value)
            reasons[axis] = f"{framework} has no {axis} {shown}; allowed: {listed}"
        else:
            reasons[axis] = (
                f"{framework} does not support {axis} = {json.dumps(value)}; allowed: "
                f"{json.dumps(defaults[axis])}"
            )
    return reasons


def join_reasons(reasons: Iterable[Optional[str]]) -> Optional[str]:
    """Join the reasons that are neither None nor empty into one text; None if there are none."""
    return "; also: ".join(filter(None, reasons)) or None
