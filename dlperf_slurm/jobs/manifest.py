"""manifest.json <-> the Manifest of a run: its cases, site, user, command and tool version."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.json_files import SCHEMA_VERSION
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.matrix.settings import LEAST_VALUES, OWN_SETTINGS, Settings

# the site name of runs made by import-logs
IMPORT_SITE = "import"
MANIFEST_FILE = "manifest.json"
# limit for all cases of a run together, as for those of a matrix
MAX_REPEATS = 100_000
# limit for the nodes of a sweep; with the six blocks of a test, more would exceed MAX_REPEATS
MAX_NODES = 16_384
SCHEDULERS = ("slurm", "local")
# a directory name that cannot lead out of its parent
_FILE_NAME = r"(?!\.{1,2}$)[^/\x00-\x1f]{1,255}"


@dataclass(frozen=True)
class PlannedCase:
    """A case of a run, as the manifest has it; `reason` says why it is left out, or is ''.

    A case with `epochs` trains to accuracy. The repeats are spread over `blocks` array jobs, which
    run one after the other. `protocol` has the other settings that apply to the case, by their
    names in a matrix. `unit` is what a sample of a script's own model is, such as "images".
    `profiler` is that of `submit --profile`, or "".
    """

    case_id: str
    model: str
    axes: Axes
    repeats: int
    notes: tuple[str, ...]
    reason: str
    epochs: int = 0
    blocks: int = 1
    protocol: Settings = field(default_factory=dict)
    unit: str = ""
    profiler: str = ""

    @property
    def settings(self) -> Settings:
        """All recorded settings of the protocol, by their names in a matrix."""
        own = {name: getattr(self, name) for name in OWN_SETTINGS}
        return {**self.protocol, **own}


def compute_block(repeat: int, blocks: int) -> int:
    """Return the number (from 1) of the block that a repeat is in.

    Blocks are array jobs that run one after the other; repeats 1, 2, 3 are in blocks 1, 2, 1 of 2.
    """
    return 1 + (repeat - 1) % blocks


def get_node(repeat: int, nodes: Sequence[str]) -> str:
    """Return the node of a sweep that a repeat runs on; '' without nodes.

    Repeats 1, 2, 3 are on n1, n2, n1 of (n1, n2): repeats 1 and 2 are the first block.
    """
    return nodes[(repeat - 1) % len(nodes)] if nodes else ""


@dataclass(frozen=True)
class Manifest:
    """The cases, site, user, command and tool version of a run; written before any submission.

    `amended` has the site values that were changed afterwards for groups not submitted yet. With
    the local scheduler, no further repeat begins after `within_seconds`; 0 is no limit.
    `clusters`, `inherit` and `max_submitted` are those of the site. `interleaved` has the ids of
    the two runs that are measured in turns, the first one first. A sweep measures each of `nodes`
    in turn (`get_node`), or pairs of nodes such as "n1,n2"; `absent_nodes` has "NODE: STATE" of
    those that Slurm could not use then.
    """

    run_id: str
    title: str
    matrix_name: str
    site_name: str
    scheduler: str
    created_at: str
    created_by: str
    created_on: str
    command: tuple[str, ...]
    tool_version: str
    tool_git: str
    poll_seconds: float
    slowest_poll_seconds: float
    lost_after_seconds: float
    cases: tuple[PlannedCase, ...]
    amended: tuple[str, ...] = ()
    within_seconds: float = 0.0
    clusters: str = ""
    inherit: tuple[str, ...] = ()
    max_submitted: Optional[int] = None
    interleaved: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    absent_nodes: tuple[str, ...] = ()

    @property
    def is_import(self) -> bool:
        """Whether the run was made from imported logs."""
        return self.site_name == IMPORT_SITE

    @property
    def has_pairs(self) -> bool:
        """Whether the run is a sweep over pairs of nodes."""
        return "," in "".join(self.nodes)

    @property
    def headline(self) -> str:
        """The first comment of the run's scripts: tool version, matrix and site."""
        return f"dlperf-slurm {self.tool}: matrix {self.matrix_name}, site {self.site_name}"

    @property
    def tool(self) -> str:
        """The version of the tool, with its git commit if known."""
        return f"{self.tool_version} {self.tool_git}".strip()


