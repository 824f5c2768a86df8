"""What makes a record of measured ranks invalid."""

import math
from dataclasses import replace

import pytest
from builders import make_case, make_ranks, make_record

from dlperf_slurm.contract.record import find_record_problem

CASE = make_case(nodes=2, devices_per_node=2)


@pytest.mark.parametrize(
    ("sums", "words"),
    [
        ([176698.5] * 4, ()),
        # by rounding alone
        ([176698.5, 176698.5001, 176698.5, 176698.5], ()),
        # not read, by all or one
        ([0.0] * 4, ()),
        ([0.0, 3.0, 3.0, 3.0], ()),
        ([176698.5, 176698.5, 176701.5, 176698.5], ["weights of rank 2 on node2 differ"]),
        ([176698.5, 176695.5, 176698.5, 176698.5], ["weights of rank 1 on node1 differ"]),
        ([176695.5, 176698.5, 176698.5, 176698.5], ["weights of rank 0 on node1 differ"]),
        # no majority agrees
        *(
            (sums, ["weights differ between the ranks"])
            for sums in ([1.0, 2.0, 0.0, 0.0], [1.0, 1.0, 2.0, 2.0], [1.0, 3.0, 3.0, 2.0])
        ),
        ([math.nan] * 4, ["rank 0", "not finite"]),
    ],
)
def test_ranks_whose_weights_differ_are_named(sums, words):
    ranks = [replace(rank, weight_sum=one) for rank, one in zip(make_ranks(CASE), sums)]
    problem = find_record_problem(make_record(CASE, ranks=tuple(ranks)))
    assert bool(problem) == bool(words)
    assert all(word in problem for word in words)


def test_loss_that_is_not_finite_is_named():
    ranks = tuple(replace(rank, final_loss=math.inf) for rank in make_ranks(CASE))
    assert "rank 0 ended with a loss of inf" in find_record_problem(make_record(CASE, ranks=ranks))
