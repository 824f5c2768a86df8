"""OneFlow-Benchmark and OneFlow's models: announced lengths, publishers' figures."""

import pytest
from log_excerpts import list_excerpt, publish, read_all, read_one

from dlperf_slurm.logs.reading.rules import RuleError


@pytest.mark.parametrize(
    ("excerpt", "argument"),
    [
        ("oneflow_benchmark_cnn/two_nodes.log", "num_examples"),
        ("oneflow_benchmark_bert/one_node.log", "iter_num"),
    ],
)
def test_a_log_that_announces_no_length_fails(excerpt, argument):
    lines = [line for line in list_excerpt(excerpt) if not line.startswith(argument)]
    problem = read_one(excerpt.split("/")[0], lines).problem
    assert "does not tell how many" in problem


def test_a_banner_begins_the_next_run():
    lines = list_excerpt("oneflow_benchmark_bert/one_node.log")
    aborted, whole = read_all("oneflow_benchmark_bert", lines[:-3] + lines)
    assert aborted.problem == "the log ends at step 79, the last line is of step 139"
    assert whole.windows == read_one("oneflow_benchmark_bert", lines).windows


def test_dlperf_s_figures_come_from_the_time_stamps():
    cnn = publish("oneflow_benchmark_cnn", list_excerpt("oneflow_benchmark_cnn/two_nodes.log"))
    assert cnn == 19715.90
    bert = publish("oneflow_benchmark_bert", list_excerpt("oneflow_benchmark_bert/one_node.log"))
    assert bert == 995.79


def test_oneflow_s_own_figure_is_the_mean_but_the_first():
    lines = list_excerpt("oneflow_benchmark_cnn/two_epochs_without_times.log")
    assert publish("oneflow_benchmark_cnn", lines, rule=1) == 108.014
    with pytest.raises(RuleError, match="steps 20 and 120"):
        publish("oneflow_benchmark_cnn", lines)


def test_a_rank_that_stops_early_is_named():
    lines = list_excerpt("oneflow_models_resnet50/two_ranks.log")
    lines = [line for line in lines if "[rank:1] [train], epoch: 0/1, iter: 40" not in line]
    assert read_one("oneflow_models_resnet50", lines).problem == (
        "rank 1 ends in epoch 0 at iteration 30"
    )
