"""Command-line options of the log import -> validated options, and the list of log files."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlperf_slurm.config.suggestions import check_known, suggest
from dlperf_slurm.config.toml_tables import parse_toml
from dlperf_slurm.contract.axes import DATA_SOURCES, MODES
from dlperf_slurm.errors import InputError
from dlperf_slurm.logs import Identity, list_formats, load_format
from dlperf_slurm.logs.declared_formats import FACTS
from dlperf_slurm.logs.runs import SURROUNDINGS, ImportOptions
from dlperf_slurm.logs.settings import WORDS

_CHOICES = {"mode": MODES, "data": DATA_SOURCES}
_DATE = re.compile(r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")


def parse_settings(assignments: Sequence[str]) -> Identity:
    """Parse `--set key=value` options to settings; those not given stay unknown ("" or 0).

    Raises InputError for an unknown key or invalid value.
    """
    values: dict[str, object] = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not value.strip():
            raise InputError(f"--set {text}: write KEY=VALUE, as in --set devices=8")
        keys = (*FACTS, "flops_per_sample", *SURROUNDINGS)
        if key not in keys:
            known = ", ".join(keys)
            raise InputError(f"--set {text}: unknown key; known: {known}{suggest(key, keys)}")
        if key == "date" and not _DATE.fullmatch(value.strip()):
            raise InputError(f"--set {text}: date must be a day, as in --set date=2020-08-26")
        if key in _CHOICES:
            value = WORDS[key].get(value.strip(), value.strip())
            if value not in _CHOICES[key]:
                raise InputError(f"--set {text}: allowed: {', '.join(_CHOICES[key])}")
        if isinstance(getattr(Identity(), key), int):
            if not value.strip().isdecimal() or not 0 < int(value) < 10**7:
                raise InputError(f"--set {text}: {key} must be a whole number of at least 1")
            values[key] = int(value)
        elif key == "flops_per_sample":
            values[key] = _parse_flops(value)
        else:
            values[key] = value.strip()
    return dataclasses.replace(Identity(), **values)  # type: ignore[arg-type]


def _parse_flops(text: str) -> float:
    """Parse floating-point operations, such as 291e9; raises InputError."""
    try:
        flops = float(text)
    except ValueError:
        flops = 0.0
    if not 0 < flops <= 1e18:
        raise InputError(
            f"--set flops_per_sample={text}: must be a number above 0 and at most 1e18, such as "
            "291e9"
        )
    return flops


def read_format_file(path: Path) -> dict[str, Any]:
    """Read log formats from a TOML file of the user: the content of each format by its name.

    The file has tables [formats.NAME], or is itself one format with the file's name. Raises
    InputError for a file that cannot be read.
    """
    try:
        data = parse_toml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as TOML: {error}") from error
    formats = data.get("formats", {path.stem: data})
    if not isinstance(formats, dict) or not all(isinstance(t, dict) for t in formats.values()):
        raise InputError(f"{path}: formats: write a table [formats.NAME] for each format")
    return formats


def check_options(options: ImportOptions) -> None:
    """Validate the log format and publisher's rule named in the options, and the user's formats.

    Raises InputError, which suggests the nearest name.
    """
    names = [*list_formats(), *options.tables]
    try:
        for name in options.tables:
            load_format(name, options.tables)
        if options.format_name:
            check_known(options.format_name, names, "a log format")
            names = [options.format_name]
        if options.rule_name:
            formats = [load_format(name, options.tables) for name in names]
            rules = list(dict.fromkeys(rule.name for each in formats for rule in each.RULES))
            check_known(
                options.rule_name, rules, "a publisher's rule for computing results from a log"
            )
    except ValueError as error:
        raise InputError(f"import-logs: {error}") from error


def list_logs(paths: Sequence[Path]) -> list[Path]:
    """List the files in `paths`, and all files below the directories in it, sorted by directory.

    The order of `paths` is kept. Hidden files below a directory are left out. Raises InputError if
    a path does not exist or no file is found.
    """
    logs: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = sorted(found for found in path.rglob("*") if found.is_file())
            logs += [log for log in below if "/." not in f"/{log.relative_to(path)}"]
        elif path.exists():
            logs.append(path)
        else:
            raise InputError(f"{path}: no such file or directory")
    if not logs:
        raise InputError(f"{', '.join(map(str, paths))}: no log files found")
    return logs
