"""Matrix -> cases: product, override, include, exclude, notes, ids and order."""

import re
from pathlib import Path

import pytest
from builders import make_matrix_case, write_matrix
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.matrix.expand import Expansion, expand_matrix
from dlperf_slurm.matrix.file import read_matrix

TWO_BY_TWO = """\
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = ["1n1g", "2n1g"]
precision = ["fp32", "amp-bf16"]
batch_size_per_device = 8
"""


def expand(rules: str = "", axes: str = TWO_BY_TWO) -> Expansion:
    return expand_matrix(read_matrix(write_matrix(axes + rules)))


def list_points(expansion: Expansion) -> list[str]:
    """Such as "1n1g fp32 8"."""
    return [
        f"{case.topology} {case.axes.precision} {case.axes.batch_size_per_device}"
        for case in expansion.cases
    ]


def test_cases_are_the_product_of_the_axes_in_their_order():
    assert list_points(expand()) == [
        "1n1g fp32 8", "1n1g amp-bf16 8", "2n1g fp32 8", "2n1g amp-bf16 8",
    ]  # fmt: skip


def test_override_replaces_an_axis_for_the_cases_it_matches():
    rules = "[[override]]\nwhen = { precision = 'amp-bf16' }\nbatch_size_per_device = 16\n"
    assert list_points(expand(rules)) == [
        "1n1g fp32 8", "1n1g amp-bf16 16", "2n1g fp32 8", "2n1g amp-bf16 16",
    ]  # fmt: skip


def test_override_with_a_list_varies_the_axis():
    rules = (
        "[[override]]\nwhen = { precision = 'fp32', nodes = 2 }\nbatch_size_per_device = [4, 6]\n"
    )
    assert list_points(expand(rules)) == [
        "1n1g fp32 8", "1n1g amp-bf16 8", "2n1g fp32 4", "2n1g fp32 6", "2n1g amp-bf16 8",
    ]  # fmt: skip


def test_later_override_wins():
    rules = (
        "[[override]]\nwhen = { nodes = 2 }\nbatch_size_per_device = 4\n"
        "[[override]]\nwhen = { precision = 'fp32' }\nbatch_size_per_device = 6\n"
    )
    assert list_points(expand(rules)) == [
        "1n1g fp32 6", "1n1g amp-bf16 8", "2n1g fp32 6", "2n1g amp-bf16 4",
    ]  # fmt: skip


def test_of_two_overrides_of_the_same_key_the_later_one_wins():
    rules = (
        "[[override]]\nwhen = { nodes = 2 }\nmodel = { width = 8 }\n"
        "protocol = { repeats = 3, measured_steps = 40 }\n"
        "[[override]]\nwhen = { precision = 'fp32' }\nmodel = { width = 16 }\n"
        "protocol = { repeats = 5 }\n"
    )
    found = [
        (case.model_parameters.get("width"), case.protocol.repeats, case.protocol.measured_steps)
        for case in expand(rules).cases
    ]
    # the last but one matches both: what the later one does not set is the earlier one's
    assert found == [(16, 5, 100), (None, 7, 100), (16, 5, 40), (8, 3, 40)]


def test_override_sets_a_value_to_0():
    rules = (
        "[[override]]\nwhen = { nodes = 2 }\nmodel = { label_smoothing = 0.0 }\n"
        "protocol = { warmup_steps = 0, stall_seconds = 0 }\n"
    )
    axes = TWO_BY_TWO.replace('"resnet50"', '"resnet50"\nlabel_smoothing = 0.1')
    found = [
        (case.model_parameters["label_smoothing"], p.warmup_steps, p.stall_seconds)
        for case in expand(rules, axes).cases
        for p in [case.protocol]
    ]
    assert found == 2 * [(0.1, 20, None)] + 2 * [(0.0, 0, 0)]


def test_override_sets_an_axis_to_0_and_to_false():
    rules = (
        "mode = 'infer'\noutput_tokens = 16\nclip_global_norm = true\n"
        "[[override]]\nwhen = { nodes = 2 }\noutput_tokens = 0\nclip_global_norm = false\n"
    )
    axes = [case.axes for case in expand(rules).cases]
    assert [(a.output_tokens, a.clip_global_norm) for a in axes] == 2 * [(16, True)] + 2 * [
        (0, False)
    ]


def test_override_of_the_protocol_leaves_other_values_alone():
    rules = "[[override]]\nwhen = { nodes = 2 }\nprotocol = { repeats = 3 }\n"
    protocols = [case.protocol for case in expand(rules).cases]
    assert [(p.repeats, p.measured_steps) for p in protocols] == [
        (7, 100), (7, 100), (3, 100), (3, 100),
    ]  # fmt: skip


