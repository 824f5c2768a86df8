"""Words that people try: commands and options of other tools, misspelt ones, and `help`."""

from contextlib import suppress

import pytest

from dlperf_slurm.cli import main


def run_wrong(words, capsys):
    """Run a command line that argparse refuses; return what it prints to standard error."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "usage", "meant"),
    [
        (["statu"], "dlperf-slurm ", "'status'"),
        (["squeue"], "dlperf-slurm ", "'status'"),
        # the beginning of an option is not that option
        (["plan", "m.toml", "--sit", "local"], "dlperf-slurm plan ", "'--site'"),
        (["status", "--resul=x"], "dlperf-slurm status ", "'--results'"),
        (["env", "crate"], "dlperf-slurm env ", "'create'"),
        (["report", "--layout", "nvdia"], "dlperf-slurm report ", "'nvidia'"),
        (["env", "create", "--horovd"], "dlperf-slurm env create ", "'--horovod'"),
        (["plan", "m", "--partition", "gpu"], "dlperf-slurm plan ", "'--set partition=gpu'"),
        (["plan", "m", "--time", "9"], "dlperf-slurm plan ", "'--set time_limit_minutes.default=9"),
    ],
)
def test_wrong_word_has_the_usage_of_its_command_and_the_word_that_is_meant(
    words, usage, meant, capsys
):
    err = run_wrong(words, capsys)
    assert (err.startswith(f"usage: {usage}"), f"Did you mean {meant}" in err) == (True, True)


@pytest.mark.parametrize("words", [["xyzzy"], ["status", "--xyzzy"], ["status", "a", "b"]])
def test_word_that_is_like_none_has_no_suggestion(words, capsys):
    assert "Did you mean" not in run_wrong(words, capsys)


@pytest.mark.parametrize("value", ["repeats=3", "walltime=9"])
def test_setting_without_its_table_names_the_key_that_is_meant(value, home, capsys):
    (home / "m.toml").touch()
    assert main(["plan", "m.toml", "--set", value]) == 2
    keys = {"repeats=3": "'protocol.repeats'", "walltime=9": "'time_limit_minutes.default'"}
    assert f"Did you mean {keys[value]}?" in capsys.readouterr().err


def test_help_is_the_option_help_of_a_command(capsys):
    printed = []
    for line in (["help", "env", "create"], ["env", "create", "--help"]):
        with suppress(SystemExit):
            main(line)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != ""
