"""Matrix files: what is accepted, and that every mistake is reported at once with its place."""

import json
import re
from pathlib import Path

import pytest
from builders import SMALL_MATRIX, write_matrix
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.logs import list_formats, load_format
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import find_parameter_problems, read_matrix
from dlperf_slurm.matrix.tables import Matrix
from dlperf_slurm.worker.frameworks import list_frameworks, load_adapter

# what a condition may ask of beside the axes
CONDITIONS = ", ".join(sorted([*AXES, "devices_per_node", "model", "nodes", "world_size"]))
FRAMEWORKS = ", ".join(list_frameworks())
PRECISIONS = ", ".join(
    dict.fromkeys(
        p for name in list_frameworks() for p in load_adapter(name).SUPPORTED["precision"]
    )
)

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
    """The lines of the one answer to a matrix."""
    with pytest.raises(InputError) as caught:
        read_matrix(write_matrix(text))
    return str(caught.value).splitlines()


def replace_line(key: str, line: str) -> str:
    """The sound matrix with another line for a key."""
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


@pytest.mark.parametrize("command", [["plan"], ["render"], ["submit"], ["submit", "--wait"]])
def test_malformed_matrix_exits_with_2_and_writes_nothing(command):
    write_matrix(MANY_MISTAKES)
    before = sorted(Path().iterdir())
    assert (main([*command, "matrix.toml", "--site", "local"]), sorted(Path().iterdir())) == (
        2,
        before,
    )


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        (
            'framework = "pytroch"',
            *(4, "framework", ("'pytroch'", f"known: {FRAMEWORKS}", "mean 'pytorch'")),
        ),
        ('topology = ["1n1g", "8g"]', 5, "topology[1]", ("'8g'", "NODESnDEVICESg", "'2n8g'")),
        ("topology = []", 5, "topology", ("empty", "at least one")),
        ('topology = ["1n1g", "1n1g"]', 5, "topology", ("'1n1g'", "twice")),
        ("batch_size_per_device = 0", 6, "batch_size_per_device", ("0", "smallest is 1")),
        (
            'batch_size_per_device = ["8"]',
            *(6, "batch_size_per_device[0]", ("'8'", "number", "'max'", "'256 -> 224 -> 196'")),
        ),
        (
            'batch_size_per_device = "196 -> 224"',
            *(6, "batch_size_per_device", ("'196 -> 224'", "descend")),
        ),
        (
            'batch_size_per_device = ["8->4", "8 -> 4"]',
            *(6, "batch_size_per_device", ("'8 -> 4'", "twice")),
        ),
        (
            'batch_size_per_device = 8\nmode = "eval"',
            *(7, "mode", ("'eval'", "known: train, infer")),
        ),
        (
            "batch_size_per_device = 8\nprecision = 'amp-fp61'",
            *(7, "precision", ("'amp-fp61'", f"known: {PRECISIONS}", "mean 'amp-fp16'")),
        ),
        (
            "batch_size_per_device = 8\nbatchsize = 8",
            *(7, "batchsize", ("mean 'batch_size_per_device'", ", ".join(sorted(AXES)))),
        ),
        (
            "batch_size_per_device = 8\nclip_global_norm = 'yes'",
            *(7, "clip_global_norm", ("'yes'", "true", "false")),
        ),
    ],
)
def test_mistake_in_an_axis_says_where_what_and_what_is_allowed(text, line, key, says):
    (mistake,) = read_mistakes(replace_line(text.split(" ")[0], text))
    assert_problem(mistake, file="matrix.toml", line=line, key=f"axes.{key}", says=says)


def test_axis_that_is_missing_is_required():
    (mistake,) = read_mistakes(replace_line("topology", ""))
    assert_problem(mistake, file="matrix.toml", line=3, key="axes.topology", says=("required",))


def test_table_that_is_missing_is_required():
    missing, unknown = read_mistakes(SOUND.replace("[model]\n", "[modle]\n"))
    assert_problem(missing, file="matrix.toml", key="model", says=("required",))
    tables = ", ".join(sorted(Matrix.model_fields))
    says = ("unknown key", "mean 'model'", tables)
    assert_problem(unknown, file="matrix.toml", line=1, key="modle", says=says)


def test_empty_file_names_the_tables_it_needs():
    for mistake, key in zip(read_mistakes(""), ("model", "axes")):
        assert_problem(mistake, file="matrix.toml", key=key, says=("required",))


