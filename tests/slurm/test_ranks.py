"""Ranks without MPI on a real Slurm: PyTorch without mpi4py, and a rank that is killed."""

import dataclasses
from collections import Counter

import pytest
from support.slurm_runs import (
    NO_PEAKS,
    QUICK_POLLS,
    SMALL_RESNET,
    read_records,
    stage_matrix,
    stage_spin,
    submit,
    write_matrix,
)
from support.tasks import describe_shape, forbid_mpi
from support.tool import find_states

from dlperf_slurm.config.folders import find_managed_environment
from dlperf_slurm.contract.record import FAILED, OK
from dlperf_slurm.worker.failures import RANK_LOST

CASES_FAILED = 5
TOPOLOGY = "2n2g"


def train(folder, ranks):
    """Run a small case; return its record and its run."""
    folder.mkdir()
    matrix = write_matrix(folder, [TOPOLOGY], 1, SMALL_RESNET)
    run = stage_matrix(matrix, folder / "results", f"ranks={ranks}", *QUICK_POLLS, NO_PEAKS)
    if ranks != "mpi":
        forbid_mpi(run.path / "code")
    done = submit(run, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    return read_records(run)[0], run


@pytest.fixture(scope="module")
def of_mpi(cluster, tmp_path_factory):
    return train(tmp_path_factory.mktemp("ranks") / "mpi", "mpi")[0]


@pytest.mark.parametrize("ranks", ["slurm", "torchrun"])
def test_pytorch_trains_across_nodes_without_mpi(of_mpi, tmp_path, ranks):
    record, run = train(tmp_path / "without", ranks)
    assert record.status == OK, record.reason
    assert sorted(Counter(rank.host for rank in record.ranks).values()) == [2, 2]
    expected = describe_shape(dataclasses.asdict(of_mpi))
    assert expected["versions"].pop("mpi4py") == expected["versions"].pop("mpi") == "str"
    assert describe_shape(dataclasses.asdict(record)) == expected
    losses = [rank.final_loss for rank in record.ranks]
    assert losses == pytest.approx([rank.final_loss for rank in of_mpi.ranks], rel=1e-4)
    table = (run.path / "report" / "report.md").read_text(encoding="utf-8")
    assert f"| pytorch | {TOPOLOGY} |" in table, table


@pytest.mark.parametrize("ranks", ["slurm", "torchrun"])
def test_rank_that_is_killed_is_named(cluster, tmp_path, ranks):
    run = stage_spin(tmp_path / "results", ["2n1g"], settings=[f"ranks={ranks}"])
    forbid_mpi(run.path / "code")
    assert submit(run, "--wait", SPIN_FAULT="kill").returncode == CASES_FAILED
    (record,) = read_records(run)
    assert record.status == FAILED
    assert [(failure.rank, failure.error) for failure in record.failures] == [(1, RANK_LOST)]
    assert record.reason.startswith(f"rank 1 on {record.failures[0].host}: ")


def test_node_that_cannot_run_the_python_of_the_environment_is_left_out(cluster, tmp_path):
    """Run ranks on n1 and n2, of which n2 cannot execute the environment's python."""
    bin_dir = tmp_path / "environment" / "bin"
    real = find_managed_environment("pytorch") / "bin" / "python"
    script = (
        '#!/bin/bash\n[ "$(hostname)" != n2 ] || { echo "Exec format error" >&2; exit 126; }\n'
        f'exec {real} "$@"\n'
    )
    bin_dir.mkdir(parents=True)
    (bin_dir / "python").write_text(script, encoding="utf-8")
    (bin_dir / "python").chmod(0o755)
    settings = [f'environments.pytorch.venv="{bin_dir.parent}"', "max_nodes=4"]
    run = stage_spin(tmp_path / "results", ["2n1g"], settings=settings)
    done = submit(run, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "excluding n2; the first failed: " in done.stdout
    assert find_states(run) == {"2n1g.0": "FAILED", "2n1g-try2.0": "COMPLETED"}
