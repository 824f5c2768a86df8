"""Frameworks are tested again if files that they depend on changed since they last passed."""

import pytest
import run_on_frameworks
from run_on_frameworks import CHECKOUT, LEFT_TO_CHANGES, Result, Task
from support import proven
from support.proven import Proof

from dlperf_slurm.provision.environments.pins import list_pins

TESTS = ("tests/worker/test_adapter.py",)
BRIEF = ("-m", "not exhaustive")
LEFT_OUT = (
    "bert or llama or vit or bf16 or fp16 or server or sharded or (step_by_step and not native)"
)
FILES = {
    "dlperf_slurm/__init__.py": (
        "if TYPE_CHECKING:\n    from dlperf_slurm.interface import open_run\n"
        "else:\n    import dlperf_slurm.version\n"
    ),
    "dlperf_slurm/interface.py": "",
    "dlperf_slurm/version.py": "",
    "dlperf_slurm/contract.py": "from dlperf_slurm.files.reading import read_regular_file\n",
    "dlperf_slurm/files/reading.py": "",
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
    "dlperf_slurm/worker/horovod.py": "import horovod\n",
    "dlperf_slurm/worker/frameworks/mxnet/device.py": (
        "import horovod.mxnet\nimport dlperf_slurm.worker.horovod\n"
    ),
    "dlperf_slurm/worker/frameworks/mxnet/bert.py": "",
    "dlperf_slurm/provision/environments/jax.txt": "jax==1\n",
    "dlperf_slurm/provision/environments/mxnet.txt": "mxnet==1\n",
    "dlperf_slurm/provision/environments/horovod.py": "",
    "tests/worker/test_adapter.py": "",
}


@pytest.fixture
def checkout(home):
    for name, text in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return home


def find_changed(checkout, name):
    """Return the frameworks whose hash changes when this file changes."""
    before = compute_hashes(checkout)
    with (checkout / name).open("a", encoding="utf-8") as file:
        file.write("x = 1\n")
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
        ("dlperf_slurm/worker/models/bert.py", {"jax"}),
        ("dlperf_slurm/worker/clock.py", {"jax", "mxnet"}),
        ("dlperf_slurm/contract.py", {"jax", "mxnet"}),
        ("dlperf_slurm/interface.py", set()),
        ("tests/worker/test_adapter.py", {"jax", "mxnet"}),
        # modules that only call an adapter
        ("dlperf_slurm/worker/measure.py", set()),
        # files that name or build Horovod
        ("dlperf_slurm/worker/frameworks/mxnet/device.py", {"mxnet", "mxnet-horovod"}),
        ("dlperf_slurm/worker/horovod.py", {"mxnet", "mxnet-horovod"}),
        ("dlperf_slurm/provision/environments/mxnet.txt", {"mxnet", "mxnet-horovod"}),
        ("dlperf_slurm/provision/environments/horovod.py", {"mxnet-horovod"}),
    ],
)
def test_framework_is_proven_again_for_its_own_files_and_all_that_it_imports(
    checkout, name, changed
):
    assert find_changed(checkout, name) == changed


def test_comments_docstrings_and_blank_lines_prove_nothing_again(checkout):
    before = compute_hashes(checkout)
    path = checkout / "dlperf_slurm/worker/clock.py"
    path.write_text(
        '"""Read\na clock."""\n\nimport time  # of the host\n\n# Ours\n'
        "from dlperf_slurm.contract import Case\n",
        encoding="utf-8",
    )
    assert compute_hashes(checkout) == before


def test_proofs_are_read_as_they_were_written(home):
    assert proven.read_proofs(home / "proofs.txt") == {}
    proofs = {"mxnet": Proof(12, "b" * 64), "jax": Proof(800, "a" * 64)}
    proven.write_proofs(home / "proofs.txt", proofs)
    assert proven.read_proofs(home / "proofs.txt") == proofs
    rows = (home / "proofs.txt").read_text(encoding="ascii").splitlines()[-2:]
    assert rows == [f"jax 800 {'a' * 64}", f"mxnet 12 {'b' * 64}"]


@pytest.mark.parametrize(
    ("frameworks", "changed", "is_gate", "tasks"),
    [
        # many: without Horovod, and without what the changes of a few are tested by
        (
            ["jax", "mxnet"],
            {"jax", "mxnet", "mxnet-horovod", "oneflow", "paddle"},
            True,
            [Task(name, False, (*BRIEF, *LEFT_TO_CHANGES)) for name in ("jax", "mxnet")],
        ),
        # what changed in brief, what did not by fewer models
        (
            ["jax", "mxnet", "paddle", "tensorflow1"],
            {"jax", "mxnet", "mxnet-horovod"},
            True,
            [
                Task("jax", False, BRIEF),
                Task("mxnet", True, BRIEF),
                Task("tensorflow1", False, (*BRIEF, *LEFT_TO_CHANGES)),
            ],
        ),
        # what test-worker leaves out
        (["pytorch"], {"pytorch"}, True, [Task("pytorch", False, (*BRIEF, "-k", LEFT_OUT))]),
        # without the gate all are tested whole
        (["jax", "mxnet"], set(), False, [Task("jax", False), Task("mxnet", True)]),
    ],
)
def test_tasks_follow_from_what_changed(frameworks, changed, is_gate, tasks):
    assert run_on_frameworks.choose_tasks(frameworks, changed, is_gate=is_gate) == tasks
    assert f"\nLONG_WORKER := {LEFT_OUT}\n" in (CHECKOUT / "Makefile").read_text()


def test_what_passed_whole_is_proven_and_what_failed_is_not(home, monkeypatch):
    monkeypatch.setattr(run_on_frameworks, "PROOFS", home / "proofs.txt")
    tasks = [Task("jax", False), Task("mxnet", True)]
    results = {"jax": Result([], 7.6), "mxnet": Result(["FAILED x"], 9.0)}
    hashes = {"jax": "a", "mxnet": "b", "mxnet-horovod": "c", "paddle": "d"}
    known = {"mxnet": Proof(1, "b"), "paddle": Proof(2, "old"), "gone": Proof(3, "e")}
    run_on_frameworks.write_proofs(tasks, results, hashes, known)
    assert proven.read_proofs(home / "proofs.txt") == {
        "jax": Proof(8, "a"),
        "paddle": Proof(2, "old"),
    }


def test_environment_that_the_disk_cannot_hold_is_left_out_with_its_size(monkeypatch, home, capsys):
    monkeypatch.setattr(run_on_frameworks, "find_managed_environment", lambda name: home / name)
    (home / "oneflow").mkdir()
    tasks = [Task(name, False) for name in ("pytorch", "mindspore", "oneflow", "mxnet")]
    fitting = run_on_frameworks.fit_on_disk(tasks, 5_000_000_000)
    assert [task.framework for task in fitting] == ["pytorch", "oneflow", "mxnet"]
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("NOT RUN: mindspore: ")
    assert "2.9 GB" in line
    assert "has 3.8 GB" in line
    assert run_on_frameworks.fit_on_disk(tasks, 0) == [Task("oneflow", False)]


def test_size_of_each_environment_is_known():
    assert set(run_on_frameworks.ENVIRONMENT_GB) == set(list_pins())
