"""What is told of a folder while it is being filled."""

import threading

from dlperf_slurm.provision.datasets.progress import report_progress


def test_files_and_bytes_are_told_while_they_become_more(tmp_path):
    heard = []
    is_told = threading.Event()

    def report(line):
        heard.append(line)
        is_told.set()

    with report_progress(tmp_path, report, news_seconds=0.01):
        (tmp_path / "train").mkdir()
        (tmp_path / "train" / "1.jpeg").write_bytes(bytes(1_500_000))
        for _ in range(2):
            is_told.clear()
            assert is_told.wait(20)
    assert heard[-1].startswith("1 files, 1.5 MB so far, ")
    count = len(heard)
    assert not threading.Event().wait(0.05)
    assert len(heard) == count


def test_what_is_fast_is_not_told(tmp_path):
    heard = []
    with report_progress(tmp_path, heard.append):
        (tmp_path / "one").touch()
    assert heard == []
