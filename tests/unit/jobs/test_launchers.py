"""Launchers: the words of the command that starts the ranks."""

from importlib import import_module

import pytest

from dlperf_slurm.config.site import LauncherOptions, list_launchers
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.jobs import launchers
from dlperf_slurm.jobs.launchers import Ranks, make_command

PROGRAM = ["python", "-m", "worker"]


def make_ranks(topology="2n8g", flags=()) -> Ranks:
    return Ranks(parse_topology(topology), cpus_per_rank=4, mpi="pmix", flags=flags)


def test_srun_says_the_whole_shape_again():
    assert make_command("srun", make_ranks(), PROGRAM) == [
        "srun",
        "--nodes=2",
        "--ntasks=16",
        "--ntasks-per-node=8",
        "--cpus-per-task=4",
        "--mpi=pmix",
        "--kill-on-bad-exit=1",
        *PROGRAM,
    ]


def test_srun_flags_come_after_ours_so_that_they_win():
    words = make_command("srun", make_ranks(flags=("--kill-on-bad-exit=0",)), PROGRAM)
    assert words[-5:] == ["--kill-on-bad-exit=1", "--kill-on-bad-exit=0", *PROGRAM]


def test_mpirun_places_the_ranks_of_the_topology():
    assert make_command("mpirun", make_ranks(), PROGRAM) == [
        *("mpirun", "-np", "16"),
        *("--map-by", "ppr:8:node:OVERSUBSCRIBE", "--bind-to", "none"),
        *PROGRAM,
    ]


def test_mpirun_flags_replace_the_placement():
    words = make_command("mpirun", make_ranks(flags=("--map-by", "socket")), PROGRAM)
    assert words == ["mpirun", "-np", "16", "--map-by", "socket", *PROGRAM]


@pytest.mark.parametrize("name", ["srun", "mpirun"])
def test_words_with_spaces_stay_single_words(name):
    words = make_command(name, make_ranks(flags=("--a b",)), ["a b", "c'd"])
    assert words[-3:] == ["--a b", "a b", "c'd"]


def test_site_offers_the_launchers_that_are_there():
    schema = LauncherOptions.model_json_schema()
    assert schema["properties"]["name"]["enum"] == list_launchers()
    assert {"mpirun", "srun"} <= set(list_launchers())


def test_launcher_is_one_file_found_by_listing(tmp_path, monkeypatch):
    (tmp_path / "torchrun.py").write_text("def make_command(ranks, program): return ['torchrun']")
    monkeypatch.setattr(launchers, "__path__", [str(tmp_path)])
    assert make_command("torchrun", make_ranks(), PROGRAM) == ["torchrun"]


@pytest.mark.parametrize("name", list_launchers())
def test_launcher_needs_nothing_but_its_function(name):
    assert callable(import_module(f"dlperf_slurm.jobs.launchers.{name}").make_command)
