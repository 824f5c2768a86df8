"""`assert_problem` rejects a message with another place or without a required word."""

import pytest
from support.problems import assert_problem

MESSAGE = "matrix.toml:4: axes.framework: 'jaxx' is not a framework; known: jax, pytorch-cuda"
SOUND = {"file": "matrix.toml", "line": 4, "key": "axes.framework", "says": ("'jaxx'", "jax")}


@pytest.mark.parametrize(
    "before", ["", "dlperf-slurm: error: ", "usage: x\ndlperf-slurm a: error: "]
)
def test_message_with_its_place_and_its_words_is_right(before):
    assert_problem(before + MESSAGE, **SOUND)


@pytest.mark.parametrize(
    "wrong",
    [
        {"file": "site.toml"},
        {"line": 5},
        {"key": "axes.framework[0]"},
        {"says": ("mxnet",)},
        # a word that occurs only in the place
        {"says": ("matrix.toml",)},
    ],
)
def test_message_about_another_place_or_without_a_word_is_wrong(wrong):
    with pytest.raises(AssertionError, match=r"not about|does not say"):
        assert_problem(MESSAGE, **{**SOUND, **wrong})
