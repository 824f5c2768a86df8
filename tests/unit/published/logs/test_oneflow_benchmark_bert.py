"""OneFlow-Benchmark and OneFlow's models: announced lengths, publishers' figures."""

import re

import pytest
from log_excerpts import list_excerpt, publish, read_all, read_one
from support.problems import assert_problem

from dlperf_slurm.logs.publisher_rules import RuleError


def test_a_banner_begins_the_next_run():
    lines = list_excerpt("oneflow_benchmark_bert/one_node.log")
    aborted, whole = read_all("oneflow_benchmark_bert", lines[:-3] + lines)
    assert_problem(aborted.problem, says=("ends at step 79", "139"))
    assert whole.windows == read_one("oneflow_benchmark_bert", lines).windows


@pytest.mark.parametrize("name", ["cnn/two_nodes", "bert/one_node"])
@pytest.mark.parametrize(("nodes", "devices"), [(1, 8), (2, 16), (4, 32)])
def test_devices_are_those_of_all_nodes(name, nodes, devices):
    lines = [
        re.sub(r"(num_nodes = )\d+", rf"\g<1>{nodes}", line)
        for line in list_excerpt(f"oneflow_benchmark_{name}.log")
    ]
    identity = read_one(f"oneflow_benchmark_{name.split('/')[0]}", lines).identity
    assert (identity.nodes, identity.devices) == (nodes, devices)


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
