"""What the files of a start say of it."""

import pytest
from builders import find_task

from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.scheduler.state import FAILED, StartFiles
from dlperf_slurm.scheduler.task_facts import read_files


@pytest.mark.parametrize(
    ("content", "stopped"), [(b"TIMEOUT", "TIMEOUT"), (b"\xff\xfe", FAILED), (None, "")]
)
def test_marker_of_a_stopped_task_is_read_unless_it_is_gone(staged_run, content, stopped):
    task = find_task(staged_run, "1n1g")
    folder = staged_run.path / MARKERS_DIR
    folder.mkdir(exist_ok=True)
    if content is not None:
        (folder / f"{task.marker}.killed").write_bytes(content)
    assert read_files(staged_run, task, 0, frozenset({"killed"})) == StartFiles(stopped=stopped)
