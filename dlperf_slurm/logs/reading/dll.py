"""Lines of NVIDIA's DLLogger, `DLL time - step metric : value unit ...` -> their parts."""

import re
from typing import TYPE_CHECKING, Callable, Dict, NamedTuple, Optional, Tuple

from dlperf_slurm.logs.reading.lines import Line
from dlperf_slurm.logs.reading.patterns import DATE_TIME, NUMBER, parse_number, parse_time

if TYPE_CHECKING:
    from typing import Match, Pattern

    from dlperf_slurm.logs.reading.timed_run import Handler, TimedRun

DLL = rf"DLL {DATE_TIME} - "
RECORD = re.compile(rf"DLL ({DATE_TIME}) - ?(.*)")

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


def make_record(line: Line, match: "Match[str]") -> DllRecord:
    """The record of a line that RECORD matched."""
    return DllRecord(parse_time(match.group(1)), match.group(2), line.is_last_unended)


def handle_records(
    add_record: "Callable[[TimedRun, Line, DllRecord], None]",
) -> "Tuple[Pattern[str], Handler]":
    """DLLogger's lines among those of a format; parameters become facts before `add_record`."""

    def handle(run: "TimedRun", line: Line, match: "Match[str]") -> None:
        record = make_record(line, match)
        run.facts.update(record.list_parameters())
        add_record(run, line, record)

    return RECORD, handle
