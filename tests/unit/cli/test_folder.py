"""`list`, `log` and `archive`: the runs of a results folder, their output, and a run as a file."""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import pytest
from builders import (
    find_task,
    journal_submissions,
    make_failed_record,
    make_record,
    read_case,
    run_main,
    write_record,
)
from history_runs import RESULTS, add_run, write_step_seconds
from support.problems import assert_problem

import dlperf_slurm as dp
from dlperf_slurm.cli import main
from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.record import FAILED, Record
from dlperf_slurm.contract.step_archive import DETAILS_FILE, pack_sidecars
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.files import FileProblem
from dlperf_slurm.jobs import archives
from dlperf_slurm.jobs.journal import CANCELLED, SUBMITTED, Event, append_event
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.run_directory import PRIVATE_FILE, open_run


@pytest.fixture
def run(staged_run):
    """One repeat of 1n1g was measured, one failed; each printed something."""
    for repeat, make in ((1, make_record), (2, lambda case: make_failed_record(case, FAILED, "x"))):
        task = find_task(staged_run, "1n1g", repeat)
        path = write_record(staged_run, task, make(read_case(staged_run, task)))
        lines = [f"line {number} of repeat {repeat}" for number in range(50)]
        (path.parent / "err").write_text("\n".join(lines), encoding="utf-8")
    return staged_run


def list_runs(capsys):
    code, out, _ = run_main(["list", "--json"], capsys)
    assert code == 0
    return json.loads(out)


def test_list_has_the_state_and_best_throughput_of_each_run(run, capsys):
    (row,) = list_runs(capsys)
    assert (row["run_id"], row["title"]) == (run.run_id, run.manifest.title or "matrix")
    assert (row["measured_repeats"], row["planned_repeats"]) == (1, 6)
    # 8 samples x 10 steps in 2 s
    assert row["headline"].startswith("40.00 images/s")
    assert row["state"] == "not submitted"
    append_event(run.path, Event(SUBMITTED, "2024-05-01T12:00:00Z", "1n1g", "7"))
    assert list_runs(capsys)[0]["state"] == "1 of 6 repeats done"
    append_event(run.path, Event(CANCELLED, "2024-05-01T12:00:00Z", detail="7"))
    assert list_runs(capsys)[0]["state"] == "1 of 6 repeats done, cancelled"
    (run.path / "manifest.json").write_text("{")
    code, out, err = run_main(["list"], capsys)
    assert (code, "contains no runs" in out, "manifest.json" in err) == (0, True, True)


def test_log_of_array_tasks_without_a_planned_case_shows_nothing(run, capsys):
    manifest = json.loads((run.path / "manifest.json").read_text())
    (run.path / "manifest.json").write_text(json.dumps({**manifest, "cases": []}))
    assert run_main(["log", str(run.path)], capsys)[0] == 0


def test_folder_that_is_missing_is_named(home, capsys):
    code, out, _ = run_main(["list", "--results", "nope"], capsys)
    assert (code, out) == (0, "nope: no such folder\n")


@pytest.mark.parametrize(
    ("words", "first", "others"),
    [
        ([], "line 10 of repeat 2", ["repeat 1", "line 9 of"]),
        (["latest", "*1n1g*", "-n", "1"], "line 49 of repeat 1", ["line 48"]),
        (["latest", "1n1g", "--lines", "0"], "line 0 of repeat 1", []),
    ],
)
def test_log_prints_the_end_of_what_failed_or_is_named(run, words, first, others, capsys):
    code, out, _ = run_main(["log", *words], capsys)
    lines = [line for line in out.splitlines() if not line.startswith("==> ")]
    assert (code, lines[0], lines[-1]) == (0, first, "line 49 of repeat 2")
    assert [text for text in others if text in out] == []


def test_log_names_the_cases_if_none_matches(run, capsys):
    code, _, err = run_main(["log", "latest", "xyz"], capsys)
    assert (code, find_task(run, "2n2g", 1).case_id in err) == (2, True)


def test_log_names_repeats_without_output_in_one_line(run, capsys):
    case_id = find_task(run, "2n2g", 1).case_id
    code, out, _ = run_main(["log", "latest", case_id], capsys)
    assert (code, out) == (0, f"==> {case_id} repeat 1, 2: no output <==\n")


DAY_1 = "20240501-120000-seven-tiny-abcd"
DAY_2 = "20240502-120000-seven-tiny-abcd"
ARCHIVE = RESULTS / f"{DAY_1}.zip"
TABLES = ("report.csv", "report.json", "report.md", "cases.parquet", "repeats.parquet")


