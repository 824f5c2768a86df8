"""Logs of `mpirun --tag-output`, which passes on the blocks that ranks flush, as they come."""

import pytest
from log_excerpts import read_all, split_content
from reference_logs import import_bytes, list_figures, list_reference_logs

from dlperf_slurm.logs.runs import ImportOptions, import_log

LOGS = [log for log in list_reference_logs() if "mxnet" not in log.name]


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
@pytest.mark.parametrize("log", LOGS, ids=lambda log: "/".join(log.parts[-2:]))
def test_two_ranks_blocks_are_one_run_with_the_figures_of_one(log, block_bytes, tmp_path):
    data = log.read_bytes().replace(b"\r\n", b"\n")
    whole = list_figures(import_log(log, ImportOptions()))
    runs = import_bytes(tmp_path, log, interleave([data, data], block_bytes))
    assert list_figures(runs) == whole


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


def test_what_only_another_rank_told_is_not_lost():
    other = ["[1,1]<stdout>:INFO:root:Namespace(num_steps=6, batch_size=4, gpus=None)"]
    timed = [line for rank in (0, 1) for line in list(_list_rank_lines(rank, 1))[1:]]
    (reading,) = read_all("gluonnlp_bert", other + timed)
    assert reading.identity.batch_size_per_device == 4


def test_a_byte_order_mark_costs_no_line(tmp_path):
    log = LOGS[0]
    lines = log.read_bytes()
    (run,) = import_bytes(tmp_path, log, b"\xef\xbb\xbf" + lines)
    assert list_figures([run]) == list_figures(import_log(log, ImportOptions()))
    (line,) = split_content(b"\xef\xbb\xbf[1,3]<stdout>:loss 1\n")
    assert (line.rank, line.text) == (3, "loss 1")
