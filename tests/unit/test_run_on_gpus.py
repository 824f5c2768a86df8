"""The acceptance on GPUs without a GPU: parts, verdicts and reports, with checks of this test."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import run_on_gpus
from run_on_gpus import (
    CHECKOUT,
    FRAMEWORKS,
    NO_GPU,
    Machine,
    Part,
    accept,
    list_checks,
    list_parts,
)
from support import start_ranks
from support.attempts import is_running
from support.gpu_report import FAILED, NOT_FOR_THIS_GPU, NOT_RUN, PASSED, Outcome, find_verdict
from support.gpu_timeline import find_gap_between_steps, find_gaps, list_transports

# most tests start pytest
pytestmark = pytest.mark.integration
PYTHONS = {"": Path(sys.executable)}
GPU_TESTS = CHECKOUT / "tests" / "gpu"
CHECKS = """
import os, pytest

def test_value_within_its_bounds(record_property):
    value = {"what": "ratio", "value": 2.5, "unit": "x", "bound": ">= 2"}
    record_property("measured", value)

def test_other():
    %s
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a part of two checks, the second one with this statement."""

    def run(statement="pass", gpus=1, needed=1, limit_seconds=60.0, **changes):
        checks = tmp_path / "test_checks.py"
        checks.write_text(CHECKS % statement)
        machine = {"gpus": gpus, "facts": {"gpu_models": "NVIDIA H100"}}
        monkeypatch.setattr(run_on_gpus, "look_at_machine", lambda pythons: machine)
        monkeypatch.setattr(run_on_gpus.signal, "signal", lambda *_: None)
        part = Part("parity", "", (str(checks),), limit_seconds, needed, **changes)
        code = accept([part], Machine(tmp_path / "report", PYTHONS))
        report = json.loads((tmp_path / "report" / "report.json").read_text())
        text = (tmp_path / "report" / "report.md").read_text()
        return code, report, text, capsys.readouterr().out

    return run


def list_verdicts(report):
    return [outcome["verdict"] for outcome in report["outcomes"]]


@pytest.mark.parametrize("processes", [1, 2])
def test_report_has_each_check_with_its_value_and_bound(run, processes, tmp_path):
    code, report, text, _ = run(processes=processes)
    # a line when a check starts, and one with its verdict
    assert len((tmp_path / "report" / "outcomes.jsonl").read_text().splitlines()) == 4
    assert (code, report["verdict"], list_verdicts(report)) == (0, PASSED, [PASSED, PASSED])
    assert "2 passed, 0 failed" in report["conclusion"]
    measured = {one["check"]: one["measured"] for one in report["outcomes"]}
    assert measured["test_value_within_its_bounds"] == [
        {"what": "ratio", "value": 2.5, "unit": "x", "bound": ">= 2"}
    ]
    assert "| test_value_within_its_bounds | passed | ratio: 2.5 x | >= 2 |" in text
    assert "- gpu models: NVIDIA H100" in text


EXCUSED = f"pytest.skip('{NOT_FOR_THIS_GPU}too old')"


@pytest.mark.parametrize(
    ("options", "code", "verdicts", "says"),
    [
        ({"statement": "assert 1 == 2, 'too slow'"}, 1, [PASSED, FAILED], "too slow"),
        ({"statement": "pytest.skip('no counter')"}, 1, [PASSED, NOT_RUN], "no counter"),
        # a check that does not apply to the GPU is no failure
        ({"statement": EXCUSED}, 0, [PASSED, NOT_RUN], "not for this GPU: too old"),
        ({"statement": "pytest.skip('x')", "may_skip": True}, 0, [PASSED, NOT_RUN], "x"),
        ({"statement": "assert 0, 'bad'", "may_skip": True}, 1, [PASSED, FAILED], "bad"),
        ({"statement": "os._exit(9)"}, 1, [PASSED, FAILED], "ended with exit code 9"),
        (
            {"statement": "import time; time.sleep(600)", "limit_seconds": 3.0},
            1,
            [PASSED, FAILED],
            "was ended after 3 s",
        ),
        ({"gpus": 0}, 1, [NOT_RUN, NOT_RUN], NO_GPU),
        ({"needed": 2}, 1, [NOT_RUN, NOT_RUN], "it takes 2 GPUs, and there is 1"),
    ],
)
@pytest.mark.slow
def test_check_that_fails_or_is_not_run_is_told(run, options, code, verdicts, says):
    found, report, text, out = run(**options)
    assert (found, list_verdicts(report)) == (code, verdicts)
    assert says in text + out
    excused = [one["verdict"] for one in report["outcomes"] if one["is_excused"]]
    assert {*excused} <= {NOT_RUN}


# a check that has started a process, in a Python that run_on_gpus starts
SLOW_CHECK = """
import subprocess, time
from pathlib import Path

