"""What `plan` says of the builds of `env create --cuda` for the GPUs of a site."""

from dataclasses import replace

import pytest
from builders import make_matrix_case, make_site
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_managed_environment
from dlperf_slurm.config.overrides import get_job_kind
from dlperf_slurm.jobs.plan import list_missing_environments, make_case
from dlperf_slurm.jobs.unsupported import explain_unsupported
from dlperf_slurm.worker.frameworks import list_frameworks

V100, A100, H100, MI250X = "7.0", "8.0", "9.0", "gfx90a"
# those that PyPI has for CPUs alone
NONE = {"paddle", "tensorflow1"}
COMPILERS = {"jax": "xla", "mindspore": "graph"}


def make_framework_case(framework):
    return make_matrix_case(framework=framework, compiler=COMPILERS.get(framework, "none"))


def explain(framework, **values):
    site = make_site(**{"device": "cuda", **values})
    case = make_framework_case(framework)
    settled = site.resolve(get_job_kind(case.axes))
    return explain_unsupported(case, make_case(case, settled, "run", 1, 1), settled)


@pytest.mark.parametrize(
    ("capability", "without"),
    [
        (V100, {"jax", "pytorch"}),
        (A100, set()),
        (H100, {"mxnet", "oneflow"}),
        (MI250X, set(list_frameworks()) - NONE),
        (None, set()),
    ],
)
def test_frameworks_without_code_for_the_gpus_of_a_site_are_left_out(capability, without):
    reasons = {
        framework: explain(framework, compute_capability=capability)
        for framework in list_frameworks()
    }
    assert {framework for framework, reason in reasons.items() if reason} == without | NONE


@pytest.mark.parametrize(
    ("framework", "capability", "says"),
    [
        ("pytorch", V100, ("torch 2.13.0", "CUDA 13.0", "7.5, 8.0, 8.6, 9.0, 10.0, 12.0", "7.0")),
        ("jax", MI250X, ("jax 0.10.2", "NVIDIA's GPUs", "gfx90a", "ROCm", "[environments.jax]")),
    ],
)
def test_reason_names_the_build_and_the_gpu(framework, capability, says):
    reason = explain(framework, compute_capability=capability)
    assert_problem(reason, key=framework, says=says)


def explain_horovod(framework, **site):
    case = make_matrix_case("1n2g", framework=framework, gradient_sync="horovod")
    cuda = make_site(device="cuda", **site)
    return explain_unsupported(case, make_case(case, cuda, "run", 1, 1), cuda)


def test_horovod_that_the_tool_cannot_build_takes_an_environment_of_the_sites_own():
    reason = explain_horovod("mxnet")
    assert reason.startswith("mxnet: Horovod for GPUs ")
    assert explain_horovod("mxnet", environments={"mxnet": {"venv": "/opt/mxnet"}}) is None


def test_environment_without_the_horovod_that_it_can_have_leads_to_the_command(monkeypatch, home):
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", str(home))
    # one that is still to be made is another command's business
    assert explain_horovod("pytorch") is None
    python = home / "pytorch-cuda" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    says = ("no Horovod", "`dlperf-slurm env create pytorch --cuda --horovod`")
    assert_problem(explain_horovod("pytorch"), key="pytorch", says=says)
    (home / "pytorch-cuda" / "horovod.stamp").write_text("0.28.1")
    assert explain_horovod("pytorch") is None


@pytest.mark.parametrize("named", [{"venv": "/opt/torch"}, {"python": "/opt/torch/bin/python"}])
def test_nothing_is_known_against_an_environment_of_the_sites_own(named):
    assert explain("pytorch", compute_capability=V100, environments={"pytorch": named}) is None


def test_build_for_cpus_that_a_site_names_is_left_out(tmp_path):
    venv = tmp_path / "torch"
    (venv / "lib/python3.11/site-packages/torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    named = {"pytorch": {"venv": str(venv)}}
    says = (f"torch-2.13.0+cpu at {venv}", "'cuda'", "`dlperf-slurm env create pytorch --cuda`")
    assert_problem(explain("pytorch", environments=named), key="pytorch", says=says)
    assert explain("pytorch", environments=named, device="cpu") is None


def test_override_says_which_gpus_a_job_gets():
    override = [{"when": {"framework": "pytorch"}, "compute_capability": V100}]
    assert explain("pytorch", compute_capability=A100, override=override) is not None
    assert explain("jax", compute_capability=A100, override=override) is None


@pytest.mark.parametrize("framework", list_frameworks())
def test_site_with_gpus_never_takes_an_environment_for_cpus(framework, monkeypatch, tmp_path):
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", str(tmp_path))
    site = make_site(device="cuda")
    for_cpus = find_managed_environment(framework) / "bin" / "python"
    for_cpus.parent.mkdir(parents=True)
    for_cpus.touch()
    assert site.find_environment(framework).venv == str(tmp_path / f"{framework}-cuda")
    axes = make_framework_case(framework).axes
    kinds = [get_job_kind(replace(axes, topology=topology)) for topology in ("1n1g", "2n8g")]
    # one environment is missing, of which one line is enough
    (line,) = list_missing_environments(site.resolve_each(kinds))
    assert f"`dlperf-slurm env create {framework} --cuda`" in line
