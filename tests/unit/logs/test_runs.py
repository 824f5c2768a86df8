"""What launchers, terminals and people do to logs changes no figure, or fails with the reason."""

import gzip
import random
import re

import pytest
from log_excerpts import read_all, split_content
from reference_logs import (
    import_bytes,
    import_one,
    list_all_logs,
    list_figures,
    list_reference_logs,
    ranks_print,
)
from support.problems import assert_problem

from dlperf_slurm.logs.runs import ImportOptions, import_log

UNTAGGED_LOGS = [log for log in list_reference_logs() if "mxnet" not in log.name]


def interleave(contents, block_bytes):
    """Interleave ranks' outputs in blocks, with labels on blocks and lines as by Open MPI."""
    blocks = [
        (start, rank, content[start : start + block_bytes])
        for rank, content in enumerate(contents)
        for start in range(0, len(content), block_bytes)
    ]
    pieces = []
    for _, rank, block in sorted(blocks, key=lambda entry: entry[:2]):
        label = b"[1,%d]<stdout>:" % rank
        pieces += [label + line for line in block.splitlines(keepends=True)]
    return b"".join(pieces)


@pytest.mark.parametrize("block_bytes", [8192, 1000])
@pytest.mark.parametrize("log", UNTAGGED_LOGS, ids=lambda log: "/".join(log.parts[-2:]))
def test_two_ranks_blocks_are_one_run_with_the_figures_of_one(log, block_bytes, tmp_path):
    data = log.read_bytes().replace(b"\r\n", b"\n")
    whole = list_figures(import_log(log, ImportOptions()))
    assert list_figures(import_bytes(tmp_path, log, interleave([data, data], block_bytes))) == whole


def test_a_line_that_a_block_s_end_cut_goes_on_in_the_rank_s_next_block():
    lines = split_content(b"[1,0]<stdout>:loss[1,1]<stdout>:loss 2\n[1,0]<stdout>: 1\n")
    assert [(line.rank, line.text) for line in lines] == [(1, "loss 2"), (0, "loss 1")]


def _list_rank_lines(rank, runs):
    for run in range(runs):
        yield f"[1,{rank}]<stdout>:INFO:root:Namespace(num_steps=6, batch_size=4, gpus=None)"
        for step in range(1, 7):
            yield (
                f"[1,{rank}]<stdout>:INFO:root:[step {step}]\tmlm_loss=9.0\tlr=0.1 "
                f"time={rank + 1 + 10 * run}.5"
            )


@pytest.mark.parametrize("lag", [1, 3, 6])
def test_a_rank_that_lags_behind_begins_its_second_run_where_the_others_did(lag):
    first, second = (list(_list_rank_lines(rank, 2)) for rank in (0, 1))
    lines = first[:lag]
    for index, line in enumerate(second):
        lines += [line, *first[lag + index : lag + index + 1]]
    one, two = read_all("gluonnlp_bert", lines)
    assert [one.problem, two.problem] == ["", ""]
    assert [window.seconds for window in one.windows] == [7.5, 12.5]
    assert [window.seconds for window in two.windows] == [57.5, 62.5]


def test_settings_of_another_rank_s_block_are_not_mistaken_for_the_rank_s_own():
    one = ["[1,0]<stdout>:INFO:root:Namespace(num_steps=6, batch_size=4, gpus=None)"]
    other = ["[1,1]<stdout>:INFO:root:Namespace(num_steps=6, batch_size=2, gpus=None)"]
    timed = [line for rank in (0, 1) for line in list(_list_rank_lines(rank, 1))[1:]]
    for lines in (one + other + timed, other + one + timed):
        (reading,) = read_all("gluonnlp_bert", lines)
        assert reading.identity.batch_size_per_device == 4
    # what only another rank told is not lost
    (reading,) = read_all("gluonnlp_bert", other + timed)
    assert reading.identity.batch_size_per_device == 2


def test_a_byte_order_mark_costs_no_line(tmp_path):
    log = UNTAGGED_LOGS[0]
    (run,) = import_bytes(tmp_path, log, b"\xef\xbb\xbf" + log.read_bytes())
    assert list_figures([run]) == list_figures(import_log(log, ImportOptions()))
    (line,) = split_content(b"\xef\xbb\xbf[1,3]<stdout>:loss 1\n")
    assert (line.rank, line.text) == (3, "loss 1")


