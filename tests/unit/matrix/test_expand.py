"""Matrix -> cases: product, override, include, exclude, notes, ids and order."""

import pytest
from builders import write_matrix
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


BF16_16 = "[[override]]\nwhen = { precision = 'amp-bf16' }\nbatch_size_per_device = 16\n"
BASE_POINTS = ["1n1g fp32 8", "1n1g amp-bf16 8", "2n1g fp32 8", "2n1g amp-bf16 8"]


@pytest.mark.parametrize(
    ("rules", "points"),
    [
        # the product in the order of the axes
        ("", BASE_POINTS),
        (BF16_16, ["1n1g fp32 8", "1n1g amp-bf16 16", "2n1g fp32 8", "2n1g amp-bf16 16"]),
        (
            "[[override]]\nwhen = { precision = 'fp32', nodes = 2 }\n"
            "batch_size_per_device = [4, 6]\n",
            [*BASE_POINTS[:2], "2n1g fp32 4", "2n1g fp32 6", "2n1g amp-bf16 8"],
        ),
        # a later override wins
        (
            "[[override]]\nwhen = { nodes = 2 }\nbatch_size_per_device = 4\n"
            "[[override]]\nwhen = { precision = 'fp32' }\nbatch_size_per_device = 6\n",
            ["1n1g fp32 6", "1n1g amp-bf16 8", "2n1g fp32 6", "2n1g amp-bf16 4"],
        ),
        # an include adds its product with the axes; those without a meaning make one case
        (
            "loss_scale = ['dynamic', 128]\n[[include]]\ntopology = '4n1g'\n",
            [*BASE_POINTS, "4n1g fp32 8", "4n1g amp-bf16 8"],
        ),
        # an include pins an axis against overrides
        (
            f"{BF16_16}[[include]]\nprecision = 'amp-bf16'\nbatch_size_per_device = 32\n"
            "topology = '1n1g'\n",
            [
                *("1n1g fp32 8", "1n1g amp-bf16 16", "2n1g fp32 8", "2n1g amp-bf16 16"),
                "1n1g amp-bf16 32",
            ],
        ),
    ],
)
def test_rules_make_cases(rules, points):
    assert list_points(expand(rules)) == points


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


def test_override_sets_values_to_0_and_to_false():
    axes = TWO_BY_TWO.replace('"resnet50"', '"resnet50"\nlabel_smoothing = 0.1')
    rules = (
        "mode = 'infer'\noutput_tokens = 16\nclip_global_norm = true\n[[override]]\n"
        "when = { nodes = 2 }\noutput_tokens = 0\nclip_global_norm = false\n"
        "model = { label_smoothing = 0.0 }\nprotocol = { warmup_steps = 0, stall_seconds = 0 }\n"
    )
    found = [
        (
            *(case.axes.output_tokens, case.axes.clip_global_norm),
            *(case.model_parameters["label_smoothing"], case.protocol.warmup_steps),
            case.protocol.stall_seconds,
        )
        for case in expand(rules, axes).cases
    ]
    assert found == 2 * [(16, True, 0.1, 20, None)] + 2 * [(0, False, 0.0, 0, 0)]


def test_override_of_the_model_is_merged_into_its_parameters():
    axes = TWO_BY_TWO.replace('"resnet50"', '"resnet50"\nimage_size = 64\nwidth = 16')
    rules = (
        "[[override]]\nwhen = { nodes = 2 }\nmodel = { width = 8, stage_blocks = [1, 1, 1, 1] }\n"
    )
    expected = {"image_size": 64, "width": 8, "stage_blocks": (1, 1, 1, 1)}
    assert expand(rules, axes).cases[-1].model_parameters == expected


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
        ("batch_size_per_device = '>8'", 0),
        ("topology = '1n1g', precision = 'fp32'", 1),
        ("", 4),
    ],
)
def test_condition_matches_where_all_that_it_names_holds(condition, count):
    expansion = expand(f"[[note]]\nwhen = {{ {condition} }}\ntext = 'matched'\n")
    assert sum(case.notes == ("matched",) for case in expansion.cases) == count


SEARCHES = TWO_BY_TWO.replace("= 8", "= [8, 'max', '256->224 -> 196']")


@pytest.mark.parametrize(
    ("condition", "sizes"),
    [
        ("'max'", {"bsmax"}),
        ("'256 -> 224 -> 196'", {"bs256-224-196"}),
        ("'>=1'", {"bs8"}),
        ("['max', 8]", {"bs8", "bsmax"}),
    ],
)
def test_condition_takes_batch_sizes_that_the_job_finds(condition, sizes):
    rule = f"[[exclude]]\nwhen = {{ batch_size_per_device = {condition} }}\n"
    names = [left_out.case.case_id for left_out in expand(rule, SEARCHES).excluded]
    assert {
        name.split("-", 3)[3].removesuffix("-fp32") for name in names if "fp32" in name
    } == sizes


@pytest.mark.parametrize(
    ("rules", "excluded"),
    [
        # the first that matches gives the reason
        (
            "[[exclude]]\nwhen = { nodes = 2 }\nreason = 'first'\n"
            "[[exclude]]\nwhen = { precision = 'fp32' }\nreason = 'second'\n",
            [("1n1g", "fp32", "second"), ("2n1g", "fp32", "first"), ("2n1g", "amp-bf16", "first")],
        ),
        # of what an include adds too
        (
            "[[exclude]]\nwhen = { nodes = 4, precision = 'fp32' }\nreason = 'too slow'\n"
            "[[include]]\ntopology = '4n1g'\n",
            [("4n1g", "fp32", "too slow")],
        ),
    ],
)
def test_excluded_cases_are_kept_apart_with_their_reason(rules, excluded):
    expansion = expand(rules)
    found = [(str(x.case.topology), x.case.axes.precision, x.reason) for x in expansion.excluded]
    assert found == excluded
    assert not {f"{t} {p} 8" for t, p, _ in excluded} & {*list_points(expansion)}
    assert len(expansion.cases) + len(excluded) == (6 if "include" in rules else 4)


