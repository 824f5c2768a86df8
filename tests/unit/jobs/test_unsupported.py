"""What keeps a case from a site, or its framework from it: the reason, and what would work."""

import os

import pytest
from builders import make_matrix_case, make_site
from support.problems import assert_problem

from dlperf_slurm.contract.case import Training
from dlperf_slurm.jobs.plan import make_case
from dlperf_slurm.jobs.unsupported import explain_unsupported
from dlperf_slurm.matrix.tables import Protocol


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def explain(case, site=None):
    site = site or make_site()
    return explain_unsupported(case, make_case(case, site, "run", 1, 1), site)


@pytest.mark.parametrize(
    ("changes", "site", "says"),
    [
        ({"topology": "4n1g"}, {"max_nodes": 2}, ("4n1g", "4 nodes", "2")),
        ({"topology": "1n8g"}, {"max_devices_per_node": 4}, ("1n8g", "8 devices", "4")),
        ({"precision": "tf32"}, {}, ("pytorch: precision 'tf32'", "use 'fp32' or 'amp-bf16'")),
        (
            {"model": "bert", "memory_format": "channels_last"},
            *({}, ("memory_format 'channels_last'", "images", "use 'default' for 'bert'")),
        ),
        (
            {"topology": "1n4g"},
            {"scheduler": "local", "cpus_per_rank": 1000},
            ("1n4g", "4000 CPUs", str(os.cpu_count()), "max_devices_per_node=4"),
        ),
        (
            {"batch_size_per_device": "max"},
            {"scheduler": "local"},
            ("batch size 'max'", "memory_limit_mib_per_device in [protocol]"),
        ),
        (
            {"topology": "4n8g", "precision": "tf32"},
            {"max_nodes": 2},
            ("4n8g", "4 nodes", "2; also: pytorch: precision 'tf32'"),
        ),
        (
            {"framework": "jax", "gradient_sync": "horovod", "data": "dali", "precision": "tf32"},
            {},
            (
                *("use compiler 'xla'", "also: jax has no gradient_sync 'horovod'"),
                *("native, sharded", "also: jax has no data 'dali'"),
                "device, host, python-queue, dataset, zmq, folder",
            ),
        ),
        (
            {"framework": "jax", "compiler": "xla", "gradient_sync": "horovod"},
            *({}, ("it has: native",)),
        ),
        (
            {"mode": "infer", "gradient_sync": "horovod"},
            *({}, ("gradient_sync 'horovod'", "mode 'infer'", "use 'native', or mode 'train'")),
        ),
        ({"mode": "infer", "output_tokens": 4}, {}, ("resnet50", "or model 'llama'")),
        (
            {"model": "llama", "model_parameters": {"sequence_length": 16}, "mode": "infer",
             "output_tokens": 9, "prompt_length": 8},
            *({}, ("prompt_length 8", "output_tokens 9", "sequence_length of llama, 16")),
        ),
        (
            {"model": "llama", "framework": "tensorflow2", "mode": "infer", "output_tokens": 4},
            *({}, ("tensorflow2", "output_tokens 4", "it has: 0")),
        ),
        ({"mode": "infer", "data": "zmq"}, {}, ("use data 'device', or mode 'train'",)),
        ({"training": Training(epochs=1)}, {}, ("needs real data",)),
        (
            {"training": Training(epochs=1), "data": "folder", "model": "bert"},
            *({"datasets": {"": "/tmp"}}, ("use 'resnet50'",)),
        ),
        ({"precision": "fp16"}, {}, ("use loss_scale = 128, or 'amp-fp16'",)),
    ],
)  # fmt: skip
def test_reason_says_what_is_missing_and_what_would_work(changes, site, says):
    assert_problem(explain(make_matrix_case(**changes), make_site(**site)), says=says)


@pytest.mark.parametrize(
    ("changes", "site"),
    [
        ({"topology": "1n999g"}, {"max_devices_per_node": 999, "scheduler": "local"}),
        ({"topology": "1n999g"}, {"scheduler": "slurm"}),
        ({"topology": "2n8g"}, {"max_nodes": 2, "max_devices_per_node": 8}),
        (
            {"batch_size_per_device": "max", "protocol": Protocol(memory_limit_mib_per_device=5)},
            {"scheduler": "local"},
        ),
        ({"batch_size_per_device": "max"}, {"scheduler": "slurm"}),
        ({"batch_size_per_device": "64 -> 32"}, {"scheduler": "local"}),
        ({"training": Training(epochs=1), "data": "folder"}, {"datasets": {"": "/tmp"}}),
    ],
)
def test_what_is_only_too_much_elsewhere_runs(changes, site):
    assert explain(make_matrix_case(**changes), make_site(**site)) is None


@pytest.mark.parametrize(
    ("topology", "steps", "generation", "most"),
    [("2048n8g", 1000, {}, 1023), ("1n1g", 131072, {"output_tokens": 128}, 131071)],
)
def test_times_are_no_more_than_are_read_again(topology, steps, generation, most):
    """What a job writes and nobody reads would be found out when the job is over."""

    def explain_steps(measured_steps):
        protocol = Protocol(repeats=1, warmup_steps=0, measured_steps=measured_steps)
        mode = {"mode": "infer", "model": "llama", **generation} if generation else {}
        return explain(make_matrix_case(topology, protocol=protocol, **mode))

    assert explain_steps(most) is None
    reason = explain_steps(most + 1)
    assert "128 MiB" in reason
    assert f"in [protocol] to at most {most}" in reason


def test_data_set_that_is_not_there_is_an_obstacle(tmp_path):
    reason = explain(make_matrix_case(data="folder", dataset="digits"))
    assert str(tmp_path / "data" / "digits") in reason
    assert "[datasets]" in reason
    assert "data make" in reason
    (tmp_path / "data" / "digits").mkdir(parents=True)
    assert explain(make_matrix_case(data="folder", dataset="digits")) is None