# the same on any Python, and hundreds
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
@pytest.mark.slow
@pytest.mark.parametrize(
    ("log", "label"),
    [*((UNLABELLED[0], label) for label in LABELS), *((log, LABELS[0]) for log in UNLABELLED[1:])],
)
def test_labels_of_launchers_are_taken_off(log, label, tmp_path):
    lines = log.read_bytes().splitlines(True)
    assert_same(log, b"".join(label + line for line in lines), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("log", [log for log in UNLABELLED if log in REFERENCE])
def test_ranks_that_print_the_same_lines_count_once(log, tmp_path):
    data = log.read_bytes()
    ranks = [b"[1,%d]<stdout>:" % rank for rank in (1, 0, 3, 2)]
    lines = [rank + line.rstrip(b"\n") + b"\n" for line in data.splitlines(True) for rank in ranks]
    assert_same(log, b"".join(lines), tmp_path)


@pytest.mark.slow
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


@pytest.mark.slow
def test_decoys_are_not_read(log, tmp_path):
    lines = log.read_bytes().splitlines(True)
    chance = random.Random(2020)
    timed = max(lines, key=len).rstrip(b"\n") + b"\n"
    echoes = (prefix + timed for prefix in (b"+ echo ", b"> ", b"grep '", b"# e.g. ", b"| "))
    for decoy in (*(() if ranks_print(log) else echoes), *DECOYS * 3):
        lines.insert(chance.randrange(len(lines) - 1), decoy)
    assert_same(log, b"".join(lines), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        b"Traceback (most recent call last):",
        b"mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).",
        b"srun: error: n2: task 5: Exited with exit code 1",
        b"slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2022-01-01T00:00 DUE TO TIME LIMIT ***",
        b"step: 3 loss: nan",
        b"RuntimeError: CUDA out of memory. Tried to allocate 2 GiB",
    ],
)
def test_error_in_a_log_fails_it(line, tmp_path):
    log = LOGS[0]
    lines = log.read_bytes().splitlines(True)
    lines.insert(len(lines) * 4 // 5, line + b"\n")
    run = import_bytes(tmp_path, log, b"".join(lines))[-1]
    status = "oom" if b"memory" in line else "failed"
    assert (run.status, run.samples_per_s) == (status, None)


@pytest.mark.slow
def test_attempt_that_was_started_over_is_left_out_with_a_note(tmp_path):
    (log,) = (log for log in LOGS if log.name == "mxnet_gpu8_fp32_bs128.txt")
    data = log.read_bytes()
    lines = data.splitlines(True)
    runs = import_bytes(tmp_path, log, b"".join(lines[: len(lines) * 4 // 5]) + data)
    assert list_figures(runs) == list_figures(import_one(log, log))
    assert "earlier attempt" in runs[0].notes[0]


@pytest.mark.slow
def test_run_that_starts_over_without_saying_so_fails(tmp_path):
    (log,) = (log for log in LOGS if log.name == "base_bs96_fp32_gpu32.log")
    lines = log.read_bytes().splitlines(True)
    steps = [line for line in lines if line.startswith(b"tobal step")]
    (run,) = import_bytes(tmp_path, log, b"".join(lines[:-30] + steps))
    assert run.status == "failed"
    assert_problem(run.reason, says=("training", "back"))


@pytest.mark.slow
def test_mutated_logs_never_crash(log, tmp_path):
    lines = log.read_bytes().splitlines(True)
    if len(lines) > 600:
        lines = lines[:200] + lines[-400:]
    chance = random.Random(log.name)
    for _ in range(15):
        mutated = list(lines)
        for _ in range(20):
            index = chance.randrange(len(mutated))
            count, number = chance.randrange(1, 6), chance.choice(NUMBERS)
            mutated[index] = re.sub(rb"\d+", number, mutated[index], count=count)
        for run in import_bytes(tmp_path, log, b"".join(mutated)):
            assert run.status in ("ok", "failed", "oom", "incomplete", "contradictory")
            assert (run.status == "ok") == (run.samples_per_s is not None)
