"""Combinations to rehearse: models, precisions, steps, GPUs and ranks, and the case of each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from dlperf_slurm.contract.axes import INFER, ON_DEVICE, ON_HOST, SHARDED, TRAIN, Axes
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.models import load_model

PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16", "bf16", "fp16")
TENSORFLOW_PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16")
STEPS = ("plain", "clip", "accumulate", "host", "val")
# as plain, with the model sharded over several ranks
SHARD = "shard"
# inference of a prompt and its continuation by one rank, for models that generate
GENERATE = "generate"
OUTPUT_TOKENS = 4
ALL_STEPS = (*STEPS, SHARD, GENERATE)
CAPABILITIES = (80, 90)
RANKS = (1, 2)
# full width, which selects kernels; fewer layers, tokens and pixels than in a benchmark
SIZES = {
    "bert": {"layers": 2, "vocabulary_size": 1000},
    "llama": {"layers": 2, "vocabulary_size": 1000, "sequence_length": 256, "kv_heads": 4},
    "resnet50": {"image_size": 64, "stage_blocks": (1, 1, 1, 1)},
    "vit": {"layers": 2, "image_size": 64},
}
# models of images, whose batches are also converted to channels_last on their way to the device
IMAGES = ("resnet50", "vit")
BATCH_SIZE = 8
SEARCH_MEMORY_MIB = 2500
ACCUMULATED = 2
# DDP waits for events after its first ten steps and every hundredth, to log their durations
WARMUP_STEPS = 12
MEASURED_STEPS = 3
# fp16 gradients need a constant scale
CONSTANT_LOSS_SCALE = 128


@dataclass(frozen=True)
class Combination:
    """One row of the table; `step` is one of ALL_STEPS, `fault` is injected on purpose."""

    model: str
    precision: str
    step: str
    capability: int
    ranks: int
    fault: str = ""
    framework: str = "pytorch"

    @property
    def is_training(self) -> bool:
        return self.step not in ("val", GENERATE)

    @property
    def name(self) -> str:
        where = f"{self.capability / 10:.1f}, {self.ranks} rank{'s' * (self.ranks > 1)}"
        framework = "" if self.framework == "pytorch" else f"{self.framework} "
        return f"{framework}{self.model} {self.precision} {self.step} ({where})"


def list_combinations() -> Iterator[Combination]:
    """Yield all combinations, grouped by kind of GPU."""
    for capability, model, precision, step, ranks in product(
        CAPABILITIES, SIZES, PRECISIONS, STEPS, RANKS
    ):
        yield Combination(model, precision, step, capability, ranks)
    for capability, model, precision in product(CAPABILITIES, SIZES, PRECISIONS):
        yield Combination(model, precision, SHARD, capability, max(RANKS))
    generating = [model for model in SIZES if load_model(model).GENERATES]
    for capability, model, precision in product(CAPABILITIES, generating, PRECISIONS):
        yield Combination(model, precision, GENERATE, capability, 1)


def list_tensorflow() -> Iterator[Combination]:
    """Yield the combinations of TensorFlow 2, in graph mode."""
    for model, precision in product(SIZES, TENSORFLOW_PRECISIONS):
        yield Combination(model, precision, "plain", 90, 1, framework="tensorflow2")


def make_case(combination: Combination) -> Case:
    """Make the case, as for a job on a node with as many GPUs as ranks."""
    is_turned = combination.step == "host" and combination.model in IMAGES
    axes = Axes(
        framework=combination.framework,
        topology=f"1n{combination.ranks}g",
        batch_size_per_device=BATCH_SIZE,
        precision=combination.precision,
        clip_global_norm=combination.step == "clip",
        mode=TRAIN if combination.is_training else INFER,
        memory_format="channels_last" if is_turned else "default",
        data=ON_HOST if combination.step == "host" else ON_DEVICE,
        gradient_accumulation=ACCUMULATED if combination.step == "accumulate" else 1,
    )
    if combination.precision == "fp16" and combination.is_training:
        axes = replace(axes, loss_scale=CONSTANT_LOSS_SCALE)
    if combination.step == SHARD:
        axes = replace(axes, gradient_sync=SHARDED)
    if combination.step == GENERATE:
        axes = replace(axes, output_tokens=OUTPUT_TOKENS)
    return Case(
        run_id="rehearsal",
        case_id="rehearsal",
        repeat=1,
        attempt=1,
        axes=axes,
        model=combination.model,
        model_parameters=SIZES[combination.model],
        device="cuda",
        cpus_per_rank=1,
        warmup_steps=WARMUP_STEPS,
        measured_steps=MEASURED_STEPS,
        seed=1,
    )