def test_override_of_the_model_is_merged_into_its_parameters():
    axes = TWO_BY_TWO.replace('"resnet50"', '"resnet50"\nimage_size = 64\nwidth = 16')
    rules = (
        "[[override]]\nwhen = { nodes = 2 }\nmodel = { width = 8, stage_blocks = [1, 1, 1, 1] }\n"
    )
    assert expand(rules, axes).cases[-1].model_parameters == {
        "image_size": 64, "width": 8, "stage_blocks": (1, 1, 1, 1),
    }  # fmt: skip


def test_override_may_use_an_overridden_axis_for_model_and_protocol():
    rules = (
        "[[override]]\nwhen = { precision = 'fp32' }\nbatch_size_per_device = 16\n"
        "[[override]]\nwhen = { batch_size_per_device = '>8' }\nprotocol = { repeats = 2 }\n"
    )
    assert [case.protocol.repeats for case in expand(rules).cases] == [2, 7, 2, 7]


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("nodes = 2", 2),
        ("nodes = '>1'", 2),
        ("nodes = '>= 2'", 2),
        ("nodes = '<2'", 2),
        ("nodes = '<=2'", 4),
        ("nodes = '!=1'", 2),
        ("world_size = [1, 2]", 4),
        ("devices_per_node = 8", 0),
        ("batch_size_per_device = '>8'", 0),
        ("topology = '1n1g', precision = 'fp32'", 1),
        ("precision = ['fp32', 'amp-bf16']", 4),
        ("clip_global_norm = true", 0),
        ("", 4),
    ],
)
def test_condition_matches_where_all_that_it_names_holds(condition, count):
    expansion = expand(f"[[note]]\nwhen = {{ {condition} }}\ntext = 'matched'\n")
    assert sum(case.notes == ("matched",) for case in expansion.cases) == count


SEARCHES = TWO_BY_TWO.replace("= 8", "= [8, 'max', '256->224 -> 196']")


def test_batch_sizes_that_the_job_finds_are_cases_of_their_own():
    names = {case.case_id.split("-", 3)[-1] for case in expand(axes=SEARCHES).cases}
    assert {name for name in names if "fp32" in name} == {
        "bs8-fp32", "bsmax-fp32", "bs256-224-196-fp32",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "sizes"),
    [
        ("'max'", {"max"}),
        ("'256 -> 224 -> 196'", {"256 -> 224 -> 196"}),
        ("'>=1'", {"8"}),
        ("['max', 8]", {"8", "max"}),
    ],
)
def test_condition_takes_batch_sizes_that_the_job_finds(condition, sizes):
    rule = f"[[exclude]]\nwhen = {{ batch_size_per_device = {condition} }}\n"
    excluded = expand(rule, SEARCHES).excluded
    assert {str(left_out.case.axes.batch_size_per_device) for left_out in excluded} == sizes


def test_modes_are_cases_of_their_own():
    cases = expand("mode = ['train', 'infer']\n").cases
    assert [case.case_id.endswith("-infer") for case in cases] == 4 * [False, True]


def test_excluded_cases_are_kept_apart_with_their_reason():
    expansion = expand("[[exclude]]\nwhen = { nodes = 2 }\nreason = 'too slow'\n")
    left_out = [(str(x.case.topology), x.case.axes.precision, x.reason) for x in expansion.excluded]
    assert (list_points(expansion), left_out) == (
        ["1n1g fp32 8", "1n1g amp-bf16 8"],
        [("2n1g", "fp32", "too slow"), ("2n1g", "amp-bf16", "too slow")],
    )


def test_first_matching_exclusion_gives_the_reason():
    rules = (
        "[[exclude]]\nwhen = { nodes = 2 }\nreason = 'first'\n"
        "[[exclude]]\nwhen = { precision = 'fp32' }\nreason = 'second'\n"
    )
    assert [x.reason for x in expand(rules).excluded] == ["second", "first", "first"]


def test_excluding_everything_is_refused():
    with pytest.raises(InputError) as caught:
        expand("[[exclude]]\nwhen = {}\n")
    assert_problem(caught.value, file="matrix.toml", line=8, key="exclude", says=("no case",))


def test_include_adds_the_product_of_what_it_names_with_the_axes():
    assert list_points(expand("[[include]]\ntopology = '4n1g'\n"))[4:] == [
        "4n1g fp32 8", "4n1g amp-bf16 8",
    ]  # fmt: skip


