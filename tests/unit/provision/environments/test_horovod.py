"""Horovod: what its compiler does to the arguments, when it is built, when it is only installed."""

import os
import subprocess
from dataclasses import replace

import pytest
from builders import write_program

from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.provision.environments.horovod import (
    COMPILER,
    RECIPES,
    add_horovod,
    has_horovod,
    make_variables,
)
from dlperf_slurm.provision.environments.install_steps import Installation
from dlperf_slurm.provision.environments.pins import read_pins

# pip of an environment: notes its call, and makes the wheel that it is asked for
PYTHON = """\
echo "$*" >> {log}
while [ $# -gt 1 ]; do
  if [ "$1" = --wheel-dir ]; then /bin/mkdir -p "$2"; echo > "$2/horovod-cp311.whl"; fi
  shift
done
"""


@pytest.fixture
def compile_with(bin_dir):
    """Return a function that calls the compiler of a recipe, and returns the arguments of g++."""
    write_program(bin_dir, "g++", 'printf "%s\\n" "$@"')

    def call(framework: str, *arguments: str) -> list[str]:
        environment = {**os.environ, **make_variables(RECIPES[framework], COMPILER)}
        command = ["/bin/bash", str(COMPILER), *arguments]
        return subprocess.check_output(command, env=environment, text=True).splitlines()

    return call


