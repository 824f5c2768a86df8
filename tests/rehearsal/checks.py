"""The traced GPU calls of a combination's ranks -> problems, by check."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dlperf_slurm.worker.models import load_model
from rehearsal.combinations import (
    GENERATE,
    MEASURED_STEPS,
    OUTPUT_TOKENS,
    SHARD,
    Combination,
)

# model -> names of torch's own kernels; a rehearsal does not see those of libraries
EXPECTED = json.loads(
    (Path(__file__).parents[1] / "gpu" / "expected_kernels.json").read_text("utf-8")
)["pytorch"]
OPTIMIZER = re.compile("Fused(Adam|Sgd)")

# cublas_api.h, cudnn_graph.h, nccl.h
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32 = 68, 77
CUBLAS_TF32_TENSOR_OP_MATH, CUBLAS_MATH_MODES = 3, 0xF
CUDNN_DATA_FLOAT = 0
NCCL_FLOAT32 = 7
# the call that waits for the clock's event of the step before
STEP_BEFORE = "cudaEventSynchronize"
# of a rank's shard of the model
LARGEST_PADDING = 1.02
# check -> problems
Problems = dict[str, list[str]]


@dataclass(frozen=True)
class Format:
    """A number format: its types in library_types.h, cudnn_graph.h and nccl.h, and its bytes."""

    product_type: int
    convolution_type: int
    collective_type: int
    bytes: int


FP32 = Format(0, CUDNN_DATA_FLOAT, NCCL_FLOAT32, 4)
FP16 = Format(2, 2, 6, 2)
BF16 = Format(14, 9, 9, 2)


@dataclass(frozen=True)
class Numbers:
    """The formats of a precision: of products and gathered weights, and of gradients."""

    products: Format
    gradients: Format = FP32
    has_tensor_cores: bool = True
    is_tf32: bool = False


NUMBERS = {
    "fp32": Numbers(FP32, has_tensor_cores=False),
    "tf32": Numbers(FP32, is_tf32=True),
    "amp-bf16": Numbers(BF16),
    "amp-fp16": Numbers(FP16),
    "bf16": Numbers(BF16, BF16),
    "fp16": Numbers(FP16, FP16),
}


@dataclass(frozen=True)
class Entry:
    """A line of the trace, such as "product by=cublasSgemm_v2 type=0", and its count."""

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
    """The trace of one rank: before its window, in each step, and after."""

    parameter_count: int
    intervals: tuple[tuple[Entry, ...], ...]

    @property
    def steps(self) -> tuple[tuple[Entry, ...], ...]:
        return self.intervals[1 : 1 + MEASURED_STEPS]

    def list_kinds(self, *kinds: str) -> Iterator[Entry]:
        """Yield the entries of these kinds, step by step."""
        for step in self.steps:
            yield from (entry for entry in step if entry.kind in kinds)

    @property
    def kernels(self) -> list[str]:
        """Names of torch's own kernels, and "sdpa" for each attention of cuDNN."""
        names = [entry.words["name"] for entry in self.list_kinds("kernel")]
        return names + ["sdpa" for _ in self.list_kinds("attention")]


def read_rank(told: Mapping[str, Any]) -> Rank:
    """Convert a rank's answer from `observe`."""
    intervals = (
        tuple(Entry(text, count) for text, count in sorted(interval.items()))
        for interval in told["intervals"]
    )
    return Rank(told["parameter_count"], tuple(intervals))


def has_plain_sgd(combination: Combination) -> bool:
    """Return whether SGD is not fused: torch has fused SGD only for unsharded parameters."""
    return combination.step == SHARD and combination.model == "resnet50"


def reads_overflow(combination: Combination) -> bool:
    """Return whether the scaler reads the overflow flag in each step, without a fused optimizer."""
    return has_plain_sgd(combination) and combination.precision == "amp-fp16"


def check_waits(combination: Combination, rank: Rank) -> Iterator[str]:
    """Check that a step waits once, for the end of the step before; inference for its own ends."""
    count = OUTPUT_TOKENS if combination.step == GENERATE else 1
    expected = [f"{count} x {STEP_BEFORE if combination.is_training else 'cudaDeviceSynchronize'}"]
    if reads_overflow(combination):
        expected.append("1 x cudaStreamSynchronize")
    for number, step in enumerate(rank.steps, 1):
        waits = [f"{one.count} x {one.words['by']}" for one in step if one.kind == "wait"]
        if waits != expected:
            yield f"step {number} waits by {', '.join(waits) or 'nothing'}"


def check_copies(combination: Combination, rank: Rank) -> Iterator[str]:
    """Check that a step copies within the GPU, or from pinned memory on a stream of its own."""
    copies = list(rank.list_kinds("copy"))
    inside, loaded = ("device", "device"), ("pinned", "device")
    # FSDP2 copies the offsets of its shards from pinned memory
    expected = {inside, loaded} if combination.step in ("host", SHARD) else {inside}
    if reads_overflow(combination):
        expected.add(("device", "pinned"))
    for one in copies:
        ends = (one.words["from"], one.words["to"])
        if ends not in expected or one.words["by"] == "cudaMemcpy":
            yield f"{one.words['by']} {' -> '.join(ends)}"
    if combination.step == "host":
        streams = {one.words["stream"] for one in copies if one.words["from"] == "pinned"}
        if streams != {"own"}:
            yield f"copies from pinned memory are on: {', '.join(sorted(streams)) or 'no stream'}"


