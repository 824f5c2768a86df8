"""Lines of a log -> hardware, software versions, and start and end times in them."""

import re
from typing import Dict, Iterable, List, NamedTuple, Set

from dlperf_slurm.logs.lines import LogLine
from dlperf_slurm.logs.patterns import DATE_TIME, parse_time

# devices as TensorFlow and PyTorch list them, whatever they are called
_LISTED = re.compile(
    r"\bname(?:: |=')([^,']{0,50}[ \d][^,']{0,50}?)(?:, pci bus id| major: |', major=)"
)
# names of devices in any text, without their makers
_DEVICE = re.compile(
    r"""\b(?:
    (?:NVIDIA\ |Tesla\ ){1,2} ([A-Z]{1,3}\d{1,4}[A-Z]?\b
        (?:-[A-Za-z0-9]{1,9}){0,3} (?:\ \d{2,3}GB)? (?:\ HBM\d\w?|\ PCIe|\ NVL)?)
    # without NVIDIA only with form or memory: a bare T4 or A10 may be anything
    | ([ABGHLPV]{1,2}\d{2,3}[A-Z]? (?:-(?:SXM|PCI|NVL|DGXS)\w{0,3}(?:-\d{2,3}GB)?
        | [- ]\d{2,3}GB (?:\ HBM\d\w?|\ PCIe)?)\b)
    | ((?:Quadro|GeForce)\ (?:RTX\ |GTX\ |GT\ )?[A-Z]{0,2}\d{3,4}M?\b
            (?:\ Ti|\ SUPER|\ Super|\ Laptop){0,2}
        | (?:GeForce\ )?(?:RTX|GTX)\ (?:PRO\ )?[A-Z]?\d{3,4}\b
            (?:\ Ti|\ SUPER|\ Super|\ Ada|\ Blackwell|\ Laptop){0,2}
        | (?:GeForce\ )?(?:GTX\ )?(?:TITAN|Titan)\ (?:RTX|Xp|X\ \(Pascal\)|X|V|Black|Z)(?!\w))
    | (?:AMD\ )?(?:Instinct\ )?(MI\d{2,3}[AX]?|Radeon\ (?:[A-Z][A-Za-z]{1,5}\ )?
        [A-Z]{0,3}\d{0,4}(?:\ XTX?)?)\b
    | (?:Cloud\ |Google\ )?(TPU[\ _]?v\d{1,2}(?:[ep]|[\ -]?lite(?:pod)?)?(?:-\d{1,5})?)\b
    )""",
    re.VERBOSE,
)
_MAKER = re.compile(r"^(?:NVIDIA |Tesla |AMD |Instinct )+| Generation$| GPU$")
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


class LogHardware(NamedTuple):
    """Hardware, versions and times in a log; "" or 0 where it has none.

    `started` and `ended` are seconds by the log's own clock, in an unknown time zone.
    """

    hardware: str
    versions: Dict[str, str]
    started: float
    ended: float


def scan_hardware(lines: Iterable[LogLine]) -> LogHardware:
    """Collect device names, software versions, and earliest and latest time from a log.

    Names of several devices are joined; of several versions of a package, the first is kept.
    """
    devices: Set[str] = set()
    versions: Dict[str, str] = {}
    started = ended = 0.0
    for line in lines:
        text = line.text
        devices.update(_MAKER.sub("", name) for name in _LISTED.findall(text))
        devices.update("".join(names).strip() for names in _DEVICE.findall(text))
        for pattern in _VERSIONS:
            for name, version in pattern.findall(text):
                versions.setdefault(name.lower(), version)
        time = _TIME.search(text[:_HEAD_CHARACTERS])
        if time is not None:
            seconds = parse_time(time.group())
            started, ended = min(started or seconds, seconds), max(ended, seconds)
    return LogHardware(" and ".join(_drop_cut_names(devices)), versions, started, ended)


def _drop_cut_names(names: Set[str]) -> List[str]:
    """Return the sorted device names, without names that are a shortened form of another."""
    return sorted(
        name for name in names if name and not any(name in other for other in names - {name})
    )
