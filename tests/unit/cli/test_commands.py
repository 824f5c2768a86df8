"""A run that somebody else made is followed and shown; only its name has it started or ended."""

import itertools
import os
from contextlib import suppress

import pytest
from builders import print_queue, write_program

from dlperf_slurm.cli import main
from dlperf_slurm.cli.commands import EFFECTS
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import STATE, SUBMITTED, Event, append_event
from dlperf_slurm.jobs.run_directory import SITE_FILE, list_run_ids
from dlperf_slurm.jobs.run_ownership import is_own, mark_own
from dlperf_slurm.scheduler import cancel

DETAIL = "no record, exit code 127: 'python: No such file or directory' in cases/x/err"
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
    for number, group_id in enumerate(staged_run.list_group_ids(), start=1):
        append_event(staged_run.path, Event(SUBMITTED, format_now(), group_id, str(number)))
    for task in staged_run.read_all_tasks():
        event = Event(STATE, format_now(), task.group_id, "1", task.array_task_id, "FAILED", DETAIL)
        append_event(staged_run.path, event)
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


@pytest.mark.parametrize("command", ["retry", "resume"])
def test_naming_a_run_to_go_on_with_it_makes_it_own(failed_run, command):
    assert not is_own(failed_run)
    main([command, str(failed_run.path)])
    assert is_own(failed_run)


@pytest.mark.parametrize("command", ["wait", "status", "cancel", "report"])
def test_other_commands_do_not(failed_run, command):
    main([command, str(failed_run.path)])
    assert not is_own(failed_run)


def test_submission_goes_on_without_a_mark(cluster, home, capsys, monkeypatch, staged_run):
    write_program(cluster, "sbatch", "echo 7")
    (home / "file").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    assert main(["resume", str(staged_run.path)]) == 0
    assert capsys.readouterr().err.count(str(home / "file")) == 1


@pytest.mark.parametrize("latest", [["cancel"], ["cancel", "latest"], ["cancel", "latest~0"]])
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
