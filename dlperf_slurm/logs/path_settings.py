"""Names of a log and its folders -> settings in them: model, topology, batch size, GPU, date."""

import re
from pathlib import Path
from typing import Any, Dict, List, Set, Tuple

from dlperf_slurm.logs import Identity
from dlperf_slurm.logs.patterns import PRECISIONS
from dlperf_slurm.logs.settings import CASE_SETTINGS, WORDS

_TOPOLOGY = re.compile(r"([1-9]\d{0,4})n([1-9]\d{0,2})[gc]|n([1-9]\d{0,4})c([1-9]\d{0,2})")
_DEVICES = re.compile(r"gpus?([1-9]\d{0,4})|([1-9]\d{0,4})gpus?")
_BATCH_SIZE = re.compile(r"(?:bs|bsz|b|batch)([1-9]\d{0,5})")
# names of data sets and of folders that hold logs of any kind
_NO_SETTINGS = ("imagenet", "test", "val", "local", "device")
_MODELS = {"rn50": "resnet50", "resnet50": "resnet50", "r50": "resnet50", "bert": "bert"}
_FOLDERS = 4
_NAMED_DEVICES = re.compile(
    r"[abhpv][1-9]00|[ah]800|gh200|gb200|k80|t4|a10g?|a30|a40|l4|l40s?|p40|h20|mi\d{2,3}[ax]?"
    r"|(?:rtx|gtx)[a-z]?\d{4}(?:ti|super)?|\d{4}ti|titan(?:v|xp?|rtx)|tpuv\d[ep]?"
)
_NAMED_DATE = re.compile(r"(?<!\d)(20\d\d)[-_.]?(0[1-9]|1[0-2])[-_.]?(0[1-9]|[12]\d|3[01])(?!\d)")


def read_name(path: Path) -> Identity:
    """Parse settings in a log's file name, else in its folder's: 1n8g/rn50_b128_fp32_1.log.

    Settings such as the precision, which logs of several folders share, are looked for in the
    nearest four folders too: syn-fp16/resnet50/1. A setting that occurs twice in one name with
    different values is ignored.
    """
    own, folder = (_read_tokens(name) for name in (path.name, path.absolute().parent.name))
    told = {**folder, **own}
    if "devices" in own and "devices" in folder and "nodes" not in own:
        told.pop("nodes", None)
    series: Dict[str, Any] = {
        key: value
        for name in reversed(_list_names(path))
        for key, value in _read_tokens(name).items()
        if key in ("precision", *CASE_SETTINGS)
    }
    return Identity(
        model=told.get("model", ""),
        nodes=int(told.get("nodes", "0")),
        devices=int(told.get("devices", "0")),
        batch_size_per_device=int(told.get("batch_size_per_device", "0")),
        **series,
    )


def _read_tokens(name: str) -> Dict[str, str]:
    """Return the settings in one name, without those that it has twice with different values."""
    found: Dict[str, Set[str]] = {}
    tokens = re.split(r"[^a-z0-9]+", name.lower())
    for before, token in zip(["", *tokens], tokens):
        for key, value in _read_token(token) if before not in ("no", "without") else ():
            found.setdefault(key, set()).add(value)
    return {key: next(iter(values)) for key, values in found.items() if len(values) == 1}


def _read_token(token: str) -> List[Tuple[str, str]]:
    """Return the (setting, value) pairs that one word of a name stands for, such as "b128"."""
    topology = _TOPOLOGY.fullmatch(token)
    if topology is not None:
        nodes, per_node = (int(part) for part in topology.groups() if part is not None)
        return [("nodes", str(nodes)), ("devices", str(nodes * per_node))]
    devices, batch_size = _DEVICES.fullmatch(token), _BATCH_SIZE.fullmatch(token)
    if devices is not None:
        return [("devices", devices.group(1) or devices.group(2))]
    if batch_size is not None:
        return [("batch_size_per_device", batch_size.group(1))]
    if token in PRECISIONS:
        return [("precision", PRECISIONS[token])]
    named = [(key, words[token]) for key, words in WORDS.items() if token in words]
    if named and token not in _NO_SETTINGS:
        return named
    return [("model", _MODELS[token])] if token in _MODELS else []


def read_path_hardware(path: Path) -> str:
    """Return the GPU in the file's or the nearest folder's name, such as V100_LOG/, or ""."""
    for name in _list_names(path):
        found = {
            token
            for token in re.split(r"[^a-z0-9]+", name.lower())
            if _NAMED_DEVICES.fullmatch(token)
        }
        if len(found) == 1:
            return found.pop().upper()
    return ""


def read_path_date(path: Path) -> str:
    """Return the date in the file's or the nearest folder's name as YYYY-MM-DD, or ""."""
    for name in _list_names(path):
        match = _NAMED_DATE.search(name)
        if match is not None:
            return "-".join(match.groups())
    return ""


def _list_names(path: Path) -> List[str]:
    """List the names of the file and of the nearest folders, the file's first."""
    absolute = path.absolute()
    return [absolute.name, *(parent.name for parent in list(absolute.parents)[:_FOLDERS])]
