"""Measured peak rates of the devices and the network of an attempt: peaks.json, a sidecar file."""

import dataclasses
from typing import Dict, Tuple

PEAKS_FILE = "peaks.json"

# implementations of all-reduce
OF_FRAMEWORK = "the framework's own"
OF_MPI = "MPI, host memory"

# precision -> number format of matrix products; sums are in full precision
NUMBER_FORMATS: Dict[str, str] = {
    "fp32": "fp32",
    "tf32": "tf32",
    "amp-bf16": "bf16",
    "bf16": "bf16",
    "amp-fp16": "fp16",
    "fp16": "fp16",
}


@dataclasses.dataclass(frozen=True)
class DevicePeak:
    """The sustained rates of the device of a host's first rank, by the framework's own operations.

    `flops_per_s` is for a product of two matrices [product_size, product_size], which has
    2 product_size^3 operations; `copied_bytes_per_s` counts bytes read plus bytes written. A rate
    that could not be measured is 0, and `problem` says why. `seconds` is the total time measured.
    """

    host: str
    flops_per_s: float = 0.0
    product_size: int = 0
    copied_bytes_per_s: float = 0.0
    seconds: float = 0.0
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class AllReduce:
    """An all-reduce of `byte_count` bytes per rank, with the shortest time measured, in seconds.

    `via` is OF_FRAMEWORK or OF_MPI: whose all-reduce it is.
    """

    via: str
    byte_count: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Peaks:
    """The peak rates of one attempt.

    The first of `all_reduce` has the size of the gradients; there is none with a single rank.
    """

    run_id: str
    case_id: str
    repeat: int
    attempt: int
    number_format: str
    devices: Tuple[DevicePeak, ...]
    all_reduce: Tuple[AllReduce, ...] = ()
