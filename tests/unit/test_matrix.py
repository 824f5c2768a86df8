"""Large matrices are planned, or refused with a reason, within seconds."""

import signal
from pathlib import Path

import pytest
from builders import write_matrix
from support.problems import assert_problem

from dlperf_slurm.errors import InputError
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix

HEAD = """\
[model]
name = "resnet50"
[axes]
framework = "pytorch"
"""
AXES = HEAD + 'topology = "1n1g"\nbatch_size_per_device = 8\n'
NOTE = '[[note]]\nwhen = {framework = "pytorch"}\ntext = "x"\n'


@pytest.fixture(autouse=True)
def ends_soon():
    signal.alarm(30)
    yield
    signal.alarm(0)


def expand(text):
    return expand_matrix(read_matrix(write_matrix(text)))


def find_problem(text):
    with pytest.raises(InputError) as caught:
        expand(text)
    return str(caught.value)


@pytest.mark.integration
def test_mistake_in_a_file_of_thousands_of_lines_is_found_on_its_line():
    problem = find_problem(AXES + 8000 * NOTE + "typo = 1\n")
    says = ("unknown key", "known: text, when")
    assert_problem(problem, file="matrix.toml", line=24007, key="note[7999].typo", says=says)


def test_mistake_in_a_list_of_thousands_of_lines_is_found_on_its_line():
    lines = ",\n".join(map(str, range(1, 10_001)))
    problem = find_problem(f"{AXES}typo = 1\n[slurm]\nx = [{lines}]\n")
    assert [line.partition(" unknown")[0] for line in problem.splitlines()] == [
        "matrix.toml:7: axes.typo:",
        "matrix.toml:9: slurm.x:",
    ]


@pytest.mark.not_in_check
@pytest.mark.parametrize(
    ("sizes", "says"),
    [(range(1, 100_001), ("100000", "at most 1000")), ([*range(1, 1000), 7], ("7", "twice"))],
)
def test_list_of_many_values_is_refused_in_time(sizes, says):
    problem = find_problem(f'{HEAD}topology = "1n1g"\nbatch_size_per_device = {[*sizes]}\n')
    assert_problem(problem, file="matrix.toml", line=6, key="axes.batch_size_per_device", says=says)


@pytest.mark.not_in_check
def test_product_beyond_all_bounds_is_refused():
    sizes = list(range(1, 1001))
    topologies = [f"{nodes}n1g" for nodes in sizes]
    text = f"{HEAD}topology = {topologies}\nbatch_size_per_device = {sizes}\n"
    assert_problem(find_problem(text), file="matrix.toml", says=("axes", "100000 combinations"))


@pytest.mark.integration
def test_conditions_that_would_be_compared_for_minutes_are_refused():
    sizes = list(range(1, 1001))
    rule = f"[[exclude]]\nwhen = {{batch_size_per_device = {sizes}}}\n"
    text = f'{HEAD}topology = "1n1g"\nbatch_size_per_device = {sizes}\n{100 * rule}'
    assert_problem(find_problem(text), file="matrix.toml", says=("axes", "10 combinations"))


@pytest.mark.parametrize(
    ("sizes", "repeats", "counts"),
    [(601, 1, ("12020 cases", "12020 array tasks")), (1, 10**9, ("20 cases", "20000000000 array"))],
)
def test_more_cases_or_array_tasks_than_can_be_run_are_refused(sizes, repeats, counts):
    topologies = [f"{nodes}n1g" for nodes in range(1, 21)]
    text = (
        f"{HEAD}topology = {topologies}\nbatch_size_per_device = {list(range(1, sizes + 1))}\n"
        f"[protocol]\nrepeats = {repeats}\n"
    )
    problem = find_problem(text)
    says = (*counts, "at most 10000 cases", "100000 array tasks")
    assert_problem(problem, file="matrix.toml", line=3, key="axes", says=says)


def test_mistakes_by_the_thousand_are_counted():
    problem = find_problem(AXES + "".join(f"k{number} = 1\n" for number in range(20_000)))
    lines = problem.splitlines()
    assert len(lines) == 101
    assert any(line.startswith("matrix.toml: 19900 ") for line in lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = " + 100_000 * "[", "nested more than 32 levels deep"),
        ("a = " + 100_000 * "{a = ", "nested more than 32 levels deep"),
        (
            "a = " + 40 * "[" + 40 * "]",
            r"a\[0\]\[0\]\[0\]\.\.\.: is nested more than 32 levels deep",
        ),
        (100_000 * "a." + "a = 1", "key .* 32 parts"),
        ("[" + 100_000 * "'a' . " + "a]", "key .* 32 parts"),
        ("a = " + 5000 * "9", "integer .* 64 bits"),
        ("a = [1, 9223372036854775808]", r"a\[1\]: .*integer .* 64 bits"),
    ],
)
def test_toml_beyond_its_bounds_is_refused(text, problem):
    with pytest.raises(InputError, match=rf"^matrix\.toml: not valid TOML: .*{problem}"):
        read_matrix(write_matrix(text))


def test_file_of_gigabytes_is_refused():
    with Path("matrix.toml").open("wb") as file:
        file.truncate(2**32)
    with pytest.raises(InputError, match=r"^matrix\.toml: has more than 1048576 bytes"):
        read_matrix(Path("matrix.toml"))
