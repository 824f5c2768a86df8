"""The models' definitions: published parameter counts, costs, and what they refuse."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.problems import assert_problem

from dlperf_slurm.worker import datasets, models
from dlperf_slurm.worker.models import bert, llama, resnet50, vit

ROOT = Path(__file__).resolve().parents[2]


def test_models_are_found_by_listing_their_package():
    names = models.list_models()
    assert names == sorted(names)
    assert {"bert", "llama", "resnet50", "vit"} <= {*names}
    assert models.load_model("resnet50") is resnet50
    with pytest.raises(ModuleNotFoundError):
        models.load_model("resnet51")


@pytest.mark.parametrize(("model", "tokens"), [(bert, 0), (llama, 1024), (resnet50, 0)])
def test_throughput_is_in_tokens_where_it_is_published_so(model, tokens):
    assert model.Definition().tokens_per_sample == tokens


@pytest.mark.parametrize(
    ("model", "parameters", "count"),
    [
        (bert, {}, 110_106_428),
        (bert, {"vocabulary_size": 30528}, 110_111_042),
        # 2 * 32000 * 768 + 12 * (4 * 768^2 + 3 * 768 * 3072 + 2 * 768) + 768
        (llama, {}, 162_417_408),
        (llama, "tinyllama-1.1b", 1_100_048_384),
        (llama, "llama-3.2-1b", 1_235_814_400),
        (llama, "llama-3.2-3b", 3_212_749_824),
        (llama, "llama-7b", 6_738_415_616),
        (llama, "llama-2-7b", 6_738_415_616),
        (llama, "llama-3-8b", 8_030_261_248),
        (resnet50, {}, 25_557_032),
        (vit, {}, 86_567_656),
        (vit, "vit-s-16", 22_050_664),
        (vit, "vit-b-16", 86_567_656),
        (vit, "vit-b-32", 88_224_232),
        (vit, "vit-l-16", 304_326_632),
        (vit, "vit-h-14", 632_045_800),
    ],
)
def test_size_has_the_published_parameter_count(model, parameters, count):
    chosen = model.PRESETS[parameters] if isinstance(parameters, str) else parameters
    definition = model.Definition(**chosen)
    assert definition.find_problems() == []
    assert definition.parameter_count == count


def test_tied_embedding_is_counted_once():
    tied, untied = (llama.Definition(tied_embedding=is_tied) for is_tied in (True, False))
    assert untied.parameter_count - tied.parameter_count == 32000 * 768
    assert untied.flops_per_sample == tied.flops_per_sample


@pytest.mark.parametrize(("model", "multiply_adds"), [(resnet50, 4.09e9), (vit, 17.56e9)])
def test_forward_pass_costs_the_published_multiply_adds(model, multiply_adds):
    assert model.Definition().flops_per_sample / 2 == pytest.approx(multiply_adds, rel=0.001)


def test_rotation_turns_each_pair_of_halves_by_its_own_frequency():
    numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")
    definition = llama.Definition(sequence_length=5, hidden_size=8, heads=1, rotary_theta=10000.0)
    cosine, sine = definition.make_rotation()
    assert (cosine.shape, sine.shape, cosine.dtype) == ((5, 4), (5, 4), numpy.float32)
    # 10000^(-2 i / 8)
    angles = [3.0, 0.3, 0.03, 0.003]
    assert cosine[3] == pytest.approx(numpy.cos(angles), rel=1e-6)
    assert sine[3] == pytest.approx(numpy.sin(angles), rel=1e-6)


@pytest.mark.parametrize("name", models.list_models())
def test_model_says_all_that_is_asked_of_it(name):
    model = models.load_model(name)
    assert model.INPUT in list_input_kinds()
    assert hasattr(model.Definition, "classes") == model.HAS_ACCURACY
    definition = model.Definition()
    assert isinstance(model.HAS_BATCH_STATISTICS, bool)
    assert model.HAS_BATCH_STATISTICS or not list(definition.list_running_statistics())
    rule = definition.make_rule(256)
    assert rule.learning_rate > 0
    assert rule.weight_decay == definition.RULE.weight_decay
    assert definition.CLIP_GLOBAL_NORM > 0


def list_input_kinds():
    """Modules that read files of samples."""
    folder = Path(datasets.__file__).parent
    return [path.stem for path in folder.glob("*.py") if "class Folder:" in path.read_text()]


@pytest.mark.parametrize(
    ("model", "field", "value", "allowed"),
    [
        (resnet50, "image_size", 31, "32 or more"),
        (resnet50, "stage_blocks", (1, 1, 0, 1), "1 or more"),
        (resnet50, "label_smoothing", 1.0, "0 <= value < 1"),
        (resnet50, "label_smoothing", float("nan"), "0 <= value < 1"),
        (bert, "layers", -1, "1 or more"),
        (bert, "hidden_size", 770, "a multiple of heads (12)"),
        (bert, "vocabulary_size", 103, "104 or more"),
        (bert, "sequence_length", 513, "at most max_positions (512)"),
        (bert, "predictions_per_sequence", 128, "less than sequence_length (128)"),
        (bert, "dropout", -0.1, "0 <= value < 1"),
        (llama, "hidden_size", 780, "a multiple of twice the heads (24)"),
        (llama, "kv_heads", 5, "a divisor of heads (12)"),
        (llama, "rotary_theta", 0.0, "more than 0"),
        (llama, "normalization_epsilon", 0.0, "0 < value < 1"),
        (vit, "image_size", 225, "a multiple of patch_size (16)"),
        (vit, "hidden_size", 770, "a multiple of heads (12)"),
        (vit, "label_smoothing", 1.0, "0 <= value < 1"),
        # of another type
        (resnet50, "image_size", "224", "an integer"),
        (resnet50, "stage_blocks", 3, "a list of integers"),
        (resnet50, "stage_blocks", (3, 4, 6, "3"), "a list of integers"),
        (bert, "dropout", "0.1", "a number"),
        (bert, "dropout", True, "a number"),
        (llama, "tied_embedding", 1, "true or false"),
    ],
)
def test_impossible_size_is_named_with_what_is_allowed(model, field, value, allowed):
    (problem,) = replace(model.Definition(), **{field: value}).find_problems()
    assert_problem(problem, says=(f"{field} is {value!r}", f"allowed: {allowed}"))


def test_all_problems_come_at_once():
    assert resnet50.Definition(image_size=32, width=1).find_problems() == []
    assert len(bert.Definition(heads=7, sequence_length=600, dropout=2).find_problems()) == 3
    (problem,) = resnet50.Definition(stage_blocks=()).find_problems()
    assert_problem(problem, says=("stage_blocks is []", "allowed: four integers"))


def test_worker_modules_load_without_site_packages():
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from dlperf_slurm.worker import models, synthetic_batch\n"
        "from dlperf_slurm.worker.frameworks import load_adapter\n"
        "load_adapter('pytorch')\n"
        "print([models.load_model(name).__name__ for name in models.list_models()])\n"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