def check_memory(combination: Combination, rank: Rank) -> Iterator[str]:
    """Check that no memory is allocated from CUDA or freed after the warm-up."""
    for one in rank.list_kinds("memory", "pinned", "release"):
        yield one.text


def check_kernels(combination: Combination, rank: Rank) -> Iterator[str]:
    """Check torch's own kernels: attention and optimizer are fused."""
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
    """Check that products and convolutions use the precision's formats, and TF32 only in tf32."""
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
        # a handle that allows TF32 does not affect 16-bit formats
        if (
            one.number("type") != expected.products.product_type
            or not is_fp32_sum
            or is_tf32 != expected.is_tf32
        ):
            yield f"{one.count} x {one.text}"
    for one in rank.list_kinds("attention"):
        if one.number("type") != expected.products.convolution_type:
            yield f"{one.count} x {one.text}"
    for one in convolutions:
        if (
            one.number("type") != expected.products.convolution_type
            or one.number("compute") != CUDNN_DATA_FLOAT
            or bool(one.number("has_tensor_cores")) != expected.has_tensor_cores
        ):
            yield f"{one.count} x {one.text}"


def check_mean(combination: Combination, rank: Rank) -> Iterator[str]:
    """Check that ranks exchange each gradient once per step, in its own type, and nothing else."""
    numbers = NUMBERS[combination.precision]
    if combination.step == SHARD:
        yield from check_parts(combination, rank, numbers)
        return
    is_sent = combination.ranks > 1 and combination.is_training
    expected = rank.parameter_count * numbers.gradients.bytes if is_sent else 0
    for number, step in enumerate(rank.steps, 1):
        collectives = [one for one in step if one.kind == "collective"]
        for one in collectives:
            if (
                one.words["by"] != "ncclAllReduce"
                or one.number("type") != numbers.gradients.collective_type
            ):
                yield f"step {number}: {one.text}"
        sent = sum(one.count * one.number("bytes") for one in collectives)
        if sent != expected:
            yield f"step {number} sends {sent} bytes, not {expected}"


def check_parts(combination: Combination, rank: Rank, numbers: Numbers) -> Iterator[str]:
    """Check that a rank gathers weights at most once per pass, and scatters gradients once."""
    values = rank.parameter_count / combination.ranks
    # the weights of batch normalization are gathered in their own type
    is_whole = load_model(combination.model).HAS_BATCH_STATISTICS
    weights = numbers.gradients if is_whole else numbers.products
    # of each collective the type, the bytes of a rank's part, and how often a step may send it
    gradients = numbers.gradients
    expected = {
        "ncclAllGather": (weights.collective_type, weights.bytes * values, 2),
        "ncclReduceScatter": (gradients.collective_type, gradients.bytes * values, 1),
    }
    # all-reduce of the overflow flag
    flag = f"ncclAllReduce type={NCCL_FLOAT32} bytes=4 "
    for number, step in enumerate(rank.steps, 1):
        sent = Counter[str]()
        for one in step:
            if combination.precision == "amp-fp16" and flag in one.text:
                continue
            if one.kind == "collective":
                by = one.words["by"]
                sent[by] += one.count * one.number("bytes")
                if by not in expected or one.number("type") != expected[by][0]:
                    yield f"step {number}: {one.text}"
        for by, (_, part, times) in expected.items():
            if not part <= sent[by] <= LARGEST_PADDING * times * part:
                yield f"step {number} sends {sent[by]} bytes by {by}; a part has {part:.0f}"


def check_known(combination: Combination, rank: Rank) -> Iterator[str]:
    """Check that no function without a stub was called."""
    names = {one.words["name"] for step in rank.intervals for one in step if one.kind == "unknown"}
    yield from sorted(names)


def check_alike(combination: Combination, rank: Rank) -> Iterator[str]:
    """Check that all measured steps make the same calls."""
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
# for other frameworks only the number formats are checked
CHECKED = {"pytorch": CHECKS, "tensorflow2": ("numbers", "known")}


def check_device(ranks: Sequence[Rank]) -> Iterator[str]:
    """Check that each rank uses the GPU of its number, and no other."""
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
    """Return the problems by the name of their check; {} if there are none."""
    problems = {DEVICE: list(check_device(ranks))}
    for name, check in OF_A_RANK.items():
        problems[name] = [
            f"rank {number}: {problem}" if len(ranks) > 1 else problem
            for number, rank in enumerate(ranks)
            for problem in check(combination, rank)
        ]
    checked = CHECKED[combination.framework]
    return {name: found for name, found in problems.items() if found and name in checked}
