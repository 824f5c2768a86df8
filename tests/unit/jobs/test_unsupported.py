"""What keeps a case from a site, or its framework from it: the reason, and what would work."""

import os

import pytest
from builders import make_axes, make_matrix_case, make_site
from support.ordinary_user import as_ordinary_user
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_managed_environment, find_user_name
from dlperf_slurm.config.overrides import get_job_kind
from dlperf_slurm.contract.case import Training
from dlperf_slurm.jobs.plan import list_missing_environments, make_case
from dlperf_slurm.jobs.unsupported import explain_unsupported
from dlperf_slurm.matrix.tables import Protocol
from dlperf_slurm.worker.frameworks import list_frameworks

V100, A100, H100, MI250X = "7.0", "8.0", "9.0", "gfx90a"
OWN = {"pytorch": {"python": "/opt/torch/bin/python"}}


def explain(case, site):
    site = site.resolve(get_job_kind(case.axes))
    return explain_unsupported(case, make_case(case, site, "run", 1, 1), site)


@pytest.mark.parametrize(
    ("changes", "site", "says"),
    [
        ({"topology": "1n8g"}, {"max_devices_per_node": 4}, ("1n8g", "8 devices", "4")),
        ({"compiler": "max-autotune"}, {}, ("'max-autotune' needs", "compiler 'torch.compile'")),
        (
            {"model": "bert", "memory_format": "channels_last"},
            *({}, ("'channels_last'", "images", "memory_format 'default' for 'bert'")),
        ),
        (
            {"topology": "1n4g"},
            {"scheduler": "local", "cpus_per_rank": 1000},
            ("1n4g", "4000 CPUs", str(os.cpu_count()), "max_devices_per_node=4"),
        ),
        (
            {"batch_size_per_device": "max"},
            {"scheduler": "local"},
            ("batch size 'max'", "memory_limit_mib_per_device in [protocol]"),
        ),
        (
            {"topology": "4n8g", "precision": "tf32"},
            {"max_nodes": 2},
            ("4 nodes", "2 (max_nodes); also: pytorch: precision 'tf32'", "'fp32' or 'amp-bf16'"),
        ),
        (
            {"framework": "jax", "gradient_sync": "horovod", "data": "dali", "precision": "tf32"},
            {},
            (
                *("use compiler 'xla'", "also: jax has no gradient_sync 'horovod'"),
                *("native, sharded", "also: jax has no data 'dali'"),
                "device, host, python-queue, dataset, zmq, folder",
            ),
        ),
        (
            {"mode": "infer", "gradient_sync": "horovod"},
            *({}, ("gradient_sync 'horovod'", "gradient_sync 'native', or mode 'train'")),
        ),
        ({"mode": "infer", "output_tokens": 4}, {}, ("resnet50", "or model 'llama'")),
        (
            {"model": "llama", "model_parameters": {"sequence_length": 16}, "mode": "infer",
             "output_tokens": 9, "prompt_length": 8},
            *({}, ("prompt_length 8", "output_tokens 9", "sequence_length of llama, 16")),
        ),
        (
            {"model": "llama", "framework": "tensorflow2", "mode": "infer", "output_tokens": 4},
            *({}, ("tensorflow2", "output_tokens 4", "allowed: 0")),
        ),
        ({"mode": "infer", "data": "zmq"}, {}, ("use data 'device', or mode 'train'",)),
        ({"training": Training(epochs=1)}, {}, ("needs real data",)),
        (
            {"training": Training(epochs=1), "data": "folder", "model": "bert"},
            *({"datasets": {"": "/tmp"}}, ("use 'resnet50'",)),
        ),
        ({"precision": "fp16"}, {}, ("use loss_scale = 128, or precision 'amp-fp16'",)),
    ],
)  # fmt: skip
def test_reason_says_what_is_missing_and_what_would_work(changes, site, says):
    assert_problem(explain(make_matrix_case(**changes), make_site(**site)), says=says)


@pytest.mark.parametrize(
    ("changes", "site"),
    [
        ({"topology": "1n999g"}, {"max_devices_per_node": 999, "scheduler": "local"}),
        ({"topology": "1n999g"}, {"scheduler": "slurm"}),
        ({"topology": "2n8g"}, {"max_nodes": 2, "max_devices_per_node": 8}),
        # nothing is known against an environment of the site's own
        ({}, {"device": "cuda", "compute_capability": V100, "environments": OWN}),
        (
            {"batch_size_per_device": "max", "protocol": Protocol(memory_limit_mib_per_device=5)},
            {"scheduler": "local"},
        ),
        ({"batch_size_per_device": "max"}, {"scheduler": "slurm"}),
        ({"batch_size_per_device": "64 -> 32"}, {"scheduler": "local"}),
        ({"training": Training(epochs=1), "data": "folder"}, {"datasets": {"": "/tmp"}}),
    ],
)
def test_what_is_only_too_much_elsewhere_runs(changes, site):
    assert explain(make_matrix_case(**changes), make_site(**site)) is None


