"""JAX steps that XLA compiled for H100 -> their products, and problems.

On a GPU, XLA times its own Triton kernels beside those of cuBLAS and uses the faster: both are
checked. Convolutions are cuDNN's.
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
# Operand type, requested precision, and operand type of tensor cores in XLA's own kernels. XLA lets
# cuBLAS and cuDNN compute DEFAULT and HIGH in TF32 (XLA's `GetBlasComputationType`, and
# `allow_tf32` for engines of cuDNN).
NUMBERS = {
    "fp32": ("f32", "HIGHEST", ""),
    "tf32": ("f32", "DEFAULT", "tf32"),
    "amp-bf16": ("bf16", "DEFAULT", "bf16"),
}
# fault -> the value of the adapter's MATMUL_PRECISIONS
FAULTS: dict[str, dict[str, str]] = {
    "leave the precision to XLA": {},
    "ask for the highest precision": dict.fromkeys(NUMBERS, "highest"),
}

# patterns in XLA's text of compiled modules
INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%([\w.-]+) = \(?(\w+)\[")
CALLED = re.compile(r" (dot|convolution|custom-call)\(([^)]*)\)")
TARGET = re.compile(r'custom_call_target="([^"]+)"')
# an attribute of dots and convolutions, in the settings of cuBLAS's calls
PRECISIONS = re.compile(r'operand_precision(?:=\{|":\[)"?(\w+)"?,"?(\w+)', re.IGNORECASE)
# JAX's attention requests an algorithm, and so the type to which operands are rounded
ALGORITHM = re.compile(r'algorithm(?:=|":"ALG_)dot_([a-z0-9]+)_', re.IGNORECASE)
# PTX ISA: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32, similar for wmma and wgmma: the
# shape, the layouts, the type of the sum, and the type of the operands
TENSOR_CORES = re.compile(r"\bw?g?mma\.[\w.:]*m\d+n\d+k\d+(?:\.(?:row|col))*\.\w+\.(\w+)")


@dataclass(frozen=True)
class Compilation:
    """A step to compile; `products_by` is the library that XLA must use, `fault` is injected."""

    model: str
    precision: str
    products_by: str
    fault: str = ""

    @property
    def name(self) -> str:
        return f"jax {self.model} {self.precision} by {self.products_by}"


def list_compilations() -> Iterator[Compilation]:
    """Yield all models in each precision, by each kind of products."""
    for asked in product(SIZES, NUMBERS, PRODUCTS_BY):
        yield Compilation(*asked)


def list_broken() -> Iterator[Compilation]:
    """Yield each fault in the libraries that must show it: XLA's own kernels, cuBLAS and cuDNN."""
    left, highest = FAULTS
    yield Compilation("bert", "fp32", XLA, left)
    yield Compilation("bert", "fp32", CUBLAS, left)
    yield Compilation("resnet50", "fp32", CUBLAS, left)
    yield Compilation("llama", "tf32", XLA, highest)


def count_products(module: str) -> Counter[str]:
    """Count a module's products and convolutions, by keys such as "cuBLAS f32 HIGHEST"."""
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
    """Return the library of a custom call; an unknown target is returned as it is."""
    return LIBRARIES.get(target.partition("$")[0], target)


def count_tensor_cores(ptx: str) -> Counter[str]:
    """Count the tensor core instructions of XLA's own kernels, by operand type."""
    return Counter(TENSOR_CORES.findall(ptx))


def find_compiled_problems(compilation: Compilation, answer: Mapping[str, Any]) -> Problems:
    """Return the problems of a compilation's answer by check; {} if there are none."""
    found = list(check_numbers(compilation, answer["products"], answer["tensor_cores"]))
    return {NUMBERS_CHECK: found} if found else {}


def check_numbers(
    compilation: Compilation, products: Mapping[str, int], tensor_cores: Mapping[str, int]
) -> Iterator[str]:
    """Check that all products use the precision's format and precision, and TF32 only in tf32."""
    numbers, precision, read = NUMBERS[compilation.precision]
    libraries = [compilation.products_by, *[CUDNN] * (compilation.model in ("resnet50", "vit"))]
    expected = {f"{by} {numbers} {precision}" for by in libraries}
    for one in sorted(set(products) ^ expected):
        yield f"{products.get(one, 0)} x {one}"
    # single products may be too small for tensor cores, but not all products of a model
    types = {read} if read and compilation.products_by == XLA else set()
    if set(tensor_cores) != types:
        yield f"tensor cores read {dict(tensor_cores) or 'nothing'}"
