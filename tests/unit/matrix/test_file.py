"""Matrix files: what they and the schemas accept, and every mistake at once with its place."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from builders import SMALL_MATRIX, write_matrix
from jsonschema import Draft202012Validator
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.toml_tables import parse_toml
from dlperf_slurm.errors import InputError
from dlperf_slurm.logs import list_formats, load_format
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import make_schema, read_matrix
from dlperf_slurm.matrix.tables import Matrix
from dlperf_slurm.matrix.value_types import list_choices
from dlperf_slurm.worker.frameworks import list_frameworks

# what a condition may ask of beside the axes
CONDITIONS = ", ".join(sorted([*AXES, "devices_per_node", "model", "nodes", "world_size"]))
FRAMEWORKS = ", ".join(list_frameworks())

SOUND = """\
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = "1n1g"
batch_size_per_device = 8
"""

MANY_MISTAKES = """\
title = 3

[model]
name = "resnet5"

[axes]
framework = "pytroch"
topology = ["0n8g", "2n8g"]
precison = "fp32"
batch_size_per_device = []
compiler = ["none", "torch.compile", "none"]

[protocol]
repeats = 0
measured_steps = "100"

[[override]]
when = { precision = "amp-fp15" }
batch_size_per_device = 256

[[exclude]]
reason = "no condition"

