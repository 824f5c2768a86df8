"""A planned case, measured or not -> the settings of its protocol, each of which is a column."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Optional, get_args

from dlperf_slurm.config.key_descriptions import list_docstrings
from dlperf_slurm.matrix.settings import USES
from dlperf_slurm.matrix.tables import Protocol
from dlperf_slurm.results.columns import COUNT, NUMBER, Column

if TYPE_CHECKING:
    from dlperf_slurm.results.frame import CaseRow

# by the end of a setting's name; a seed has none
_UNITS = {
    "repeats": "repeats",
    "blocks": "array jobs",
    "_steps": "steps",
    "batch_size_step": "samples",
    "_mib_per_device": "MiB",
    "_seconds": "s",
}


def declare_settings() -> Iterator[Column]:
    """A column for each setting of the protocol, for rows of the frame of cases."""
    docstrings = list_docstrings(Protocol)
    for name, setting in Protocol.model_fields.items():
        kind = NUMBER if _has_float(setting.annotation) else COUNT
        unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
        meaning = " ".join(docstrings[name].split())
        meaning = meaning[0].lower() + meaning[1:].rstrip(".")
        meaning += "; missing where a case has no use for it" if name in USES else ""
        yield Column(name, kind, unit, meaning, partial(_find_setting, name))


def _has_float(kind: object) -> bool:
    """Whether a setting of this type, such as Optional[Annotated[float, ...]], may be a float."""
    return kind is float or any(_has_float(part) for part in get_args(kind))


def _find_setting(name: str, row: "CaseRow") -> Optional[float]:
    return row.settings.get(name)
