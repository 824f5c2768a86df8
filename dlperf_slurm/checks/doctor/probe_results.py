"""What the ranks of a probe job wrote, and how the job ended -> results of checks."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.checks.doctor.finding import CheckResult, make_fault
from dlperf_slurm.checks.doctor.probe import JobEnd, Probe
from dlperf_slurm.config.folders import get_creation_command
from dlperf_slurm.contract.json_files import build_dataclass
from dlperf_slurm.contract.nodes import make_node_failure, read_node_reports
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import read_json, read_text
from dlperf_slurm.plain_text import count_things
from dlperf_slurm.provision.environments.gpu_support import (
    MachineGpus,
    find_managed_pins,
    format_cuda_version,
    list_gpu_problems,
)
from dlperf_slurm.scheduler.pending_hints import get_hint
from dlperf_slurm.worker.probe import ANSWER_PREFIX

ERROR_LIMIT_BYTES = 2**20
MAX_CHARACTERS = 300
# with a limit of 1024 open files, NCCL fails on four nodes of eight GPUs
LEAST_OPEN_FILES = 4096
# Debian's default of 8 MiB is too low: RDMA locks the buffers of all peers in memory
LEAST_LOCKED_BYTES = 2**30
# a Docker container has 64 MiB by default
LEAST_SHM_MIB = 1024
# words by which lines with an error of a launcher, Python or bash are recognized
_SIGNS = ("error:", "Error:", "failed", "not found", "No such file", "is not there", "cannot")
# beginnings of a rank's error if mpi4py or its MPI library is missing
_MISSING = ("ModuleNotFoundError", "ImportError", "RuntimeError: cannot load MPI")


@dataclass(frozen=True)
class ProbeAnswer:
    """The facts that one rank of a probe job wrote to its file.

    `rank` is None if it could not join the others. `cores` are the CPU cores that it may use, `mpi`
    is the MPI library, `version` the framework's, `cuda` the driver's CUDA version as NVML numbers
    it (12040), `uuid` that of its GPU. `limits` are provenance's facts on limits and network,
    `shm_mib` is the size of /dev/shm. `is_done` is False if the rank ended before it wrote all of
    this.
    """

    host: str
    cores: tuple[int, ...]
    rank: Optional[int] = None
    world_size: int = 0
    mpi: str = ""
    join_error: str = ""
    version: str = ""
    import_error: str = ""
    gpus: Optional[int] = None
    uuid: str = ""
    cuda: int = 0
    capabilities: tuple[str, ...] = ()
    limits: Optional[dict[str, str]] = None
    shm_mib: int = 0
    is_done: bool = False


def read_answers(start: Path) -> list[ProbeAnswer]:
    """Read what the ranks of a probe wrote to the folder `start`; incomplete files are left out."""
    answers = []
    for path in sorted(start.glob(f"{ANSWER_PREFIX}*.json")):
        try:
            answers.append(build_dataclass(ProbeAnswer, read_json(path, root=start), str(path)))
        except (FileNotFoundError, FileProblem):
            continue
    return answers


def read_last_error(start: Path) -> str:
    """Return the last line with an error in a job's standard error; else its first line, or "".

    `start` is the folder with the job's output.
    """
    try:
        text = read_text(start / "err", ERROR_LIMIT_BYTES, start)
    except (OSError, FileProblem):
        return ""
    # without the lines of dashes around Open MPI's messages
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    telling = [line for line in lines if any(sign in line for sign in _SIGNS)]
    found = [*lines[:1], *telling]
    return found[-1][:MAX_CHARACTERS] if found else ""


def evaluate_probe(probe: Probe, end: JobEnd, start: Path, folder: Path) -> list[CheckResult]:
    """Return the check results of a probe job.

    `end` is how the job ended, `start` the folder with its ranks' answers and its output, `folder`
    that of all probe jobs (`open_workplace`).
    """
    answers = read_answers(start)
    if end.refusal:
        remedy = "correct partition, account or directives in the site file"
        return [make_fault("probe job", end.refusal, remedy).at(probe.name)]
    left = []
    if end.left:
        words = f"the job was not cancelled; the last known state is {end.state}"
        left = [CheckResult("undecided", "probe job", (probe.name,), words, f"`{end.left}`")]
    if not answers:
        missing = _explain_missing_answers(probe, end, start, folder)
        return [missing.at(probe.name), *left]
    where = f"{probe.name} on {', '.join(sorted({answer.host for answer in answers}))}"
    wrong = [
        *_check_ranks(probe, answers, start),
        *_check_framework(probe, answers, start),
        *_check_cores(probe, answers),
        *_check_gpus(probe, answers),
        *_check_build(probe, answers),
        *_check_limits(probe, answers),
    ]
    sound = [
        CheckResult("ok", "run directory", (), "nodes can read and write the run directory"),
        *([] if wrong else [_describe_success(answers)]),
    ]
    return [*(finding.at(where) for finding in (*sound, *wrong)), *left]


def _describe_success(answers: Sequence[ProbeAnswer]) -> CheckResult:
    """Return the "ok" result of a probe job: number of ranks, MPI, framework, cores and GPUs."""
    first = answers[0]
    devices = f"{min(len(answer.cores) for answer in answers)} cores"
    if first.gpus is not None:
        devices += f" and {count_things(min(answer.gpus or 0 for answer in answers), 'GPU')}"
    capabilities = _list_capabilities(answers)
    if capabilities:
        devices += f" of compute capability {' and '.join(capabilities)}"
    how = f"by {first.mpi}" if first.mpi else "without MPI"
    words = f"{len(answers)} ranks connected {how}; {first.version}; each rank sees {devices}"
    return CheckResult("ok", "ranks", (), words)


def _explain_missing_answers(probe: Probe, end: JobEnd, start: Path, folder: Path) -> CheckResult:
    """Return why no rank of a probe job wrote a file: queue, disk, node, launcher or job script.

    `start` is the folder with the job's output, missing if the job did not reach the file system;
    `folder` is that of all probe jobs, in the results folder.
    """
    launcher = probe.site.launcher
    if end.state == "UNKNOWN":
        words = f"the end of the job is unknown: {end.reason}"
        return CheckResult(
            "undecided", "probe job", (), words, "run `scontrol ping`, then doctor again"
        )
    if end.state == "PENDING":
        advice = get_hint(end.reason, "JOB") or "run doctor again with a longer --max-wait"
        done = "could not be" if end.left else "was"
        words = f"the job did not start in time ({end.reason}), and {done} cancelled"
        return CheckResult("undecided", "probe job", (), words, advice)
    if not start.is_dir():
        how = f"{end.state} {end.reason}".strip()
        nodes = end.nodes or "a compute node"
        words = f"{folder.parent}: contains no file from the probe job on {nodes} ({how})"
        remedy = "name a folder on a file system that all nodes can read and write, with --results"
        return make_fault("run directory", words, remedy)
    with suppress(FileProblem):
        for report in read_node_reports(start):
            if report.problems:
                remedy = "repair the node, or change [node] in the site file"
                return make_fault("node", make_node_failure(report).message, remedy)
    error = read_last_error(start) or f"job {end.state} {end.reason}"
    if any(word in error for word in ("MPI", "prterun", launcher.name)):
        remedy = (
            f"change launcher.name (now {launcher.name!r}) or launcher.mpi (now {launcher.mpi!r}) "
            "in the site file; `srun --mpi=list` lists the values of launcher.mpi"
        )
        return make_fault("launcher", error, remedy)
    remedy = f"check setup, modules and [environments.{probe.case.axes.framework}] in the site file"
    return make_fault("job script", error, remedy)


def _check_ranks(
    probe: Probe, answers: Sequence[ProbeAnswer], start: Path
) -> Iterator[CheckResult]:
    """Yield a fault if the ranks are not one MPI world, or not on the nodes that were requested.

    Their number has to be that of the probe's case. `start` is the folder of the ranks' output.
    """
    launcher, wanted = probe.site.launcher, probe.case.topology.world_size
    errors = [answer.join_error for answer in answers if answer.join_error]
    if errors:
        is_missing = errors[0].startswith(_MISSING)
        what = "environment" if is_missing else "launcher"
        remedy = (
            _advise_on_environment(probe) if is_missing else "change launcher.name in the site file"
        )
        yield make_fault(what, f"ranks do not connect: {errors[0]}", remedy)
        return
    joined = [answer for answer in answers if answer.rank is not None]
    other = f"current values: launcher.name = {launcher.name!r}, launcher.mpi = {launcher.mpi!r}"
    if not joined:
        words = f"MPI does not start: {read_last_error(start)}"
        remedy = (
            "set launcher.mpi to the plug-in of the environment's MPI (`srun --mpi=list` lists "
        )
        remedy += f"the plug-ins); {other}"
        yield make_fault("MPI", words, remedy)
    elif len(answers) == wanted and all(answer.world_size == 1 < wanted for answer in joined):
        words = (
            f"each of the {wanted} processes has an MPI_COMM_WORLD of size 1 instead of {wanted}, "
            f"because {joined[0].mpi} does not communicate with the launcher"
        )
        remedy = 'set launcher.mpi to the plug-in of that MPI ("pmix" for Open MPI, "pmi2" for '
        remedy += f'MPICH: see `srun --mpi=list`), or launcher.name = "mpirun"; {other}'
        yield make_fault("MPI", words, remedy)
    elif len(answers) != wanted or any(answer.world_size != wanted for answer in joined):
        words = f"{wanted} ranks were requested, but {len(answers)} answered"
        if len(answers) == wanted:
            words = f"{wanted} ranks answered, but not all have a world size of {wanted}"
        remedy = f"check launcher.flags and launcher.command in the site file; {other}"
        yield make_fault("launcher", words, remedy)
    else:
        counts = {answer.host: 0 for answer in answers}
        for answer in answers:
            counts[answer.host] += 1
        if len(counts) != probe.case.topology.nodes:
            nodes = probe.case.topology.nodes
            words = f"{wanted} ranks should be on {nodes} nodes, but are on {len(counts)}"
            remedy = f"check launcher.flags in the site file; {other}"
            yield make_fault("launcher", words, remedy)


def _check_framework(
    probe: Probe, answers: Sequence[ProbeAnswer], start: Path
) -> Iterator[CheckResult]:
    """Yield a fault if a rank could not import the framework, or ended while it did.

    `start` is the folder of the ranks' output.
    """
    errors = [answer.import_error for answer in answers if answer.import_error]
    ended = [answer for answer in answers if answer.rank is not None and not answer.is_done]
    if errors:
        yield make_fault("environment", errors[0][:MAX_CHARACTERS], _advise_on_environment(probe))
    elif ended:
        words = f"a rank ended while it imported {probe.case.axes.framework}: "
        words += read_last_error(start)
        yield make_fault("environment", words, _advise_on_environment(probe))


def _check_cores(probe: Probe, answers: Sequence[ProbeAnswer]) -> Iterator[CheckResult]:
    """Yield a fault if a rank may use fewer CPU cores than the site's `cpus_per_rank`.

    Ranks of a host that may use the same cores must have enough for all of them.
    """
    wanted = probe.site.cpus_per_rank
    for host in sorted({answer.host for answer in answers}):
        sets = [frozenset(answer.cores) for answer in answers if answer.host == host]
        # ranks of mpirun may share all cores of their node
        shared = len(sets) if len(set(sets)) == 1 else 1
        fewest = min(map(len, sets))
        if fewest < wanted * shared:
            whose = f"{shared} ranks on {host} share" if shared > 1 else f"a rank on {host} sees"
            words = f"{whose} {fewest} cores, but {wanted} are requested per rank"
            remedy = f"set cpus_per_rank = {max(1, fewest // shared)}, or change how the launcher "
            remedy += "pins ranks to CPU cores (launcher.flags in the site file)"
            yield make_fault("cores", words, remedy)
            return


def _check_gpus(probe: Probe, answers: Sequence[ProbeAnswer]) -> Iterator[CheckResult]:
    """Yield a fault if ranks see too few GPUs, or share one; nothing on a site without GPUs."""
    known = [answer for answer in answers if answer.gpus is not None]
    if probe.site.device != "cuda" or not known:
        return
    most_ranks = max(
        [sum(other.host == answer.host for other in answers) for answer in known], default=0
    )
    fewest = min(answer.gpus or 0 for answer in known)
    if fewest == 0 or 1 < fewest < most_ranks:
        words = f"a rank sees {fewest} GPUs, but {most_ranks} are requested on its node"
        remedy = (
            f"check gpu_request (now {probe.site.gpu_request!r}) and gpu_type in the site file, "
            f"and whether {probe.case.axes.framework} is built for these GPUs; to run ranks on CPU "
            'cores, set device = "cpu"'
        )
        yield make_fault("devices", words, remedy)
        return
    uuids = [answer.uuid for answer in known if answer.uuid]
    if len(set(uuids)) < len(uuids):
        remedy = "check gpu_request, and launcher.flags (such as --gpus-per-task), in the site file"
        yield make_fault("devices", "ranks share one GPU", remedy)


def _check_build(probe: Probe, answers: Sequence[ProbeAnswer]) -> Iterator[CheckResult]:
    """Yield faults if the framework's build does not support the nodes' GPUs or driver.

    Also checks the site's `compute_capability` against that of the GPUs. Only the build of a
    managed environment is known.
    """
    site, framework = probe.site, probe.case.axes.framework
    capabilities, told = _list_capabilities(answers), site.compute_capability
    if not capabilities:
        return
    if told is not None and told not in capabilities:
        words = (
            f"GPUs are of compute capability {' and '.join(capabilities)}, but the site file says "
            f"{told}"
        )
        remedy = f"set compute_capability = {capabilities[-1]!r}"
        yield make_fault("devices", words, remedy)
    pins = find_managed_pins(framework, site)
    if pins is None:
        return
    drivers = [answer.cuda for answer in answers if answer.cuda]
    oldest = format_cuda_version(min(drivers)) if drivers else pins.cuda
    for problem in list_gpu_problems(
        pins, MachineGpus(oldest, tuple(("", one) for one in capabilities))
    ):
        remedy = f"name an environment of yours under [environments.{framework}] of the site file"
        yield make_fault("environment", problem, remedy)


def _check_limits(probe: Probe, answers: Sequence[ProbeAnswer]) -> Iterator[CheckResult]:
    """Yield faults if a rank's limits of open files, locked memory or shared memory are too low.

    Also yields an "undecided" result if InfiniBand ports or network interfaces differ between
    nodes.
    """
    is_one_node = probe.case.topology.nodes == 1
    told = [answer.limits for answer in answers if answer.limits]
    files = [
        int(value) for one in told for value in one["limit_nofile"].split()[:1] if value.isdigit()
    ]
    if min(files, default=LEAST_OPEN_FILES) < LEAST_OPEN_FILES:
        words = f"a rank may open {min(files)} files; NCCL and data loaders need {LEAST_OPEN_FILES}"
        is_local = probe.site.scheduler == "local"
        setting = "the hard limit (`ulimit -Hn`)" if is_local else "LimitNOFILE of slurmd.service"
        yield make_fault("open files", words, f"raise {setting}")
    locked = [
        int(value)
        for one in told
        if one.get("infiniband")
        for value in one["limit_memlock"].split()[:1]
        if value.isdigit()
    ]
    if min(locked, default=LEAST_LOCKED_BYTES) < LEAST_LOCKED_BYTES and not is_one_node:
        words = f"a rank may lock only {min(locked)} bytes of memory, too little for RDMA"
        remedy = (
            "set LimitMEMLOCK=infinity in slurmd.service, or --ulimit memlock=-1 for a container"
        )
        yield make_fault("locked memory", words, remedy)
    small = min((a.shm_mib for a in answers if a.limits), default=LEAST_SHM_MIB)
    if small < LEAST_SHM_MIB:
        words = f"/dev/shm has {small} MiB; NCCL and data loaders need {LEAST_SHM_MIB}"
        remedy = "for a container, set --ipc=host or --shm-size=8g in its options"
        yield make_fault("shared memory", words, remedy)
    for name in ("infiniband", "network"):
        by_host = {answer.host: answer.limits.get(name, "") for answer in answers if answer.limits}
        if len({*by_host.values()}) > 1:
            words = "; ".join(f"{host} has {value or 'none'}" for host, value in by_host.items())
            remedy = (
                "select the same ports on all nodes with NCCL_IB_HCA or NCCL_SOCKET_IFNAME in "
                "[env] of the site file"
            )
            yield CheckResult("undecided", name, (), words, remedy)


def _list_capabilities(answers: Sequence[ProbeAnswer]) -> list[str]:
    """List the distinct compute capabilities of all ranks' GPUs, such as "9.0"."""
    return sorted({one for answer in answers for one in answer.capabilities})


def _advise_on_environment(probe: Probe) -> str:
    """Return what the user can do about a package missing in the framework's environment."""
    framework = probe.case.axes.framework
    environment = probe.site.find_environment(framework)
    if environment.container is not None:
        return (
            "use an image that contains this package, or change "
            f"environments.{framework}.container in the site file"
        )
    python = f"{environment.venv}/bin/python" if environment.venv else environment.python
    return (
        f"install this package with `{python} -m pip install`, or run "
        f"`{get_creation_command(framework, probe.site.device)}`"
    )
