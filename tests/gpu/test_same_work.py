"""Frameworks compute the same as PyTorch on GPUs; runs in the tool's own Python."""

import pytest
from support.gpu_report import NOT_FOR_THIS_GPU

from dlperf_slurm.checks.parity.run_case import make_workplace
from dlperf_slurm.checks.parity.verify import (
    REFERENCE,
    find_missing_environment,
    verify_data_parallel,
    verify_parity,
)
from dlperf_slurm.config.site import load_site

FRAMEWORKS = ("pytorch", "jax", "tensorflow2")
MODELS = ("bert", "llama", "resnet50", "vit")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """Make one for all tests, so that PyTorch's runs are made once."""
    site = load_site("local", None, ["device=cuda", "cpus_per_rank=2"]).site
    return make_workplace(site, tmp_path_factory.mktemp("parity") / "files", print)


def check(line, hold):
    if line.is_left_out:
        pytest.skip(f"{NOT_FOR_THIS_GPU}{line.problem}")
    assert not line.problem, line.problem
    for one in line.checks:
        where = f" of {one.parameter}" if one.parameter else ""
        hold(f"{one.quantity}{where}", one.difference, most=one.tolerance)


def need_environment(framework, workplace):
    missing = find_missing_environment(framework, workplace.site)
    if missing:
        pytest.skip(missing)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_work_is_that_of_pytorch(framework, model, workplace, hold):
    need_environment(framework, workplace)
    check(verify_parity(framework, model, True, workplace), hold)


@pytest.mark.parametrize("model", MODELS)
def test_two_runs_of_pytorch_have_the_same_bits(model, workplace, hold):
    """Allow rounding for ResNet-50: cuDNN's convolutions add their gradients in varying order."""
    need_environment(REFERENCE, workplace)
    line = verify_parity(REFERENCE, model, True, workplace)
    assert not line.problem, line.problem
    # except the updates, which are compared with the rule in float64
    for one in line.checks[:-1]:
        hold(one.quantity, one.difference, most=1e-9 if model == "resnet50" else 0)


@pytest.mark.gpus(2)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_ranks_share_their_work(framework, model, workplace, hold):
    need_environment(framework, workplace)
    check(verify_data_parallel(framework, model, "native", workplace), hold)
