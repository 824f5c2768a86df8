"""Lines of a run -> its mode, data source, compiler and gradient synchronization, if they say so.

These lines are arguments that a script prints, traced commands and messages of frameworks; they
look alike in the logs of all formats.
"""

import re
from typing import Dict, List, Set, Tuple

from dlperf_slurm.contract.axes import FOLDER, HOROVOD, INFER, ON_DEVICE, PARAMETER_SERVER, TRAIN
from dlperf_slurm.logs.lines import LogLine

CASE_SETTINGS = {"mode": TRAIN, "data": ON_DEVICE, "compiler": "none", "gradient_sync": "native"}
"""Settings of a case that most logs do not state, with their defaults."""

# settings of a run from its log, its file name or the user; SETTINGS are those a record needs
SETTINGS = ("framework", "model", "nodes", "devices", "batch_size_per_device", "precision")
ALL_SETTINGS = (*SETTINGS, *CASE_SETTINGS)

WORDS: Dict[str, Dict[str, str]] = {
    "mode": {
        **dict.fromkeys(("train", "training", "training_benchmark", "train_and_evaluate"), TRAIN),
        **dict.fromkeys(("train_val", "training + validation"), TRAIN),
        **dict.fromkeys(("infer", "inference", "inference_benchmark", "forward-only"), INFER),
        **dict.fromkeys(("forward_only", "predict", "pred", "prediction", "evaluation"), INFER),
        **dict.fromkeys(("eval", "evaluate", "test", "val", "validation"), INFER),
    },
    "data": {
        **dict.fromkeys(("synthetic", "syntetic", "synth", "syn", "dummy", "fake"), ON_DEVICE),
        **dict.fromkeys(("real", "imagenet"), FOLDER),
    },
    "compiler": {"xla": "xla"},
    "gradient_sync": {
        **dict.fromkeys(("horovod", "hvd"), HOROVOD),
        **dict.fromkeys(("parameter_server", "distributed_replicated"), PARAMETER_SERVER),
        **dict.fromkeys(("dist_sync", "dist_device_sync", "dist_async"), PARAMETER_SERVER),
        **dict.fromkeys(("replicated", "independent", "collective_all_reduce"), "native"),
        **dict.fromkeys(("distributed_all_reduce", "nccl", "device", "local"), "native"),
    },
}
"""For each setting: words in logs and folder names -> this project's names."""

_IS = r"['\"]?(?:\s{0,3}[:=]\s{0,3}|\s)['\"]?"
_NAMED: Tuple[Tuple[str, "re.Pattern[str]"], ...] = (
    ("mode", re.compile(rf"(?<![\w.])(?:run_)?mode{_IS}([a-z_-]{{2,20}}\b)", re.I)),
    ("data", re.compile(rf"(?<![\w.])data[_-]backends?{_IS}(synt\w{{3,7}}\b)", re.I)),
    ("data", re.compile(r"(?:^|[\s=(-])(dummy|synthetic) data(?:set)? is used", re.I)),
    ("data", re.compile(r"\busing (synthetic|dummy|fake|real) (?:data|images|input)", re.I)),
    ("gradient_sync", re.compile(rf"\bvariable_update{_IS}(\w{{1,30}})")),
    ("gradient_sync", re.compile(rf"\bkv_?store{_IS}(\w{{1,30}})")),
)
# True, False, and a flag of a command line without a value
_SWITCH = rf"(?:{_IS}(true|false|yes|no|[01]|none)\b|(?=\s|$))"
_SWITCHES: Tuple[Tuple[str, "re.Pattern[str]", Dict[bool, str]], ...] = (
    (
        "compiler",
        re.compile(rf"(?:--|(?<![\w.-]))(?:use_|enable_)?xla(?:_compile)?{_SWITCH}", re.I),
        {True: "xla", False: "none"},
    ),
    (
        "compiler",
        re.compile(rf"(?:--|(?<![\w.-]))torch_?compile(?:_model)?{_SWITCH}", re.I),
        {True: "torch.compile", False: "none"},
    ),
    (
        "data",
        re.compile(rf"(?:--|(?<![\w.-]))(?:use_)?(?:synthetic|dummy)(?:_data)?{_SWITCH}", re.I),
        {True: ON_DEVICE, False: FOLDER},
    ),
    (
        "mode",
        re.compile(rf"(?:--|(?<![\w.-]))(?:forward_only|only_inference){_SWITCH}", re.I),
        {True: INFER, False: TRAIN},
    ),
    (
        "gradient_sync",
        re.compile(rf"(?:--|(?<![\w.-]))(?:use_)?horovod{_SWITCH}", re.I),
        {True: HOROVOD},
    ),
)
_MESSAGES = (
    ("compiler", "Compiled cluster using XLA", "xla"),
    ("compiler", "XLA activated", "xla"),
)
# most lines have none of these and are not looked at further
_ANY = re.compile(
    r"xla|compile|mode\W|synt|dummy|fake|real |forward_only|only_inf|variable_up|kv_?store|horovod",
    re.I,
)
_TRUE = ("true", "yes", "1")
# a run that trains may evaluate or compile in between: these values take precedence over others
_STRONGER = {"mode": TRAIN, "compiler": "xla", "gradient_sync": HOROVOD}


class SettingScan:
    """A scan of a run's lines for the settings that they state."""

    def __init__(self) -> None:
        self._stated: Dict[str, Set[str]] = {}

    def add(self, line: LogLine) -> None:
        if _ANY.search(line.text):
            for name, value in _read_line(line.text):
                self._stated.setdefault(name, set()).add(value)

    def finish(self) -> Dict[str, str]:
        """Return the value of each setting that the log states, by name.

        Of different values _STRONGER chooses; a setting is left out if none of them is in it.
        """
        return {
            name: _STRONGER[name] if _STRONGER.get(name) in values else next(iter(values))
            for name, values in self._stated.items()
            if len(values) == 1 or _STRONGER.get(name) in values
        }


def _read_line(text: str) -> List[Tuple[str, str]]:
    """Return the (setting, value) pairs that one line states."""
    found = [(name, value) for name, message, value in _MESSAGES if message in text]
    for name, pattern in _NAMED:
        for word in pattern.findall(text):
            value = WORDS[name].get(word.lower())
            if value:
                found.append((name, value))
    for name, pattern, values in _SWITCHES:
        for match in pattern.finditer(text):
            # without a value, only text that begins with -- is a flag
            if match.group(1) is None and not match.group().startswith("--"):
                continue
            is_on = match.group(1) is None or match.group(1).lower() in _TRUE
            if is_on in values and (match.group(1) or "").lower() != "none":
                found.append((name, values[is_on]))
    return found
