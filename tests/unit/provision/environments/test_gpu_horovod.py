"""Horovod for GPUs: with what it is built, what of that stays, what is kept for the next time."""

import pytest
from builders import write_program

from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.provision.environments.gpu_horovod import add_gpu_horovod
from dlperf_slurm.provision.environments.horovod import has_horovod
from dlperf_slurm.provision.environments.install_steps import Installation
from dlperf_slurm.provision.environments.pins import read_pins

# pip: notes its call; installs a compiler where it is told to; builds only with all that a build
# takes, and keeps what it was given
PYTHON = """\
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
def installation(home, bin_dir):
    """Make a GPU environment with a fake pip, and NCCL as in its wheel."""
    environment = home / "envs" / "pytorch-cuda"
    packages = environment / "lib" / "python3.11" / "site-packages"
    (packages / "torch-2.13.0.dist-info").mkdir(parents=True)
    for name in ("lib/libnccl.so.2", "include/nccl.h"):
        path = packages / "nvidia" / "nccl" / name
        path.parent.mkdir(parents=True)
        path.touch()
    (environment / "bin").mkdir()
    write_program(environment / "bin", "python", PYTHON.format(home=home))
    for program in ("cmake", "make", "g++"):
        write_program(bin_dir, program, "exit 0")
    return Installation("pytorch", environment, lambda line: None, "cuda")


def test_it_is_built_once_with_nccl_for_the_gpus_of_the_frameworks_build(installation, home):
    before = {*installation.site_packages.rglob("*")}
    for _ in range(2):
        add_gpu_horovod(installation, read_pins("pytorch", "cuda"))
    assert has_horovod(installation.environment)
    assert (home / "built").read_text() == "NCCL 75,80,86,90,100,120\n"
    # the compiler is installed for the build alone, by its hashes
    assert {*installation.site_packages.rglob("*")} == before
    lines = (home / "compiler.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == [*read_pins("pytorch", "cuda").compiler]
    assert all("--hash=sha256:" in line for line in lines)
    calls = (home / "calls").read_text().splitlines()
    assert [" --target " in call for call in calls] == [True, False, False, False]
    assert [" wheel " in call for call in calls] == [False, True, False, False]


def test_missing_programs_are_named_with_the_command(installation, bin_dir):
    (bin_dir / "cmake").unlink()
    (bin_dir / "g++").unlink()
    with pytest.raises(EnvironmentMissingError, match=r"pytorch-cuda: .* install cmake g\+\+"):
        add_gpu_horovod(installation, read_pins("pytorch", "cuda"))