@pytest.mark.parametrize(
    ("topology", "steps", "generation", "most"),
    [("2048n8g", 1000, {}, 1023), ("1n1g", 131072, {"output_tokens": 128}, 131071)],
)
def test_times_are_no_more_than_are_read_again(topology, steps, generation, most):
    """What a job writes and nobody reads would be found out when the job is over."""

    def explain_steps(measured_steps):
        protocol = Protocol(repeats=1, warmup_steps=0, measured_steps=measured_steps)
        mode = {"mode": "infer", "model": "llama", **generation} if generation else {}
        return explain(make_matrix_case(topology, protocol=protocol, **mode), make_site())

    assert explain_steps(most) is None
    reason = explain_steps(most + 1)
    assert "128 MiB" in reason
    assert f"in [protocol] to at most {most}" in reason


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        ({"path": "nowhere"}, ("nowhere", "[datasets]", "data make", "on_login_node = false")),
        ({"path": "nowhere", "on_login_node": False}, ()),
        ({"path": "nowhere", "stage_to": "$TMPDIR/x"}, ("on_login_node = false",)),
        ({"path": "data"}, ()),
        # an archive is data only where nodes unpack it
        ({"path": "digits.tar"}, ("to use a tar archive, also set `stage_to`",)),
        ({"path": "digits.tar", "stage_to": "$TMPDIR/x"}, ()),
    ],
)
def test_data_set_that_is_not_there_is_an_obstacle(home, dataset, says):
    (home / "data").mkdir()
    (home / "digits.tar").touch()
    site = make_site(datasets={"digits": dataset})
    reason = explain(make_matrix_case(data="folder", dataset="digits"), site)
    assert [words for words in says if words not in (reason or "")] == []
    assert bool(reason) == bool(says)


# those that PyPI has for CPUs alone
NONE = {"paddle", "tensorflow1"}
COMPILERS = {"jax": "xla", "mindspore": "graph"}


def make_framework_case(framework):
    return make_matrix_case(framework=framework, compiler=COMPILERS.get(framework, "none"))


def explain_gpu(framework, **values):
    return explain(make_framework_case(framework), make_site(**{"device": "cuda", **values}))


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
        framework: explain_gpu(framework, compute_capability=capability)
        for framework in list_frameworks()
    }
    assert {framework for framework, reason in reasons.items() if reason} == without | NONE


@pytest.mark.parametrize(
    ("framework", "capability", "says"),
    [
        ("pytorch", V100, ("torch 2.13.0", "CUDA 13.0", "7.5, 8.0, 8.6, 9.0, 10.0, 12.0", "7.0")),
        ("jax", MI250X, ("jax 0.10.2", "NVIDIA GPUs", "gfx90a", "ROCm", "[environments.jax]")),
    ],
)
def test_reason_names_the_build_and_the_gpu(framework, capability, says):
    assert_problem(explain_gpu(framework, compute_capability=capability), key=framework, says=says)


def explain_horovod(framework, **site):
    case = make_matrix_case("1n2g", framework=framework, gradient_sync="horovod")
    return explain(case, make_site(device="cuda", **site))


def test_environment_without_horovod_leads_to_the_command_or_to_one_of_the_sites_own(
    monkeypatch, home
):
    assert explain_horovod("mxnet").startswith("mxnet: Horovod for GPUs ")
    assert explain_horovod("mxnet", environments={"mxnet": {"venv": "/opt/mxnet"}}) is None
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", str(home))
    # one that is still to be made is another command's business
    assert explain_horovod("pytorch") is None
    python = home / "pytorch-cuda" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    says = ("Horovod is not installed", "`dlperf-slurm env create pytorch --cuda --horovod`")
    assert_problem(explain_horovod("pytorch"), key="pytorch", says=says)
    (home / "pytorch-cuda" / "horovod.stamp").write_text("0.28.1")
    assert explain_horovod("pytorch") is None


def test_build_for_cpus_that_a_site_names_is_left_out(tmp_path):
    venv = tmp_path / "torch"
    (venv / "lib/python3.11/site-packages/torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    named = {"pytorch": {"venv": str(venv)}}
    says = (f"torch-2.13.0+cpu at {venv}", "'cuda'", "`dlperf-slurm env create pytorch --cuda`")
    assert_problem(explain_gpu("pytorch", environments=named), key="pytorch", says=says)
    assert explain_gpu("pytorch", environments=named, device="cpu") is None


def test_site_with_gpus_never_takes_an_environment_for_cpus(monkeypatch, tmp_path):
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", str(tmp_path))
    site = make_site(device="cuda")
    for_cpus = find_managed_environment("pytorch") / "bin" / "python"
    for_cpus.parent.mkdir(parents=True)
    for_cpus.touch()
    assert site.find_environment("pytorch").venv == str(tmp_path / "pytorch-cuda")
    kinds = [get_job_kind(make_axes(topology)) for topology in ("1n1g", "2n8g")]
    # one environment is missing, of which one line is enough
    (line,) = list_missing_environments(site.resolve_each(kinds))
    assert "`dlperf-slurm env create pytorch --cuda`" in line


@pytest.mark.parametrize("mode", [0o000, 0o755])
def test_environment_that_may_not_be_read_is_named_with_its_owner(mode, home):
    # a name that no file system takes
    venv = home / ("x" * 3000 if mode else "venv")
    if not mode:
        venv.mkdir(mode=mode)
    site = make_site(environments={"pytorch": {"venv": str(venv)}})
    sites = site.resolve_each([get_job_kind(make_axes())])
    with as_ordinary_user(home):
        (line,) = list_missing_environments(sites)
    denied = f"pytorch: {venv}: belongs to user {find_user_name()}, and you may not read it; "
    assert line.startswith(f"pytorch: no environment at {venv}; " if mode else denied)
