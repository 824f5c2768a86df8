"""What the ranks of a combination asked their GPUs for -> what is wrong with it, by check."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rehearsal.combinations import (
    GENERATE,
    MEASURED_STEPS,
    OUTPUT_TOKENS,
    SHARD,
    Combination,
)

# by model: names of torch's own kernels; those of libraries are not to be seen in a rehearsal
EXPECTED = json.loads(
    (Path(__file__).parents[1] / "gpu" / "expected_kernels.json").read_text("utf-8")
)["pytorch"]
OPTIMIZER = re.compile("Fused(Adam|Sgd)")

# library_types.h, cublas_api.h, cudnn_graph.h, nccl.h
CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF = 0, 2, 14
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 77
CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_MATH_MODES = 3, 0xF
CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16 = 0, 2, 9
NCCL_FLOAT16, NCCL_FLOAT32, NCCL_BFLOAT16 = 6, 7, 9
# what waits for the clock's event of the step before
STEP_BEFORE = "cudaEventSynchronize"
# how often a step may send a rank's part of the model, and what its evenness may add
TIMES_OF_PARTS = {"ncclAllGather": 2, "ncclReduceScatter": 1}
LARGEST_PADDING = 1.02
# what is wrong, by check
Problems = dict[str, list[str]]


@dataclass(frozen=True)
class Numbers:
    """The numbers that a precision computes with: types of cuBLAS and cuDNN, TF32, of gradients."""

    product_type: int
    convolution_type: int
    has_tensor_cores: bool
    is_tf32: bool = False
    gradient_type: int = NCCL_FLOAT32
    gradient_bytes: int = 4


NUMBERS = {
    "fp32": Numbers(CUDA_R_32F, CUDNN_DATA_FLOAT, has_tensor_cores=False),
    "tf32": Numbers(CUDA_R_32F, CUDNN_DATA_FLOAT, has_tensor_cores=True, is_tf32=True),
    "amp-bf16": Numbers(CUDA_R_16BF, CUDNN_DATA_BFLOAT16, has_tensor_cores=True),
    "amp-fp16": Numbers(CUDA_R_16F, CUDNN_DATA_HALF, has_tensor_cores=True),
    "bf16": Numbers(
        CUDA_R_16BF,
        CUDNN_DATA_BFLOAT16,
        has_tensor_cores=True,
        gradient_type=NCCL_BFLOAT16,
        gradient_bytes=2,
    ),
    "fp16": Numbers(
        CUDA_R_16F,
        CUDNN_DATA_HALF,
        has_tensor_cores=True,
        gradient_type=NCCL_FLOAT16,
        gradient_bytes=2,
    ),
}


@dataclass(frozen=True)
class Entry:
    """A line of the trace: "product by=cublasSgemm_v2 type=0", and how often it came."""

    text: str
    count: int

    @property
    def kind(self) -> str:
        return self.text.partition(" ")[0]

    @cached_property
    def words(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.text.split(" ")[1:])

    def number(self, name: str) -> int:
        return int(self.words[name])


@dataclass(frozen=True)
class Rank:
    """What one rank asked for: before its window, in each step, and after."""

    parameter_count: int
    intervals: tuple[tuple[Entry, ...], ...]

    @property
    def steps(self) -> tuple[tuple[Entry, ...], ...]:
        return self.intervals[1 : 1 + MEASURED_STEPS]

    def list_kinds(self, *kinds: str) -> Iterator[Entry]:
        """Those of these kinds, step by step."""
        for step in self.steps:
            yield from (entry for entry in step if entry.kind in kinds)

    @property
    def kernels(self) -> list[str]:
        """Names of torch's own, and one for an attention of cuDNN, whose own all have it."""
        names = [entry.words["name"] for entry in self.list_kinds("kernel")]
        return names + ["sdpa" for _ in self.list_kinds("attention")]


def read_rank(told: Mapping[str, Any]) -> Rank:
    """A rank as `observe` tells it."""
    intervals = (
        tuple(Entry(text, count) for text, count in sorted(interval.items()))
        for interval in told["intervals"]
    )
    return Rank(told["parameter_count"], tuple(intervals))


