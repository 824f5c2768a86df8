"""Commands do to a run no more than they declare, and say what is set, wrong or left to do."""

import itertools
import json
import os
import shlex
from contextlib import suppress
from pathlib import Path

import pytest
from builders import (
    SMALL_MATRIX,
    journal_state,
    journal_submissions,
    print_queue,
    write_matrix,
    write_program,
)
from support.problems import assert_problem

from dlperf_slurm.cli import main, make_parser
from dlperf_slurm.cli.commands import EFFECTS, EXAMPLES
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import SUBMITTED, Event, append_event
from dlperf_slurm.jobs.run_directory import SITE_FILE, list_run_ids, open_run
from dlperf_slurm.jobs.run_ownership import is_own, mark_own
from dlperf_slurm.scheduler import cancel

DETAIL = "no record, exit code 127: 'python: No such file or directory'"
INPUT_ERROR, CASES_FAILED = 2, 5


@pytest.fixture
def cluster(bin_dir, home, monkeypatch):
    """Its programs write their calls into a file; sbatch takes nothing."""
    monkeypatch.setattr(cancel, "LOOK_SECONDS", 0.0)
    for name, answer in {
        "sbatch": "echo 'Invalid account' >&2; exit 1",
        "scontrol": "true",
    }.items():
        write_program(bin_dir, name, f'echo {name} "$@" >> {home}/calls\n{answer}')
    for name in ("srun", "squeue", "sacct", "scancel"):
        write_program(bin_dir, name, f'echo {name} "$@" >> {home}/calls; {print_queue()}')
    return bin_dir


@pytest.fixture
def failed_run(cluster, staged_run):
    """Each array task ended by what `[retry] launch` of its site has another try for."""
    journal_submissions(staged_run)
    for task in staged_run.read_all_tasks():
        journal_state(staged_run, task, "FAILED", DETAIL)
    return staged_run


def list_calls(home, name):
    path = home / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line.startswith(name)]


def list_retries(run):
    return [group_id for group_id in run.list_group_ids() if "-try" in group_id]


def test_wait_releases_nothing_of_a_run_that_others_made(failed_run, home):
    site = failed_run.path / SITE_FILE
    # so that nothing but what the run's own files say would be read of it
    site.write_text("broken", encoding="utf-8")
    assert main(["wait", str(failed_run.path)]) == CASES_FAILED
    assert list_calls(home, "scontrol") == []


@pytest.mark.parametrize("command", ["wait", "status", "cancel", "report", "retry", "resume"])
def test_naming_a_run_to_go_on_with_it_makes_it_own(failed_run, command):
    main([command, str(failed_run.path)])
    assert is_own(failed_run) == (command in ("retry", "resume"))


def test_submission_goes_on_without_a_mark(cluster, home, capsys, monkeypatch, staged_run):
    write_program(cluster, "sbatch", "echo 7")
    (home / "file").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    assert main(["resume", str(staged_run.path)]) == 0
    assert capsys.readouterr().err.count(str(home / "file")) == 1


@pytest.mark.parametrize("latest", [["cancel"], ["cancel", "latest~0"]])
def test_cancel_of_the_latest_run_asks_for_its_name_where_others_made_it(failed_run, home, latest):
    assert list_run_ids(home / "results") == [failed_run.run_id]
    assert main(latest) == INPUT_ERROR
    assert list_calls(home, "squeue") == []
    assert main(["cancel", str(failed_run.path)]) == 0
    mark_own(failed_run)
    assert main(latest) == 0


@pytest.mark.parametrize("command", ["retry", "resume"])
def test_latest_run_of_another_user_is_continued_only_by_its_name(
    failed_run, home, monkeypatch, capsys, command
):
    """Whoever may write into the results folder can put a newer run there."""
    user = os.geteuid()
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: user + 1)
        assert main([command, "latest"]) == INPUT_ERROR
        assert str(failed_run.path) in capsys.readouterr().err
    assert not is_own(failed_run)
    assert list_calls(home, "sbatch") == []
    main([command, "latest"])
    assert is_own(failed_run)


def test_run_whose_files_name_two_schedulers_is_refused(failed_run, capsys):
    site = failed_run.path / SITE_FILE
    text = site.read_text(encoding="utf-8")
    site.write_text(text.replace('"slurm"', '"local"', 1), encoding="utf-8")
    assert main(["retry", str(failed_run.path)]) == INPUT_ERROR
    assert str(site) in capsys.readouterr().err
    assert list_retries(failed_run) == []


def list_files(run):
    return {path: path.stat().st_mtime_ns for path in [run.path, *run.path.rglob("*")]}


def may(cell, is_own, is_named):
    """Return whether a declared effect allows something for a run."""
    return cell == "any run" or ("named" in cell and is_named) or ("your" in cell and is_own)


