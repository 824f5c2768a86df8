"""Lines of NVIDIA's DLLogger, `DLL time - step metric : value unit ...` -> lines of a format."""

import re
from typing import TYPE_CHECKING, Tuple

from dlperf_slurm.logs.reading.patterns import DATE_TIME, NUMBER
from dlperf_slurm.logs.reading.timed_run import Handler, TimedRun, take_line

if TYPE_CHECKING:
    from typing import Match, Pattern

    from dlperf_slurm.logs.reading.lines import Line

DLL = rf"DLL {DATE_TIME} - "

_PARAMETER = re.compile(r"(?:^|  )([\w.]+) : (.*?)(?=$|  [\w.]+ : )")


def dll_line(
    body: str, handler: Handler = take_line, **metrics: str
) -> "Tuple[Pattern[str], Handler]":
    """The entry of lines whose body begins so, and has metrics: by group their whole names.

    A line has its group `time` too. It is not taken if a value ends where the file does, for that
    may be cut short.
    """
    values = (
        rf"(?=(?:.*?\s)?{re.escape(name)} : (?P<{group}>{NUMBER})(?=\s|$))"
        for group, name in metrics.items()
    )

    def handle(run: TimedRun, line: "Line", match: "Match[str]") -> None:
        is_cut = any(match.end(group) == len(line.text) for group in metrics)
        if not (is_cut and line.is_last_unended):
            handler(run, line, match)

    return re.compile(rf"DLL (?P<time>{DATE_TIME}) - ?{body}{''.join(values)}"), handle


def _keep_parameters(run: TimedRun, line: "Line", match: "Match[str]") -> None:
    run.facts.update(_PARAMETER.findall(match.group(1).strip()))


PARAMETERS = (re.compile(rf"DLL {DATE_TIME} - ?PARAMETER(.*)"), _keep_parameters)
"""The entry of lines of parameters, which become facts."""
