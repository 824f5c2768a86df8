"""`env check` and `env create`: what they say of sound, broken and missing environments."""

import json
import re

import pytest
from builders import write_program
from support.ordinary_user import as_ordinary_user
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.config.folders import find_managed_environment, find_user_name
from dlperf_slurm.provision.environments.check import check_environment
from dlperf_slurm.provision.environments.gpu_support import find_cpu_build
from dlperf_slurm.provision.environments.pins import read_pins

GOOD_PYTHON = "echo noise; echo version 1.2"
GOOD_MPIEXEC = "echo ranks 2; echo ranks 2"


@pytest.fixture
def make_fake(home):
    """Return a function that makes an environment with a fake Python and mpiexec."""

    def make(framework="jax", python=GOOD_PYTHON, mpiexec=GOOD_MPIEXEC, stamp=None, device="cpu"):
        pins = read_pins(framework, device)
        environment = find_managed_environment(pins.name)
        (environment / "bin").mkdir(parents=True)
        write_program(environment / "bin", "python", python)
        write_program(environment / "bin", "mpiexec", mpiexec)
        content = {"pins": stamp or pins.stamp, "python": pins.pythons[0], "seconds": 1, "mib": 5}
        (environment / "dlperf-slurm.stamp").write_text(json.dumps(content))
        return environment

    return make


def test_environment_in_order(make_fake, capsys):
    make_fake()
    check = check_environment(read_pins("jax"))
    assert check.row == ["jax", "3.11", "current", "1.2", "2 ranks", "-", "-"]
    assert check.problems == ()
    # what nobody made is no fault
    assert main(["env", "check"]) == 0
    assert "2 ranks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fake", "cell", "says"),
    [
        ({"python": "echo 'ImportError: libfoo.so' >&2; exit 1"}, "fails", ("jax", "libfoo.so")),
        ({"mpiexec": "echo ranks 1; echo ranks 1"}, "fails", ("world size of 1", "mpi4py")),
        ({"mpiexec": "echo 'error: not enough slots' >&2; exit 1"}, "fails", ("slots", "-n 2")),
        ({"mpiexec": None}, "fails", ("mpiexec",)),
        ({"stamp": "of yesterday"}, "outdated", ("dlperf-slurm env create jax",)),
    ],
)
def test_environment_that_is_broken_comes_with_the_reason(make_fake, capsys, fake, cell, says):
    environment = make_fake(**{name: value or "" for name, value in fake.items()})
    if None in fake.values():
        (environment / "bin/mpiexec").unlink()
    check = check_environment(read_pins("jax"))
    assert cell in check.row
    assert check.is_broken(is_wanted=False)
    assert_problem(check.problems[0], says=says)
    assert main(["env", "check", "jax"]) == 4
    assert "jax" in capsys.readouterr().err.splitlines()[-1]


FAILS = 'case "$*" in *horovod.init*) exit 1;; esac; echo ranks 2; echo ranks 2'


@pytest.mark.parametrize(
    ("version", "mpiexec", "cell", "problems"),
    [
        ("", GOOD_MPIEXEC, "not installed", 0),
        ("0.28.1", GOOD_MPIEXEC, "2 ranks", 0),
        ("0.28.1", FAILS, "fails", 1),
    ],
)
def test_horovod_is_started_with_two_ranks_where_it_is(make_fake, version, mpiexec, cell, problems):
    (make_fake("mxnet", mpiexec=mpiexec) / "horovod.stamp").write_text(version)
    check = check_environment(read_pins("mxnet"))
    assert (check.horovod, len(check.problems)) == (cell, problems)
    assert all("env create mxnet --horovod" in problem for problem in check.problems)


@pytest.mark.parametrize(("command", "code"), [(["list"], 2), (["check", "pytorch"], 4)])
def test_environment_that_may_not_be_read_is_named_with_its_owner(
    make_fake, home, capsys, command, code
):
    environment = make_fake("pytorch")
    main(["env", *command])
    capsys.readouterr()
    environment.chmod(0)
    with as_ordinary_user(home):
        assert main(["env", *command]) == code
    says = f"{environment}: belongs to user {find_user_name()}, and you may not read it; "
    assert f"{says}the owner can allow that with `chmod -R g+rX {environment}`" in "".join(
        capsys.readouterr()
    )


@pytest.mark.parametrize("is_wanted", [False, True])
def test_absent_environment_is_wrong_only_when_it_is_asked_for(is_wanted):
    assert check_environment(read_pins("jax")).is_broken(is_wanted) is is_wanted


def test_missing_program_is_named_with_what_it_is_for(make_fake, bin_dir):
    make_fake("pytorch")
    assert "torch.compile: no g++ on PATH" in check_environment(read_pins("pytorch")).problems[0]


