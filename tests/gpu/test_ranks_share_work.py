"""Two ranks on two GPUs share the work of one; runs in the tool's own Python."""

import pytest
from support.gpu_report import NOT_FOR_THIS_GPU

from dlperf_slurm.checks.parity.run_case import make_workplace
from dlperf_slurm.checks.parity.verify import find_missing_environment, verify_data_parallel
from dlperf_slurm.config.site import load_site

FRAMEWORKS = ("pytorch", "jax", "tensorflow2")
MODELS = ("bert", "llama", "resnet50", "vit")


@pytest.fixture(scope="module")
def workplace(pythons, tmp_path_factory):
    """Make one for all tests, so that PyTorch's runs are made once."""
    environments = [f"environments.{name}.venv={path.parents[1]}" for name, path in pythons.items()]
    site = load_site("local", None, ["device=cuda", "cpus_per_rank=2", *environments]).site
    return make_workplace(site, tmp_path_factory.mktemp("parity") / "files", print)


@pytest.mark.gpus(2)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_two_ranks_share_their_work(framework, model, workplace, hold):
    missing = find_missing_environment(framework, workplace.site)
    if missing:
        pytest.skip(missing)
    line = verify_data_parallel(framework, model, "native", workplace)
    if line.is_left_out:
        pytest.skip(f"{NOT_FOR_THIS_GPU}{line.problem}")
    assert not line.problem, line.problem
    for one in line.checks:
        where = f" of {one.parameter}" if one.parameter else ""
        hold(f"{one.quantity}{where}", one.difference, most=one.tolerance)
