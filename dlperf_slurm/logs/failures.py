"""Lines of a log -> the failure of a run, by messages of all frameworks and launchers."""

import re

from dlperf_slurm.logs.lines import Line

LONGEST_QUOTE = 160

# not "ran out of memory": TensorFlow's allocator prints it also when the run continues
_OUT_OF_MEMORY = (
    "CUDA out of memory",
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
_FAILURES = (
    "Traceback (most recent call last)",
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
    r"loss(?!_scal)\w{0,40}['\"]?\s{0,3}[:=]?\s{0,3}[('\"]{0,2}-?(?:nan|inf)\b", re.I
)
_HARMLESS_BEFORE_TRACEBACK = ("Exception ignored in", "--- Logging error ---")
# a command that `set -x` traces is not output of the program
_ECHO = re.compile(r"\++ ")


class FailureScan:
    """The first failure in a log; an out-of-memory error takes precedence over others."""

    def __init__(self) -> None:
        self.message = ""
        self.is_out_of_memory = False
        self._previous = ""

    def add(self, line: Line) -> None:
        text, previous = line.text, self._previous
        self._previous = text
        if self.is_out_of_memory or _ECHO.match(text):
            return
        if any(sign in text for sign in _OUT_OF_MEMORY):
            self.message, self.is_out_of_memory = _quote("ran out of memory", line), True
        elif self.message:
            return
        elif any(sign in text for sign in _FAILURES):
            if not previous.startswith(_HARMLESS_BEFORE_TRACEBACK):
                self.message = _quote("the log holds an error", line)
        elif ("nan" in text or "NaN" in text or "inf" in text) and _BAD_LOSS.search(text):
            self.message = _quote("the loss is not finite", line)


def _quote(what: str, line: Line) -> str:
    rank = "" if line.rank < 0 else f" on rank {line.rank}"
    text = line.text.strip()
    shown = text[:LONGEST_QUOTE] + ("..." if len(text) > LONGEST_QUOTE else "")
    return f"{what}{rank}: " + "".join(each if each.isprintable() else "?" for each in shown)
