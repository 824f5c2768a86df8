"""What the devices of a repeat reach at most, measured on their nodes, as the worker writes it.

The file lies beside the record, of which it says the case, the repeat and the attempt.
"""

import dataclasses
import json
from pathlib import Path
from typing import Dict, Tuple

from dlperf_slurm.files.writing import write_file

PEAKS_FILE = "peaks.json"

# by what ranks sum: what their framework has set up, or MPI
OF_FRAMEWORK = "the framework's own"
OF_MPI = "MPI, host memory"

# the format of the numbers that a precision multiplies; sums are in full precision
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
    """The sustained rates of the first rank's device of a host, by the framework's own operations.

    `flops_per_s` is that of a product of two matrices of [product_size, product_size], of 2
    product_size^3 operations; `copied_bytes_per_s` counts what is read and what is written. Either
    is 0 where `problem` says why there is none. `seconds` is what measuring took in all.
    """

    host: str
    flops_per_s: float = 0.0
    product_size: int = 0
    copied_bytes_per_s: float = 0.0
    seconds: float = 0.0
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class AllReduce:
    """The sum over all ranks of `byte_count` bytes each, in `seconds` at best.

    `via` is OF_FRAMEWORK or OF_MPI.
    """

    via: str
    byte_count: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Peaks:
    """The peaks of one attempt at a repeat; `all_reduce` is empty without other ranks."""

    run_id: str
    case_id: str
    repeat: int
    attempt: int
    number_format: str
    devices: Tuple[DevicePeak, ...]
    all_reduce: Tuple[AllReduce, ...] = ()


def write_peaks(folder: Path, peaks: Peaks) -> None:
    """Write them as `write_file` does, and raise as it does."""
    text = json.dumps(dataclasses.asdict(peaks), indent=1, sort_keys=True) + "\n"
    write_file(folder / PEAKS_FILE, text.encode())
