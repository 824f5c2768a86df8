"""What makes a record of measured ranks invalid."""

from dataclasses import replace

import pytest
from builders import make_case, make_ranks, make_record

from dlperf_slurm.contract.record import find_record_problem

CASE = make_case(nodes=2, devices_per_node=2)


@pytest.mark.parametrize(
    ("sums", "named"),
    [
        ([176698.5] * 4, ()),
        # by rounding alone
        ([176698.5, 176698.5001, 176698.5, 176698.5], ()),
        # not read, by all or one
        ([0.0] * 4, ()),
        ([0.0, 3.0, 3.0, 3.0], ()),
        ([176698.5, 176698.5, 176701.5, 176698.5], ("rank 2 on node2",)),
        ([176698.5, 176695.5, 176698.5, 176698.5], ("rank 1 on node1",)),
    ],
)
def test_ranks_whose_weights_differ_are_named(sums, named):
    ranks = [replace(rank, weight_sum=one) for rank, one in zip(make_ranks(CASE), sums)]
    problem = find_record_problem(make_record(CASE, ranks=tuple(ranks)))
    assert [f"rank {n} on node{n // 2 + 1}" for n in range(4) if f"rank {n} on" in problem] == [
        *named
    ]
    assert bool(problem) == bool(named)


@pytest.mark.parametrize(
    "sums", [[1.0, 2.0, 0.0, 0.0], [1.0, 1.0, 2.0, 2.0], [1.0, 3.0, 3.0, 2.0], [1.0, 2.0, 3.0, 0.0]]
)
def test_no_rank_is_named_where_no_majority_agrees(sums):
    ranks = [replace(rank, weight_sum=one) for rank, one in zip(make_ranks(CASE), sums)]
    problem = find_record_problem(make_record(CASE, ranks=tuple(ranks)))
    assert "weights" in problem
    assert "node" not in problem


def test_weights_that_are_not_finite_are_named():
    ranks = [replace(rank, weight_sum=float("nan")) for rank in make_ranks(CASE)]
    assert "rank 0" in find_record_problem(make_record(CASE, ranks=tuple(ranks)))
