"""Matrix files: what is accepted, and that every mistake is reported at once with its place."""

import json
import re
from pathlib import Path

import pytest
from builders import SMALL_MATRIX, write_matrix

from dlperf_slurm.cli import main
from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import find_parameter_problems, read_matrix
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
    ("line", "answer"),
    [
        (
            'framework = "pytroch"',
            f"matrix.toml:4: axes.framework: 'pytroch' is not a framework; known: {FRAMEWORKS}. "
            "Did you mean 'pytorch'?",
        ),
        (
            'topology = ["1n1g", "8g"]',
            "matrix.toml:5: axes.topology[1]: '8g' is not a topology; write NODESnDEVICESg with "
            "both at least 1, as in '2n8g'",
        ),
        ("topology = []", "matrix.toml:5: axes.topology: is empty; name at least one value"),
        (
            'topology = ["1n1g", "1n1g"]',
            "matrix.toml:5: axes.topology: '1n1g' is listed twice, which would make duplicate "
            "cases",
        ),
        (
            "batch_size_per_device = 0",
            "matrix.toml:6: axes.batch_size_per_device: 0 is no batch size; the smallest is 1",
        ),
        (
            'batch_size_per_device = ["8"]',
            "matrix.toml:6: axes.batch_size_per_device[0]: '8' is neither a number nor 'max' nor "
            "a ladder such as '256 -> 224 -> 196'",
        ),
        (
            'batch_size_per_device = "196 -> 224"',
            "matrix.toml:6: axes.batch_size_per_device: '196 -> 224' must descend, from the "
            "largest batch size to try; least is 1",
        ),
        (
            'batch_size_per_device = ["8->4", "8 -> 4"]',
            "matrix.toml:6: axes.batch_size_per_device: '8 -> 4' is listed twice, which would "
            "make duplicate cases",
        ),
        (
            'batch_size_per_device = 8\nmode = "eval"',
            "matrix.toml:7: axes.mode: 'eval' is not a mode; known: train, infer",
        ),
        (
            "batch_size_per_device = 8\nprecision = 'amp-fp61'",
            f"matrix.toml:7: axes.precision: 'amp-fp61' is not a precision; known: {PRECISIONS}. "
            "Did you mean 'amp-fp16'?",
        ),
        (
            "batch_size_per_device = 8\nbatchsize = 8",
            f"matrix.toml:7: axes.batchsize: unknown key. Did you mean "
            f"'batch_size_per_device'? Known: {', '.join(sorted(AXES))}",
        ),
        (
            "batch_size_per_device = 8\nclip_global_norm = 'yes'",
            "matrix.toml:7: axes.clip_global_norm: 'yes' is neither true nor false",
        ),
    ],
)
def test_mistake_in_an_axis_says_where_what_and_what_is_allowed(line, answer):
    assert read_mistakes(replace_line(line.split(" ")[0], line)) == [answer]


def test_axis_that_is_missing_is_required():
    assert read_mistakes(replace_line("topology", "")) == [
        "matrix.toml:3: axes.topology: is required, and missing"
    ]


def test_table_that_is_missing_is_required():
    assert read_mistakes(SOUND.replace("[model]\n", "[modle]\n")) == [
        "matrix.toml: model: is required, and missing",
        "matrix.toml:1: modle: unknown key. Did you mean 'model'? Known: axes, exclude, include, "
        "model, note, override, protocol, scripts, slurm, title, training",
    ]


def test_empty_file_names_the_tables_it_needs():
    assert read_mistakes("") == [
        "matrix.toml: model: is required, and missing",
        "matrix.toml: axes: is required, and missing",
    ]


@pytest.mark.parametrize(
    ("table", "answer"),
    [
        (
            "[[override]]\nbatch_size_per_device = 4",
            "matrix.toml:7: override[0].when: is required, and missing",
        ),
        (
            "[[override]]\nwhen = { batch_size_per_device = '~4' }\nmodel = { width = 8 }",
            "matrix.toml:8: override[0].when.batch_size_per_device: '~4' is neither a number nor "
            "a comparison such as '>=256'",
        ),
        (
            "[[override]]\nwhen = { nods = 2 }",
            f"matrix.toml:8: override[0].when.nods: unknown key. Did you mean 'nodes'? "
            f"Known: {CONDITIONS}",
        ),
        (
            "[[override]]\nwhen = { nodes = 2 }\nprotocol = { shuffle_seed = 3 }",
            "matrix.toml:9: override[0].protocol.shuffle_seed: unknown key; known: "
            "measured_steps, repeats, stall_seconds, warmup_steps",
        ),
        (
            "[[exclude]]\nwhen = { nodes = [] }",
            "matrix.toml:8: exclude[0].when.nodes: is empty; name at least one value",
        ),
        (
            "[[note]]\nwhen = { nodes = 1 }\ntext = ''",
            "matrix.toml:9: note[0].text: '': string should have at least 1 character",
        ),
        (
            "[[include]]\ntopology = '2n0g'",
            "matrix.toml:8: include[0].topology: '2n0g' is not a topology; write NODESnDEVICESg "
            "with both at least 1, as in '2n8g'",
        ),
    ],
)
def test_mistake_in_a_rule_says_where_what_and_what_is_allowed(table, answer):
    assert read_mistakes(f"{SOUND}{table}\n") == [answer]


