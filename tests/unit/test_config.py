"""TOML files: lines of keys, names of keys, suggestions, layers and assignments."""

from pathlib import Path

import pytest

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.key_paths import _walk_paths, locate_keys
from dlperf_slurm.config.toml_tables import (
    OneOrMore,
    ProblemCollector,
    TomlFile,
    TomlModel,
    parse_assignment,
    read_toml,
    tomllib,
    validate,
)
from dlperf_slurm.errors import InputError


class Inner(TomlModel):
    colour: str = "red"


class Outer(TomlModel):
    size: int = 1
    names: OneOrMore[str] = ()
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"t\.toml: .*no such file"),
        (b'a = 1\nb = "unclosed\n', r"t\.toml: not valid TOML: .*line 2, column \d+"),
        (b"a = '\xff\xfe'", r"t\.toml:1: not UTF-8: byte offset 5"),
        ("folder", r"t\.toml: .*regular file"),
    ],
)
def test_file_that_cannot_be_read_is_named_with_the_line(content, says):
    path = Path("t.toml")
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=says):
        read_toml(path)


LOCATED = """\
# comment
title = "x"

[axes]
topology = [
  "1n1g",
  "2n2g",
]
when = { precision = "fp32" }
text = '''
[not.a.table]
'''

[[note]]
a = 1
[[note]]
a = 2
"""


AWKWARD = (
    """\
'a.b'."c = 1" . d = [[1, ''']
[x
''', "]"], [2]] # [y]
e = {f = "[\\"", g = '{', h = {i = [{j = 1}]}}

  [[k.l]]  # first
m = """
    + '"""'
    + """
[[k.l]] \\"""
    + '""" "'
    + """
n = "a" """
    + '"""'
    + """
[k.l.o]
p = 1
[[k.l]]
[[k.l.q]]
r = 1979-05-27T07:32:00Z
[[k.l.q]]
"[s]" = 1
[t]
u.v = 1
u.w = [
  1, # [2
  2]
"""
)


def locate_by_prefixes(text):
    """Locate keys slowly: a key that is new in the first n lines was set by the last statement."""
    lines, found, start = text.split("\n"), {}, 0
    for end in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        for path in _walk_paths(data, ()):
            found.setdefault(path, start + 1)
        start = end
    return found


def list_shipped():
    folders = map(find_resource_dir, ("matrices", "site_configs"))
    return [path.read_text() for folder in folders for path in folder.glob("*.toml")]


@pytest.mark.parametrize("text", [LOCATED, AWKWARD, *list_shipped()])
def test_keys_are_where_the_parser_finds_them(text):
    assert locate_keys(text) == locate_by_prefixes(text)


def test_what_is_sound_is_still_returned():
    text = 'size = 5\nnames = ["a", 2, "b"]\ninner = 3\n'
    reporter = ProblemCollector(TomlFile("file.toml", text, tomllib.loads(text)))
    assert validate(Outer, reporter.toml.data, reporter) == Outer(size=5, names=("a", "b"))
    assert [str(problem) for problem in reporter.problems] == [
        "file.toml:2: names[1]: 2 is not a string; to make it a string, put it in quotes: "
        '"2" (in a shell: \'"2"\')',
        "file.toml:3: inner: 3 is not a table",
    ]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("launcher.name=mpirun", {"launcher": {"name": "mpirun"}}),
        ("exclusive=true", {"exclusive": True}),
        ('directives=["--mail-type=END"]', {"directives": ["--mail-type=END"]}),
        ("constraint=a100&nvlink", {"constraint": "a100&nvlink"}),
        ('time_limit_minutes."4n8g"=60', {"time_limit_minutes": {"4n8g": 60}}),
        ('env.A=say "hi" \\ \t', {"env": {"A": 'say "hi" \\ \t'}}),
        ("env.A=x=y", {"env": {"A": "x=y"}}),
        ("env.A=", {"env": {"A": ""}}),
        # no second key
        ("a=1\nb=2", {"a": "1\nb=2"}),
    ],
)
def test_assignment_is_toml_or_else_a_string(text, data):
    assert parse_assignment(text).data == data


@pytest.mark.parametrize("text", ["partition", " =gpu", "a b=1"])
def test_assignment_without_a_key_is_refused(text):
    with pytest.raises(InputError, match="--set"):
        parse_assignment(text)
