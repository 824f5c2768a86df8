"""Lines of a log -> the failure of a run, by messages of all frameworks and launchers."""

import re
from typing import Dict

from dlperf_slurm.logs.lines import LogLine

LONGEST_QUOTE = 160

# not "ran out of memory": TensorFlow's allocator prints it also when the run continues
_OUT_OF_MEMORY = (
    "CUDA out of memory",
    "HIP out of memory",
    "CUDA error: out of memory",
    "OutOfMemoryError",
    "OOM when allocating",
    "ResourceExhaustedError",
    "cudaMalloc failed: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "Out of memory error on GPU",
    "Out of memory: Kill",
    "oom-kill",
    "oom_kill",
    "OUT_OF_MEMORY",
)
# severity of absl, glog and TensorFlow: a failed allocation may be tried again with less
_HAS_SEVERITY = re.compile(r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9}: [IWE] |[IWE]\d{4} \d\d:)")
_TRACEBACK = "Traceback (most recent call last)"
_FAILURES = (
    _TRACEBACK,
    "Segmentation fault",
    "Bus error",
    "Fatal Python error",
    "(core dumped)",
    "terminate called after throwing",
    "mpirun noticed that process rank",
    "Primary job  terminated normally",
    "exited on signal",
    "srun: error:",
    "slurmstepd: error:",
    "ChildFailedError",
    "DUE TO TIME LIMIT",
    "NCCL error",
    "ncclSystemError",
    "ncclUnhandledCudaError",
)
# bounded repeats keep long lines fast; an infinite loss scale is not a failure
_BAD_LOSS = re.compile(
    r"(?:loss(?!_scal)\w{0,40}['\"]?\s{0,3}[:=]?\s{0,3}[('\"]{0,2}|"
    # tf_cnn_benchmarks prints the loss in a column, without the word "loss"
    r"images/sec: [\d.]{1,20} \+/- [\d.]{1,20} \(jitter = [\d.]{1,20}\)\s{1,9})-?(?:nan|inf)\b",
    re.I,
)
_HARMLESS_BEFORE_TRACEBACK = ("Exception ignored in", "--- Logging error ---")
# a command that `set -x` traces is not output of the program
_ECHO = re.compile(r"\++ ")
_FRAME = re.compile(r'File "[^"]{1,4000}", line \d+')
_MARKERS = re.compile(r"[~^ ]*$|\[Previous line repeated")
# exception that directly follows a frame, since Python did not find the source line to print
_NO_SOURCE = re.compile(r"(?:\w{1,99}\.){0,9}\w{0,99}(?:Error|Exception|Interrupt|Exit)(?:: |$)")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


class FailureScan:
    """The first failure in a log; an out-of-memory error takes precedence over others.

    A failure that is a traceback is quoted by its exception: the last one if several are chained.
    """

    def __init__(self) -> None:
        self.message = ""
        self.is_out_of_memory = False
        self._failed_allocation = ""
        self._previous: Dict[int, str] = {}
        self._traceback = _Traceback(-1)

    def find_failure(self, is_complete: bool) -> str:
        """Return the message of the failure that the lines so far show, or "" if there is none.

        An allocator's message with a severity is a failure only if the run did not reach its end
        (`is_complete`).
        """
        if self._failed_allocation and not is_complete:
            self.message, self.is_out_of_memory = self._failed_allocation, True
        if self._traceback.exception and not self.is_out_of_memory:
            return self._traceback.exception
        return self.message

    def add(self, line: LogLine) -> None:
        text, previous = line.text, self._previous.get(line.rank, "")
        self._previous[line.rank] = text
        if self.is_out_of_memory or _ECHO.match(text):
            return
        if any(sign in text for sign in _OUT_OF_MEMORY):
            self._add_out_of_memory(line)
        elif self.message:
            self._traceback.add(line)
        elif any(sign in text for sign in _FAILURES):
            if not previous.startswith(_HARMLESS_BEFORE_TRACEBACK):
                self.message = _quote("the log contains an error", line)
                self._traceback = _Traceback(line.rank, is_open=_TRACEBACK in text)
        elif ("nan" in text or "NaN" in text or "inf" in text) and _BAD_LOSS.search(text):
            self.message = _quote("the loss is not finite", line)

    def _add_out_of_memory(self, line: LogLine) -> None:
        message = _quote("ran out of memory", line)
        if _HAS_SEVERITY.match(line.text):
            self._failed_allocation = self._failed_allocation or message
        else:
            self.message, self.is_out_of_memory = message, True


class _Traceback:
    """Parser of one rank's lines from its first traceback on, for the exception that ended it."""

    def __init__(self, rank: int, is_open: bool = False) -> None:
        self.exception = ""
        self._rank, self._is_open = rank, is_open
        self._is_source = self._is_chained = False

    def add(self, line: LogLine) -> None:
        """Parse one line of the rank: part of a traceback, or the exception at its end."""
        text = line.text
        if line.rank != self._rank:
            return
        if self._is_chained and _TRACEBACK in text:
            self._is_open, self._is_chained = True, False
        elif text.startswith(_CHAINED):
            self._is_chained = True
        elif not self._is_open or _MARKERS.match(text):
            return
        elif _FRAME.match(text):
            self._is_source = True
        elif self._is_source and not _NO_SOURCE.match(text):
            self._is_source = False
        else:
            self.exception = _quote("the log contains an error", line)
            self._is_open = self._is_source = False


def _quote(what: str, line: LogLine) -> str:
    """Return a failure's message: what happened, and the log's line."""
    rank = "" if line.rank < 0 else f" on rank {line.rank}"
    text = line.text.strip()
    shown = text[:LONGEST_QUOTE] + ("..." if len(text) > LONGEST_QUOTE else "")
    return f"{what}{rank}: " + "".join(each if each.isprintable() else "?" for each in shown)
