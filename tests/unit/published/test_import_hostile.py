"""What launchers, terminals and people do to logs changes no figure, or fails with the reason."""

import gzip
import random
import re

import pytest
from reference_logs import (
    import_bytes,
    import_one,
    list_all_logs,
    list_figures,
    list_reference_logs,
    ranks_print,
)
from support.problems import assert_problem

# the same on any Python, and hundreds
pytestmark = pytest.mark.slow
REFERENCE, LOGS = list_reference_logs(), list_all_logs()
UNLABELLED = [log for log in LOGS if not ranks_print(log)]
LABELS = (
    b"[1,0]<stdout>:",
    b"Wed Jun  1 10:55:30 2022[1,0]<stdout>:",
    b"[prterun-node1-4711@1,0]<stdout>: ",
    b"[0]<stderr>:",
    b"0: ",
    b" 0: ",
    b"[rank0]:",
    b"[default0]:",
)
NUMBERS = (b"0", b"9" * 30, b"9" * 5000, b"-1", b"1e400", b"nan", b"\xff\x00")
DECOYS = (
    b"README: prints `DLL 2023-08-04 05:48:54.704295 - Epoch: 0 Iteration: 1  train.loss : 7.05869 "
    b"None train.compute_ips : 9999.45 images/s train.total_ips : 9999.40 images/s`\n",
    b"+ grep -E 'examples/second|ips: |train.ips : 99999.0 images/s|Img/sec per GPU: 270.8' log\n",
    b"val.total_ips : 99999.9 images/s train.compute_ips : 99999.1 images/s\n",
    b"DLL 2023-08-04 05:48:54.704295 - Epoch: 0  val.top1 : 0.1 val.total_ips : 99999.0 images/s\n",
    b"DLL 2023-08-04 05:48:54.704295 -  throughput_infer : 354.06 \n",
    b"[2023/07/28 07:50:37] ppcls INFO: [Eval][Epoch 0][Iter: 0/196]loss: 6.9, ips: 99999.1 images/"
    b"sec\n",
    b"eval loss: 6.9, ips: 99999.70 sequences/sec\n",
    b"W0826 15:12:50.113950 1 a.cc:1] Allocator (GPU_0_bfc) ran out of memory trying to allocate\n",
)


@pytest.fixture(params=LOGS, ids=lambda log: "/".join(log.parts[-2:]))
def log(request):
    return request.param


def assert_same(log, data, folder):
    """Compare two imports, except figures by a publisher's rule that counts all ranks' lines."""
    runs = (import_one(log, log), import_bytes(folder, log, data))
    compared = 3 if log in REFERENCE else 2
    whole, changed = ([figures[:compared] for figures in list_figures(each)] for each in runs)
    assert changed == whole


# each label on one log, and each log with one label
@pytest.mark.parametrize(
    ("log", "label"),
    [*((UNLABELLED[0], label) for label in LABELS), *((log, LABELS[0]) for log in UNLABELLED[1:])],
)
def test_labels_of_launchers_are_taken_off(log, label, tmp_path):
    lines = log.read_bytes().splitlines(True)
    assert_same(log, b"".join(label + line for line in lines), tmp_path)


@pytest.mark.parametrize("log", [log for log in UNLABELLED if log in REFERENCE])
def test_ranks_that_print_the_same_lines_count_once(log, tmp_path):
    data = log.read_bytes()
    ranks = [b"[1,%d]<stdout>:" % rank for rank in (1, 0, 3, 2)]
    lines = [rank + line.rstrip(b"\n") + b"\n" for line in data.splitlines(True) for rank in ranks]
    assert_same(log, b"".join(lines), tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: gzip.compress(data),
        lambda data: re.sub(rb"(?m)^(.+)$", b"\x1b[32m\\1\x1b[0m", data),
        lambda data: data.replace(b"\n", b"\n\x00\x00\xff\xfe\n", 50),
        lambda data: b"".join(
            line.rstrip(b"\n") + b"\n" for line in data.splitlines(True) for _ in "12"
        ),
        lambda data: b"x" * 3_000_000 + b"\n" + data,
    ],
    ids=["CRLF", "gzip", "colours", "NUL and broken UTF-8", "each line twice", "a huge line"],
)
def test_encoding_does_not_matter(log, change, tmp_path):
    assert_same(log, change(log.read_bytes()), tmp_path)