def test_first():
    pass

def test_slow():
    child = subprocess.Popen(["sleep", "600"])
    Path(%r).write_text(str(child.pid))
    child.wait()
"""
RUN_SLOW = """
import sys
from pathlib import Path
import run_on_gpus

run_on_gpus.look_at_machine = lambda pythons: {"gpus": 1}
part = run_on_gpus.Part("slow", "", (sys.argv[1],))
later = run_on_gpus.Part("later", "", (sys.argv[1],))
machine = run_on_gpus.Machine(Path(sys.argv[2]), {"": Path(sys.executable)})
sys.exit(run_on_gpus.accept([part, later], machine))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_acceptance_that_is_ended_leaves_its_outcomes_and_no_process(number, tmp_path):
    checks, pid, report = (tmp_path / name for name in ("test_slow.py", "pid", "report"))
    checks.write_text(SLOW_CHECK % str(pid))
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "tests")])
    process = subprocess.Popen(
        [sys.executable, "-c", RUN_SLOW, str(checks), str(report)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )
    await_true(lambda: pid.exists() and pid.read_text())
    process.send_signal(number)
    process.wait(30)
    await_true(lambda: not is_running(int(pid.read_text())))
    lines = [json.loads(line) for line in (report / "outcomes.jsonl").read_text().splitlines()]
    assert [(one["check"], one["verdict"]) for one in lines[-2:]] == [
        ("test_first", PASSED),
        ("test_slow", "running"),
    ]
    if number == signal.SIGTERM:
        outcomes = json.loads((report / "report.json").read_text())["outcomes"]
        assert [one["verdict"] for one in outcomes] == [PASSED, FAILED, NOT_RUN, NOT_RUN]
        assert all("SIGTERM" in one["reason"] for one in outcomes[1:])
        assert process.returncode == 1


@pytest.mark.parametrize(("failing", "code"), [("-1", 0), ("1", 7)])
def test_ranks_get_the_variables_of_torchrun(failing, code, tmp_path):
    rank = (
        "import os, sys; from pathlib import Path; rank = os.environ['RANK'];"
        "Path(rank).write_text(os.environ['WORLD_SIZE'] + os.environ['MASTER_PORT']);"
        f"sys.exit(7 * (rank == '{failing}'))"
    )
    command = [sys.executable, start_ranks.__file__, "2", sys.executable, "-c", rank]
    assert subprocess.run(command, cwd=tmp_path).returncode == code
    first, second = ((tmp_path / name).read_text() for name in "01")
    assert first == second
    assert re.fullmatch(r"2\d+", first)


def await_true(check):
    deadline = time.monotonic() + 60
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_limit_is_for_the_parts_of_one_gpu_together(tmp_path, monkeypatch):
    monkeypatch.setattr(run_on_gpus, "look_at_machine", lambda pythons: {"gpus": 1})
    monkeypatch.setattr(run_on_gpus.signal, "signal", lambda *_: None)
    part = Part("jax", "", ("tests/gpu/test_jax_device.py",))
    assert accept([part], Machine(tmp_path / "report", PYTHONS), limit_seconds=0) == 1
    (outcome,) = json.loads((tmp_path / "report" / "report.json").read_text())["outcomes"]
    assert (outcome["verdict"], outcome["reason"]) == (NOT_RUN, run_on_gpus.NO_TIME)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["spin"], "'spin' is not accepted on GPUs"),
        (["--python", "jax=/no/such/python"], "is no program"),
        (["jax", "--only", "parity"], "no part 'parity'; known: jax, jax full size"),
    ],
)
def test_unknown_names_are_refused(arguments, says, monkeypatch, capsys):
    monkeypatch.setattr(run_on_gpus.sys, "argv", ["run_on_gpus.py", *arguments])
    with pytest.raises(SystemExit) as refused:
        run_on_gpus.main()
    assert refused.value.code == 2
    assert says in capsys.readouterr().err


