"""TOML files: lines of keys, names of keys, suggestions, layers and assignments."""

from pathlib import Path

import pytest
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.key_paths import _walk_paths, drop_indices, format_key, locate_keys
from dlperf_slurm.config.known_names import check_known, suggest
from dlperf_slurm.config.layers import Layer, merge_layers
from dlperf_slurm.config.toml_tables import (
    OneOrMore,
    Reporter,
    Table,
    TomlFile,
    parse_assignment,
    read_toml,
    tomllib,
    validate,
)
from dlperf_slurm.errors import InputError


def make_toml(text: str, label: str = "file.toml") -> TomlFile:
    return TomlFile(label, text, tomllib.loads(text))


class Inner(Table):
    colour: str = "red"


class Outer(Table):
    size: int = 1
    names: OneOrMore[str] = ()
    inner: Inner = Inner()


def find_mistakes(text: str) -> list[str]:
    reporter = Reporter(make_toml(text))
    validate(Outer, reporter.toml.data, reporter)
    return [str(problem) for problem in reporter.problems]


def test_missing_file_is_named():
    with pytest.raises(InputError) as caught:
        read_toml(Path("nowhere.toml"))
    assert_problem(caught.value, file="nowhere.toml", says=("no such file",))


def test_syntax_error_has_file_line_and_column():
    Path("bad.toml").write_text('a = 1\nb = "unclosed\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.toml: not TOML: .*line 2, column \d+"):
        read_toml(Path("bad.toml"))


def test_key_set_twice_is_a_syntax_error_with_its_line():
    Path("twice.toml").write_text("a = 1\na = 2\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"twice\.toml: not TOML: .*line 2"):
        read_toml(Path("twice.toml"))


def test_file_that_is_not_text_is_refused():
    Path("binary.toml").write_bytes(b"a = '\xff\xfe'")
    with pytest.raises(InputError, match=r"binary\.toml:1: not UTF-8: byte 5"):
        read_toml(Path("binary.toml"))


def test_folder_in_place_of_a_file_is_refused():
    Path("folder.toml").mkdir()
    with pytest.raises(InputError) as caught:
        read_toml(Path("folder.toml"))
    assert_problem(caught.value, file="folder.toml", says=("regular file",))


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
    """The same, slowly: what is new in the first so many lines was set by the last statement."""
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


def test_text_in_a_string_is_no_key():
    assert ("not",) not in locate_keys(LOCATED)


def test_key_of_a_list_has_an_index():
    assert format_key(("axes", "framework", 1)) == "axes.framework[1]"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("axes", "framework", 0), ("axes", "framework")),
        (("model", 0, "name"), ("model", "name")),
        (("note", 1, "text"), ("note", 1, "text")),
    ],
)
def test_key_of_a_single_value_in_place_of_a_list_has_no_index(path, expected):
    data = {"axes": {"framework": "a"}, "model": {"name": "x"}, "note": [{}, {"text": "y"}]}
    assert drop_indices(path, data) == expected


def test_nearest_name_is_suggested():
    assert suggest("partion", ["account", "partition"]) == ". Did you mean 'partition'?"


def test_far_name_is_not_suggested():
    assert suggest("zzz", ["account", "partition"]) == ""


def test_unknown_value_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"^'blu' is not") as caught:
        check_known("blu", ["blue", "red"], "a colour")
    assert_problem(caught.value, says=("a colour", "known: blue, red", "mean 'blue'"))


def test_unknown_key_lists_the_known_ones_and_the_nearest():
    (mistake,) = find_mistakes("[inner]\ncolor = 'red'\n")
    assert mistake == (
        "file.toml:2: inner.color: unknown key. Did you mean 'colour'? Known: colour"
    )


def test_wrong_type_is_not_converted():
    (mistake,) = find_mistakes('size = "1"\n')
    assert_problem(mistake, file="file.toml", line=1, key="size", says=("'1'", "integer", ": 1"))


def test_boolean_is_not_an_integer():
    (mistake,) = find_mistakes("size = true\n")
    assert_problem(mistake, file="file.toml", line=1, key="size", says=("true", "integer"))


def test_mistakes_of_a_file_are_reported_together():
    text = 'size = "1"\nnames = ["a", 2]\nnothing = 0\n[inner]\ncolour = 5\n'
    assert [m.split(": ")[0] for m in find_mistakes(text)] == [
        "file.toml:1", "file.toml:2", "file.toml:5", "file.toml:3",
    ]  # fmt: skip


def test_value_in_place_of_a_table_is_reported_at_its_line():
    (mistake,) = find_mistakes("size = 2\ninner = 3\n")
    assert_problem(mistake, file="file.toml", line=2, key="inner", says=("3", "table"))


def test_what_is_sound_is_still_returned():
    reporter = Reporter(make_toml('size = 5\nnames = ["a", 2, "b"]\n'))
    assert validate(Outer, reporter.toml.data, reporter) == Outer(size=5, names=("a", "b"))


def test_single_value_stands_for_a_list_of_one():
    reporter = Reporter(make_toml('names = "a"\n'))
    assert validate(Outer, reporter.toml.data, reporter) == Outer(names=("a",))


def test_later_layer_wins_key_by_key():
    merged, _ = merge_layers(
        [Layer(make_toml("a = 1\n[t]\nx = 1\ny = 1\n")), Layer(make_toml("[t]\ny = 2\n"))]
    )
    assert merged == {"a": 1, "t": {"x": 1, "y": 2}}


def test_source_of_a_value_is_the_layer_that_set_it_last():
    layers = [Layer(make_toml("[t]\nx = 1\ny = 1\n", "a")), Layer(make_toml("[t]\ny = 2\n", "b"))]
    assert merge_layers(layers)[1] == {("t", "x"): "a", ("t", "y"): "b"}


def test_list_of_a_later_layer_replaces_the_whole_list():
    merged, _ = merge_layers([Layer(make_toml("a = [1, 2]\n")), Layer(make_toml("a = [3]\n"))])
    assert merged == {"a": [3]}


def test_layer_of_a_table_is_named_with_its_file():
    layer = Layer(make_toml("[slurm]\npartition = 'gpu'\n", "m.toml"), ("slurm",))
    assert (layer.name, layer.data) == ("m.toml [slurm]", {"partition": "gpu"})


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
    ],
)
def test_assignment_is_toml_or_else_a_string(text, data):
    assert parse_assignment(text).data == data


@pytest.mark.parametrize("text", ["", "partition", "=gpu", " =gpu", "a b=1"])
def test_assignment_without_a_key_is_refused(text):
    with pytest.raises(InputError, match="--set"):
        parse_assignment(text)


def test_assignment_cannot_bring_in_a_second_key():
    assert parse_assignment("a=1\nb=2").data == {"a": "1\nb=2"}
