"""A name from a file or option -> the validated name, or an error with the nearest known name."""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

# common words that difflib would match to nothing, or to the wrong key -> the key that is meant
MEANINGS = {
    "cpus_per_task": "cpus_per_rank",
    "devices_per_node": "max_devices_per_node",
    "gpu": "cuda",
    "gpus": "max_devices_per_node",
    "gpus_per_node": "max_devices_per_node",
    "gres": "gpu_request",
    "local_scratch": "stage_to",
    "max_jobs": "max_submitted",
    "max_queued": "max_submitted",
    "mem": "memory_mib_per_node",
    "memory": "memory_mib_per_node",
    "mpiexec": "mpirun",
    "nodes": "max_nodes",
    "project": "account",
    "queue": "partition",
    "scratch": "stage_to",
    "time": "time_limit_minutes",
    "time_limit": "time_limit_minutes",
    "walltime": "time_limit_minutes",
}


def suggest(name: object, known: Iterable[str]) -> str:
    """Return ". Did you mean 'NAME'?" with the nearest known name, or '' if none is similar."""
    word, names = str(name).lower(), list(known)
    meant = [meaning for meaning in [MEANINGS.get(word)] if meaning in names]
    near = meant or difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    if not near:
        # a part of a long name: "nvidia", "lattency"
        parts = {part: name for name in names[::-1] for part in re.split(r"[\W_]+", name)}
        near = [parts[part] for part in difflib.get_close_matches(word, parts, n=1, cutoff=0.8)]
    return f". Did you mean {near[0]!r}?" if near else ""


def check_known(value: str, known: Sequence[str], what: str) -> str:
    """Return `value` unchanged; raise ValueError, which lists the known names, if it is unknown.

    `what` is the kind of name, for the message: "a framework".
    """
    if value not in known:
        raise ValueError(describe_unknown(value, known, what))
    return value


def describe_unknown(value: str, known: Sequence[str], what: str) -> str:
    """Return the message that `value` is not one of the `known` names; see `check_known`."""
    return f"{value!r} is not {what}; known: {', '.join(known)}{suggest(value, known)}"


# variables of job scripts, which a variable of the site would overwrite
SCRIPT_VARIABLES = (
    *("DLPERF_SLURM_BEGUN_AT", "DLPERF_SLURM_LAUNCHED_AT", "array_task_id", "array_tasks"),
    *("attempt_dir", "begun_at", "end_seconds", "error_text", "exit_code", "failures_to_hold"),
    *("framework", "group_id", "has_launched", "job_id", "last_array_task_id", "launcher_pid"),
    *("limit_seconds", "log_file", "log_line", "marker", "reserve_file", "run_dir", "starter"),
    *("tasks_per_job", "warning_seconds"),
)


# sbatch's input variables that would override options which every script sets
_OWN_OF_SBATCH = frozenset(
    f"SBATCH_{name}"
    for name in (
        *("ARRAY_INX", "CLUSTERS", "ERROR", "EXPORT", "JOB_NAME", "OPEN_MODE", "OUTPUT", "SIGNAL"),
        *("TIMELIMIT", "WAIT"),
    )
)


def check_inherited(name: str) -> str:
    """Return `name` unchanged if jobs may inherit this SBATCH_ variable; else raise ValueError."""
    if not name.startswith("SBATCH_") or not name.isidentifier() or not name.isascii():
        raise ValueError(
            f"{name!r} is not allowed; allowed: names that begin with SBATCH_, such as "
            "SBATCH_ACCOUNT"
        )
    if name in _OWN_OF_SBATCH:
        raise ValueError(
            f"{name!r} is not allowed, as each job script sets the sbatch option of this variable"
        )
    return name


def check_env_name(name: str) -> str:
    """Return a variable's name unchanged; raise ValueError if invalid, or if our scripts use it."""
    if not name.isidentifier() or not name.isascii():
        raise ValueError(
            f"{name!r} is not a valid environment variable name; allowed: letters, digits and _, "
            "not beginning with a digit"
        )
    if name in SCRIPT_VARIABLES:
        raise ValueError(
            f"{name!r} is not allowed, as the job script itself uses it; choose another name"
        )
    return name


@dataclass(frozen=True)
class OneOf:
    """Metadata for a string that must be one of some names; the JSON Schema lists them as enum.

    `what` is the kind of name, for messages: "a framework".
    """

    what: str
    list_known: Callable[[], Sequence[str]]

    def check(self, value: str) -> str:
        """Return `value` unchanged; raise ValueError, which lists the known names, if unknown."""
        return check_known(value, _list_once(self.list_known), self.what)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> dict[str, Any]:
        return {**handler(schema), "enum": list(self.list_known())}


@cache
def _list_once(list_known: Callable[[], Sequence[str]]) -> Sequence[str]:
    """Return `list_known()`, cached because the function reads the folders of the package."""
    return list_known()