@pytest.mark.parametrize(
    ("table", "line", "key", "says"),
    [
        ("[[override]]\nbatch_size_per_device = 4", 7, "override[0].when", ("required",)),
        (
            "[[override]]\nwhen = { batch_size_per_device = '~4' }\nmodel = { width = 8 }",
            *(8, "override[0].when.batch_size_per_device", ("'~4'", "number", "'>=256'")),
        ),
        (
            "[[override]]\nwhen = { nods = 2 }",
            *(8, "override[0].when.nods", ("mean 'nodes'", f"Known: {CONDITIONS}")),
        ),
        (
            "[[override]]\nwhen = { nodes = 2 }\nprotocol = { shuffle_seed = 3 }",
            *(9, "override[0].protocol.shuffle_seed"),
            ("measured_steps", "repeats", "stall_seconds", "warmup_steps"),
        ),
        ("[[exclude]]\nwhen = { nodes = [] }", 8, "exclude[0].when.nodes", ("empty",)),
        (
            "[[note]]\nwhen = { nodes = 1 }\ntext = ''",
            *(9, "note[0].text", ("''", "at least 1")),
        ),
        (
            "[[include]]\ntopology = '2n0g'",
            *(8, "include[0].topology", ("'2n0g'", "NODESnDEVICESg", "'2n8g'")),
        ),
    ],
)
def test_mistake_in_a_rule_says_where_what_and_what_is_allowed(table, line, key, says):
    (mistake,) = read_mistakes(f"{SOUND}{table}\n")
    assert_problem(mistake, file="matrix.toml", line=line, key=key, says=says)


def test_condition_on_an_axis_that_an_override_sets_is_refused():
    text = (
        f"{SOUND}[[override]]\nwhen = {{ precision = 'fp32' }}\nbatch_size_per_device = 16\n"
        "[[override]]\nwhen = { batch_size_per_device = 16 }\ncompiler = 'torch.compile'\n"
    )
    (answer,) = read_mistakes(text)
    key = "override[1].when.batch_size_per_device"
    assert_problem(answer, file="matrix.toml", line=11, key=key, says=("include", "exclude"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "imagesize = 64",
            ("known: image_size, stage_blocks, width", "label_smoothing", "mean 'image_size'"),
        ),
        ("image_size = '64'", ("'64'", "allowed: an integer")),
        ("image_size = 16", ("16", "allowed: 32 or more")),
        ("stage_blocks = [1, 1]", ("[1, 1]", "allowed: four integers")),
    ],
)
def test_mistake_in_a_model_parameter_says_what_is_allowed(line, says):
    text = SOUND.replace('name = "resnet50"', f'name = "resnet50"\n{line}')
    (mistake,) = read_mistakes(text)
    key = f"model.{line.split(' ')[0]}"
    assert_problem(mistake, file="matrix.toml", line=3, key=key, says=says)


LLAMA = SOUND.replace('"resnet50"', '"llama"\npreset = "llama-3-8b"')


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


def test_unknown_preset_is_named_with_those_that_there_are():
    (mistake,) = read_mistakes(LLAMA.replace("llama-3-8b", "llama-3-9b"))
    says = ("'llama-3-9b'", "llama", "known: tinyllama-1.1b", "mean 'llama-3-8b'")
    assert_problem(mistake, file="matrix.toml", line=3, key="model.preset", says=says)


def test_preset_of_a_model_without_any_is_a_mistake():
    (mistake,) = read_mistakes(LLAMA.replace('"llama"', '"bert"'))
    says = ("bert", "no presets", "parameters")
    assert_problem(mistake, file="matrix.toml", line=3, key="model.preset", says=says)


def test_preset_that_is_no_text_is_a_mistake():
    (mistake,) = read_mistakes(LLAMA.replace('"llama-3-8b"', "3"))
    assert mistake.startswith("matrix.toml:3: model.preset: ")


def test_heads_are_checked_together_with_the_preset():
    (mistake,) = read_mistakes(LLAMA.replace("[axes]", "kv_heads = 5\n[axes]"))
    says = ("5", "divisor of heads (32)")
    assert_problem(mistake, file="matrix.toml", line=4, key="model.kv_heads", says=says)


def test_override_of_a_model_is_checked_together_with_the_base():
    text = SOUND.replace('"resnet50"', '"bert"\nhidden_size = 96\nheads = 4')
    text += "[[override]]\nwhen = { nodes = 1 }\nmodel = { heads = 7 }\n"
    (mistake,) = read_mistakes(text)
    key, says = "override[0].model.hidden_size", ("96", "multiple of heads (7)")
    assert_problem(mistake, file="matrix.toml", line=11, key=key, says=says)


def test_mistake_elsewhere_does_not_hide_one_in_the_model():
    text = replace_line("topology", "topology = '0n0g'").replace("[axes]", "width = 0\n[axes]")
    assert [line.split(": ")[1] for line in read_mistakes(text)] == ["model.width", "axes.topology"]


