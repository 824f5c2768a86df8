"""Cases x site -> groups: shapes, chunks, order, what is left out, what it costs."""

import pytest
from builders import make_matrix_case, make_site

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.site import load_site
from dlperf_slurm.jobs.plan import Plan, count_blocks, resolve
from dlperf_slurm.matrix.expand import ExcludedCase, Expansion, expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.matrix.tables import Protocol
from dlperf_slurm.worker.models import load_model


def plan_cases(*cases, max_array_size=1001, **site_values) -> Plan:
    return resolve(Expansion(cases, ()), make_site(**site_values), max_array_size)


def list_orders(cases) -> list[str]:
    (group,) = plan_cases(*cases).groups
    return [f"{task.case.axes.precision} {task.repeat}" for task in group.array_tasks]


def make_cases(shuffle_seed=0):
    protocol = Protocol(repeats=4, shuffle_seed=shuffle_seed)
    return [
        make_matrix_case(precision=precision, protocol=protocol)
        for precision in ("fp32", "amp-bf16", "amp-fp16")
    ]


def test_cases_of_one_shape_are_one_group_in_order_of_size():
    cases = [make_matrix_case(topology) for topology in ("2n1g", "1n16g", "1n2g")]
    plan = plan_cases(*cases, make_matrix_case("1n2g", precision="amp-bf16"))
    assert [(g.group_id, len(g.array_tasks)) for g in plan.groups] == [
        *(("1n2g", 14), ("1n16g", 7), ("2n1g", 7))
    ]
    assert sorted(task.repeat for task in plan.groups[1].array_tasks) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("values", "jobs", "minutes"),
    [
        ({}, [7], 30),
        # a job that array tasks share has time for each to its limit
        ({"tasks_per_job": 3}, [3], 91),
        ({"tasks_per_job": 99}, [1], 213),
        ({"arrays": False}, [1] * 7, 31),
        ({"arrays": False, "tasks_per_job": 3}, [1, 1, 1], 91),
        # half of what the queue takes, so that it is never empty while the rest waits
        ({"max_submitted": 4}, [2, 2, 2, 1], 30),
        ({"max_submitted": 14, "max_array_size": 4}, [4, 3], 30),
        ({"max_submitted": 5, "tasks_per_job": 2}, [3, 1], 61),
        ({"scheduler": "local", "tasks_per_job": 3}, [7], 30),
    ],
)
def test_jobs_are_as_many_as_the_site_lets_be(values, jobs, minutes):
    plan = plan_cases(make_matrix_case(), time_limit_minutes={"default": 30}, **values)
    assert [group.job_count for group in plan.groups] == jobs
    assert plan.job_count == sum(jobs)
    assert plan.array_task_count == 7
    first = plan.groups[0]
    assert (first.time_limit_minutes, first.job_minutes) == (30, minutes)


MATRICES = sorted(find_resource_dir("matrices").glob("*.toml"))


@pytest.mark.parametrize("path", MATRICES)
def test_shipped_matrix_has_images_in_channels_last_and_fits_a_queue_of_32_jobs(path, monkeypatch):
    monkeypatch.setattr(
        "dlperf_slurm.jobs.plan.explain_unsupported", lambda case, job_case, site: None
    )
    file = read_matrix(path)
    expansion = expand_matrix(file)
    assert {"channels_last"} >= {
        case.axes.memory_format
        for case in expansion.cases
        if case.axes.framework == "pytorch"
        and load_model(case.model).INPUT == "images"
        and case.model_parameters.get("image_size", 224) == 224
    }
    site = load_site("slurm", file.toml, []).site
    assert 1 <= resolve(expansion, site, max_array_size=1001).job_count <= 32