def test_include_pins_an_axis_against_overrides():
    rules = (
        "[[override]]\nwhen = { precision = 'amp-bf16' }\nbatch_size_per_device = 16\n"
        "[[include]]\nprecision = 'amp-bf16'\nbatch_size_per_device = 32\ntopology = '1n1g'\n"
    )
    assert list_points(expand(rules))[-1] == "1n1g amp-bf16 32"


def test_exclusion_holds_for_cases_that_an_include_adds():
    rules = (
        "[[exclude]]\nwhen = { nodes = 4, precision = 'fp32' }\nreason = 'too slow'\n"
        "[[include]]\ntopology = '4n1g'\n"
    )
    expansion = expand(rules)
    assert list_points(expansion)[4:] == ["4n1g amp-bf16 8"]
    assert [(str(x.case.topology), x.reason) for x in expansion.excluded] == [("4n1g", "too slow")]


def test_overrides_and_notes_hold_for_cases_that_an_include_adds():
    rules = (
        "[[override]]\nwhen = { nodes = 4 }\nprotocol = { repeats = 3 }\n"
        "[[note]]\nwhen = { nodes = 4 }\ntext = 'a'\n[[include]]\ntopology = '4n1g'\n"
    )
    found = [(case.protocol.repeats, case.notes) for case in expand(rules).cases]
    assert found == 4 * [(7, ())] + 2 * [(3, ("a",))]


def test_include_of_a_case_that_is_there_is_refused():
    with pytest.raises(InputError) as caught:
        expand("[[include]]\ntopology = '1n1g'\nprecision = 'fp32'\n")
    says = ("pytorch-resnet50-1n1g-bs8-fp32",)
    assert_problem(caught.value, file="matrix.toml", line=8, key="include[0]", says=says)


def test_include_whose_axes_fold_into_one_case_adds_it_once():
    axes = TWO_BY_TWO + "loss_scale = ['dynamic', 128]\n"
    found = expand("[[include]]\ntopology = '4n1g'\n", axes)
    assert list_points(found)[-2:] == ["4n1g fp32 8", "4n1g amp-bf16 8"]
    assert len(found.cases) == 6


def test_cases_that_would_share_a_directory_are_refused():
    rules = (
        "script = ['worker', 'horovod']\ngradient_sync = ['native', 'horovod']\n"
        "[scripts.horovod]\nformat = 'horovod_synthetic'\nlaunch = 'per-rank'\ncommand = 'true'\n"
    )
    with pytest.raises(InputError) as caught:
        expand(rules)
    mistakes = str(caught.value).splitlines()
    assert len(mistakes) == 4
    for mistake in mistakes:
        says = ("2 cases", "-horovod")
        assert_problem(mistake, file="matrix.toml", line=10, key="scripts", says=says)


def test_override_that_sets_the_topology_cannot_have_it_decide_by_its_parts():
    rules = (
        "[[override]]\nwhen = { precision = 'fp32' }\ntopology = '4n1g'\n"
        "[[override]]\nwhen = { nodes = '>=2' }\nbatch_size_per_device = 4\n"
    )
    with pytest.raises(InputError) as caught:
        expand(rules)
    says = ("include", "exclude")
    assert_problem(
        caught.value, file="matrix.toml", line=12, key="override[1].when.nodes", says=says
    )


def test_two_includes_of_the_same_case_are_refused():
    rule = "[[include]]\ntopology = '4n1g'\nprecision = 'fp32'\n"
    with pytest.raises(InputError, match=r"matrix\.toml:11: include\[1\]: adds .*-4n1g-"):
        expand(rule + rule)


def test_notes_are_those_of_the_matching_rules_in_their_order():
    rules = (
        "[[note]]\nwhen = { nodes = 2 }\ntext = 'a'\n"
        "[[note]]\nwhen = { precision = 'fp32' }\ntext = 'b'\n"
    )
    assert [case.notes for case in expand(rules).cases] == [("b",), (), ("a", "b"), ("a",)]


def test_case_id_is_readable():
    assert make_matrix_case("2n8g").case_id == "pytorch-resnet50-2n8g-bs8-fp32"


def test_case_id_names_what_differs_from_the_defaults():
    case = make_matrix_case(
        "1n1g", compiler="torch.compile", memory_format="channels_last", clip_global_norm=True
    )
    assert case.case_id == "pytorch-resnet50-1n1g-bs8-fp32-torch.compile-channels_last-clip"


TWO_MODELS = """\
[[model]]
name = "resnet50"
image_size = 64
[[model]]
name = "bert"
layers = 2
[axes]
framework = ["pytorch", "jax"]
topology = "1n1g"
batch_size_per_device = 8
"""