def test_list_of_a_model_parameter_is_accepted():
    assert find_parameter_problems("resnet50", {"stage_blocks": [1, 1, 1, 1]}) == []


def test_defaults_of_the_protocol_are_those_of_dlperf():
    protocol = read_matrix(write_matrix(SOUND)).matrix.protocol
    assert (protocol.repeats, protocol.warmup_steps, protocol.measured_steps) == (7, 20, 100)


def test_matrix_is_named_after_its_file():
    assert read_matrix(write_matrix(SMALL_MATRIX, "r50 small.toml")).name == "r50 small"


@pytest.mark.parametrize(
    "path", sorted(find_resource_dir("matrices").glob("*.toml")), ids=lambda path: path.name
)
def test_shipped_matrix_is_sound(path):
    assert read_matrix(path).matrix.title


TWO_MODELS = """\
[[model]]
name = "resnet50"
image_size = 64
[[model]]
name = "bert"
layers = 2
[axes]
framework = "pytorch"
topology = "1n1g"
batch_size_per_device = 8
"""


def test_model_that_is_named_twice_is_refused():
    (mistake,) = read_mistakes(TWO_MODELS.replace('"bert"\nlayers = 2', '"resnet50"'))
    says = ("'resnet50'", "twice")
    assert_problem(mistake, file="matrix.toml", line=1, key="model", says=says)


def test_mistake_in_one_of_several_models_names_its_table():
    (mistake,) = read_mistakes(TWO_MODELS.replace("layers", "layrs"))
    says = ("of bert", "known: sequence_length", "mean 'layers'")
    assert_problem(mistake, file="matrix.toml", line=6, key="model[1].layrs", says=says)


def test_override_of_a_parameter_is_checked_for_the_models_that_it_is_for():
    change = "[[override]]\nmodel = { dropout = 0.0 }\nwhen = { model = 'MODEL' }\n"
    assert (
        len(read_matrix(write_matrix(TWO_MODELS + change.replace("MODEL", "bert"))).matrix.override)
        == 1
    )
    (mistake,) = read_mistakes(TWO_MODELS + change.replace("MODEL", "resnet50"))
    key, says = "override[0].model.dropout", ("of resnet50", "known: image_size")
    assert_problem(mistake, file="matrix.toml", line=12, key=key, says=says)


SOURCES = f"""{SOUND}script = ["worker", "official"]
[scripts.official]
command = "python train.py -b {{{{ batch_size_per_device }}}}"
format = "tf_cnn_benchmarks"
"""


def test_source_is_an_axis_with_a_table_of_its_own():
    matrix = read_matrix(write_matrix(SOURCES)).matrix
    assert matrix.axes.script == ("worker", "official")
    assert matrix.scripts["official"].launch == "single"


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "says"),
    [
        (
            *('"official"]', '"offical"]', 7, "axes.script"),
            ("'offical'", "known: worker, official", "mean 'official'"),
        ),
        (
            *("tf_cnn_benchmarks", "tf_cnn_benchmark", 10, "scripts.official.format"),
            (*list_formats(), "mean 'tf_cnn_benchmarks'"),
        ),
        (
            *("[scripts.official]", "[scripts.official]\nrule = 'mode'"),
            *(9, "scripts.official.rule"),
            [rule.name for rule in load_format("tf_cnn_benchmarks").RULES],
        ),
        (
            "[scripts.official]",
            "[[exclude]]\nwhen = { script = 'x' }\n[scripts.official]",
            *(9, "exclude[0].when.script", ("'x'", "known: worker, official")),
        ),
        (
            "[scripts.official]",
            "[scripts.worker]\ncommand = 'x'\nformat = 'tf_cnn_benchmarks'\n[scripts.official]",
            *(8, "scripts.worker", ("another name",)),
        ),
        (
            "[scripts.official]",
            "[scripts.'a b']\ncommand = 'x'\nformat = 'tf_cnn_benchmarks'\n[scripts.official]",
            *(8, "scripts.a b", ("letters, digits and _ . + -",)),
        ),
    ],
)
def test_mistake_about_a_source_says_where_what_and_what_is_allowed(old, new, line, key, says):
    with pytest.raises(InputError) as caught:
        read_matrix(write_matrix(SOURCES.replace(old, new)))
    assert_problem(caught.value, file="matrix.toml", line=line, key=key, says=says)


@pytest.mark.parametrize("name", ["A; touch pwned", "A-B", "$(x)", "1A", "", "run_dir"])
def test_name_of_a_scripts_variable_is_one(name, home):
    text = f"""{SOUND}
[scripts.official]
command = "true"
format = "tensorpack"
env = {{ {json.dumps(name)} = "x" }}
"""
    with pytest.raises(InputError, match=re.escape("scripts.official.env")):
        read_matrix(write_matrix(text))