@pytest.fixture
def installation(home, bin_dir):
    """Make an environment with a fake pip, and with all build programs on PATH."""
    environment = home / "envs" / "pytorch"
    packages = environment / "lib" / "python3.11" / "site-packages"
    (packages / "torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    (environment / "bin").mkdir()
    write_program(environment / "bin", "python", PYTHON.format(log=home / "calls"))
    for program in ("cmake", "make", "g++"):
        write_program(bin_dir, program, "exit 0")
    return Installation("pytorch", environment, lambda line: None)


@pytest.mark.parametrize(
    ("framework", "words", "compiled"),
    [
        ("pytorch", ["-std=gnu++14", "-c", "a b.cc"], ["-c", "a b.cc", "-std=c++17"]),
        ("mxnet", ["-std=gnu++14", "-c", "a.cc"], ["-std=gnu++14", "-c", "a.cc"]),
        # a source that cannot be compiled counts as empty
        (
            "tensorflow2",
            ["-c", "/x/horovod/tensorflow/xla_mpi_ops.cc"],
            ["-c", "-x", "c++", "/dev/null", "-std=c++17"],
        ),
        ("mxnet", ["a.o"], ["a.o", "-Wl,-rpath,$ORIGIN/../../../.."]),
    ],
)
def test_compiler_gets_the_standard_sources_and_rpath_of_the_recipe(
    compile_with, framework, words, compiled
):
    assert compile_with(framework, *words) == compiled


@pytest.mark.parametrize("framework", sorted(RECIPES))
def test_horovod_is_built_for_one_framework_with_mpi_and_gloo(framework):
    variables = make_variables(RECIPES[framework], COMPILER)
    chosen = {name for name in variables if name.startswith("HOROVOD_WITH_")}
    assert chosen == {
        f"HOROVOD_WITH_{RECIPES[framework].binding}", "HOROVOD_WITH_MPI", "HOROVOD_WITH_GLOO"
    }  # fmt: skip


def test_second_time_installs_the_kept_wheel_unless_the_framework_is_another_build(
    installation, home
):
    for _ in range(2):
        add_horovod(installation, read_pins("pytorch"))
        assert has_horovod(installation.environment)
    calls = (home / "calls").read_text().splitlines()
    assert [" wheel " in call for call in calls] == [True, False, False]
    folder = installation.site_packages
    (folder / "torch-2.13.0+cpu.dist-info").rename(folder / "torch-2.13.0+cu130.dist-info")
    add_horovod(installation, read_pins("pytorch"))
    assert (home / "calls").read_text().count(" wheel ") == 2


def test_build_that_fails_leaves_no_wheel(installation, home):
    python = installation.python.read_text()
    write_program(installation.python.parent, "python", "echo 'CMake Error: no MPI'; exit 1")
    with pytest.raises(EnvironmentMissingError, match="CMake Error: no MPI"):
        add_horovod(installation, read_pins("pytorch"))
    write_program(installation.python.parent, "python", python.partition("\n")[2])
    add_horovod(installation, read_pins("pytorch"))
    assert (home / "calls").read_text().count(" wheel ") == 1


# pip: notes its call; installs a compiler where it is told to; builds only with all that a build
# takes, and keeps what it was given
GPU_PYTHON = """\
echo "$*" >> {home}/calls
case "$*" in
  *" --target "*)
    while [ "$1" != --target ]; do shift; done
    /bin/mkdir -p "$2/nvidia/cu13/bin" "$2/nvidia/cu13/lib"
    echo > "$2/nvidia/cu13/bin/nvcc"
    echo > "$2/nvidia/cu13/lib/libcudart.so.13"
    # the last two words: -r, and a file that is gone after the build
    /bin/cp "$4" {home}/compiler.txt ;;
  *" wheel "*)
    for file in "$HOROVOD_CUDA_HOME/bin/nvcc" "$CUDA_HOME/lib64/libcudart.so" "$CXX" \\
        "$HOROVOD_NCCL_LIB/libnccl.so" "$HOROVOD_NCCL_INCLUDE/nccl.h"; do
      [ -e "$file" ] || {{ echo "error: no $file"; exit 1; }}
    done
    echo "$HOROVOD_GPU_OPERATIONS $HOROVOD_BUILD_CUDA_CC_LIST" >> {home}/built
    while [ "$1" != --wheel-dir ]; do shift; done
    /bin/mkdir -p "$2"; echo > "$2/horovod-cp311.whl" ;;
esac
"""


@pytest.fixture
def gpu_installation(home, bin_dir):
    """Make a GPU environment with a fake pip, and NCCL as in its wheel."""
    environment = home / "envs" / "pytorch-cuda"
    packages = environment / "lib" / "python3.11" / "site-packages"
    (packages / "torch-2.13.0.dist-info").mkdir(parents=True)
    for name in ("lib/libnccl.so.2", "include/nccl.h"):
        path = packages / "nvidia" / "nccl" / name
        path.parent.mkdir(parents=True)
        path.touch()
    (environment / "bin").mkdir()
    write_program(environment / "bin", "python", GPU_PYTHON.format(home=home))
    for program in ("cmake", "make", "g++"):
        write_program(bin_dir, program, "exit 0")
    return Installation("pytorch", environment, lambda line: None, "cuda")


def test_it_is_built_once_with_nccl_for_the_gpus_of_the_frameworks_build(gpu_installation, home):
    before = {*gpu_installation.site_packages.rglob("*")}
    pins = read_pins("pytorch", "cuda")
    # nvcc makes no machine code for PTX
    pins = replace(pins, capabilities=(*pins.capabilities, "12.1+ptx"))
    for _ in range(2):
        add_horovod(gpu_installation, pins)
    assert has_horovod(gpu_installation.environment)
    assert (home / "built").read_text() == "NCCL 75,80,86,90,100,120\n"
    # the compiler is installed for the build alone, by its hashes
    assert {*gpu_installation.site_packages.rglob("*")} == before
    lines = (home / "compiler.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == [*read_pins("pytorch", "cuda").compiler]
    assert all("--hash=sha256:" in line for line in lines)
    calls = (home / "calls").read_text().splitlines()
    assert [" --target " in call for call in calls] == [True, False, False, False]
    assert [" wheel " in call for call in calls] == [False, True, False, False]


def test_missing_programs_are_named_with_the_command(gpu_installation, bin_dir):
    (bin_dir / "cmake").unlink()
    (bin_dir / "g++").unlink()
    with pytest.raises(EnvironmentMissingError, match=r"pytorch-cuda: .* install cmake g\+\+"):
        add_horovod(gpu_installation, read_pins("pytorch", "cuda"))
