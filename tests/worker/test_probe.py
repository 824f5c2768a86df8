"""What a rank that measures nothing finds, and that it fails of none of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.attempts import CASE
from support.cases import vary

from dlperf_slurm.contract.case import CASE_FILE
from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.worker.probe import ANSWER_PREFIX, MODULE_FILE, probe_rank
from dlperf_slurm.worker.rendezvous import RendezvousSettings

CHECKOUT = Path(__file__).resolve().parents[2]
WITHOUT_MPI = RendezvousSettings(ranks="torchrun")
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}
# neither module would be there in all Pythons that these tests run in
FRAMEWORK = '__version__ = "7.1"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make the folder of an attempt on one rank, with the framework `aframework`."""
    write_json(tmp_path / CASE_FILE, vary(CASE, nodes=1, devices_per_node=1, device="cpu"))
    (tmp_path / MODULE_FILE).write_text("aframework")
    (tmp_path / "aframework.py").write_text(FRAMEWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "aframework", raising=False)
    for name, value in {**ALONE, "TORCHELASTIC_RUN_ID": "x"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def read_answer(folder):
    (path,) = folder.glob(f"{ANSWER_PREFIX}*.json")
    return json.loads(path.read_text())


def test_rank_tells_its_place_its_cores_and_the_framework(folder):
    assert probe_rank(folder, WITHOUT_MPI) == 0
    answer = read_answer(folder)
    assert (answer["rank"], answer["world_size"], answer["version"]) == (0, 1, "7.1")
    assert answer["cores"] == sorted(os.sched_getaffinity(0))
    assert answer["is_done"] is True
    assert "gpus" not in answer


def test_rank_whose_launcher_or_framework_is_not_there_says_so_and_goes_on(folder, monkeypatch):
    monkeypatch.delenv("RANK")
    (folder / MODULE_FILE).write_text("noframework")
    assert probe_rank(folder, WITHOUT_MPI) == 0
    answer = read_answer(folder)
    assert answer["join_error"].startswith("PlacementError: ")
    assert answer["import_error"].startswith("ModuleNotFoundError: ")
    assert answer["is_done"] is True


@pytest.fixture
def on_gpus(folder):
    write_json(folder / CASE_FILE, vary(CASE, nodes=1, devices_per_node=1, device="cuda"))


@pytest.mark.parametrize(
    ("visible", "count"), [(None, 2), ("0", 1), ("", 0), ("0,1,2", 2), ("-1", 0), ("0,-1,1", 1)]
)
def test_driver_is_asked_for_what_the_process_may_see(folder, on_gpus, monkeypatch, visible, count):
    monkeypatch.setenv("PATH", str(folder))
    assert probe_rank(folder, WITHOUT_MPI) == 0
    # there is no driver to ask
    assert read_answer(folder)["gpus"] == 0
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU 0: A (UUID: a)'\necho 'GPU 1: A (UUID: b)'\n")
    program.chmod(0o755)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert probe_rank(folder, WITHOUT_MPI) == 0
    assert read_answer(folder)["gpus"] == count


@pytest.mark.parametrize(
    ("visible", "capabilities"), [(None, ["7.0", "9.0"]), ("1", ["9.0"]), ("", [])]
)
def test_driver_tells_what_code_the_gpus_run(
    folder, on_gpus, monkeypatch, fake_nvml, visible, capabilities
):
    fake_nvml(
        *(
            {"UUID": f"GPU-{index}", "CudaComputeCapability": [capability]}
            for index, capability in enumerate([(7, 0), (9, 0), (9, 0)])
        )
    )
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert probe_rank(folder, WITHOUT_MPI) == 0
    answer = read_answer(folder)
    assert (answer["cuda"], answer["capabilities"]) == (12040, capabilities)


def test_answer_is_kept_of_a_rank_that_dies_while_it_imports(folder):
    (folder / "aframework.py").write_text("import os\nos._exit(139)\n")
    command = [sys.executable, "-m", "dlperf_slurm.worker", "probe", "--ranks=torchrun"]
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", ""), str(CHECKOUT)])
    env = {**os.environ, "PYTHONPATH": path}
    assert subprocess.run([*command, str(folder)], env=env).returncode == 139
    answer = read_answer(folder)
    assert answer["rank"] == 0
    assert "is_done" not in answer
