"""Reports of runs that somebody else wrote, and remarks on their tables: what is wrong is named."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders import IMPORT_DIR, make_manifest, make_outcomes, make_planned_case
from history_runs import CASE_1, add_run, stage_seven, write_step_seconds
from outcome_builders import RATES, scale
from report_values import summarize
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.cli.report import list_remarks

BAD = Path("results/20240502-120000-seven-tiny-abcd")
GOOD = Path("results/20240501-120000-seven-tiny-abcd")
FIRST = f"cases/{CASE_1}/r1/a1"
START = f"{FIRST}/s0"
RECORD = f"{START}/record.json"
TASKS = "scripts/1n1g.tasks"
SECRET = "not for anybody else's eyes"


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Make a valid run, and one to damage; tests use copies."""
    folder = tmp_path_factory.mktemp("runs")
    staged = stage_seven(folder)
    for day in (1, 2):
        write_step_seconds(add_run(staged, day, results=folder / "results"))
    return folder / "results"


@pytest.fixture(autouse=True)
def runs(two_runs, home):
    shutil.copytree(two_runs, home / "results")
    (home / "secret").write_text(SECRET)
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(60)
    yield
    signal.alarm(0)


def _end(number, frame):
    raise AssertionError("took more than a minute")


def change(name, **changes):
    """`a__b=1` sets data["a"]["b"]; a number is an index."""

    def damage():
        path = BAD / name
        data = json.loads(path.read_text())
        for keys, value in changes.items():
            place, parts = data, [int(k) if k.isdigit() else k for k in keys.split("__")]
            for part in parts[:-1]:
                place = place[part]
            place[parts[-1]] = value
        path.write_text(json.dumps(data))

    return damage


