"""What sessions of all frameworks are made of: work, event clocks, groups by decay, Horovod."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support import attempts
from support.cases import vary

from dlperf_slurm.contract.case import Training
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.horovod import join_horovod, read_horovod_version
from dlperf_slurm.worker.models import bert, resnet50
from dlperf_slurm.worker.synthetic_batch import make_batch
from dlperf_slurm.worker.update_rule import group_by_decay
from dlperf_slurm.worker.weights import make_weights
from dlperf_slurm.worker.work import Work

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")

# any package with a module for each model
PACKAGE = "dlperf_slurm.worker.models"
SMALL = {"image_size": 32, "stage_blocks": (1, 1, 1, 1), "width": 8, "classes": 10}
CASE = vary(attempts.CASE, model="resnet50", model_parameters=SMALL, devices_per_node=1, seed=7)
PLACEMENT = RankInfo(1, 1, 2, "here", "127.0.0.1", 0)


def test_work_is_that_of_the_case_and_the_rank():
    work = Work(CASE, PLACEMENT, PACKAGE)
    definition = resnet50.Definition(**SMALL)
    assert (work.builder, work.definition, work.inputs) == (resnet50, definition, ("images",))
    assert work.rule == definition.make_rule(4)
    batch, expected = work.make_batch(), make_batch(definition, 4, seed=7, rank=1)
    assert all((batch[name] == expected[name]).all() for name in expected)
    weights, expected = dict(work.generate_weights()), make_weights(definition, 7)
    assert all((weights[name] == expected[name]).all() for name in expected)
    assert work.take_inputs({"labels": 1, "images": 2}) == [2]
    bert_work = Work(vary(CASE, model="bert", model_parameters={}), PLACEMENT, PACKAGE)
    assert bert_work.inputs == bert.INPUTS
    # each rank has a dropout of its own
    assert Work(CASE, replace(PLACEMENT, rank=0), PACKAGE).dropout_seed != work.dropout_seed


def test_gradients_have_a_largest_norm_and_labels_classes_only_where_the_case_says_so():
    plain = Work(CASE, PLACEMENT, PACKAGE)
    assert (plain.largest_norm, plain.classes) == (None, 0)
    training = Training(epochs=1, mixup_alpha=0.2)
    other = Work(vary(CASE, clip_global_norm=True, training=training), PLACEMENT, PACKAGE)
    assert (other.largest_norm, other.classes) == (1.0, 10)


def test_matrices_decay_and_vectors_do_not():
    matrix, vector = numpy.zeros((2, 2)), numpy.zeros(2)
    decaying, others = group_by_decay(iter([vector, matrix]), 0.5)
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.5, 0.0)
    assert decaying["params"][0] is matrix
    assert others["params"][0] is vector


def test_horovod_that_sees_other_ranks_than_mpi_is_an_error():
    seen = SimpleNamespace(init=lambda: None, size=lambda: 1)
    with pytest.raises(RuntimeError, match=r"Horovod sees 1 rank\(s\).* MPI has 2"):
        join_horovod(seen, PLACEMENT)
    join_horovod(seen, replace(PLACEMENT, world_size=1))
    assert read_horovod_version(CASE) == {}


@pytest.mark.parametrize(("visible", "number"), [(1, 0), (4, 1)])
def test_rank_that_sees_one_gpu_takes_that_one(visible, number):
    assert PLACEMENT.choose_gpu(visible) == number
