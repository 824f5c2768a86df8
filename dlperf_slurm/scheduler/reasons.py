"""What an array task left behind -> one line that says why it ended, and which node failed."""

import re
from pathlib import Path

from dlperf_slurm.files.reading import open_file
from dlperf_slurm.jobs.attempts import Start
from dlperf_slurm.jobs.markers import ERROR_FILE, LOG_WORDS, read_last_error
from dlperf_slurm.jobs.run_directory import SCRIPTS_DIR

TAIL_BYTES = 16 * 1024

# "srun: error: Node failure on n2", "slurmstepd: error: *** JOB 7 ON n2 CANCELLED AT ... DUE TO
# NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
_NODE_FAILURE = re.compile(
    r"Node failure on ([\w.,\[\]-]+)|\*\*\* (?:JOB|STEP) \S+ ON (\S+) CANCELLED AT \S+ DUE TO NODE"
)


def describe_missing_record(run_dir: Path, start: Start, exit_code: str) -> str:
    """Why a start that ended has no record, as far as its own last words tell."""
    folder = start.path.relative_to(run_dir)
    last_line = read_last_error(start.path, run_dir)
    words = f"{last_line!r} in" if last_line else "see"
    return f"no record, exit code {exit_code}: {words} {folder}/{ERROR_FILE}"


def describe_node_failure(start: Start, nodes: str) -> str:
    """Which node failed: the one that Slurm names in the output of the job, else one of its own."""
    found = _NODE_FAILURE.search(_read_tail(start.path / ERROR_FILE))
    if found is not None:
        return f"node {found[1] or found[2]} failed"
    if not nodes:
        return ""
    return (
        f"one of the nodes {nodes} failed" if re.search(r"[,\[]", nodes) else f"node {nodes} failed"
    )


def describe_script_end(run_dir: Path, job_id: str) -> str:
    """The last line of the log of a script that ended before it could say that it had started."""
    log = run_dir / SCRIPTS_DIR / f"{job_id}.log"
    lines = [line.strip() for line in _read_tail(log).splitlines() if line.strip()]
    # where to look is no word of why
    lines = [line for line in lines if not line.startswith(LOG_WORDS)]
    return f"{lines[-1]!r} in {log.relative_to(run_dir)}" if lines else ""


def _read_tail(path: Path) -> str:
    try:
        with open_file(path, root=path.parent) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