def test_decoys_are_not_read(log, tmp_path):
    lines = log.read_bytes().splitlines(True)
    chance = random.Random(2020)
    timed = max(lines, key=len).rstrip(b"\n") + b"\n"
    echoes = (prefix + timed for prefix in (b"+ echo ", b"> ", b"grep '", b"# e.g. ", b"| "))
    for decoy in (*(() if ranks_print(log) else echoes), *DECOYS * 3):
        lines.insert(chance.randrange(len(lines) - 1), decoy)
    assert_same(log, b"".join(lines), tmp_path)


def test_out_of_memory_is_a_status_of_its_own(log, tmp_path):
    lines = log.read_bytes().splitlines(True)
    lines.insert(
        len(lines) * 4 // 5, b"RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    run = import_bytes(tmp_path, log, b"".join(lines))[-1]
    assert (run.status, run.samples_per_s) == ("oom", None)
    assert "memory: RuntimeError" in run.reason


@pytest.mark.parametrize(
    "line",
    [
        b"Traceback (most recent call last):",
        b"mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).",
        b"srun: error: n2: task 5: Exited with exit code 1",
        b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2022-01-01T00:00 DUE TO TIME LIMIT ***",
        b"step: 3 loss: nan",
    ],
)
def test_error_in_a_log_fails_it(line, tmp_path):
    log = LOGS[0]
    lines = log.read_bytes().splitlines(True)
    lines.insert(len(lines) * 4 // 5, line + b"\n")
    run = import_bytes(tmp_path, log, b"".join(lines))[-1]
    assert (run.status, run.samples_per_s) == ("failed", None)


def test_attempt_that_was_started_over_is_left_out_with_a_note(tmp_path):
    (log,) = (log for log in LOGS if log.name == "mxnet_gpu8_fp32_bs128.txt")
    data = log.read_bytes()
    lines = data.splitlines(True)
    runs = import_bytes(tmp_path, log, b"".join(lines[: len(lines) * 4 // 5]) + data)
    assert list_figures(runs) == list_figures(import_one(log, log))
    assert "earlier attempt" in runs[0].notes[0]


def test_run_that_starts_over_without_saying_so_fails(tmp_path):
    (log,) = (log for log in LOGS if log.name == "base_bs96_fp32_gpu32.log")
    lines = log.read_bytes().splitlines(True)
    steps = [line for line in lines if line.startswith(b"tobal step")]
    (run,) = import_bytes(tmp_path, log, b"".join(lines[:-30] + steps))
    assert run.status == "failed"
    assert run.reason.startswith("training goes back from ")


def test_missing_rank_fails_a_log_in_which_all_ranks_print(tmp_path):
    (log,) = (log for log in LOGS if log.name == "mxnet_gpu1_gpu8_fp32_bs96.txt")
    lines = log.read_bytes().splitlines(True)
    kept = [line for line in lines if not line.startswith(b"[1,5]")]
    run = import_bytes(tmp_path, log, b"".join(kept))[-1]
    assert run.status == "incomplete"
    assert_problem(run.reason, says=("ranks 5",))


def test_mutated_logs_never_crash(log, tmp_path):
    lines = log.read_bytes().splitlines(True)
    if len(lines) > 600:
        lines = lines[:200] + lines[-400:]
    chance = random.Random(log.name)
    for _ in range(15):
        mutated = list(lines)
        for _ in range(20):
            index = chance.randrange(len(mutated))
            number = chance.choice(
                [b"0", b"9" * 30, b"9" * 5000, b"-1", b"1e400", b"nan", b"\xff\x00"]
            )
            mutated[index] = re.sub(rb"\d+", number, mutated[index], count=chance.randrange(1, 6))
        for run in import_bytes(tmp_path, log, b"".join(mutated)):
            assert run.status in ("ok", "failed", "oom", "incomplete", "contradictory")
            assert (run.status == "ok") == (run.samples_per_s is not None)
