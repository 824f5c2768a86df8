"""What meets somebody who types the tool's name, asks for help, looks at a plan, sets a value."""

import json
import shlex
from pathlib import Path

import pytest
from builders import SMALL_MATRIX, write_matrix
from support.problems import assert_problem

from dlperf_slurm.cli import main, make_parser
from dlperf_slurm.cli.examples import EXAMPLES
from dlperf_slurm.jobs.run_directory import open_run

LOCAL = ("--site", "local")


@pytest.fixture
def matrix(home):
    write_matrix(SMALL_MATRIX, home / "matrix.toml")
    return "matrix.toml"


def stage(capsys, *options):
    """Render a run, which needs no environment; the missing one is reported."""
    assert main(["render", *options, *LOCAL]) == 0
    told = capsys.readouterr()
    assert_problem(told.err, says=("pytorch", "no environment"))
    return open_run(Path(told.out.split("resume ")[1].strip()))


def test_name_alone_prints_the_help(capsys):
    assert main([]) == 0
    assert "submit submit a matrix" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", EXAMPLES)
def test_help_of_each_command_has_an_example_that_the_parser_takes(words, capsys):
    with pytest.raises(SystemExit):
        main([*words.split(), "--help"])
    printed = capsys.readouterr().out
    example = printed.split("\nExample: dlperf-slurm ")[1].splitlines()[0]
    assert example.startswith(words)
    typed = shlex.split(example)
    assert callable(make_parser(typed).parse_args(typed).handler)
    more = shlex.split(printed.split("\nMore: dlperf-slurm ")[1])
    assert main(more) == 0
    assert capsys.readouterr().out.startswith("# ")


def test_plan_names_the_site_and_why_it_is_this_one(matrix, bin_dir, capsys):
    main(["plan", matrix])
    first = capsys.readouterr().out.splitlines()[0]
    assert_problem(first.rpartition("/")[2], says=("local.toml", "Slurm"))
    main(["plan", matrix, *LOCAL])
    assert capsys.readouterr().out.splitlines()[0].endswith("local.toml, chosen by --site")


def test_plan_names_each_reason_once_and_some_of_its_cases(matrix, capsys):
    batches = "axes.batch_size_per_device=[1, 2, 3, 4, 5]"
    main(["plan", matrix, *LOCAL, "--set", 'axes.topology="2n1g"', "--set", batches])
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("  5 cases: 2n1g ")
    assert lines[4].endswith("bs3-fp32 and 2 more")


def test_plan_of_many_cases_fits_on_one_screen(matrix, capsys):
    batches = f"axes.batch_size_per_device={[*range(1, 31)]}"
    main(["plan", matrix, *LOCAL, "--set", batches])
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) < 30
    assert "-bs1-fp32 and 29 more" in printed


def test_plan_and_status_as_json_are_whole(matrix, capsys):
    main(["plan", matrix, *LOCAL, "--json"])
    plan = json.loads(capsys.readouterr().out)
    main(["status", str(stage(capsys, matrix).path), "--json"])
    status = json.loads(capsys.readouterr().out)
    assert len(status["array_tasks"]) == plan["array_tasks"] > 0
    assert status["counts"] == {"STAGED": plan["array_tasks"]}
    assert {task["case_id"] for task in status["array_tasks"]} == {
        case["case_id"] for case in plan["cases"]
    }


def test_values_that_are_set_reach_the_protocol_the_axes_and_the_run(matrix, capsys):
    run = stage(capsys, matrix, "--set", "protocol.repeats=3", "--set", 'axes.topology="1n1g"')
    (case,) = (case for case in run.manifest.cases if not case.reason)
    assert (case.repeats, case.axes.topology) == (3, "1n1g")
    kept = (run.path / "matrix.toml").read_text(encoding="utf-8")
    assert kept.startswith("# 'matrix.toml --set protocol.repeats=3 --set ")
    assert "repeats = 3\n" in kept


