"""Words of Slurm's clients -> minutes, numbers, GPUs; pure."""

import re
from collections.abc import Mapping
from typing import Optional

_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_GPUS = re.compile(r"gpu(?::([^:,()]+))??:(\d+)(?=[(,]|$)")
# What code is made for, and the words of the names that clusters have for such GPUs in GRES, as in
# "nvidia_a100-sxm4-80gb": NVIDIA's "CUDA GPU Compute Capability", and the targets of AMD's LLVM.
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
    """The whole minutes of a time limit such as "1-00:00:00" or "2:00"; None for no limit.

    The forms are those of sinfo(1): days-hours:minutes:seconds, from the left as far as needed.
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
    """A number; None for "UNLIMITED", an empty text and other words."""
    match = re.match(r"\d+", text.strip())
    return int(match.group()) if match else None


def parse_gpus(gres: str) -> dict[str, int]:
    """The GPUs of a node by type, "" for none, from words such as "gpu:a100:8(S:0-1),tmp:1"."""
    gpus: dict[str, int] = {}
    for kind, count in _GPUS.findall(gres):
        gpus[kind] = gpus.get(kind, 0) + int(count)
    return gpus


def find_capability(gpu_type: str) -> str:
    """The compute capability of a type of GPU by its name in GRES; "" for one that is not known."""
    parts = re.split(r"[^a-z0-9]+", gpu_type.lower())
    return next((_CAPABILITIES[part] for part in parts if part in _CAPABILITIES), "")


def parse_pairs(line: str) -> Mapping[str, str]:
    """The values of a line of `scontrol show --oneliner` by their keys."""
    return dict(re.findall(r"(\S+?)=(\S*)", line))


def parse_names(text: str) -> Optional[tuple[str, ...]]:
    """The names of a list such as AllowAccounts; None for all."""
    names = tuple(filter(None, text.split(",")))
    return None if not names or names in (("ALL",), ("(null)",)) else names