@pytest.fixture
def packable(staged, home, cluster):
    """Make a run whose array tasks have succeeded; the files of one of two are packed."""
    return end_run(add_run(staged, 1))


def end_run(path):
    write_step_seconds(path)
    run = open_run(path)
    journal_submissions(run)
    for index, task in enumerate(run.read_all_tasks()):
        folder = path / task.attempt_dir
        if index % 2:
            pack_sidecars(folder / "s0", read_json(folder / "s0" / "record.json", Record).case)
        (folder / "claim").symlink_to("1")
        now = format_now()
        marker = {"job_id": "1", "begun": now, "time": now, "nodes": "n1", "exit_code": 0}
        file = path / MARKERS_DIR / f"{task.marker}.s0.finished"
        file.write_text(json.dumps(marker), encoding="utf-8")
    return path


def list_contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def refuse(capsys, *words):
    """Run a command that must fail, and return its error."""
    assert main([*map(str, words)]) == 2
    return capsys.readouterr().err


@pytest.mark.integration
def test_report_of_an_archive_has_the_tables_of_the_run(packable, capsys):
    assert main(["report", str(packable), "--plots", "none", "--steps"]) == 0
    # the last lines name the run and the page
    printed = capsys.readouterr().out.partition("All tables:")[0]
    assert main(["archive", str(packable)]) == 0
    assert capsys.readouterr().out.endswith(f"Report: dlperf-slurm report {ARCHIVE.absolute()}\n")
    assert main(["report", str(ARCHIVE), "--plots", "none", "--steps"]) == 0
    beside = RESULTS / f"{DAY_1}-report"
    # the last lines name the run and the page
    assert (
        capsys.readouterr().out.partition("All tables:")[0] == printed.partition("All tables:")[0]
    )
    for name in TABLES:
        assert (beside / name).read_bytes() == (packable / "report" / name).read_bytes(), name
    assert list_contents(beside / "steps") == list_contents(packable / "report" / "steps") != {}


@pytest.mark.integration
def test_archive_has_every_file_of_the_run_and_their_digests(packable):
    # it writes the states into the journal
    assert main(["status", DAY_1]) == 0
    (packable / PRIVATE_FILE).write_text("export TOKEN=x\n")
    contents = list_contents(packable)
    del contents[PRIVATE_FILE]
    assert main(["archive", DAY_1]) == 0
    with zipfile.ZipFile(ARCHIVE) as archive:
        archive.extractall("unpacked")
    unpacked = list_contents(Path("unpacked") / DAY_1)
    lines = unpacked.pop("SHA256SUMS").decode().splitlines()
    sums = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in unpacked.items()}
    links = json.loads(unpacked.pop("LINKS.json"))
    assert unpacked == contents
    assert set(links.values()) == {"1"}
    assert len(links) == 14
    assert open_run(Path("unpacked") / DAY_1).run_id == DAY_1


@pytest.mark.integration
def test_directory_is_removed_only_if_asked_for_and_the_run_is_found_by_its_id_still(packable):
    assert main(["archive", DAY_1]) == 0
    assert dp.open_run("20240501").path == packable.absolute()
    ARCHIVE.unlink()
    rows = dp.open_run(DAY_1).frame("steps")
    assert main(["archive", DAY_1, "--remove"]) == 0
    assert [path.name for path in RESULTS.iterdir()] == [ARCHIVE.name]
    for name in (None, "20240501", DAY_1, ARCHIVE):
        assert dp.open_run(name).path == ARCHIVE.absolute()
    assert dp.open_run(DAY_1).frame("steps").equals(rows)
    assert dp.open_run(DAY_1).is_complete


@pytest.mark.integration
def test_runs_are_compared_and_followed_over_time_in_archives(packable, staged, capsys):
    end_run(add_run(staged, 2, 0.9))
    main(["compare", DAY_1, DAY_2])
    main(["history"])
    before = capsys.readouterr().out
    # beside its directory the run counts once, and then without
    for options in ([], ["--remove"]):
        assert main(["archive", DAY_1, *options]) == 0
        capsys.readouterr()
        main(["compare", str(ARCHIVE), DAY_2])
        main(["history"])
        assert capsys.readouterr().out == before
        if not options:
            ARCHIVE.unlink()