def test_more_gpus_are_not_needed_where_those_that_are_have_passed():
    excused = Outcome("b", "x", NOT_RUN, is_excused=True)
    passed = Outcome("a", "x", PASSED)
    assert find_verdict([passed, excused]) == PASSED
    assert find_verdict([excused]) == NOT_RUN
    assert find_verdict([passed, excused, Outcome("c", "x", NOT_RUN)]) == FAILED


@pytest.mark.slow
def test_report_names_neither_the_machine_nor_its_folders(run, monkeypatch):
    monkeypatch.setattr(run_on_gpus.socket, "gethostname", lambda: "node-7")
    gpu = "GPU-0fe7dd12-ab34-5c6d-8e9f-001122334455"
    _, _, text, _ = run(f"assert 0, '{gpu} on node-7 in {CHECKOUT} of {Path.home()}/x'")
    assert "GPU-UUID on HOST in . of ~/x" in text
    assert "node-7" not in text


def test_missing_environment_names_what_makes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", str(tmp_path / "none"))
    monkeypatch.setattr(run_on_gpus.sys, "argv", ["run_on_gpus.py", "jax", "--only", "jax"])
    monkeypatch.setattr(run_on_gpus, "REPORT", tmp_path / "report")
    monkeypatch.setattr(run_on_gpus.signal, "signal", lambda *_: None)
    assert run_on_gpus.main() == 1
    out = capsys.readouterr().out
    assert "jax: test_gpu_hardly_waits_between_steps, not run" in out
    assert "no environment jax-cuda" in out


def test_every_check_is_in_a_part():
    parts = list(list_parts(FRAMEWORKS))
    named = {path for part in parts for path in part.files}
    assert set(GPU_TESTS.glob("test_*.py")) <= named
    assert all(path.is_file() for path in named)
    assert all(list_checks(part) for part in parts)


@pytest.mark.slow
def test_checks_are_skipped_with_a_reason_by_pytest_without_a_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", str(GPU_TESTS), "--framework", "jax"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ skipped in", done.stdout, re.MULTILINE), done.stdout
    assert "needs 1 NVIDIA GPUs" in done.stdout


def test_patterns_of_kernels_are_regular_expressions_for_each_precision():
    expected = json.loads((GPU_TESTS / "expected_kernels.json").read_text())
    for models in expected.values():
        for precisions in models.values():
            own = precisions.pop("own")
            assert own
            assert all(map(re.compile, own))
            assert set(precisions) == {"fp32", "tf32", "amp-bf16", "amp-fp16"}
            for patterns in precisions.values():
                assert set(patterns) == {"some", "none"}
                assert patterns["some"]
                assert all(re.compile(one) for one in (*patterns["some"], *patterns["none"]))


def test_gap_between_steps_is_the_mean_of_the_longest():
    # three steps of two kernels each, a short gap within and a longer one between them
    intervals = [(0, 1), (1.1, 2), (2.5, 3.5), (3.6, 4.5), (5.25, 6), (6.1, 7)]
    assert find_gap_between_steps(intervals, 3) == pytest.approx((0.5 + 0.75) / 2)
    # overlapping, touching, in any order
    assert find_gaps([(5.0, 6.0), (0.0, 2.0), (1.0, 1.5), (2.0, 3.0), (9.0, 9.5)]) == [3.0, 2.0]


def test_transports_are_read_from_nccls_log():
    log = """\
n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
n1:8:9 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via SHM/direct/direct
n1:8:9 [1] NCCL INFO Channel 02/0 : 1[1] -> 2[0] [send] via NET/IB/0
n1:8:9 [1] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB
"""
    assert list_transports(log) == ["NET", "P2P", "SHM"]
    assert list_transports("n1:8:9 NCCL INFO Connected all rings") == []
