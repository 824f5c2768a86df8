"""Lines of a log -> hardware, software versions, and start and end times in them."""

import re
from typing import Dict, Iterable, List, NamedTuple, Set

from dlperf_slurm.logs.lines import Line
from dlperf_slurm.logs.patterns import DATE_TIME, parse_time

# a GPU name after its vendor or series, as drivers and frameworks print it
_DEVICE = re.compile(
    r"\b(?:NVIDIA |Tesla |Quadro |GeForce |AMD Instinct ){1,2}"
    r"((?:RTX |GTX |TITAN )?[A-Z]{1,3}\d{1,4}[A-Z]?\b(?:-[A-Z0-9]{1,9}){0,3})"
)
_VERSIONS = (
    re.compile(
        r"\b(TensorFlow|PyTorch|MXNet|PaddlePaddle|OneFlow|Horovod|CUDA|NCCL|cuDNN) "
        r"[Vv]ersion[ :=]{1,3}v?(\d{1,6}(?:\.[\w+-]{1,20}){0,4})"
    ),
    re.compile(r"\b(NVIDIA Release) (\d\d\.\d\d[\w.-]{0,20})"),
    re.compile(r"\blib(cuda)rt\.so\.(\d{1,3}\.\d{1,3})"),
)
_TIME = re.compile(DATE_TIME)
# a line's own time is near its beginning
_HEAD_CHARACTERS = 60


class Surroundings(NamedTuple):
    """Hardware, versions and times in a log; "" or 0 where it has none.

    `started` and `ended` are seconds by the log's own clock, in an unknown time zone.
    """

    hardware: str
    versions: Dict[str, str]
    started: float
    ended: float


def scan_surroundings(lines: Iterable[Line]) -> Surroundings:
    """Collect hardware, versions and times; joins several devices, keeps the first version."""
    devices: Set[str] = set()
    versions: Dict[str, str] = {}
    started = ended = 0.0
    for line in lines:
        text = line.text
        devices.update(_DEVICE.findall(text))
        for pattern in _VERSIONS:
            for name, version in pattern.findall(text):
                versions.setdefault(name.lower(), version)
        time = _TIME.search(text[:_HEAD_CHARACTERS])
        if time is not None:
            seconds = parse_time(time.group())
            started, ended = min(started or seconds, seconds), max(ended, seconds)
    return Surroundings(" and ".join(_drop_cut_names(devices)), versions, started, ended)


def _drop_cut_names(names: Set[str]) -> List[str]:
    """Return the sorted names without those that are a prefix of another name."""
    return sorted(
        name
        for name in names
        if not any(other != name and other.startswith(name) for other in names)
    )
