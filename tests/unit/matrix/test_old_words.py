"""Words that matrices had before: still read, with a line on standard error that has today's."""

import pytest
from builders import write_matrix

from dlperf_slurm.errors import InputError
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix

HEAD = """\
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = "1n1g"
batch_size_per_device = 8
"""
SCRIPT = """\
command = "true"
format = "horovod_synthetic"
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def expand(lines):
    return expand_matrix(read_matrix(write_matrix(HEAD + lines)))


@pytest.mark.parametrize(
    ("old", "new", "warnings"),
    [
        (
            'update = "replicated"\n',
            'gradient_sync = "native"\n',
            [
                "matrix.toml:7: axes.gradient_sync: is the new word for update",
                "matrix.toml:7: axes.gradient_sync: 'native' is the new word for 'replicated'",
            ],
        ),
        (
            'distribution = ["native", "horovod"]\n',
            'gradient_sync = ["native", "horovod"]\n',
            ["matrix.toml:7: axes.gradient_sync: is the new word for distribution"],
        ),
        (
            'mode = ["train", "val"]\n',
            'mode = ["train", "infer"]\n',
            ["matrix.toml:7: axes.mode[1]: 'infer' is the new word for 'val'"],
        ),
        (
            "[protocol]\nbatch_granularity = 4\n",
            "[protocol]\nbatch_size_step = 4\n",
            ["matrix.toml:8: protocol.batch_size_step: is the new word for batch_granularity"],
        ),
        (
            f'source = "theirs"\n[sources.theirs]\nstart = "ranks"\n{SCRIPT}',
            f'script = "theirs"\n[scripts.theirs]\nlaunch = "per-rank"\n{SCRIPT}',
            [
                "matrix.toml:7: axes.script: is the new word for source",
                "matrix.toml:8: scripts: is the new word for sources",
                "matrix.toml:9: scripts.theirs.launch: is the new word for start",
                "matrix.toml:9: scripts.theirs.launch: 'per-rank' is the new word for 'ranks'",
            ],
        ),
        (
            '[[include]]\nupdate = "horovod"\n[[exclude]]\nwhen = { update = "native" }\n',
            '[[include]]\ngradient_sync = "horovod"\n'
            '[[exclude]]\nwhen = { gradient_sync = "native" }\n',
            ["matrix.toml:8: include[0].gradient_sync: is the new word for update"],
        ),
    ],
)
def test_old_words_mean_the_new_ones_and_are_named_once(old, new, warnings, capsys):
    expected = expand(new)
    assert capsys.readouterr().err == ""
    assert expand(old) == expected
    told = capsys.readouterr().err.splitlines()
    assert told == [f"warning: {warning}" for warning in warnings]


COMMAND = "[scripts.theirs]\nformat = 'horovod_synthetic'\ncommand = '''{}'''\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("./train --update {{ update }}", "./train --update {{ gradient_sync }}"),
        ("{% if distribution == 'update' %}./train{% endif %}",
         "{% if gradient_sync == 'update' %}./train{% endif %}"),
        ('{{ parameters.update }}{{"source"}}{{source}}',
         '{{ parameters.update }}{{"source"}}{{script}}'),
    ],
)  # fmt: skip
def test_old_words_of_a_command_s_variables_are_translated_and_named(old, new, capsys):
    lines = 'script = "theirs"\n'
    expected = expand(lines + COMMAND.format(new))
    assert capsys.readouterr().err == ""
    assert expand(lines + COMMAND.format(old)) == expected
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: matrix.toml:10: scripts.theirs.command: {{ ")
    assert " }} is the new word for {{ " in warning


def test_rules_and_overrides_know_old_words_too(capsys):
    lines = (
        '[[override]]\nwhen = {{ {0} = "{1}" }}\n[override.protocol]\nrepeats = 3\n'
        '[[note]]\nwhen = {{ {0} = "{1}" }}\ntext = "x"\n'
    )
    assert expand(lines.format("mode", "val")) == expand(lines.format("mode", "infer"))
    assert expand(lines.format("update", "native")) == expand(
        lines.format("gradient_sync", "native")
    )
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.parametrize("lines", ['update = "horovod"\ndistribution = "native"\n',
                                   'update = "horovod"\ngradient_sync = "native"\n'])  # fmt: skip
def test_both_words_at_once_are_a_mistake(lines):
    with pytest.raises(InputError, match="is called gradient_sync now, which is there too"):
        expand(lines)


def test_mistake_in_an_old_word_has_its_line():
    with pytest.raises(InputError, match=r"toml:7: axes\.gradient_sync: 'hovorod' is not a"):
        expand('update = "hovorod"\n')
