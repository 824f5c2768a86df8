"""Cases in array jobs: which share one, how each starts its ranks, and the pairs of its nodes."""

from itertools import combinations
from pathlib import Path

import pytest
from builders import make_matrix_case, make_site, read_launch

from dlperf_slurm.jobs.grouping import ArrayTask, choose_pairs, group_array_tasks, make_rounds
from dlperf_slurm.jobs.manifest import compute_block
from dlperf_slurm.jobs.render import render_scripts


def make_groups(site, *cases):
    return group_array_tasks([ArrayTask(case, 1, 1) for case in cases], site, 1001)


def render(site, *cases) -> dict[str, str]:
    return render_scripts(make_groups(site, *cases), site, "run", Path("/run"))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("memory_mib_per_node", 2048),
        ("exclusive", False),
        ("cpus_per_rank", 4),
        ("time_limit_minutes", {"default": 5}),
        ("array_throttle", 2),
        ("tasks_per_job", 3),
        ("directives", ["--hint=nomultithread"]),
        ("modules", ["gcc"]),
        ("setup", "ulimit -n 4096"),
        ("after_modules", "ulimit -n 4096"),
        ("node", {"check": {"ecc": True}}),
        *((name, "x") for name in ("partition", "account", "qos", "constraint", "reservation")),
        ("template", "own.sbatch.j2"),
        # sbatch has to know this image
        ("environments", {"jax": {"container": {"runtime": "shifter", "image": "a"}}}),
    ],
)
def test_cases_that_differ_in_one_setting_alone_are_jobs_of_their_own(setting, value):
    site = make_site(exclusive=True, override=[{"when": {"framework": "jax"}, setting: value}])
    groups = make_groups(site, *[make_matrix_case(framework=name) for name in ("pytorch", "jax")])
    # shapes are numbered by framework
    assert [(group.group_id, [kind.framework for kind in group.kinds]) for group in groups] == [
        ("1n1g", ["jax"]),
        ("1n1g-shape2", ["pytorch"]),
    ]
    assert (groups[0].time_limit_minutes == 5) == (setting == "time_limit_minutes")


def test_script_of_a_shape_has_the_settings_of_its_cases_alone(home):
    block = '{% extends "base.sbatch.j2" %}{% block prologue %}# own{% endblock %}\n'
    (home / "own.sbatch.j2").write_text(block, encoding="utf-8")
    own = {"partition": "old", "directives": ["--requeue"], "setup": "ulimit -n 4096"}
    own.update(template="own.sbatch.j2", node={"check": {"ecc": True}})
    site = make_site(scheduler="slurm", override=[{"when": {"framework": "jax"}, **own}])
    files = render(site, *(make_matrix_case(framework=name) for name in ("pytorch", "jax")))
    of_jax, others = files["scripts/1n1g.sbatch"], files["scripts/1n1g-shape2.sbatch"]
    words = ["#SBATCH --partition=old\n", "#SBATCH --requeue\n", "ulimit -n 4096", "# own"]
    assert [(word in of_jax, word in others) for word in words] == [(True, False)] * len(words)
    assert [name for name in files if name.endswith(".node.json")] == ["scripts/1n1g.node.json"]


def test_one_array_starts_ranks_by_srun_without_mpi_and_by_mpirun():
    override = {
        "when": {"gradient_sync": "horovod"},
        **{"ranks": "mpi", "launcher": {"name": "mpirun"}},
    }
    cases = [make_matrix_case("1n2g", gradient_sync=name) for name in ("native", "horovod")]
    files = render(make_site(ranks="slurm", override=[override]), *cases)
    script = files["scripts/1n2g.sbatch"]
    native, horovod = (read_launch(script, f"pytorch_{name}") for name in ("native", "horovod"))
    assert native.startswith("exec srun ")
    assert "--ranks=slurm" in native
    assert horovod.startswith("exec mpirun -np 2 ")
    assert "--ranks" not in horovod
    assert script.count("  export_secret\n") == 1
    columns = [line.split("\t") for line in files["scripts/1n2g.tasks"].splitlines()]
    assert {attempt: label for label, attempt, *_ in columns} == {
        ArrayTask(case, 1, 1).attempt_dir: f"pytorch_{case.axes.gradient_sync}" for case in cases
    }


def test_kinds_that_start_alike_have_one_part_of_the_script():
    cases = [make_matrix_case("1n2g", gradient_sync=name) for name in ("native", "horovod")]
    script = render(make_site(), *cases)["scripts/1n2g.sbatch"]
    assert script.count("launch_pytorch() {") == 1
    assert "launch_pytorch_" not in script


def test_environment_of_one_kind_is_exported_for_it_alone():
    site = make_site(
        env={"A": "1", "B": "1"},
        override=[{"when": {"framework": "mxnet"}, "env": {"B": "2", "C": "3"}}],
    )
    script = render(site, *(make_matrix_case(framework=name) for name in ("pytorch", "mxnet")))[
        "scripts/1n1g.sbatch"
    ]
    before, _, parts = script.partition("activate_mxnet() {")
    of_mxnet, _, of_pytorch = parts.partition("activate_pytorch() {")
    assert "export A=1\n" in before
    assert "export B" not in before
    assert "  export B=2\n  export C=3\n" in of_mxnet
    assert "  export B=1\n" in of_pytorch
    assert "export C" not in of_pytorch


@pytest.mark.parametrize(("count", "rounds"), [(5, 5), (8, 7)])
def test_each_pair_is_in_one_round_and_no_node_twice(count, rounds):
    nodes = [f"n{number}" for number in range(count)]
    made = make_rounds(nodes)
    assert [len(pairs) for pairs in made] == [count // 2] * rounds
    for pairs in made:
        assert len({node for pair in pairs for node in pair.split(",")}) == 2 * (count // 2)
    found = [tuple(pair.split(",")) for pairs in made for pair in pairs]
    assert sorted(found) == list(combinations(nodes, 2))


def test_chosen_rounds_are_blocks_of_the_run_and_the_seed_repeats_them():
    nodes = [f"n{number}" for number in range(8)]
    pairs = choose_pairs(nodes, 3, 5)
    assert pairs == choose_pairs(nodes, 3, 5)
    by_block = {}
    for repeat, pair in enumerate(pairs, start=1):
        by_block.setdefault(compute_block(repeat, 3), []).append(pair)
    assert len(by_block) == 3
    assert all(pairs in make_rounds(nodes) for pairs in by_block.values())