def test_several_models_have_the_same_axes_and_their_own_parameters():
    found = [
        (case.model, dict(case.model_parameters), case.axes.framework)
        for case in expand("", TWO_MODELS).cases
    ]
    assert found == [
        ("resnet50", {"image_size": 64}, "pytorch"),
        ("resnet50", {"image_size": 64}, "jax"),
        ("bert", {"layers": 2}, "pytorch"),
        ("bert", {"layers": 2}, "jax"),
    ]


def test_rules_may_be_for_one_of_several_models():
    rules = """\
[[override]]
when = { model = "bert", framework = "jax" }
batch_size_per_device = 4
[[exclude]]
when = { model = "resnet50", framework = "jax" }
[[include]]
model = "bert"
framework = "pytorch"
topology = "2n1g"
"""
    assert [case.case_id for case in expand(rules, TWO_MODELS).cases] == [
        "pytorch-resnet50-1n1g-bs8-fp32",
        "pytorch-bert-1n1g-bs8-fp32",
        "jax-bert-1n1g-bs4-fp32",
        "pytorch-bert-2n1g-bs8-fp32",
    ]


def expand_shipped(name: str) -> Expansion:
    return expand_matrix(read_matrix(find_resource_dir("matrices") / f"{name}.toml"))


EVERY_AXIS = """\
[model]
name = "bert"
[axes]
framework = "pytorch"
topology = ["1n1g", "1n8g", "16n8g"]
precision = ["fp32", "tf32", "amp-bf16", "amp-fp16"]
batch_size_per_device = [1, 16, 116]
compiler = ["none", "torch.compile"]
memory_format = ["default", "channels_last"]
clip_global_norm = [false, true]
"""


def test_case_ids_are_unique():
    ids = [case.case_id for case in expand("", EVERY_AXIS).cases]
    assert (len(ids), len(set(ids))) == (288, 288)


def test_case_ids_are_safe_as_file_names():
    ids = [case.case_id for case in expand("", EVERY_AXIS).cases]
    assert [i for i in ids if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", i)] == []


# 4 topologies x 2 precisions x 2 compilers, one batch size for each precision
def test_resnet50_protocol_has_16_cases():
    assert len(expand_shipped("resnet50").cases) == 16


# 4 topologies x 2 precisions x 2 compilers x 4 batch sizes for each precision
def test_bert_protocol_has_64_cases():
    assert len(expand_shipped("bert").cases) == 64


@pytest.mark.parametrize("name", ["resnet50", "bert"])
def test_dlperf_protocol_has_its_topologies(name):
    topologies = {str(case.topology) for case in expand_shipped(name).cases}
    assert topologies == {"1n1g", "1n8g", "2n8g", "4n8g"}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("resnet50", {("fp32", 128), ("amp-fp16", 256)}),
        (
            "bert",
            {("fp32", size) for size in (32, 48, 64, 96)}
            | {("amp-fp16", size) for size in (64, 96, 128, 160)},
        ),
    ],
)
def test_dlperf_protocol_has_its_batch_sizes(name, sizes):
    cases = expand_shipped(name).cases
    assert {(case.axes.precision, case.axes.batch_size_per_device) for case in cases} == sizes


@pytest.mark.parametrize("name", ["resnet50", "bert"])
def test_dlperf_protocol_has_seven_repeats_of_20_and_100_steps(name):
    protocols = {case.protocol for case in expand_shipped(name).cases}
    assert [(p.repeats, p.warmup_steps, p.measured_steps) for p in protocols] == [(7, 20, 100)]


@pytest.mark.parametrize("name", ["resnet50", "bert"])
def test_dlperf_protocol_has_the_compiler_on_and_off(name):
    assert {case.axes.compiler for case in expand_shipped(name).cases} == {"none", "torch.compile"}


def test_bert_protocol_clips_by_global_norm():
    assert all(case.axes.clip_global_norm for case in expand_shipped("bert").cases)


def test_dlperf_protocols_have_the_models_at_full_size():
    shipped = [*expand_shipped("bert").cases, *expand_shipped("resnet50").cases]
    assert [case.model_parameters for case in shipped] == [{}] * 80


def test_same_matrix_gives_the_same_cases_in_the_same_order():
    Path("copy").mkdir()
    write_matrix(EVERY_AXIS, "copy/matrix.toml")
    assert expand_matrix(read_matrix(Path("copy/matrix.toml"))) == expand("", EVERY_AXIS)
