"""What adapters declare to support and not to support, tested without any framework."""

from dataclasses import asdict, dataclass, fields, replace
from itertools import product

import pytest
from support.cases import vary
from support.problems import assert_problem
from support.sessions import SMALL, make_case

from dlperf_slurm.contract.axes import DYNAMIC, INFER, TRAIN, Axes
from dlperf_slurm.contract.case import Training
from dlperf_slurm.worker.frameworks import ANY, list_frameworks, load_adapter
from dlperf_slurm.worker.models import list_models, load_model
from dlperf_slurm.worker.support import FACTS, Not, Unsupported, find_unsupported

MODELS = [load_model(name) for name in list_models()]
DEFAULTS = {field.name: field.default for field in fields(Axes)}
# values that a row may have for a fact
FACT_VALUES = {
    "device": {"cpu", "cuda"},
    "world_size": {1},
    "to_accuracy": {True},
    "model input": {model.INPUT for model in MODELS},
    "model layer": {layer for model in MODELS for layer in model.LAYERS},
    "model dropout": {0},
}
# a value that `Not` one of these is
OTHERS = {"world_size": 2, "prefetch_batches": 3, "gradient_accumulation": 2, "model dropout": 0.1}
ROWS = [
    pytest.param(framework, row, id=f"{framework}-{number}")
    for framework in list_frameworks()
    for number, row in enumerate(load_adapter(framework).UNSUPPORTED)
]


@dataclass(frozen=True)
class WiderAxes(Axes):
    """The axes with one that does not exist yet."""

    axis_to_come: bool = False


def list_values(wanted):
    """List the values that a row names for an axis."""
    one = wanted.value if isinstance(wanted, Not) else wanted
    return one if isinstance(one, tuple) else (one,)


def list_known_values(name):
    """Return what a row may have for an axis or a fact; of axes with any value, the default."""
    if name in FACTS:
        return FACT_VALUES[name]
    offers = [load_adapter(framework).SUPPORTED[name] for framework in list_frameworks()]
    return {DEFAULTS[name]} if ANY in offers else {value for offer in offers for value in offer}


def fit_model(name, wanted):
    """Return the first model that has what a row wants of a model."""
    model = next(
        model
        for model in list_models()
        for value in [load_model(model).INPUT, *load_model(model).LAYERS]
        if (value != wanted.value if isinstance(wanted, Not) else value == wanted)
    )
    return {"model": model, "model_parameters": SMALL[model]}


def fit(name, value):
    """Return the changes of a case that give it what a row wants."""
    if name in ("model input", "model layer"):
        return fit_model(name, value)
    value = OTHERS[name] if isinstance(value, Not) else value
    if name == "world_size":
        return {"devices_per_node": value}
    if name == "to_accuracy":
        return {"training": Training(epochs=1)}
    if name == "model dropout":
        return {"model_parameters": {**SMALL["bert"], "dropout": value}}
    return {name: value}


def list_cases(framework, row):
    """Yield a supported case, but for the row, for each choice of the row's alternatives."""
    for values in product(*map(list_alternatives, row.when.values())):
        changes = {}
        for name, value in zip(row.when, values):
            changes.update(fit(name, value))
        yield make_case(framework, changes.pop("model", "bert"), **changes)


def list_alternatives(wanted):
    return wanted if isinstance(wanted, tuple) else (wanted,)


@pytest.mark.parametrize(("framework", "row"), ROWS)
def test_each_name_and_value_of_a_row_exists(framework, row):
    assert set(row.when) <= set(FACTS) | set(DEFAULTS)
    for name, wanted in row.when.items():
        assert set(list_values(wanted)) <= list_known_values(name), name


@pytest.mark.parametrize(("framework", "row"), ROWS)
def test_each_combination_of_a_row_is_refused_with_its_reason(framework, row):
    for case in list_cases(framework, row):
        # a row above may refuse one device for another reason
        devices = [case.device] if "device" in row.when else ["cpu", "cuda"]
        variants = [vary(case, device=device) for device in devices]
        refused = [one for one in variants if find_unsupported(one) == row.explain(one)]
        assert refused, [find_unsupported(one) for one in variants]
        if row.when.get("mode") == TRAIN:
            assert [find_unsupported(vary(one, mode=INFER)) for one in refused] == [
                None for _ in refused
            ]