# MaxArraySize is one more than the largest index: 4 allows the indices 0 to 3
@pytest.mark.parametrize(("max_array_size", "sizes"), [(7, [7]), (6, [6, 1]), (3, [3, 3, 1])])
def test_groups_are_cut_at_the_largest_index_of_the_cluster(max_array_size, sizes):
    (whole,) = plan_cases(make_matrix_case()).groups
    chunks = plan_cases(make_matrix_case(), max_array_size=max_array_size).groups
    assert [len(group.array_tasks) for group in chunks] == sizes
    assert tuple(task for group in chunks for task in group.array_tasks) == whole.array_tasks
    numbers = range(1, len(sizes) + 1) if len(sizes) > 1 else ()
    assert [group.group_id for group in chunks] == ([f"1n1g-{n}" for n in numbers] or ["1n1g"])


# by hand: `printf 0/pytorch-resnet50-1n1g-bs8-fp32/2 | sha256sum` for each, sorted; must never
# change, so that a seed in a publication stands for the same order
def test_order_of_a_seed_is_fixed():
    assert list_orders(make_cases()) == list_orders(make_cases()[::-1]) == [
        "fp32 2", "amp-bf16 2", "fp32 1", "fp32 3", "amp-fp16 3", "amp-fp16 2",
        "amp-fp16 1", "amp-bf16 3", "fp32 4", "amp-bf16 4", "amp-fp16 4", "amp-bf16 1",
    ]  # fmt: skip
    assert list_orders(make_cases()) != list_orders(make_cases(shuffle_seed=1))


def test_what_cannot_run_is_left_out_with_the_reason_and_in_no_group():
    case = make_matrix_case("4n1g")
    excluded = ExcludedCase(make_matrix_case("2n1g"), "too slow")
    expansion = Expansion((make_matrix_case("1n1g"), case), (excluded,))
    plan = resolve(expansion, make_site(max_nodes=2), 1001)
    assert plan.left_out == (
        excluded,
        ExcludedCase(case, "4n1g needs 4 nodes, but the site has 2 (max_nodes)"),
    )
    assert (len(plan.cases), [group.group_id for group in plan.groups]) == (1, ["1n1g"])
    assert [*plan.job_cases] == [plan.cases[0].case_id]


def test_what_can_run_is_asked_of_the_site_as_the_job_has_it():
    case = make_matrix_case("1n2g", gradient_sync="horovod")
    override = {"when": {"gradient_sync": "horovod"}, "ranks": "mpi", "cpus_per_rank": 16}
    plan = plan_cases(case, ranks="slurm")
    assert (plan.cases, plan.groups, plan.array_task_count, plan.node_hours) == ((), (), 0, 0)
    plan = plan_cases(case, ranks="slurm", override=[override])
    assert plan.cases == (case,)
    assert plan.job_cases[case.case_id].cpus_per_rank == 16


# 7 repeats x 4 nodes x 60 min + 7 repeats x 1 node x 30 min = 28 h + 3.5 h
def test_node_hours_are_those_of_the_time_limits():
    cases = [make_matrix_case("4n8g"), make_matrix_case("1n1g")]
    plan = plan_cases(*cases, time_limit_minutes={"default": 30, "4n8g": 60})
    assert plan.node_hours == 31.5
    assert [plan.compute_node_hours(case) for case in cases] == [28.0, 3.5]


@pytest.mark.parametrize(
    ("repeats", "blocks", "site", "groups"),
    [
        (7, 3, {}, {"1n1g": [1, 4, 7], "1n1g-block2": [2, 5], "1n1g-block3": [3, 6]}),
        (2, 9, {}, {"1n1g": [1], "1n1g-block2": [2]}),
        (4, 4, {"scheduler": "local"}, {"1n1g": [1, 2, 3, 4]}),
    ],
)
def test_blocks_are_groups_of_their_own_with_neighbouring_repeats_apart(
    repeats, blocks, site, groups
):
    case = make_matrix_case(protocol=Protocol(repeats=repeats, blocks=blocks))
    plan = plan_cases(case, **site)
    assert count_blocks(case, make_site(**site)) == len(groups)
    assert groups == {
        group.group_id: sorted(task.repeat for task in group.array_tasks) for group in plan.groups
    }