def test_condition_on_an_axis_that_an_override_sets_is_refused():
    text = (
        f"{SOUND}[[override]]\nwhen = {{ precision = 'fp32' }}\nbatch_size_per_device = 16\n"
        "[[override]]\nwhen = { batch_size_per_device = 16 }\ncompiler = 'torch.compile'\n"
    )
    (answer,) = read_mistakes(text)
    assert answer.startswith(
        "matrix.toml:11: override[1].when.batch_size_per_device: batch_size_per_device is itself "
        "set by an override"
    )


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (
            "imagesize = 64",
            "matrix.toml:3: model.imagesize: unknown parameter of resnet50; known: image_size, "
            "stage_blocks, width, classes, label_smoothing. Did you mean 'image_size'?",
        ),
        (
            "image_size = '64'",
            "matrix.toml:3: model.image_size: image_size is '64'; allowed: an integer",
        ),
        (
            "image_size = 16",
            "matrix.toml:3: model.image_size: image_size is 16; allowed: 32 or more",
        ),
        (
            "stage_blocks = [1, 1]",
            "matrix.toml:3: model.stage_blocks: stage_blocks is [1, 1]; allowed: four integers",
        ),
    ],
)
def test_mistake_in_a_model_parameter_says_what_is_allowed(line, answer):
    text = SOUND.replace('name = "resnet50"', f'name = "resnet50"\n{line}')
    assert read_mistakes(text) == [answer]


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
    assert mistake.startswith("matrix.toml:3: model.preset: 'llama-3-9b' is not a preset of llama")
    assert "known: tinyllama-1.1b, " in mistake
    assert mistake.endswith("Did you mean 'llama-3-8b'?")


def test_preset_of_a_model_without_any_is_a_mistake():
    assert read_mistakes(LLAMA.replace('"llama"', '"bert"')) == [
        "matrix.toml:3: model.preset: bert has no presets; name its parameters instead"
    ]


def test_preset_that_is_no_text_is_a_mistake():
    (mistake,) = read_mistakes(LLAMA.replace('"llama-3-8b"', "3"))
    assert mistake.startswith("matrix.toml:3: model.preset: ")


def test_heads_are_checked_together_with_the_preset():
    assert read_mistakes(LLAMA.replace("[axes]", "kv_heads = 5\n[axes]")) == [
        "matrix.toml:4: model.kv_heads: kv_heads is 5; allowed: a divisor of heads (32)"
    ]


def test_override_of_a_model_is_checked_together_with_the_base():
    text = SOUND.replace('"resnet50"', '"bert"\nhidden_size = 96\nheads = 4')
    text += "[[override]]\nwhen = { nodes = 1 }\nmodel = { heads = 7 }\n"
    assert read_mistakes(text) == [
        "matrix.toml:11: override[0].model.hidden_size: hidden_size is 96; allowed: a multiple of "
        "heads (7)"
    ]


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
    assert read_mistakes(TWO_MODELS.replace('"bert"\nlayers = 2', '"resnet50"')) == [
        "matrix.toml:1: model: 'resnet50' is listed twice, which would make duplicate cases"
    ]


def test_mistake_in_one_of_several_models_names_its_table():
    (mistake,) = read_mistakes(TWO_MODELS.replace("layers", "layrs"))
    assert mistake.startswith("matrix.toml:6: model[1].layrs: unknown parameter of bert; known: ")


def test_override_of_a_parameter_is_checked_for_the_models_that_it_is_for():
    change = "[[override]]\nmodel = { dropout = 0.0 }\nwhen = { model = 'MODEL' }\n"
    assert (
        len(read_matrix(write_matrix(TWO_MODELS + change.replace("MODEL", "bert"))).matrix.override)
        == 1
    )
    (mistake,) = read_mistakes(TWO_MODELS + change.replace("MODEL", "resnet50"))
    assert mistake.startswith("matrix.toml:12: override[0].model.dropout: unknown parameter of re")


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
    ("old", "new", "answer"),
    [
        (
            '"official"]',
            '"offical"]',
            "axes.script: 'offical' is not a script; known: worker, official. Did you mean "
            "'official'?",
        ),
        (
            "tf_cnn_benchmarks",
            "tf_cnn_benchmark",
            "scripts.official.format: 'tf_cnn_benchmark' is not a log format; known: ",
        ),
        (
            "[scripts.official]",
            "[scripts.official]\nrule = 'mode'",
            "scripts.official.rule: 'mode' is not a rule of tf_cnn_benchmarks; known: ",
        ),
        (
            "[scripts.official]",
            "[[exclude]]\nwhen = { script = 'x' }\n[scripts.official]",
            "exclude[0].when.script: 'x' is not a script; known: worker, official",
        ),
        (
            "[scripts.official]",
            "[scripts.worker]\ncommand = 'x'\nformat = 'tf_cnn_benchmarks'\n[scripts.official]",
            "scripts.worker: 'worker' is this tool's own; choose another name",
        ),
        (
            "[scripts.official]",
            "[scripts.'a b']\ncommand = 'x'\nformat = 'tf_cnn_benchmarks'\n[scripts.official]",
            "scripts.a b: 'a b' becomes part of file names: letters, digits and _ . + - are",
        ),
    ],
)
def test_mistake_about_a_source_says_where_what_and_what_is_allowed(old, new, answer):
    with pytest.raises(InputError) as caught:
        read_matrix(write_matrix(SOURCES.replace(old, new)))
    assert answer in str(caught.value)


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
