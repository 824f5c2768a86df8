"""TOML files: lines of keys, names of keys, suggestions, layers and assignments."""

from pathlib import Path

import pytest
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.key_paths import _walk_paths, locate_keys
from dlperf_slurm.config.suggestions import check_known, suggest
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


def make_toml(text: str, label: str = "file.toml") -> TomlFile:
    return TomlFile(label, text, tomllib.loads(text))


class Inner(TomlModel):
    colour: str = "red"


class Outer(TomlModel):
    size: int = 1
    names: OneOrMore[str] = ()
    inner: Inner = Inner()


def find_mistakes(text: str) -> list[str]:
    reporter = ProblemCollector(make_toml(text))
    validate(Outer, reporter.toml.data, reporter)
    return [str(problem) for problem in reporter.problems]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, r"t\.toml: .*no such file"),
        (b'a = 1\nb = "unclosed\n', r"t\.toml: not valid TOML: .*line 2, column \d+"),
        (b"a = 1\na = 2\n", r"t\.toml: not valid TOML: .*line 2"),
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


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("axes",), 4),
        (("axes", "topology", 1), 5),
        (("axes", "when", "precision"), 9),
        (("axes", "text"), 10),
        (("note", 0, "a"), 15),
        (("note", 1, "a"), 17),
    ],
)
def test_key_is_found_on_the_line_of_its_statement(path, line):
    assert locate_keys(LOCATED)[path] == line


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


def test_nearest_name_alone_is_suggested():
    assert suggest("partion", ["account", "partition"]) == ". Did you mean 'partition'?"
    assert suggest("zzz", ["account", "partition"]) == ""
    with pytest.raises(ValueError, match=r"^'blu' is not a colour; known: blue, red"):
        check_known("blu", ["blue", "red"], "a colour")


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("[inner]\ncolor = 'red'", 2, "inner.color", ("mean 'colour'", "Known: colour")),
        ('size = "1"', 1, "size", ("'1'", "integer", ": 1")),
        ("size = true", 1, "size", ("true", "integer")),
        ("size = 2\ninner = 3", 2, "inner", ("3", "table")),
    ],
)
def test_mistake_says_where_what_and_what_is_allowed(text, line, key, says):
    (mistake,) = find_mistakes(f"{text}\n")
    assert_problem(mistake, file="file.toml", line=line, key=key, says=says)


def test_mistakes_of_a_file_are_reported_together():
    text = 'size = "1"\nnames = ["a", 2]\nnothing = 0\n[inner]\ncolour = 5\n'
    assert [m.split(": ")[0] for m in find_mistakes(text)] == [
        "file.toml:1", "file.toml:2", "file.toml:5", "file.toml:3",
    ]  # fmt: skip


def test_what_is_sound_is_still_returned():
    reporter = ProblemCollector(make_toml('size = 5\nnames = ["a", 2, "b"]\n'))
    assert validate(Outer, reporter.toml.data, reporter) == Outer(size=5, names=("a", "b"))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("max_nodes=4", {"max_nodes": 4}),
        ("launcher.name=mpirun", {"launcher": {"name": "mpirun"}}),
        ("exclusive=true", {"exclusive": True}),
        ('directives=["--mail-type=END"]', {"directives": ["--mail-type=END"]}),
        ("constraint=a100&nvlink", {"constraint": "a100&nvlink"}),
        ('time_limit_minutes."4n8g"=60', {"time_limit_minutes": {"4n8g": 60}}),
        ("env.A=a b", {"env": {"A": "a b"}}),
        ('env.A=say "hi" \\ \t', {"env": {"A": 'say "hi" \\ \t'}}),
        ("env.A=x=y", {"env": {"A": "x=y"}}),
        ("env.A=", {"env": {"A": ""}}),
        ("env.A=a\nb", {"env": {"A": "a\nb"}}),
        # no second key
        ("a=1\nb=2", {"a": "1\nb=2"}),
    ],
)
def test_assignment_is_toml_or_else_a_string(text, data):
    assert parse_assignment(text).data == data


@pytest.mark.parametrize("text", ["", "partition", "=gpu", " =gpu", "a b=1"])
def test_assignment_without_a_key_is_refused(text):
    with pytest.raises(InputError, match="--set"):
        parse_assignment(text)
