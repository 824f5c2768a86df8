"""Frameworks are tested again when what they depend on is not what it was when they passed."""

import pytest
from support import proven
from support.proven import Proof

TESTS = ("tests/worker/test_adapter.py",)
FILES = {
    "dlperf_slurm/__init__.py": "",
    "dlperf_slurm/contract.py": "",
    "dlperf_slurm/worker/__init__.py": "",
    "dlperf_slurm/worker/clock.py": "import time\nfrom dlperf_slurm.contract import Case\n",
    "dlperf_slurm/worker/measure.py": "from dlperf_slurm.worker import frameworks\n",
    "dlperf_slurm/worker/models/__init__.py": "",
    "dlperf_slurm/worker/models/bert.py": "",
    "dlperf_slurm/worker/frameworks/__init__.py": "",
    "dlperf_slurm/worker/frameworks/jax/__init__.py": (
        "def start():\n    import numpy\n    from dlperf_slurm.worker.models import bert\n"
        "    from dlperf_slurm.worker.clock import read_clock\n"
    ),
    "dlperf_slurm/worker/frameworks/mxnet/__init__.py": "import dlperf_slurm.worker.clock\n",
    "dlperf_slurm/worker/frameworks/mxnet/device.py": "import horovod.mxnet\n",
    "dlperf_slurm/worker/frameworks/mxnet/bert.py": "",
    "dlperf_slurm/provision/environments/jax.txt": "jax==1\n",
    "dlperf_slurm/provision/environments/mxnet.txt": "mxnet==1\n",
    "dlperf_slurm/provision/environments/horovod.py": "",
    "dlperf_slurm/provision/environments/horovod_cxx.sh": "",
    "tests/worker/test_adapter.py": "",
    "tests/worker/test_comm.py": "",
}


@pytest.fixture
def checkout(home):
    for name, text in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return home


def find_changed(checkout, name):
    """What has to be proven again once the file of this name is another one."""
    before = compute_hashes(checkout)
    with (checkout / name).open("a", encoding="utf-8") as file:
        file.write("# x\n")
    after = compute_hashes(checkout)
    return {framework for framework, sha256 in after.items() if before[framework] != sha256}


def compute_hashes(checkout):
    files = {
        "jax": proven.list_files(checkout, "jax", TESTS),
        "mxnet": proven.list_files(checkout, "mxnet", TESTS),
        "mxnet-horovod": proven.list_horovod_files(checkout, "mxnet"),
    }
    return {name: proven.compute_hash(checkout, paths) for name, paths in files.items()}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("dlperf_slurm/worker/frameworks/jax/__init__.py", {"jax"}),
        ("dlperf_slurm/worker/frameworks/mxnet/bert.py", {"mxnet"}),
        ("dlperf_slurm/provision/environments/jax.txt", {"jax"}),
        ("dlperf_slurm/worker/models/bert.py", {"jax"}),
        ("dlperf_slurm/worker/models/__init__.py", {"jax"}),
        ("dlperf_slurm/worker/clock.py", {"jax", "mxnet"}),
        ("dlperf_slurm/contract.py", {"jax", "mxnet"}),
        ("dlperf_slurm/worker/frameworks/__init__.py", set()),
        ("tests/worker/test_adapter.py", {"jax", "mxnet"}),
    ],
)
def test_framework_is_proven_again_for_its_own_files_and_all_that_it_imports(
    checkout, name, changed
):
    assert find_changed(checkout, name) == changed


@pytest.mark.parametrize("name", ["dlperf_slurm/worker/measure.py", "tests/worker/test_comm.py"])
def test_what_only_calls_an_adapter_proves_none_again(checkout, name):
    assert find_changed(checkout, name) == set()


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("dlperf_slurm/worker/frameworks/mxnet/device.py", {"mxnet", "mxnet-horovod"}),
        ("dlperf_slurm/provision/environments/mxnet.txt", {"mxnet", "mxnet-horovod"}),
        ("dlperf_slurm/provision/environments/horovod.py", {"mxnet-horovod"}),
        ("dlperf_slurm/provision/environments/horovod_cxx.sh", {"mxnet-horovod"}),
    ],
)
def test_horovod_is_built_again_for_what_names_or_builds_it(checkout, name, changed):
    assert find_changed(checkout, name) == changed


def test_file_that_moved_is_another_one(checkout):
    before = compute_hashes(checkout)
    folder = checkout / "dlperf_slurm/worker/frameworks/mxnet"
    (folder / "bert.py").rename(folder / "resnet50.py")
    assert compute_hashes(checkout)["mxnet"] != before["mxnet"]


def test_proofs_are_read_as_they_were_written(home):
    proofs = {"mxnet": Proof(12, "b" * 64), "jax": Proof(800, "a" * 64)}
    proven.write_proofs(home / "proofs.txt", proofs)
    assert proven.read_proofs(home / "proofs.txt") == proofs
    rows = (home / "proofs.txt").read_text(encoding="ascii").splitlines()[-2:]
    assert rows == [f"jax 800 {'a' * 64}", f"mxnet 12 {'b' * 64}"]


def test_nothing_is_proven_without_the_file(home):
    assert proven.read_proofs(home / "proofs.txt") == {}
