"""tensorpack's script as a source: its arguments, and the matrix that ships with it."""

import re
import shlex
import subprocess
import sys

import pytest
from builders import make_site

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.jobs.plan import resolve
from dlperf_slurm.jobs.stage import freeze_code
from dlperf_slurm.jobs.task_tables import render_external_script
from dlperf_slurm.logs.windows import drop_warmup
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.worker.models.resnet50 import Definition
from dlperf_slurm.worker.scripts.tensorpack.resnet50 import choose_epoch_steps, parse_arguments

MODULE = "dlperf_slurm.worker.scripts.tensorpack.resnet50"
ASKED = ("--data", "device", "--update", "replicated", "--batch", "8", "--device", "cpu")


def list_script_cases():
    """Of the shipped matrix those that are the script's."""
    file = read_matrix(find_resource_dir("matrices") / "tensorpack.toml")
    plan = resolve(expand_matrix(file), make_site(), max_array_size=1001)
    return [case for case in plan.cases if case.script_table is not None]


def read_script_arguments(case):
    """Return the arguments that bash would pass to the script's module."""
    script = render_external_script(case, case.script_table, repeat=1, device="cpu").replace(
        "\\\n", " "
    )
    (line,) = (line for line in script.splitlines() if MODULE in line)
    words = shlex.split(line)
    return words[words.index(MODULE) + 1 :]


def test_shipped_matrix_plans_every_place_of_data_on_one_and_two_devices_and_horovod():
    planned = {
        (case.axes.gradient_sync, str(case.topology), case.axes.data)
        for case in list_script_cases()
    }
    places = ("device", "host", "python-queue")
    assert planned == {
        *(("native", topology, data) for topology in ("1n1g", "1n2g") for data in places),
        ("horovod", "1n2g", "device"),
    }


def test_script_understands_the_shipped_matrix_as_its_cases():
    for case in list_script_cases():
        settings = parse_arguments(read_script_arguments(case))
        is_horovod = case.axes.gradient_sync == "horovod"
        assert settings.update == ("horovod" if is_horovod else "replicated")
        assert settings.data == case.axes.data
        assert settings.devices == (1 if is_horovod else case.topology.devices_per_node)
        assert settings.batch_size_per_device == case.axes.batch_size_per_device
        assert settings.definition == Definition(**case.model_parameters)
        # the first epoch is the warm-up
        assert settings.epoch_steps * (settings.epochs - 1) == case.protocol.measured_steps


def test_frozen_code_has_all_that_the_script_needs_to_read_its_arguments(home):
    freeze_code(home)
    command = [sys.executable, "-m", MODULE, *ASKED, "--devices", "0"]
    done = subprocess.run(
        command, cwd=home, env={"PYTHONPATH": str(home / "code")}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "argument --devices: '0' " in done.stderr


@pytest.mark.parametrize("warmup_steps", [0, 1, 3, 5, 20, 30])
@pytest.mark.parametrize("measured_steps", [1, 2, 10, 40, 97, 100, 1000])
def test_reader_of_the_log_finds_the_measured_steps_after_all_of_the_warm_up(
    warmup_steps, measured_steps
):
    steps = ["--warmup-steps", str(warmup_steps), "--measured-steps", str(measured_steps)]
    settings = parse_arguments([*ASKED, *steps])
    kept = drop_warmup([(settings.epoch_steps, 1.0)] * settings.epochs)
    assert len(kept) == settings.epochs - 1
    assert settings.epoch_steps >= warmup_steps
    assert sum(count for count, _ in kept) == max(measured_steps, warmup_steps)


@pytest.mark.parametrize(
    ("warmup_steps", "measured_steps", "epoch_steps"),
    [(20, 100, 20), (5, 40, 20), (20, 97, 97), (30, 100, 50), (20, 1000, 20)],
)
def test_epochs_are_no_longer_than_they_must_be(warmup_steps, measured_steps, epoch_steps):
    assert choose_epoch_steps(warmup_steps, measured_steps) == epoch_steps


def test_threads_are_those_that_the_job_gives_a_rank(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "6")
    assert parse_arguments(ASKED).cpus_per_device == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--update", "horovod", "--devices", "2"], "--devices 2: with --update horovod "),
        (["--data", "python", "--devices", "2"], "use python-queue"),
        (["--data", "folder"], "argument --data: invalid choice: 'folder'"),
        (["--batch", "-8"], "argument --batch: '-8' .*1"),
        (["--batch", "8.5"], "argument --batch: '8.5' .*1"),
        (["--warmup-steps", "-1"], "argument --warmup-steps: '-1' .*0"),
        (
            ["--image-size", "16", "--update", "horovod", "--devices", "2"],
            r"image_size is 16; allowed: 32 or more(.|\n)*--devices 2",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(changes, message, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_arguments([*ASKED, *changes])
    assert caught.value.code == 2
    assert re.search(message, capsys.readouterr().err)
