import pandas
import pytest

from dlperf_slurm.results.model_hardware import describe_devices, describe_model
from dlperf_slurm.worker.models import load_model

LLAMA_3 = load_model("llama").PRESETS["llama-3-8b"]


@pytest.mark.parametrize(
    ("model", "parameters", "count", "text"),
    [
        ("resnet50", {}, 25_557_032, "ResNet-50"),
        ("resnet50", {"stage_blocks": [3, 4, 6, 3]}, 25_557_032, "ResNet-50"),
        (
            "resnet50",
            {"image_size": 64, "width": 24},
            3_397_372,
            "ResNet-50 (64 px, width 24; 3.4 M parameters)",
        ),
        ("vit", {"patch_size": 32}, 88_224_232, "vit-b-32"),
        ("llama", LLAMA_3, 8_030_261_248, "llama-3-8b"),
        ("llama", {**LLAMA_3, "layers": 2}, None, "llama-3-8b (2 layers)"),
        (
            "bert",
            load_model("bert").VERIFICATION.model_parameters,
            409_870,
            "BERT-base (32 tokens, 2 layers, hidden size 128, 6 other changes; 410 k parameters)",
        ),
        ("a script's own", {}, None, "a script's own"),
    ],
)
def test_sizes_other_than_the_published_ones_are_named(model, parameters, count, text):
    assert describe_model(model, parameters, count) == text


@pytest.mark.parametrize(
    ("hardware", "text"),
    [
        (["2x A, 1 node"], "2x A, 1 node"),
        (["2x A, 1 node", "16x A, 2 nodes", ""], "up to 16x A, 2 nodes"),
        (["16x A, 2 nodes", "16x B, 2 nodes"], "16x A, 2 nodes or 16x B, 2 nodes"),
        (["", ""], ""),
    ],
)
def test_devices_of_a_run_are_those_of_its_largest_cases(hardware, text):
    sizes = [int(one.partition("x")[0] or 64) for one in hardware]
    cases = pandas.DataFrame({"hardware": hardware, "world_size": sizes})
    assert describe_devices(cases) == text