SCALED = {"precision": "amp-fp16", "loss_scale": 128}


@pytest.mark.parametrize(
    ("framework", "model", "changes"),
    [
        ("megengine", "bert", {"device": "cuda", "devices_per_node": 8}),
        ("megengine", "bert", {"compiler": "trace", **SCALED}),
        ("mxnet", "resnet50", {"device": "cuda", "precision": "tf32"}),
        ("mxnet", "bert", {"device": "cuda", "gradient_sync": "parameter_server", **SCALED}),
        ("oneflow", "bert", {"device": "cuda", **SCALED}),
        ("oneflow", "bert", {"device": "cuda", "precision": "amp-fp16", "compiler": "graph"}),
        ("oneflow", "bert", {"compiler": "graph", "devices_per_node": 2}),
        ("paddle", "bert", {"device": "cuda", "precision": "amp-fp16", "compiler": "cinn"}),
        ("tensorflow1", "resnet50", {"compiler": "xla", "device": "cuda"}),
    ],
)
def test_case_next_to_an_unsupported_one_is_supported(framework, model, changes):
    assert find_unsupported(make_case(framework, model, **changes)) is None


def test_unknown_values_and_a_combination_are_reported_together():
    changes = {"optimizer": "lamb", "data": "dali", "loss_scale": DYNAMIC, "precision": "fp16"}
    parts = find_unsupported(make_case("pytorch", "bert", **changes)).split("; also: ")
    assert_problem(parts[0], says=("pytorch", "optimizer", "'lamb'", "adamw"))
    # of several combinations the first
    assert_problem(parts[1], key="pytorch", says=("'fp16'", "loss_scale"))
    assert len(parts) == 2


@pytest.mark.parametrize("model", ["gpt9", "bert"])
def test_row_explains_an_unknown_value_better_than_the_list_of_known_ones(model):
    case = vary(make_case("tensorflow2", "bert", memory_format="channels_last"), model=model)
    *unknown, explained = find_unsupported(case).split("; also: ")
    assert [text.split("; ")[0] for text in unknown] == (
        ["tensorflow2 has no model 'gpt9'"] if model == "gpt9" else []
    )
    assert explained == load_adapter("tensorflow2").UNSUPPORTED[0].explain(case)


def test_alternatives_and_exceptions_of_a_row_are_matched():
    row = Unsupported({"precision": ("fp16", "bf16"), "world_size": Not(1)}, "why", "use {model!r}")
    case = make_case("pytorch", "bert", precision="bf16", devices_per_node=2)
    assert row.applies(case)
    assert row.explain(case) == "pytorch: why; use 'bert'"
    assert not row.applies(vary(case, precision="fp32"))
    assert not row.applies(vary(case, devices_per_node=1))


@pytest.mark.parametrize("framework", list_frameworks())
def test_adapter_declares_every_axis_and_refuses_a_new_one(framework, monkeypatch):
    supported = load_adapter(framework).SUPPORTED
    assert set(supported) == {field.name for field in fields(Axes)} | {"model", "device"}
    case = make_case(framework, "bert")
    assert find_unsupported(case) is None
    case = replace(case, axes=WiderAxes(**asdict(case.axes), axis_to_come=True))
    says = (framework, "axis_to_come = true", "false")
    assert_problem(find_unsupported(case), says=says)
    monkeypatch.setitem(supported, "axis_to_come", (False, True))
    assert find_unsupported(case) is None


UNKNOWN = {
    **{"model": "gpt9", "device": "tpu", "precision": "fp8", "compiler": "magic", "data": "tape"},
    **{"memory_format": "blocked", "gradient_sync": "pigeon", "optimizer": "lamb"},
    "mode": "finetune",
}


@pytest.mark.parametrize("framework", list_frameworks())
@pytest.mark.parametrize(("axis", "value"), UNKNOWN.items())
def test_value_that_no_adapter_has_is_refused(framework, axis, value):
    reason = find_unsupported(vary(make_case(framework, "bert"), **{axis: value}))
    known = load_adapter(framework).SUPPORTED[axis]
    assert_problem(reason, says=(framework, axis, repr(value), *known))