def write(name, content):
    def damage():
        path = BAD / name
        path.unlink(missing_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return damage


def put(name, make):
    def damage():
        path = BAD / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        make(path)

    return damage


def make_sparse(path):
    with path.open("wb") as file:
        file.truncate(10**12)


# what may stand in the place of a file
THINGS = {
    "pipe": os.mkfifo,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "link": lambda path: path.symlink_to(Path("secret").absolute()),
    "loop": lambda path: path.symlink_to(path.name),
    "folder": Path.mkdir,
    "terabyte": make_sparse,
    "bytes": lambda path: path.write_bytes(b"\xff\xfe\0"),
    "brackets": lambda path: path.write_text("[" * 10**6),
    "digits": lambda path: path.write_text('{"a": ' + "9" * 10**6 + "}"),
    "empty": Path.touch,
    "absent": lambda path: None,
}


def list_named(damages):
    return [pytest.param(damage, id=name) for name, damage in damages.items()]


def list_things(files, folder="."):
    """Put a link, which could show what is secret, and one other thing in place of each file."""
    others = itertools.cycle(THINGS)
    pairs = [(file, thing) for file in files for thing in ("link", next(others))]
    return [
        pytest.param(put(f"{folder}/{file}", THINGS[thing]), id=f"{thing} for {file}")
        for file, thing in pairs
    ]


# what is sound JSON and of the right types, or of none; other damages are tested beside its reader
RECORDS = {
    "escape in a host": change(RECORD, ranks__0__host="node\x1b]0;title\x07\x1b[2J\n"),
    "half a character": change(RECORD, versions={"torch": "\ud800"}),
    "long reason": change(RECORD, status="failed", reason="x" * 10**6),
    "times": write(f"{START}/step_seconds.npy", b"\x93NUMPY\x01\x00"),
}  # fmt: skip
FILES_OF_RECORDS = ("record.json", "step_seconds.npy")


RUNS = {
    "note of half a character": change(
        "manifest.json", cases__0__notes=["\ud800 \x1b[2J </script>"]
    ),
    "title": change("manifest.json", title="\x1b]0;x\x07\ud800"),
    "case out of the run": change("manifest.json", cases__0__case_id="../../../etc"),
    "repeats for ever": change("manifest.json", cases__0__repeats=2**40),
    "attempt out of the run": write(TASKS, f"pytorch\t../../cases/{CASE_1}/r1/a1\n"),
    "attempt of 10^6 digits": write(TASKS, f"pytorch\tcases/{CASE_1}/r{'1' * 10**6}/a1\n"),
    "case beyond the file": write(TASKS, f"pytorch\t{FIRST}\tsrun\t-\t1\t{10**11}\n"),
    "case without an end": write("cases.jsonl", '{"axes": ' + "[" * 10**7),
    "group out of the run": write(
        "journal.jsonl", '{"event": "staged", "time": "", "group_id": "../../../../etc/passwd"}\n'
    ),
}
FILES_OF_RUNS = (
    *("manifest.json", "journal.jsonl", "matrix.toml", "cases.jsonl", TASKS, "cases"),
    *("markers", "scripts", "report", "markers/1n1g.0.finished", "submit.lock"),
)

REPORT = ["report", str(BAD)]
OTHER_COMMANDS = (
    ["status", str(BAD)],
    ["compare", str(GOOD), str(BAD)],
    ["compare", str(BAD), str(GOOD), "--json"],
)
# right, an input to correct, a scheduler that is not there, a case that failed
CODES = (0, 2, 3, 5)


def run(arguments, capsys):
    code = main(arguments)
    captured = capsys.readouterr()
    assert code in CODES
    assert SECRET not in captured.out + captured.err
    assert "\x1b" not in captured.out + captured.err
    if code == 2:
        assert "results/" in captured.err
    return code, captured.out, captured.err


def check_history(capsys):
    """Assert that the history contains the valid run, whatever the other one contains."""
    code, out, _ = run(["history", "--results", "results"], capsys)
    assert code == 0
    assert out.count("20240501") >= 2, out


def check_secrets():
    for path in BAD.glob("report/*.*"):
        if path.is_file() and not path.is_symlink():
            assert SECRET not in path.read_text(errors="replace")
    assert Path("secret").read_text() == SECRET


@pytest.mark.slow
@pytest.mark.parametrize("damage", list_named(RECORDS) + list_things(FILES_OF_RECORDS, START))
def test_bad_record_leaves_the_other_records_and_is_drawn_or_left_out(damage, capsys):
    damage()
    code, out, _ = run(REPORT, capsys)
    assert code in (0, 5)
    assert "13 of 14" in out or "14 of 14" in out
    assert list(BAD.glob("report/*/*.svg"))
    for command in OTHER_COMMANDS:
        code, _, err = run(command, capsys)
        assert code != 2, err
    check_history(capsys)
    check_secrets()


@pytest.mark.slow
@pytest.mark.parametrize("closing", [">&-", ">&- 2>&- <&-"])
def test_closed_streams_end_no_command_and_are_no_files(closing, home):
    before = (BAD / "journal.jsonl").read_bytes()
    program = f"{sys.executable} -m dlperf_slurm status {BAD} {closing}"
    env = {**os.environ, "PYTHONPATH": IMPORT_DIR}
    done = subprocess.run(["bash", "-c", program], cwd=home, env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (BAD / "journal.jsonl").read_bytes() == before


@pytest.mark.slow
def test_matplotlibrc_of_the_working_directory_is_not_read(home):
    """Whoever reports from within a stranger's run has its files around."""
    os.mkfifo(home / "matplotlibrc")
    program = [sys.executable, "-m", "dlperf_slurm", "report", str(GOOD)]
    env = {**os.environ, "PYTHONPATH": IMPORT_DIR, "MPLBACKEND": "../../x"}
    done = subprocess.run(program, cwd=home, env=env, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert list((GOOD / "report").glob("*/*.svg"))


@pytest.mark.slow
@pytest.mark.parametrize("damage", list_named(RUNS) + list_things(FILES_OF_RUNS))
def test_bad_run_is_named_and_hides_no_other(damage, capsys):
    damage()
    for command in ([*REPORT, "--plots", "none"], *OTHER_COMMANDS):
        run(command, capsys)
    check_history(capsys)
    check_secrets()


def make_summary(factor):
    """Two devices that are so many times as fast as one."""
    cases = [
        make_outcomes(make_planned_case(name, repeats=len(RATES)), scale(RATES, by))
        for name, by in (("1n1g", 1.0), ("1n2g", factor))
    ]
    return summarize(make_manifest(), cases)


def test_sound_tables_have_no_remark():
    assert list_remarks(make_summary(1.9)) == []


def test_speedup_that_devices_do_not_explain_is_remarked():
    speedup, efficiency = list_remarks(make_summary(2.5))
    assert_problem(speedup, says=("above the device count", "report.csv:3 speedup", "at most 2"))
    assert "report.csv:3 weak_scaling_efficiency: " in efficiency


def test_run_is_named_by_the_beginning_of_its_id(staged_run, home, capsys):
    assert main(["audit", staged_run.run_id[:15]]) == 2
    assert_problem(capsys.readouterr().err, says=(staged_run.run_id[:15], "recomputed"))
    assert main(["audit", "19990101"]) == 2
    assert "recomputed" not in capsys.readouterr().err
