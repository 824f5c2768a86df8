"""The axes that adapters declare to support, tested for all adapters without any framework."""

from dataclasses import dataclass, fields, replace

import pytest
from support.problems import assert_problem

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import list_frameworks, load_adapter
from dlperf_slurm.worker.models import list_models


@dataclass(frozen=True)
class WiderAxes(Axes):
    """The axes with one that does not exist yet."""

    axis_to_come: bool = False


def make_case(framework, **axes):
    supported = load_adapter(framework).SUPPORTED
    return Case(
        run_id="run",
        case_id="case",
        repeat=1,
        attempt=1,
        axes=WiderAxes(
            framework=framework,
            topology="1n1g",
            batch_size_per_device=4,
            compiler=supported["compiler"][0],
            gradient_sync=supported["gradient_sync"][0],
            **axes,
        ),
        model=list_models()[0],
        model_parameters={},
        device="cpu",
        cpus_per_rank=1,
        warmup_steps=0,
        measured_steps=1,
        seed=0,
    )


@pytest.mark.parametrize("framework", list_frameworks())
def test_adapter_declares_every_axis_and_refuses_a_new_one(framework, monkeypatch):
    adapter = load_adapter(framework)
    assert set(adapter.SUPPORTED) == {field.name for field in fields(Axes)} | {"model", "device"}
    assert adapter.find_unsupported(make_case(framework)) is None
    case = make_case(framework, axis_to_come=True)
    says = (framework, "axis_to_come = true", "false")
    assert_problem(adapter.find_unsupported(case), says=says)
    monkeypatch.setitem(adapter.SUPPORTED, "axis_to_come", (False, True))
    assert adapter.find_unsupported(case) is None


@pytest.mark.parametrize("framework", list_frameworks())
@pytest.mark.parametrize(
    ("axis", "value"), [("data", "tape"), ("optimizer", "lamb"), ("mode", "finetune")]
)
def test_value_that_no_adapter_has_is_refused(framework, axis, value):
    case = make_case(framework)
    adapter = load_adapter(framework)
    reason = adapter.find_unsupported(replace(case, axes=replace(case.axes, **{axis: value})))
    assert_problem(reason, says=(framework, axis, repr(value), *adapter.SUPPORTED[axis]))
