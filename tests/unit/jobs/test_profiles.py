"""`submit --profile`: which cases, and the command lines of their ranks."""

import pytest
from builders import make_matrix_case, make_site

from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.framework_script import find_starter
from dlperf_slurm.jobs.grouping import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.profiles import mark_profiled
from dlperf_slurm.jobs.render import render_scripts
from dlperf_slurm.matrix.expand import Expansion
from dlperf_slurm.matrix.tables import ScriptTable

CASES = (make_matrix_case("1n1g"), make_matrix_case("1n2g"))


@pytest.mark.parametrize(("patterns", "marked"), [((), ["nsys"] * 2), (("1n2g",), ["", "nsys"])])
def test_cases_that_match_are_profiled_in_their_first_repeat(patterns, marked):
    cases = mark_profiled(Expansion(CASES, ()), "nsys", patterns).cases
    assert [case.profiler for case in cases] == marked
    starters = [find_starter(ArrayTask(cases[1], repeat, 1)) for repeat in (1, 2)]
    assert starters == ["profile_nsys", "launch"]


@pytest.mark.parametrize(
    ("tool", "case", "patterns", "words"),
    [
        ("nsys", CASES[0], ("8n8g",), "--only 8n8g: "),
        ("torch", make_matrix_case(framework="jax"), (), "jax"),
        ("nsys", make_matrix_case(batch_size_per_device="max"), (), "batch size"),
        (
            "nsys",
            make_matrix_case(script_table=ScriptTable(command="train", format="keras")),
            (),
            "external script",
        ),
    ],
)
def test_case_that_cannot_be_profiled_is_refused(tool, case, patterns, words):
    with pytest.raises(InputError) as caught:
        mark_profiled(Expansion((case,), ()), tool, patterns)
    assert case.case_id in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("nsys", "--output=@profile@/%h-%p python -m dlperf_slurm.worker run"),
        ("rocprof", "--output-directory @profile@ -- python -m dlperf_slurm.worker run"),
        ("torch", "python -m dlperf_slurm.worker trace"),
    ],
)
def test_profiler_comes_between_the_launcher_and_each_rank(tool, words):
    site = make_site(launcher={"name": "srun"})
    cases = mark_profiled(Expansion(CASES[1:], ()), tool, ()).cases
    tasks = [ArrayTask(case, repeat, 1) for case in cases for repeat in (1, 2)]
    groups = group_array_tasks(tasks, site, 1001)
    script = render_scripts(groups, site, "run", "/run")["scripts/1n2g.sbatch"]
    function = script.partition(f"profile_{tool}_pytorch() {{")[2].partition("}")[0]
    measured, profiled = function.splitlines()[2:4]
    assert measured.split()[0] == profiled.split()[0] == "srun"
    assert profiled.strip().endswith(words)
    assert f"{tool} {len(measured.split()) - 1} " in function