def test_missing_interpreter_is_named(bin_dir, home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    check = check_environment(read_pins("tensorflow1"))
    assert check.python == "no 3.7"
    assert "pyenv install 3.7" in check.problems[0]


@pytest.mark.parametrize("arguments", [[], ["--all", "jax"], ["--horovod", "jax"], ["pytroch"]])
def test_env_create_of_what_makes_no_sense_exits_with_2(arguments):
    assert main(["env", "create", *arguments]) == 2


@pytest.mark.parametrize(
    ("package", "framework"),
    [("torch", "pytorch"), ("tensorflow", "tensorflow2"), ("paddlepaddle", "paddle")],
)
def test_name_of_a_package_is_understood_as_the_framework(make_fake, package, framework, capsys):
    make_fake(framework)
    assert main(["env", "create", package]) == 0
    out, err = capsys.readouterr()
    assert f"{framework}: up to date" in out
    assert package in err.split(":")[0]
    assert main(["env", "check", package]) == 0


def test_env_create_goes_on_after_what_cannot_be_made(
    make_fake, bin_dir, home, monkeypatch, capsys
):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    make_fake("jax")
    assert main(["env", "create", "tensorflow1", "jax"]) == 4
    out, err = capsys.readouterr()
    assert "jax: up to date" in out
    error = err.splitlines()[-1]
    assert "1 of 2 environments" in error
    assert error.endswith(": tensorflow1")


@pytest.mark.parametrize(
    ("answer", "cell", "problem"),
    [
        ('{"problem":"NVML_Shared_Library_Not_Found"}', "CUDA 13; no GPU on this machine", None),
        (
            '{"cuda":13000,"gpus":[["NVIDIA_A100",8,0],["NVIDIA_A100",8,0]]}',
            "CUDA 13; 2 x NVIDIA A100 (8.0)",
            None,
        ),
        (
            '{"cuda":13000,"gpus":[["Tesla_V100",7,0]]}',
            "CUDA 13; 1 x Tesla V100 (7.0)",
            r"GPU: jax 0\.10\.2 .* 7\.5, 8\.0, 9\.0, 10\.0, 11\.0, 12\.0, .* PTX of 12\.0 .* 7\.0",
        ),
        (
            '{"cuda":12040,"gpus":[["NVIDIA_H100",9,0]]}',
            "CUDA 13; 1 x NVIDIA H100 (9.0)",
            r"GPU: .* CUDA 13.* driver .* CUDA 12\.4",
        ),
    ],
)
def test_gpus_and_driver_are_held_against_the_build(make_fake, answer, cell, problem):
    make_fake(python=f"echo version 1.2; echo 'gpus {answer}'", device="cuda")
    check = check_environment(read_pins("jax", "cuda"))
    assert (check.framework, check.gpu) == ("jax-cuda", cell)
    remedy = re.escape("[environments.jax]")
    assert len(check.problems) == (problem is not None)
    assert all(re.match(f"{problem}.*{remedy}", found) for found in check.problems)


def test_build_that_asks_for_a_driver_is_in_order_where_there_is_none(make_fake):
    error = "OSError: libcuda.so.1: cannot open shared object file: No such file or directory"
    make_fake("mxnet", python=f"echo '{error}' >&2; exit 1", device="cuda")
    check = check_environment(read_pins("mxnet", "cuda"))
    assert_problem(check.version, says=("no driver",))
    assert check.problems == ()
    assert not check.is_broken(is_wanted=True)
    # a build for CPUs never asks for one
    make_fake("mxnet", python=f"echo '{error}' >&2; exit 1")
    assert check_environment(read_pins("mxnet")).version == "fails"


def test_environment_that_cannot_be_had_says_where_a_build_is():
    check = check_environment(read_pins("paddle", "cuda"))
    assert_problem(check.problems[0], says=("PyPI", "PaddlePaddle 3.3", "CPUs"))


def test_horovod_for_gpus_is_refused_with_what_it_takes(capsys):
    assert main(["env", "create", "--cuda", "--horovod", "tensorflow2"]) == 2
    assert "CUDA's compiler, nvcc" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("framework", "package", "build"),
    [
        ("pytorch", "torch-2.13.0+cpu", "torch-2.13.0+cpu"),
        ("tensorflow2", "tensorflow_cpu-2.21.0", "tensorflow_cpu-2.21.0"),
        ("paddle", "paddlepaddle_gpu-3.3.1", ""),
        ("mxnet", "mxnet-1.9.1", ""),
        ("jax", "jaxlib-0.10.2", "jaxlib-0.10.2"),
        ("jax", "jaxlib-0.10.2 jax_cuda13_plugin-0.10.2", ""),
    ],
)
def test_build_for_cpus_is_known_by_its_package(tmp_path, framework, package, build):
    for name in package.split():
        (tmp_path / f"lib/python3.11/site-packages/{name}.dist-info").mkdir(parents=True)
    assert find_cpu_build(framework, tmp_path) == build
