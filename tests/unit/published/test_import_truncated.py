"""A log that ends early is incomplete, or failed: never with our figure, of a shorter window."""

import gzip

import pytest
from reference_logs import (
    import_bytes,
    import_one,
    list_all_logs,
    list_figures,
    list_reference_logs,
)
from support.problems import assert_problem

LOGS = list_all_logs()


def list_cuts(data):
    """Every 5 %, and at, before and inside the ends of lines, most of them of the last ones."""
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    chosen = ends[:: max(1, len(ends) // 12)] + ends[-12:]
    cuts = {len(data) * part // 20 for part in range(20)} | {
        end - back for end in chosen for back in (0, 1, 3, 9)
    }
    return sorted(cut for cut in cuts if 0 <= cut < len(data))


@pytest.mark.slow
@pytest.mark.parametrize("log", LOGS, ids=lambda log: "/".join(log.parts[-2:]))
def test_cut_log_fails_or_tells_the_figures_of_the_whole(log, tmp_path):
    data = log.read_bytes()
    whole = list_figures(import_one(log, log))
    failures = 0
    for cut in list_cuts(data):
        runs = import_bytes(tmp_path, log, data[:cut])
        for index, run in enumerate(runs):
            if run.status == "ok":
                # MegEngine's first epoch is our whole figure, and not its publisher's
                compared = 2 if "megengine_models" in log.parts else 3
                assert list_figures([run])[0][:compared] == whole[index][:compared], cut
            else:
                failures += 1
                assert run.samples_per_s is None, cut
                assert run.publisher_samples_per_s is None or run.status == "incomplete", cut
                assert run.reason
                assert "\n" not in run.reason
    assert failures >= 10


@pytest.mark.parametrize("log", list_reference_logs(), ids=lambda log: "/".join(log.parts[-2:]))
def test_half_a_log_fails(log, tmp_path):
    data = log.read_bytes()
    last = import_bytes(tmp_path, log, data[: len(data) // 2])[-1]
    assert last.status in ("failed", "incomplete")
    assert last.samples_per_s is None


def test_lines_lost_before_the_launchers_end_fail(tmp_path):
    (log,) = (log for log in LOGS if log.name.startswith("PaddleClas"))
    lines = log.read_bytes().splitlines(keepends=True)
    *_, stopped = (index for index, line in enumerate(lines) if b"Exit with signal" in line)
    (run,) = import_bytes(tmp_path, log, b"".join(lines[: stopped + 1]))
    assert run.status == "incomplete"
    assert_problem(run.reason, says=("stopped 31 s after",))


def test_gzip_that_was_cut_cannot_be_read(tmp_path):
    data = gzip.compress(LOGS[0].read_bytes())
    (run,) = import_bytes(tmp_path, LOGS[0], data[: len(data) // 2])
    assert run.status == "failed"
    assert "cannot be read" in run.reason


@pytest.mark.parametrize("data", [b"", b"\n\n  \n"])
def test_empty_log_fails(data, tmp_path):
    (run,) = import_bytes(tmp_path, LOGS[0], data)
    assert run.status == "failed"
    assert_problem(run.reason, says=("empty",))
