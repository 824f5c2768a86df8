"""Lines of NVIDIA's DLLogger, `DLL time - step metric : value unit ...` -> their parts."""

import re
from typing import Dict, NamedTuple, Optional

from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.numbers import NUMBER, parse_number
from dlperf_slurm.logs.reading.times import DATE_TIME, parse_time

DLL = rf"DLL {DATE_TIME} - "

_RECORD = re.compile(rf"DLL ({DATE_TIME}) - ?(.*)")
_PARAMETERS = re.compile(r"(?:^|  )([\w.]+) : (.*?)(?=$|  [\w.]+ : )")


class DllRecord(NamedTuple):
    """A line of DLLogger: `body` is what follows the time."""

    time: float
    body: str
    is_last_unended: bool

    def find_metric(self, name: str) -> Optional[float]:
        """The value of a metric by its whole name; None without it, or if it may be cut short."""
        end = r"(?=\s)" if self.is_last_unended else r"(?=\s|$)"
        match = re.search(rf"(?:^|\s){re.escape(name)} : ({NUMBER}){end}", self.body)
        return parse_number(match.group(1)) if match else None

    def list_parameters(self) -> Dict[str, str]:
        """What a `PARAMETER` line says, by name; empty for another line."""
        if not self.body.startswith("PARAMETER"):
            return {}
        return dict(_PARAMETERS.findall(self.body[len("PARAMETER") :].strip()))


def parse_dll(line: Line) -> Optional[DllRecord]:
    """The line's record, or None if DLLogger did not write it."""
    match = _RECORD.match(line.text)
    if match is None:
        return None
    return DllRecord(parse_time(match.group(1)), match.group(2), line.is_last_unended)