@pytest.mark.parametrize(
    ("words", "file", "key", "says"),
    [
        (
            ["plan", "matrix.toml", *LOCAL, "--set", "protocol.repeat=3"],
            *("matrix.toml --set protocol.repeat=3", "protocol.repeat", ("'repeats'",)),
        ),
        (["plan", "matrix", *LOCAL], "matrix", "", ("matrix.toml",)),
        (["config", "show", *LOCAL, "--set", "protocol.repeats=3"], "", "", ("matrix",)),
        (["plan", "matrix.toml", *LOCAL, "--set", "device=gpu"], "", "", ("'cuda'",)),
    ],
)
def test_mistake_of_a_command_line_is_told_with_what_is_meant(
    matrix, capsys, words, file, key, says
):
    assert main(words) == 2
    assert_problem(capsys.readouterr().err, file=file, key=key, says=says)


def test_resume_with_nothing_to_do_says_so_and_what_to_do(matrix, capsys, monkeypatch):
    run = stage(capsys, matrix)
    monkeypatch.setattr("dlperf_slurm.scheduler.submit.find_unsubmitted", lambda run: {})
    assert main(["resume", str(run.path)]) == 0
    printed = capsys.readouterr().out
    assert "are already submitted" in printed
    assert f"dlperf-slurm retry {run.path}" in printed


CLUSTER = ("--site", "slurm", "--set", "max_array_size=1001")


@pytest.mark.parametrize(
    ("site", "time"),
    [(LOCAL, "5"), (LOCAL, "0s"), (LOCAL, "-1min"), (LOCAL, "nan"), (CLUSTER, "5min")],
)
def test_time_that_is_none_or_of_a_cluster_is_refused_before_anything_is_written(
    matrix, capsys, site, time
):
    assert main(["submit", matrix, *site, f"--within={time}"]) == 2
    assert_problem(capsys.readouterr().err, says=("--within",) if site == LOCAL else ("slurm",))
    assert not Path("results").exists()


@pytest.mark.parametrize("options", [(), ("--wait",), ("--set", "scheduler=local")])
def test_submit_without_slurm_asks_for_the_site_by_name(matrix, bin_dir, capsys, options):
    assert main(["submit", matrix, *options]) == 3
    told = capsys.readouterr()
    assert_problem(told.err, says=("sbatch", "PATH"))
    command = shlex.join(["dlperf-slurm", "submit", matrix, *options, "--site", "local"])
    assert told.err.endswith(f"{command}\n")
    assert (told.out, Path("results").exists()) == ("", False)


def test_submit_on_this_machine_says_what_it_starts(matrix, capsys, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.cli.runs.submit_and_follow", lambda *given, **options: None)
    # no environment has to be there
    modules = ("--set", "environments.pytorch.modules=pytorch")
    assert main(["submit", matrix, *LOCAL, *modules, "--within", "5min"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("site local: ")
    assert lines[0].endswith("site_configs/local.toml, chosen by --site")
    assert lines[1] == "2 cases, 2 repeats each: 4 array tasks"
    assert lines[2].startswith("left out: 1 case: 2n2g ")
    # four times half an hour
    assert "at most 2.0 h" in lines[3]
    assert "after 5 min (--within), only the first repeat of each case and retries" in lines[3]


def test_submit_on_this_machine_refuses_work_that_cannot_end_in_time(matrix, capsys):
    # 10^15 operations, for which a core has a minute
    large = ("--set", "axes.batch_size_per_device=4096", "--set", "time_limit_minutes.default=1")
    modules = ("--set", "environments.pytorch.modules=pytorch")
    assert main(["submit", matrix, *LOCAL, *modules, *large]) == 2
    error = capsys.readouterr().err
    assert_problem(error, key="pytorch-resnet50-1n1g-bs4096-fp32", says=("1 min",))
    assert "time_limit_minutes.default=" in error
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("options", "site"), [((), "local"), (("--site", "./local.toml"), "./local.toml")]
)
def test_doctor_without_slurm_names_the_submit_that_runs_here(
    matrix, bin_dir, capsys, monkeypatch, options, site
):
    Path("local.toml").write_text('scheduler = "local"\ndevice = "cpu"\n', encoding="utf-8")
    monkeypatch.setattr("dlperf_slurm.checks.doctor.examine", lambda *arguments: [])
    assert main(["doctor", matrix, *options]) == 0
    assert capsys.readouterr().out.endswith(f" Next: dlperf-slurm submit {matrix} --site {site}\n")