@pytest.mark.integration
def test_run_in_progress_is_refused_with_what_to_do(packable, capsys):
    for path in (packable / MARKERS_DIR).glob("*.0.s0.*"):
        path.unlink()
    for task in open_run(packable).read_all_tasks():
        if task.array_task_id == 0:
            shutil.rmtree(packable / task.attempt_dir / "s0")
    said = refuse(capsys, "archive", DAY_1)
    assert "2 array tasks" in said
    assert f"dlperf-slurm resume {packable.absolute()} --wait" in said
    assert not ARCHIVE.exists()


@pytest.mark.integration
def test_file_that_is_there_or_is_no_archive_is_not_written(packable, capsys):
    ARCHIVE.write_text("mine")
    assert_problem(refuse(capsys, "archive", packable), file=ARCHIVE.absolute())
    assert ARCHIVE.read_text() == "mine"
    assert ".zip" in refuse(capsys, "archive", packable, "--output", "a.tar")
    assert main(["archive", str(packable), "--output", "a.zip"]) == 0
    assert dp.open_run("a.zip").run_id == DAY_1


@pytest.mark.integration
@pytest.mark.parametrize("command", ["status", "resume", "cancel", "archive"])
def test_what_goes_on_with_a_run_takes_no_archive(packable, capsys, command):
    main(["archive", DAY_1])
    capsys.readouterr()
    assert "`unzip`" in refuse(capsys, command, ARCHIVE)


@pytest.mark.integration
@pytest.mark.parametrize("function", ["_write", "_verify", "_list_files"])
def test_interrupted_archive_leaves_the_directory_whole(packable, monkeypatch, function):
    original, before = getattr(archives, function), list_contents(packable)

    def interrupt(*arguments):
        result = original(*arguments)
        if function != "_list_files" or list(RESULTS.glob(".*")):
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(archives, function, interrupt)
    with pytest.raises(KeyboardInterrupt):
        archives.write_archive(open_run(packable), ARCHIVE, is_removed=True)
    after = list_contents(packable)
    after.pop("submit.lock")
    assert after == before
    assert [path.name for path in RESULTS.iterdir()] == [DAY_1]


@pytest.mark.integration
def test_archive_that_is_not_what_was_read_is_no_archive(packable, monkeypatch):
    original = archives._write

    def damage(a_run, files, partial):
        sums = original(a_run, files, partial)
        content = bytearray(partial.read_bytes())
        content[content.index(DETAILS_FILE.encode()) + 200] ^= 1
        partial.write_bytes(content)
        return sums

    monkeypatch.setattr(archives, "_write", damage)
    with pytest.raises(FileProblem, match="is damaged"):
        archives.write_archive(open_run(packable), ARCHIVE, is_removed=True)
    assert not ARCHIVE.exists()
    assert open_run(packable).run_id == DAY_1


@pytest.mark.integration
def test_run_that_changes_meanwhile_is_not_archived(packable, monkeypatch):
    original = archives._verify

    def change(*arguments):
        original(*arguments)
        (packable / "new").touch()

    monkeypatch.setattr(archives, "_verify", change)
    with pytest.raises(dp.InputError, match="changed while"):
        archives.write_archive(open_run(packable), ARCHIVE, False)
    assert not ARCHIVE.exists()


@pytest.mark.integration
def test_damaged_archive_is_refused_by_name(packable, capsys):
    main(["archive", DAY_1, "--remove"])
    content = ARCHIVE.read_bytes()
    capsys.readouterr()
    ARCHIVE.write_bytes(content[:-100])
    assert f"{ARCHIVE}: " in refuse(capsys, "report", ARCHIVE)
    place = content.index(DETAILS_FILE.encode()) + 200
    ARCHIVE.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    assert main(["report", str(ARCHIVE), "--plots", "none"]) == 5
    said = capsys.readouterr().out
    assert "1 of 14 repeats" not in said
    assert "is damaged: " in " ".join(said.split())


@pytest.mark.integration
def test_strange_archives_of_a_results_folder_are_named_or_passed_over(packable, capsys):
    main(["history"])
    before = capsys.readouterr().out
    (RESULTS / "20240503-broken.zip").write_bytes(b"PK")
    with zipfile.ZipFile(RESULTS / "20240504-other.zip", "w") as archive:
        archive.writestr("notes/a.txt", "x")
    main(["history"])
    found = capsys.readouterr()
    assert found.out == before
    assert found.err.count("warning") == 1
    assert "20240503-broken.zip: " in found.err
    assert dp.open_run().run_id == DAY_1
    shutil.rmtree(packable)
    with pytest.raises(dp.InputError, match=r"20240503-broken\.zip: .*ZIP"):
        dp.open_run("20240503")