BOTH = (False, True)
READERS = ("status", "list", "log", "report", "compare", "history", "accept", "reference make")


@pytest.mark.parametrize(
    ("command", "has_ended", "is_named", "is_own"),
    [
        *(("wait", True, *chosen) for chosen in itertools.product(BOTH, BOTH)),
        *(("cancel", False, *chosen) for chosen in itertools.product(BOTH, BOTH)),
        *((command, ended, True, False) for command in ("resume", "retry") for ended in BOTH),
        *((command, ended, True, True) for command in (*READERS, "archive") for ended in BOTH),
    ],
)
def test_command_does_to_a_run_no_more_than_it_declares(
    request, cluster, home, staged_run, command, is_named, has_ended, is_own
):
    """A run whose array tasks failed could be tried again, and one in the queue be cancelled."""
    if has_ended:
        request.getfixturevalue("failed_run")
    else:
        append_event(staged_run.path, Event(SUBMITTED, format_now(), "1n1g", "1"))
        name = f"{staged_run.run_id}.1n1g"
        queue = print_queue("1_0|PENDING||Resources", "1_1|PENDING||Resources", name=name)
        write_program(cluster, "squeue", queue)
    if is_own:
        mark_own(staged_run)
    before = list_files(staged_run)
    results = ["--results", staged_run.path.parent]
    words = {"compare": [staged_run.path] * 2, "history": results, "list": results,
             "accept": [staged_run.path, "--reference", "r.toml"],
             "reference make": [staged_run.path, "-o", "r.toml"]}  # fmt: skip
    figure = "schema_version = 1\ncases = [{case = 'x', at_least_samples_per_s_per_device = 1}]"
    (home / "r.toml").write_text(figure, encoding="utf-8")
    with suppress(SystemExit):
        named = words.get(command, [staged_run.path]) if is_named else []
        main([*command.split(), *map(str, named)])
    _, writes, submits, cancels, _ = EFFECTS[command.split()[0]]
    submitted, cancelled = list_calls(home, "sbatch") != [], list_calls(home, "scancel") != []
    assert submitted <= may(submits, is_own, is_named)
    assert cancelled <= may(cancels, is_own, is_named)
    assert writes != "no" or list_files(staged_run) == before
    # neither is a test that nothing happens
    if has_ended and command in ("wait", "retry"):
        assert submitted == may(submits, is_own, is_named)
    if not has_ended and command == "cancel":
        assert cancelled == may(cancels, is_own, is_named)


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


def test_plan_names_each_reason_once_and_some_of_its_cases(matrix, capsys):
    batches = "axes.batch_size_per_device=[1, 2, 3, 4, 5]"
    main(["plan", matrix, *LOCAL, "--set", 'axes.topology="2n1g"', "--set", batches])
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].startswith("  5 cases: 2n1g ")
    assert lines[4].endswith("bs3-fp32 and 2 more")


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
    ],
)
def test_mistake_of_a_command_line_is_told_with_what_is_meant(
    matrix, capsys, words, file, key, says
):
    assert main(words) == 2
    assert_problem(capsys.readouterr().err, file=file, key=key, says=says)


CLUSTER = ("--site", "slurm", "--set", "max_array_size=1001")


@pytest.mark.parametrize(("site", "time"), [(LOCAL, "5"), (LOCAL, "0s"), (CLUSTER, "5min")])
def test_time_that_is_none_or_of_a_cluster_is_refused_before_anything_is_written(
    matrix, capsys, site, time
):
    assert main(["submit", matrix, *site, f"--within={time}"]) == 2
    assert_problem(capsys.readouterr().err, says=("--within",) if site == LOCAL else ("slurm",))
    assert not Path("results").exists()


@pytest.mark.parametrize("options", [(), ("--wait", "--set", "scheduler=local")])
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
    assert "after 5 min (--within), only retries and the first repeat of each case" in lines[3]


def test_submit_on_this_machine_refuses_work_that_cannot_end_in_time(matrix, capsys):
    # 10^15 operations, for which a core has a minute
    large = ("--set", "axes.batch_size_per_device=4096", "--set", "time_limit_minutes.default=1")
    modules = ("--set", "environments.pytorch.modules=pytorch")
    assert main(["submit", matrix, *LOCAL, *modules, *large]) == 2
    error = capsys.readouterr().err
    assert_problem(error, key="pytorch-resnet50-1n1g-bs4096-fp32", says=("1 min",))
    assert "time_limit_minutes.default=" in error
    assert not Path("results").exists()


def test_doctor_without_slurm_names_the_submit_that_runs_here(matrix, bin_dir, capsys, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.checks.doctor.examine", lambda *arguments: [])
    assert main(["doctor", matrix]) == 0
    assert capsys.readouterr().out.endswith(f" Next: dlperf-slurm submit {matrix} --site local\n")