def has_plain_sgd(combination: Combination) -> bool:
    """Whether SGD is not fused, which torch has for whole parameters alone."""
    return combination.step == SHARD and combination.model == "resnet50"


def reads_overflow(combination: Combination) -> bool:
    """Whether the scaler asks the GPU in each step for what only a fused optimizer leaves there."""
    return has_plain_sgd(combination) and combination.precision == "amp-fp16"


def check_waits(combination: Combination, rank: Rank) -> Iterator[str]:
    """A step waits once, for the end of the one before it; an inference for each of its ends."""
    count = OUTPUT_TOKENS if combination.step == GENERATE else 1
    expected = [f"{count} x {STEP_BEFORE if combination.is_training else 'cudaDeviceSynchronize'}"]
    if reads_overflow(combination):
        expected.append("1 x cudaStreamSynchronize")
    for number, step in enumerate(rank.steps, 1):
        waits = [f"{one.count} x {one.words['by']}" for one in step if one.kind == "wait"]
        if waits != expected:
            yield f"step {number} waits by {', '.join(waits) or 'nothing'}"


def check_copies(combination: Combination, rank: Rank) -> Iterator[str]:
    """What a step needs lies on the GPU, or comes from pinned memory, which nothing waits for."""
    copies = list(rank.list_kinds("copy"))
    inside, loaded = ("device", "device"), ("pinned", "device")
    # FSDP2 has where its parts lie from there
    expected = {inside, loaded} if combination.step in ("host", SHARD) else {inside}
    if reads_overflow(combination):
        expected.add(("device", "pinned"))
    for one in copies:
        ends = (one.words["from"], one.words["to"])
        if ends not in expected or one.words["by"] == "cudaMemcpy":
            yield f"{one.words['by']} {' -> '.join(ends)}"
    if combination.step == "host" and not any(one.words["from"] == "pinned" for one in copies):
        yield "nothing is copied from pinned memory"


def check_memory(combination: Combination, rank: Rank) -> Iterator[str]:
    """After the warm-up no memory is taken from CUDA, nor given back."""
    for one in rank.list_kinds("memory", "pinned", "release"):
        yield one.text


def check_kernels(combination: Combination, rank: Rank) -> Iterator[str]:
    """Torch's own kernels: attention and optimizer are fused."""
    names = rank.kernels
    expected = [
        pattern
        for pattern in EXPECTED[combination.model]["own"]
        if (combination.is_training and not has_plain_sgd(combination))
        or not OPTIMIZER.search(pattern)
    ]
    for pattern in expected:
        if not any(re.search(pattern, name) for name in names):
            yield f"no kernel is {pattern!r}"
    if not combination.is_training and any(map(OPTIMIZER.search, names)):
        yield "inference has an optimizer"
    for one in rank.list_kinds("invalid"):
        yield f"would not start: {one.words['name']}"


def check_numbers(combination: Combination, rank: Rank) -> Iterator[str]:
    """Products and convolutions are in the numbers of the precision, and TF32 in no other."""
    expected = NUMBERS[combination.precision]
    products = list(rank.list_kinds("product"))
    convolutions = list(rank.list_kinds("convolution"))
    if not products or (combination.model == "resnet50" and not convolutions):
        yield f"{len(products)} products, {len(convolutions)} convolutions"
    for one in products:
        is_tf32 = (
            one.number("compute") == CUBLAS_COMPUTE_32F_FAST_TF32
            or one.number("math") & CUBLAS_MATH_MODES == CUBLAS_TF32_TENSOR_OP_MATH
        )
        is_fp32_sum = one.number("compute") in (CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32)
        # a handle that allows TF32 does nothing to numbers of 16 bits
        if (
            one.number("type") != expected.product_type
            or not is_fp32_sum
            or is_tf32 != expected.is_tf32
        ):
            yield f"{one.count} x {one.text}"
    for one in rank.list_kinds("attention"):
        if one.number("type") != expected.convolution_type:
            yield f"{one.count} x {one.text}"
    for one in convolutions:
        if (
            one.number("type") != expected.convolution_type
            or one.number("compute") != CUDNN_DATA_FLOAT
            or bool(one.number("has_tensor_cores")) != expected.has_tensor_cores
        ):
            yield f"{one.count} x {one.text}"