[slurm]
partion = "gpu"
"""


def read_mistakes(text: str) -> list[str]:
    """Return the lines of the one error message about a matrix."""
    with pytest.raises(InputError) as caught:
        read_matrix(write_matrix(text))
    return str(caught.value).splitlines()


def replace_line(key: str, line: str) -> str:
    """Return the valid matrix with another line for a key."""
    return "\n".join(line if old.startswith(key) else old for old in SOUND.splitlines())


def test_all_mistakes_of_a_file_come_in_one_answer():
    assert [line.split(": ")[:2] for line in read_mistakes(MANY_MISTAKES)] == [
        ["matrix.toml:1", "title"],
        ["matrix.toml:4", "model.name"],
        ["matrix.toml:7", "axes.framework"],
        ["matrix.toml:8", "axes.topology[0]"],
        ["matrix.toml:9", "axes.precison"],
        ["matrix.toml:10", "axes.batch_size_per_device"],
        ["matrix.toml:11", "axes.compiler"],
        ["matrix.toml:14", "protocol.repeats"],
        ["matrix.toml:15", "protocol.measured_steps"],
        ["matrix.toml:18", "override[0].when.precision"],
        ["matrix.toml:21", "exclude[0].when"],
        ["matrix.toml:25", "slurm.partion"],
    ]


@pytest.mark.parametrize("command", [["plan"], ["submit", "--wait"]])
def test_malformed_matrix_exits_with_2_and_writes_nothing(command):
    write_matrix(MANY_MISTAKES)
    before = sorted(Path().iterdir())
    assert main([*command, "matrix.toml", "--site", "local"]) == 2
    assert sorted(Path().iterdir()) == before


TWO_MODELS = SOUND.replace(
    '[model]\nname = "resnet50"\n',
    '[[model]]\nname = "resnet50"\nimage_size = 64\n[[model]]\nname = "bert"\nlayers = 2\n',
)
LLAMA = SOUND.replace('"resnet50"', '"llama"\npreset = "llama-3-8b"')
BERT = SOUND.replace('"resnet50"', '"bert"\nhidden_size = 96\nheads = 4')
SOURCES = f"""{SOUND}script = ["worker", "official"]
[scripts.official]
command = "python train.py -b {{{{ batch_size_per_device }}}}"
format = "tf_cnn_benchmarks"
"""
AXES_BEGIN = SOUND.index("[axes]")
SCRIPT = "command = 'x'\nformat = 'tf_cnn_benchmarks'\n[scripts.official]"


def set_axis(line: str) -> str:
    return replace_line(line.split(" ")[0], line)


def add_axis(line: str) -> str:
    return f"{SOUND}{line}\n"


def set_parameter(line: str) -> str:
    return SOUND.replace('name = "resnet50"', f'name = "resnet50"\n{line}')


def change_source(old: str, new: str) -> str:
    return SOURCES.replace(old, new)


MISTAKES = [
    # axes
    (
        set_axis('framework = "pytroch"'),
        *(4, "axes.framework", ("'pytroch'", f"known: {FRAMEWORKS}", "mean 'pytorch'")),
    ),
    (
        set_axis('topology = ["1n1g", "8g"]'),
        *(5, "axes.topology[1]", ("'8g'", "NODESnDEVICESg", "'2n8g'")),
    ),
    (set_axis('topology = ["1n1g", "1n1g"]'), 5, "axes.topology", ("'1n1g'", "twice")),
    (replace_line("topology", ""), 3, "axes.topology", ("required",)),
    (
        set_axis("batch_size_per_device = 0"),
        *(6, "axes.batch_size_per_device", ("0", "at least 1")),
    ),
    (
        set_axis('batch_size_per_device = ["8"]'),
        *(6, "axes.batch_size_per_device[0]", ("'8'", "'max'", "'256 -> 224 -> 196'")),
    ),
    (
        set_axis('batch_size_per_device = "196 -> 224"'),
        *(6, "axes.batch_size_per_device", ("'196 -> 224'", "descending")),
    ),
    (add_axis("precision = 'x'"), 7, "axes.precision", (", ".join(list_choices("precision")),)),
    *(
        (add_axis(f"loss_scale = {value}"), 7, "axes.loss_scale", ("'dynamic'", "at least 1"))
        for value in ("0", "'big'", "true")
    ),
    # training
    (
        add_axis("[training]\nepochs = 2\nwarmup_epochs = 2"),
        *(7, "training", ("warmup_epochs", "less than epochs (2)")),
    ),
    # rules
    (
        add_axis("[[override]]\nwhen = { batch_size_per_device = '~4' }\nmodel = { width = 8 }"),
        *(8, "override[0].when.batch_size_per_device", ("'~4'", "number", "'>=256'")),
    ),
    (
        add_axis("[[override]]\nwhen = { nods = 2 }"),
        *(8, "override[0].when.nods", ("mean 'nodes'", f"Known: {CONDITIONS}")),
    ),
    # parameters and presets of models
    (set_parameter("image_size = 16"), 3, "model.image_size", ("16", "allowed: 32 or more")),
    (
        LLAMA.replace("llama-3-8b", "llama-3-9b"),
        *(3, "model.preset"),
        ("'llama-3-9b'", "llama", "known: tinyllama-1.1b", "mean 'llama-3-8b'"),
    ),
    (LLAMA.replace('"llama"', '"bert"'), 3, "model.preset", ("bert", "no presets")),
    (LLAMA.replace('"llama-3-8b"', "3"), 3, "model.preset", ("3", "not a string")),
    (
        LLAMA.replace("[axes]", "kv_heads = 5\n[axes]"),
        *(4, "model.kv_heads", ("5", "divisor of heads (32)")),
    ),
    (
        f"{BERT}[[override]]\nwhen = {{ nodes = 1 }}\nmodel = {{ heads = 7 }}\n",
        *(11, "override[0].model.hidden_size", ("96", "multiple of heads (7)")),
    ),
    # several models
    (
        TWO_MODELS.replace('"bert"\nlayers = 2', '"resnet50"'),
        *(1, "model", ("'resnet50'", "twice")),
    ),
    (TWO_MODELS.replace("layers", "layrs"), 6, "model[1].layrs", ("of bert", "mean 'layers'")),
    (
        f"{TWO_MODELS}[[override]]\nmodel = {{ dropout = 0.0 }}\nwhen = {{ model = 'resnet50' }}\n",
        *(12, "override[0].model.dropout", ("of resnet50", "known: image_size")),
    ),
    (
        f"{SOUND}[[include]]\nmodel = 'vit'\n",
        *(SOUND.count("\n") + 2, "include[0].model", ("'vit'", "[model]", "known: resnet50")),
    ),
    # scripts
    (
        change_source('"official"]', '"offical"]'),
        *(7, "axes.script", ("'offical'", "known: worker, official", "mean 'official'")),
    ),
    (
        change_source("tf_cnn_benchmarks", "tf_cnn_benchmark"),
        *(10, "scripts.official.format", (*list_formats(), "mean 'tf_cnn_benchmarks'")),
    ),
    (
        change_source("[scripts.official]", "[formats.mine]\nline = []\n[scripts.official]"),
        *(8, "formats.mine", ("'line'", "lines")),
    ),
    (
        change_source("[scripts.official]", "[formats.keras]\nlines = []\n[scripts.official]"),
        *(8, "formats.keras", ("'keras'", "letters")),
    ),
    (
        change_source("[scripts.official]", "[scripts.official]\nrule = 'mode'"),
        *(9, "scripts.official.rule"),
        [rule.name for rule in load_format("tf_cnn_benchmarks").RULES],
    ),
    (
        change_source("[scripts.official]", "[scripts.official]\nunit = 'tokens'"),
        *(9, "scripts.official.unit", ("scripts.official.model",)),
    ),
    (
        change_source("[scripts.official]", "[scripts.official]\nmodel = 'gpt2'")
        + "[[override]]\nwhen = { model = 'gpt2' }\nmodel.layers = 2\n",
        *(14, "override[0].model", ("'gpt2'",)),
    ),
    # without a [model] table
    (
        change_source("[scripts.official]", "[scripts.official]\nmodel = 'gpt2'")[AXES_BEGIN:],
        *(None, "model", ("bert",)),
    ),
    (
        change_source('["worker", "official"]', '"official"')[AXES_BEGIN:],
        *(None, "model", ("bert",)),
    ),
    (
        change_source("[scripts.official]", "[scripts.official]\nmodel = 'bert'"),
        *(9, "scripts.official.model", ("bert",)),
    ),
    *(
        (change_source("[scripts.official]", f"[scripts.'{name}']\n{SCRIPT}"), 8, key, (says,))
        for name, key, says in (
            ("worker", "scripts.worker", "another name"),
            ("a b", "scripts.a b", "letters, digits and _ . + -"),
        )
    ),
]


@pytest.mark.parametrize(("text", "line", "key", "says"), MISTAKES)
def test_mistake_says_where_what_and_what_is_allowed(text, line, key, says):
    (mistake,) = read_mistakes(text)
    assert_problem(mistake, file="matrix.toml", line=line, key=key, says=says)
    assert mistake.count(f"{key}: ") == 1


def test_table_that_is_missing_is_required():
    missing, unknown = read_mistakes(SOUND.replace("[axes]\n", "[axis]\n"))
    assert_problem(missing, file="matrix.toml", key="axes", says=("required",))
    says = ("unknown key", "mean 'axes'", ", ".join(sorted(Matrix.model_fields)))
    assert_problem(unknown, file="matrix.toml", line=3, key="axis", says=says)


def test_preset_sets_all_sizes_and_single_parameters_override_it():
    text = LLAMA.replace("[axes]", "layers = 2\nrotary_theta = 10000.0\n[axes]")
    (case,) = expand_matrix(read_matrix(write_matrix(text))).cases
    assert case.model_parameters == {
        "sequence_length": 8192,
        "layers": 2,
        "hidden_size": 4096,
        "heads": 32,
        "kv_heads": 8,
        "intermediate_size": 14336,
        "vocabulary_size": 128256,
        "rotary_theta": 10000.0,
    }


def test_mistake_elsewhere_does_not_hide_one_in_the_model():
    text = replace_line("topology", "topology = '0n0g'").replace("[axes]", "width = 0\n[axes]")
    assert [line.split(": ")[1] for line in read_mistakes(text)] == ["model.width", "axes.topology"]


@pytest.mark.parametrize("name", ["A; touch pwned", "$(x)", "1A", "", "run_dir"])
def test_name_of_a_scripts_variable_is_one(name):
    line = f"[scripts.official]\nenv = {{ {json.dumps(name)} = 'x' }}"
    with pytest.raises(InputError, match=re.escape("scripts.official.env")):
        read_matrix(write_matrix(change_source("[scripts.official]", line)))


@cache
def make_validator(kind):
    schema = make_schema(kind)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def is_valid(kind, text):
    return make_validator(kind).is_valid(parse_toml(text))


@pytest.mark.parametrize(("kind", "folder"), [("matrix", "matrices"), ("site", "site_configs")])
def test_schema_accepts_each_shipped_file(kind, folder):
    files = sorted(find_resource_dir(folder).rglob("*.toml"))
    assert files
    assert [path for path in files if not is_valid(kind, path.read_text("utf-8"))] == []


SCHEMA_MISTAKES = [
    ("matrix", SMALL_MATRIX + "[slurm]\ntime_limit_minutes = '10min'\n"),
    ("matrix", SMALL_MATRIX + "[slurm]\npartitoin = 'gpu'\n"),
    ("matrix", SMALL_MATRIX.replace("2n2g", "2x8")),
    ("site", "[time_limit_minutes]\n2x8 = 10\n"),
    ("site", "[[override]]\npartition = 'x'\nwhen.topology = '2x8'\n"),
]


@pytest.mark.parametrize(("kind", "text"), SCHEMA_MISTAKES)
def test_schema_refuses_what_the_tool_refuses(kind, text):
    assert not is_valid(kind, text)
    right = text.replace("'10min'", "{ default = 10 }").replace("partitoin", "partition")
    assert is_valid(kind, right.replace("2x8", "2n8g"))