def format_manifest(manifest: Manifest) -> str:
    """Return a manifest as JSON, with one line per key and per case."""
    values = {"schema_version": SCHEMA_VERSION, **vars(manifest), "cases": ()}
    cases = ({**vars(case), "axes": vars(case.axes)} for case in manifest.cases)
    lines = [json.dumps(case, sort_keys=True) for case in cases]
    texts = {name: json.dumps(value) for name, value in values.items()}
    texts["cases"] = "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else "[]"
    keys = ",\n".join(f" {json.dumps(name)}: {text}" for name, text in sorted(texts.items()))
    return f"{{\n{keys}\n}}\n"


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a run or archive; raise InputError if it is missing or invalid."""
    # imported here, as a plan has no manifest yet
    from dlperf_slurm.jobs.decode import read_json

    file = path / MANIFEST_FILE
    try:
        manifest = read_json(file, Manifest, root=path)
    except FileNotFoundError:
        raise InputError(f"{path}: not a run directory, as it has no {MANIFEST_FILE}") from None
    except FileProblem as error:
        raise InputError(str(error)) from error
    problem = find_manifest_problem(manifest)
    if problem:
        raise InputError(f"{file}: {problem}")
    return manifest


def _find_setting_problem(protocol: Settings) -> str:
    """Return which recorded setting of a protocol is invalid, and why; "" if none is."""
    for name, value in protocol.items():
        if name not in LEAST_VALUES:
            return f"{name[:80]} is an unknown key"
        is_number = isinstance(value, int) or name.endswith("_seconds")
        if not is_number or value < LEAST_VALUES[name]:
            return f"{name} is {value}; allowed: a number of at least {LEAST_VALUES[name]}"
    return ""


def find_manifest_problem(manifest: Manifest) -> str:
    """Return why a manifest is invalid, with the key, or '' if it is valid.

    Frameworks and models that are unknown to this version are allowed.
    """
    try:
        parse_time(manifest.created_at)
    except ValueError as error:
        return f"created_at: {error}"
    if manifest.scheduler not in SCHEDULERS:
        return f"scheduler is {manifest.scheduler[:80]!r}; known: {', '.join(SCHEDULERS)}"
    if manifest.interleaved and (
        len(manifest.interleaved) != 2 or manifest.run_id not in manifest.interleaved
    ):
        return "interleaved: must have the ids of two runs, this run and another"
    for run_id in manifest.interleaved:
        if not re.fullmatch(_FILE_NAME, run_id):
            return f"interleaved: run id {run_id[:80]!r} cannot be the name of a directory"
    node_count = len(manifest.nodes) + len(manifest.absent_nodes)
    if node_count > MAX_NODES:
        return (
            f"nodes and absent_nodes together name {node_count} nodes; allowed: at most {MAX_NODES}"
        )
    for node in manifest.nodes:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,252}(,[A-Za-z0-9][\w.-]{0,252})?", node):
            return f"nodes: {node[:80]!r} cannot be the name of a node"
    if not re.fullmatch(_FILE_NAME, manifest.run_id):
        return f"run_id is {manifest.run_id[:80]!r}, which cannot be the name of a directory"
    for index, case in enumerate(manifest.cases):
        axes = case.axes
        if problem := _find_setting_problem(case.protocol):
            return f"cases[{index}].protocol.{problem}"
        if not re.fullmatch(_FILE_NAME, case.case_id):
            return (
                f"cases[{index}].case_id is {case.case_id[:80]!r}, which cannot be the name of a "
                "directory"
            )
        try:
            numbers = [axes.world_size, *axes.batch_ladder]
            numbers += [axes.batch_size] if not axes.has_batch_search else []
        except ValueError as error:
            return f"cases[{index}].axes: {error}"
        numbers += [axes.data_workers, axes.prefetch_batches, axes.gradient_accumulation]
        if wrong := [number for number in numbers if not 0 < number < 10**9]:
            return (
                f"cases[{index}].axes: one of its counts or batch sizes is {wrong[0]}; allowed: "
                "1 to 999999999"
            )
    most = max((case.repeats for case in manifest.cases), default=0)
    if len(set(manifest.nodes)) < len(manifest.nodes):
        return "nodes: a node is listed twice"
    if len(manifest.nodes) > most:
        return (
            f"nodes: lists {len(manifest.nodes)} nodes, but no case has more than {most} repeats; "
            "each node needs a repeat"
        )
    task_count = sum(case.repeats for case in manifest.cases)
    if task_count > MAX_REPEATS:
        return f"has {task_count} repeats; at most {MAX_REPEATS} are allowed"
    if len({case.case_id for case in manifest.cases}) < len(manifest.cases):
        return "two cases have the same case_id"
    return ""
