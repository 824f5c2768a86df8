"""Steps of JAX's adapter that XLA compiled for H100 -> what multiplies in them, and what is wrong.

On a GPU, XLA times its own kernels, which it makes by Triton, beside those of cuBLAS, and takes the
faster: both are looked at. Convolutions are cuDNN's.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from rehearsal.checks import Problems
from rehearsal.combinations import SIZES

XLA, CUBLAS, CUDNN = "XLA", "cuBLAS", "cuDNN"
NUMBERS_CHECK = "numbers"
PRODUCTS_BY = (XLA, CUBLAS)
LIBRARIES = {"__cublas": CUBLAS, "__cudnn": CUDNN}
# The type of operands, the precision asked for, and the type that tensor cores read in XLA's own
# kernels. What is asked for as DEFAULT or HIGH, XLA lets cuBLAS and cuDNN compute in TF32 (XLA's
# `GetBlasComputationType`, and `allow_tf32` where it picks engines of cuDNN).
NUMBERS = {
    "fp32": ("f32", "HIGHEST", ""),
    "tf32": ("f32", "DEFAULT", "tf32"),
    "amp-bf16": ("bf16", "DEFAULT", "bf16"),
}
# the faults, each in the precisions that MATMUL_PRECISIONS of the adapter then has
FAULTS: dict[str, dict[str, str]] = {
    "leave the precision to XLA": {},
    "ask for the highest precision": dict.fromkeys(NUMBERS, "highest"),
}

# of XLA's text for compiled modules
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%([\w.-]+) = \(?(\w+)\[")
CALLED = re.compile(r" (dot|convolution|custom-call)\(([^)]*)\)")
TARGET = re.compile(r'custom_call_target="([^"]+)"')
# an attribute of dots and convolutions, in the settings of cuBLAS's calls
PRECISIONS = re.compile(r'operand_precision(?:=\{|":\[)"?(\w+)"?,"?(\w+)', re.IGNORECASE)
# JAX's attention asks for one, and so for the type that operands are rounded to
ALGORITHM = re.compile(r'algorithm(?:=|":"ALG_)dot_([a-z0-9]+)_', re.IGNORECASE)
# PTX ISA: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32, and wmma and wgmma alike: the shape,
# the layouts, the type of the sum, and that of what is multiplied
TENSOR_CORES = re.compile(r"\bw?g?mma\.[\w.:]*m\d+n\d+k\d+(?:\.(?:row|col))*\.\w+\.(\w+)")


@dataclass(frozen=True)
class Compilation:
    """A step to compile; `products_by` is what XLA is told to take, `fault` what is broken."""

    model: str
    precision: str
    products_by: str
    fault: str = ""

    @property
    def name(self) -> str:
        return f"jax {self.model} {self.precision} by {self.products_by}"


def list_compilations() -> Iterator[Compilation]:
    """All models in each precision, by each kind of products."""
    for asked in product(SIZES, NUMBERS, PRODUCTS_BY):
        yield Compilation(*asked)


def list_broken() -> Iterator[Compilation]:
    """Each fault where XLA's own kernels, cuBLAS and cuDNN must show it."""
    left, highest = FAULTS
    yield Compilation("bert", "fp32", XLA, left)
    yield Compilation("bert", "fp32", CUBLAS, left)
    yield Compilation("resnet50", "fp32", CUBLAS, left)
    yield Compilation("llama", "tf32", XLA, highest)


def count_products(module: str) -> Counter[str]:
    """ "cuBLAS f32 HIGHEST": how many products and convolutions a compiled module has of each."""
    lines = module.splitlines()
    types = dict(found.groups() for found in map(INSTRUCTION.match, lines) if found)
    counts: Counter[str] = Counter()
    for line in lines:
        called = CALLED.search(line)
        if called:
            target = TARGET.search(line)
            by = name_library(target.group(1)) if target else XLA
            operands = re.findall(r"%([\w.-]+)", called.group(2))[:2]
            asked = PRECISIONS.search(line)
            precisions = {word.upper() for word in asked.groups()} if asked else {"DEFAULT"}
            own = ALGORITHM.search(line)
            read = {own.group(1).lower()} if own else {types.get(name, "?") for name in operands}
            counts[f"{by} {'+'.join(sorted(read))} {'+'.join(sorted(precisions))}"] += 1
    return counts


def name_library(target: str) -> str:
    """What a custom call calls; another than the libraries' by its own name, as unknown."""
    return LIBRARIES.get(target.partition("$")[0], target)


def count_tensor_cores(ptx: str) -> Counter[str]:
    """How many instructions of tensor cores XLA's own kernels have, by the type they read."""
    return Counter(TENSOR_CORES.findall(ptx))


def find_compiled_problems(compilation: Compilation, answer: Mapping[str, Any]) -> Problems:
    """What is wrong with {"products": ..., "tensor_cores": ...}, by check; {} where all is well."""
    found = list(check_numbers(compilation, answer["products"], answer["tensor_cores"]))
    return {NUMBERS_CHECK: found} if found else {}


def check_numbers(
    compilation: Compilation, products: Mapping[str, int], tensor_cores: Mapping[str, int]
) -> Iterator[str]:
    """All is in the precision's numbers, by what was asked for; TF32 in tf32 alone."""
    numbers, precision, read = NUMBERS[compilation.precision]
    libraries = [compilation.products_by, *[CUDNN] * (compilation.model in ("resnet50", "vit"))]
    expected = {f"{by} {numbers} {precision}" for by in libraries}
    for one in sorted(set(products) ^ expected):
        yield f"{products.get(one, 0)} x {one}"
    # a product may be too small for tensor cores, and all of a model are not
    types = {read} if read and compilation.products_by == XLA else set()
    if set(tensor_cores) != types:
        yield f"tensor cores read {dict(tensor_cores) or 'nothing'}"
