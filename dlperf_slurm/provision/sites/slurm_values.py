"""Values in the output of Slurm's clients -> minutes, numbers, GPUs; pure."""

import re
from collections.abc import Mapping
from typing import Optional

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_GPUS = re.compile(r"gpu(?::([^:,()]+))??:(\d+)(?=[(,]|$)")
# Compute capability (NVIDIA's "CUDA GPU Compute Capability") or AMD's LLVM target -> words in the
# GRES names of such GPUs, as in "nvidia_a100-sxm4-80gb".
_TYPES = {
    "6.0": "p100",
    "7.0": "v100 v100s",
    "7.5": "t4",
    "8.0": "a100 a30 a800",
    "8.6": "a2 a10 a10g a16 a40",
    "8.9": "l4 l40 l40s",
    "9.0": "h100 h200 h800 h20 gh200",
    "10.0": "b200 gb200",
    "10.3": "b300 gb300",
    "gfx908": "mi100",
    "gfx90a": "mi210 mi250 mi250x",
    "gfx942": "mi300a mi300x mi325x",
}
_CAPABILITIES = {word: made_for for made_for, words in _TYPES.items() for word in words.split()}


def parse_minutes(text: str) -> Optional[int]:
    """Parse a time limit to whole minutes, cutting seconds; None for other text ("UNLIMITED").

    The formats are those of sbatch's --time: "minutes", "minutes:seconds", "hours:minutes:seconds",
    "days-hours", "days-hours:minutes", "days-hours:minutes:seconds".
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    days, *rest = match.groups()
    numbers = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes = (*numbers, 0)[:2]
        return (int(days) * 24 + hours) * 60 + minutes
    if len(numbers) == 3:
        return numbers[0] * 60 + numbers[1]
    return numbers[0]


def parse_count(text: str) -> Optional[int]:
    """Parse the number at the start of a text; None for "UNLIMITED", "" and other words."""
    match = re.match(r"\d+", text.strip())
    return int(match.group()) if match else None


def parse_gpus(gres: str) -> dict[str, int]:
    """Parse a GRES such as "gpu:a100:8(S:0-1),tmp:1" to type -> GPUs, "" without a type."""
    gpus: dict[str, int] = {}
    for kind, count in _GPUS.findall(gres):
        gpus[kind] = gpus.get(kind, 0) + int(count)
    return gpus


def find_capability(gpu_type: str) -> str:
    """Return the compute capability of a GPU type in GRES, "9.0" for "nvidia_h100", or ""."""
    parts = re.split(r"[^a-z0-9]+", gpu_type.lower())
    return next((_CAPABILITIES[part] for part in parts if part in _CAPABILITIES), "")


def parse_pairs(line: str) -> Mapping[str, str]:
    """Parse a line of `scontrol show --oneliner` to key -> value."""
    return dict(re.findall(r"(\S+?)=(\S*)", line))


def parse_names(text: str) -> Optional[tuple[str, ...]]:
    """Parse a comma-separated list such as AllowAccounts; None if it allows all or is empty."""
    names = tuple(filter(None, text.split(",")))
    return None if not names or names in (("ALL",), ("(null)",)) else names