def test_overrides_and_notes_hold_for_cases_that_an_include_adds():
    rules = (
        "[[override]]\nwhen = { nodes = 4 }\nprotocol = { repeats = 3 }\n"
        "[[note]]\nwhen = { nodes = 4 }\ntext = 'a'\n[[include]]\ntopology = '4n1g'\n"
        "[[note]]\nwhen = { precision = 'fp32' }\ntext = 'b'\n"
    )
    found = [(case.protocol.repeats, case.notes) for case in expand(rules).cases]
    assert found == 2 * [(7, ("b",)), (7, ())] + [(3, ("a", "b")), (3, ("a",))]


INCLUDE = "[[include]]\ntopology = '4n1g'\nprecision = 'fp32'\n"


PYTORCH = "pytorch-resnet50"
STRONG = TWO_BY_TWO.replace("batch_size_per_device = 8", "global_batch_size = 24")


@pytest.mark.parametrize(
    ("rules", "axes", "line", "key", "says"),
    [
        ("[[exclude]]\nwhen = {}\n", TWO_BY_TWO, 8, "exclude", ("no case",)),
        (INCLUDE.replace("4", "1"), TWO_BY_TWO, 8, "include[0]", (f"{PYTORCH}-1n1g-bs8-fp32",)),
        (INCLUDE + INCLUDE, TWO_BY_TWO, 11, "include[1]", (f"{PYTORCH}-4n1g-bs8-fp32",)),
        (
            "[[override]]\nwhen = { precision = 'fp32' }\ntopology = '4n1g'\n"
            "[[override]]\nwhen = { nodes = '>=2' }\nbatch_size_per_device = 4\n",
            *(TWO_BY_TWO, 12, "override[1].when.nodes", ("include", "exclude")),
        ),
        # batches that the devices cannot share
        ("", STRONG.replace("24", "25"), 7, "axes.global_batch_size", ("25", "multiples of 2")),
        (
            *("", STRONG.replace("global_batch_size = 24", "")),
            *(3, "axes.batch_size_per_device", ("missing",)),
        ),
    ],
)
def test_rule_that_contradicts_the_others_is_refused(rules, axes, line, key, says):
    with pytest.raises(InputError) as caught:
        expand(rules, axes)
    mistake = str(caught.value).splitlines()[0]
    assert_problem(mistake, file="matrix.toml", line=line, key=key, says=says)


def test_global_batch_size_is_shared_by_the_devices_and_their_accumulations():
    expansion = expand(axes=STRONG + "gradient_accumulation = [1, 3]\n")
    found = {(str(case.topology), case.axes.gradient_accumulation, case.axes.batch_size_per_device)
             for case in expansion.cases}  # fmt: skip
    assert found == {("1n1g", 1, 24), ("2n1g", 1, 12), ("1n1g", 3, 8), ("2n1g", 3, 4)}
    assert {case.axes.samples_per_step for case in expansion.cases} == {24}


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


def test_several_models_have_their_own_parameters_and_rules():
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
    found = [
        (case.case_id, dict(case.model_parameters)) for case in expand(rules, TWO_MODELS).cases
    ]
    assert found == [
        ("pytorch-resnet50-1n1g-bs8-fp32", {"image_size": 64}),
        ("pytorch-bert-1n1g-bs8-fp32", {"layers": 2}),
        ("jax-bert-1n1g-bs4-fp32", {"layers": 2}),
        ("pytorch-bert-2n1g-bs8-fp32", {"layers": 2}),
    ]


def test_rules_may_be_for_the_model_of_a_script():
    rules = """\
[[override]]
when = { model = "gpt2" }
batch_size_per_device = 4
[[exclude]]
when = { model = "gpt2", framework = "jax" }
[[note]]
when = { model = "gpt2" }
text = "theirs"
[scripts.nanogpt]
model = "gpt2"
format = "nanogpt"
command = "true"
"""
    matrix = TWO_MODELS.replace("[axes]", '[axes]\nscript = ["worker", "nanogpt"]')
    found = expand(rules, matrix)
    own = [case for case in found.cases if case.model == "gpt2"]
    assert [(case.axes.batch_size, case.notes) for case in own] == [(4, ("theirs",))]
    assert [one.case.case_id for one in found.excluded] == ["jax-gpt2-1n1g-bs4-fp32-nanogpt"]
    assert {case.axes.batch_size for case in found.cases if case not in own} == {8}


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
def test_dlperf_protocol_is_shipped(name, sizes):
    cases = expand_matrix(read_matrix(find_resource_dir("matrices") / f"{name}.toml")).cases
    # topologies x compilers
    assert len(cases) == 4 * 2 * len(sizes)
    assert {str(case.topology) for case in cases} == {"1n1g", "1n8g", "2n8g", "4n8g"}
    assert {(case.axes.precision, case.axes.batch_size_per_device) for case in cases} == sizes
    assert {case.axes.compiler for case in cases} == {"none", "torch.compile"}
    assert {case.axes.clip_global_norm for case in cases} == {name == "bert"}
    assert all(case.model_parameters == {} for case in cases)
    (protocol,) = {case.protocol for case in cases}
    assert (protocol.repeats, protocol.warmup_steps, protocol.measured_steps) == (7, 20, 100)
