"""A command and its time limit -> exit code and output; does not wait for a hung command."""

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import Dict, NamedTuple, Optional, Sequence

# of a command's output; that of nvidia-smi for 16 GPUs is a tenth of this
OUTPUT_LIMIT_BYTES = 16 * 2**20
MAX_REASON_CHARACTERS = 200
# of a command line quoted in a message
MAX_LINE_CHARACTERS = 80


class CommandResult(NamedTuple):
    """The result of a command: exit code, or None at the time limit, and output."""

    exit_code: Optional[int]
    output: str

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1][:MAX_REASON_CHARACTERS] if lines else ""


def run_command(
    words: Sequence[str], seconds: float, env: Optional[Dict[str, str]] = None
) -> CommandResult:
    """Run a command for at most `seconds`; return exit code (None at that limit) and output.

    The output, at most OUTPUT_LIMIT_BYTES, includes standard error. Raises OSError if the command
    cannot be started. A hung driver can block a process even after SIGKILL: neither the killed
    process nor the end of its output is waited for.
    """
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        exit_code: Optional[int] = None
        try:
            exit_code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        output.seek(0)
        return CommandResult(exit_code, output.read(OUTPUT_LIMIT_BYTES).decode(errors="replace"))


def run_line(line: str, what: str, seconds: float) -> str:
    """Run a line of bash; return the problem if it fails, else "".

    `what` names the line in the message, such as "setup".
    """
    ended = run_command(["bash", "-c", line], seconds)
    shown = line if len(line) <= MAX_LINE_CHARACTERS else f"{line[:MAX_LINE_CHARACTERS]}..."
    if ended.exit_code is None:
        return f"{what} {shown!r} took longer than {seconds:g} s"
    if ended.exit_code == 0:
        return ""
    words = f": {ended.last_line}" if ended.last_line else ""
    return f"{what} {shown!r} failed with exit code {ended.exit_code}{words}"
