"""Stand-ins for CUDA libraries: made where the real ones are not, and a user of them then loads."""

import subprocess
import sys

import pytest

from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.provision.environments.install_steps import Installation
from dlperf_slurm.provision.environments.stub_libraries import (
    build_stub,
    define,
    make_stubs,
)

pytestmark = pytest.mark.integration

LIBRARY = "libstandinblas.so.11"
SOURCE = """\
extern int standinblasCreate(void);
extern const char *standinblasGetStatusString(int);
int create(void) { return standinblasCreate(); }
const char *describe(void) { return standinblasGetStatusString(1); }
"""
USE = """\
import ctypes, sys
user = ctypes.CDLL(sys.argv[1])
user.describe.restype = ctypes.c_char_p
print(user.create(), user.describe().decode())
"""


@pytest.fixture
def installation(home):
    """Make an environment with a package `flow`, linked with a library that is missing."""
    packages = home / "envs/oneflow/lib/python3.10/site-packages"
    (packages / "flow").mkdir(parents=True)
    (packages / "flow.libs").mkdir()
    (home / "envs/oneflow/bin").mkdir()
    (home / "envs/oneflow/bin/python").symlink_to(sys.executable)
    build_stub(LIBRARY, ["standinblasCreate", "standinblasGetStatusString"], home / LIBRARY)
    (home / "user.c").write_text(SOURCE)
    link = [f"-L{home}", f"-l:{LIBRARY}", "-Wl,-rpath,$ORIGIN/../flow.libs"]
    user = packages / "flow" / "user.so"
    command = ["gcc", "-shared", "-fPIC", "-o", str(user), str(home / "user.c"), *link]
    subprocess.run(command, check=True)
    (home / LIBRARY).unlink()
    news = []
    return Installation("oneflow", home / "envs/oneflow", news.append), user, news


def test_user_of_a_missing_library_loads_and_hears_that_there_is_no_cuda(installation):
    made, user, news = installation
    make_stubs(made, "flow", ["libc.so.6"])
    assert (news, list((made.site_packages / "flow.libs").iterdir())) == ([], [])
    make_stubs(made, "flow", [LIBRARY])
    assert LIBRARY in news[0]
    done = subprocess.run([sys.executable, "-c", USE, str(user)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1 no CUDA on this machine\n", "")


def test_missing_compiler_is_named(installation, bin_dir):
    with pytest.raises(EnvironmentMissingError, match="install gcc binutils"):
        make_stubs(installation[0], "flow", [LIBRARY])


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("cudnnGetVersion", "8500"),
        ("cudnnGetProperty", "*value = 8"),
        ("cudnnGetErrorString", "no CUDA"),
        ("cublasCreate_v2", "return 1"),
    ],
)
def test_function_says_that_it_failed_unless_it_is_asked_who_it_is(name, part):
    assert part in define(name)