def check_mean(combination: Combination, rank: Rank) -> Iterator[str]:
    """Ranks exchange each gradient once in a step, in its own type, and nothing else."""
    numbers = NUMBERS[combination.precision]
    if combination.step == SHARD:
        yield from check_parts(combination, rank, numbers)
        return
    is_sent = combination.ranks > 1 and combination.is_training
    expected = rank.parameter_count * numbers.gradient_bytes if is_sent else 0
    for number, step in enumerate(rank.steps, 1):
        collectives = [one for one in step if one.kind == "collective"]
        for one in collectives:
            if one.words["by"] != "ncclAllReduce" or one.number("type") != numbers.gradient_type:
                yield f"step {number}: {one.text}"
        sent = sum(one.count * one.number("bytes") for one in collectives)
        if sent != expected:
            yield f"step {number} sends {sent} bytes, not {expected}"


def check_parts(combination: Combination, rank: Rank, numbers: Numbers) -> Iterator[str]:
    """A rank gathers each weight for both passes at most, and gives away gradients but its part."""
    part = rank.parameter_count * numbers.gradient_bytes / combination.ranks
    # whether a gradient of any rank overflowed
    flag = f"ncclAllReduce type={NCCL_FLOAT32} bytes=4 "
    for number, step in enumerate(rank.steps, 1):
        sent = Counter[str]()
        for one in step:
            if combination.precision == "amp-fp16" and flag in one.text:
                continue
            if one.kind == "collective":
                sent[one.words["by"]] += one.count * one.number("bytes")
                if one.number("type") != numbers.gradient_type:
                    yield f"step {number}: {one.text}"
        for by in sorted({*sent, *TIMES_OF_PARTS}):
            most = LARGEST_PADDING * TIMES_OF_PARTS.get(by, 0) * part
            if not part <= sent[by] <= most:
                yield f"step {number} sends {sent[by]} bytes by {by}; a part has {part:.0f}"


def check_known(combination: Combination, rank: Rank) -> Iterator[str]:
    """Nothing was asked for that the stand-ins do not know."""
    names = {one.words["name"] for step in rank.intervals for one in step if one.kind == "unknown"}
    yield from sorted(names)


def check_alike(combination: Combination, rank: Rank) -> Iterator[str]:
    """All measured steps ask for the same."""
    counts = [Counter({one.text: one.count for one in step}) for step in rank.steps]
    for number, count in enumerate(counts[1:], 2):
        different = (count - counts[0]) + (counts[0] - count)
        if different:
            yield f"step {number} is another than step 1: {', '.join(sorted(different))}"


OF_A_RANK = {
    "waits": check_waits,
    "copies": check_copies,
    "memory": check_memory,
    "kernels": check_kernels,
    "numbers": check_numbers,
    "mean": check_mean,
    "known": check_known,
    "alike": check_alike,
}
DEVICE = "device"
CHECKS = (*OF_A_RANK, DEVICE)
# of another framework, the numbers that it computes with are what is asked about
CHECKED = {"pytorch": CHECKS, "tensorflow2": ("numbers", "known")}


def check_device(ranks: Sequence[Rank]) -> Iterator[str]:
    """Each rank drives the GPU of its number, and no other at any time."""
    for number, rank in enumerate(ranks):
        devices = {
            one.number("device")
            for interval in rank.intervals
            for one in interval
            if "device" in one.words
        }
        if devices != {number}:
            yield f"rank {number} drives GPU {', '.join(map(str, sorted(devices))) or 'none'}"


def find_problems(combination: Combination, ranks: Sequence[Rank]) -> Problems:
    """What is wrong, by the name of its check; {} where all is well."""
    problems = {DEVICE: list(check_device(ranks))}
    for name, check in OF_A_RANK.items():
        problems[name] = [
            f"rank {number}: {problem}" if len(ranks) > 1 else problem
            for number, rank in enumerate(ranks)
            for problem in check(combination, rank)
        ]
    checked = CHECKED[combination.framework]
    return {name: found for name, found in problems.items() if found and name in checked}
