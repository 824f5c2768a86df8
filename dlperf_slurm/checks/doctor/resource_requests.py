"""What an array job asks for, and the cluster's resources -> what the job can never get; pure."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import Optional

from dlperf_slurm.checks.doctor.finding import CheckResult, make_fault
from dlperf_slurm.config.site import Site
from dlperf_slurm.config.suggestions import suggest
from dlperf_slurm.jobs.grouping import Group
from dlperf_slurm.launchers import NO_MPI
from dlperf_slurm.plain_text import count_things
from dlperf_slurm.provision.sites.survey import NodeKind, Partition, Qos, Survey
from dlperf_slurm.worker.rendezvous import MPI

# sbatch options in a site's directives that change which nodes a job may use
_ELSEWHERE = re.compile(r"--reservation\b|--nodelist\b|-w")
_SHORT = {"partition": "p", "account": "A", "qos": "q"}
# faults because of which sbatch would refuse the job, or the job would stay PENDING for ever
_refuse = partial(make_fault, decider="sbatch")
_hold = partial(make_fault, decider="queue")
ENFORCING = {"associations", "limits", "qos", "safe", "wckeys"}


def check_request(group: Group, site: Site, survey: Survey) -> list[CheckResult]:
    """Compare what an array job requests with the limits that the cluster reports.

    `site` has the settings for this array job. Returns what would keep the job from ever starting.
    Requests on another cluster or in a reservation are not checked. What a plug-in of the cluster
    may change when a job is submitted is left to sbatch.
    """
    if site.reservation or site.clusters or any(map(_ELSEWHERE.match, site.directives)):
        return []
    names = _find_partition_names(site, survey)
    known = [found for name in names for found in survey.partitions if found.name == name]
    findings = [
        *_check_names(survey, names),
        *_check_account(site, survey, known),
        *_check_mpi(site, survey),
    ]
    # with several partitions, one that fits is enough
    qos = survey.find_qos(find_qos_name(site, survey))
    in_each = [
        [
            *_check_partition(group, site, partition, qos),
            *_check_qos_limits(group, site, survey, partition),
        ]
        for partition in known
    ] or [list(_check_qos_limits(group, site, survey, None))]
    if all(in_each):
        findings += in_each[0]
    return [finding.at(group.group_id) for finding in findings]


def find_option(site: Site, name: str) -> Optional[str]:
    """Return the value of --partition, --account or --qos (`name` without dashes), or None.

    A directive of the site takes precedence over the site's key.
    """
    pattern = re.compile(rf"(?:--{name}(?:=| +)|-{_SHORT[name]} ?)(.+)")
    found = [match[1] for match in map(pattern.fullmatch, site.directives) if match]
    value: Optional[str] = getattr(site, name)
    return found[-1] if found else value


def find_qos_name(site: Site, survey: Survey) -> str:
    """Return the QOS of a site's jobs: the one it names, else the default of its account, or ""."""
    account = find_option(site, "account") or survey.default_account
    return find_option(site, "qos") or survey.find_default_qos(account)


def _find_partition_names(site: Site, survey: Survey) -> list[str]:
    """Return the partitions that a job may run in: the site's, else the cluster's default one."""
    chosen = find_option(site, "partition")
    if chosen is not None:
        return chosen.split(",")
    return [known.name for known in survey.partitions if known.is_default][:1]


def _check_names(survey: Survey, names: list[str]) -> Iterator[CheckResult]:
    """Yield a fault for each partition in `names` that does not exist, or if `names` is empty."""
    if not survey.partitions:
        return
    there = [known.name for known in survey.partitions]
    if not names:
        words = "the site file names no partition, and this cluster has no default partition"
        yield _refuse("partition", words, _set("partition", there))
    for name in names:
        if name not in there:
            words = f"this cluster has no partition {name!r}{suggest(name, there)}"
            yield _refuse("partition", words, _set("partition", there))


def _check_account(
    site: Site, survey: Survey, partitions: list[Partition]
) -> Iterator[CheckResult]:
    """Yield faults if the user may not use the account or QOS, or a partition refuses it."""
    account = find_option(site, "account") or survey.default_account
    if survey.associations and survey.enforced & ENFORCING:
        if account and account not in survey.accounts:
            words = f"you may not charge account {account!r}{suggest(account, survey.accounts)}"
            yield _refuse("account", words, _set("account", survey.accounts))
            return
        qos, allowed = find_option(site, "qos"), survey.list_qos(account)
        if qos and allowed and qos not in allowed:
            words = f"you may not use QOS {qos!r}{suggest(qos, allowed)}"
            yield _refuse("qos", words, _set("qos", allowed))
    for partition in partitions:
        if partition.accounts is not None and account and account not in partition.accounts:
            words = f"partition {partition.name} does not allow account {account!r}"
            yield _hold("account", words, _set("account", list(partition.accounts)))


def _check_mpi(site: Site, survey: Survey) -> Iterator[CheckResult]:
    """Yield a fault if srun does not have the MPI plug-in that the site names."""
    launcher, known = site.launcher, survey.mpi_plugins
    is_used = launcher.name == "srun" and launcher.mpi != NO_MPI and site.ranks == MPI
    if is_used and known and launcher.mpi not in known:
        words = f"srun has no MPI plug-in {launcher.mpi!r}"
        yield make_fault("MPI", words, _set("launcher.mpi", known))


def _check_partition(
    group: Group, site: Site, partition: Partition, qos: Optional[Qos]
) -> Iterator[CheckResult]:
    """Yield what a partition cannot give a job: state, time limit, nodes, devices.

    `qos` is that of the job, which may exceed limits of the partition.
    """
    topology, name = group.topology, partition.name
    if not partition.is_up:
        words = f"partition {name} starts no jobs at present"
        yield CheckResult(
            "undecided",
            "partition",
            (),
            words,
            f"wait until its state is UP: `sinfo -p {name}`",
        )
    # a QOS may exceed the limits of the partition (sacctmgr(1), "Flags")
    flags = qos.flags if qos else frozenset()
    limit = None if "PartitionTimeLimit" in flags else partition.max_minutes
    if limit is not None and group.job_minutes > limit:
        words = f"partition {name} allows jobs of {limit} min at most; requested: "
        words += f"{group.job_minutes} min"
        yield _hold("time limit", words, _lower_time(site, limit))
    if not partition.nodes:
        return
    has_more = "PartitionMaxNodes" in flags
    most_nodes = partition.node_count if has_more else partition.largest_job
    if topology.nodes > most_nodes:
        most = count_things(most_nodes, "node")
        words = f"partition {name} allows {most} per job at most; needed: {topology.nodes}"
        yield _hold("nodes", words, f"set max_nodes = {most_nodes} in the site file")
        return
    yield from _check_devices(group, site, partition)


def _check_devices(group: Group, site: Site, partition: Partition) -> Iterator[CheckResult]:
    """Yield faults if too few nodes of a partition have the GPUs, cores or memory of a job."""
    topology = group.topology
    wanted = topology.devices_per_node
    kinds = list(partition.nodes)
    if site.gpu_request != "none":
        gpu_type = site.gpu_type
        fitting = [kind for kind in kinds if kind.count_gpus(gpu_type) >= wanted]
        if (count := _count(fitting)) < topology.nodes:
            most = _find_most(kinds, topology.nodes, lambda kind: kind.count_gpus(gpu_type))
            types = sorted({name for kind in kinds for name, _ in kind.gpus if name})
            what = f"GPUs of type {gpu_type!r}" if gpu_type else "GPUs"
            words = f"{wanted} {what} on each of {topology.nodes} nodes are needed; partition "
            found, settings = [], []
            if count:
                found.append(f"them on {count_things(count, 'node')}")
                settings.append(f"max_nodes = {count}")
            if most:
                found.append(f"at most {most} on each of {topology.nodes} nodes")
                settings.append(f"max_devices_per_node = {most}")
            words += f"{partition.name} has {', '.join(found) or 'none'}"
            if settings:
                remedy = f"set {' or '.join(settings)}, or use another partition"
            elif types:
                remedy = _set("gpu_type", types)
            else:
                remedy = 'use another partition, or set gpu_request = "none"'
            yield _refuse("devices", words, remedy)
            return
        kinds = fitting
    cores = site.cpus_per_rank * wanted
    if _count([kind for kind in kinds if kind.cpus >= cores]) < topology.nodes:
        most = _find_most(kinds, topology.nodes, lambda kind: kind.cpus)
        words = (
            f"{wanted} ranks with {site.cpus_per_rank} cores each on a node are needed; partition "
            f"{partition.name} has at most {most} cores on each of {topology.nodes} nodes"
        )
        fewer = (
            f"set cpus_per_rank = {most // wanted}"
            if most >= wanted
            else "remove cpus_per_rank from the site file"
        )
        yield _refuse("cores", words, fewer)
    mib = site.memory_mib_per_node or 0
    if _count([kind for kind in kinds if kind.memory_mib >= mib]) < topology.nodes:
        most = _find_most(kinds, topology.nodes, lambda kind: kind.memory_mib)
        words = f"partition {partition.name} has at most {most} MiB on each of {topology.nodes} "
        words += f"nodes; requested: {mib} MiB"
        yield _refuse("memory", words, f"set memory_mib_per_node = {most}, or 0 for all memory")


def _check_qos_limits(
    group: Group, site: Site, survey: Survey, partition: Optional[Partition]
) -> Iterator[CheckResult]:
    """Yield faults if a job exceeds the time limit or the number of jobs of its QOS or account."""
    if "limits" not in survey.enforced and "safe" not in survey.enforced:
        return
    account = find_option(site, "account") or survey.default_account
    minutes = group.job_minutes
    by_time, name = _rank_qos(site, survey, partition, "max_minutes")
    if by_time is not None and minutes > by_time:
        words = f"QOS {name} allows jobs of {by_time} min at most; requested: {minutes} min"
        yield _hold("time limit", words, _lower_time(site, by_time))
    by_count, name = _rank_qos(site, survey, partition, "max_submit")
    limits = {f"QOS {name}": by_count}
    for known in survey.associations:
        if known.account == account:
            limits[f"account {account}"] = known.max_submit
    for what, limit in limits.items():
        if limit is not None and group.job_count > limit:
            words = f"{what} allows {limit} of your jobs in the queue; needed: {group.job_count}"
            remedy = (
                f"set max_array_size = {limit} in the site file, to split the cases into several "
                "smaller array jobs"
            )
            yield _hold("queue", words, remedy)


def _rank_qos(
    site: Site, survey: Survey, partition: Optional[Partition], limit: str
) -> tuple[Optional[int], str]:
    """Return the value of a limit that applies to a job, and the name of the QOS that sets it.

    `limit` is a field of `Qos`, such as "max_minutes". The partition's own QOS goes before the
    job's, unless that has the flag OverPartQOS. (None, "") without a limit.
    """
    of_job = survey.find_qos(find_qos_name(site, survey))
    of_partition = survey.find_qos(partition.own_qos) if partition else None
    ranked = [of_partition, of_job]
    if of_job is not None and "OverPartQOS" in of_job.flags:
        ranked.reverse()
    values = ((getattr(qos, limit), qos.name) for qos in ranked if qos is not None)
    return next((found for found in values if found[0] is not None), (None, ""))


def _count(kinds: list[NodeKind]) -> int:
    """Return how many nodes these kinds of nodes have together."""
    return sum(kind.count for kind in kinds)


def _find_most(kinds: list[NodeKind], nodes: int, amount: Callable[[NodeKind], int]) -> int:
    """Return the largest `amount` of a node that at least `nodes` nodes have; 0 without so many."""
    by_amount = sorted(kinds, key=amount, reverse=True)
    enough = zip(by_amount, accumulate(kind.count for kind in by_amount))
    return next((amount(kind) for kind, count in enough if count >= nodes), 0)


def _lower_time(site: Site, limit: int) -> str:
    """Return the advice to lower the time limit of a job to at most `limit` minutes."""
    if site.tasks_per_job > 1:
        return (
            f"in the site file, lower tasks_per_job (now {site.tasks_per_job}) or "
            f"time_limit_minutes: a job may take at most {limit} min for all its array tasks; or "
            "use another partition or QOS"
        )
    return (
        f"set time_limit_minutes.default = {limit} or less in the site file, or use another "
        "partition or QOS"
    )


def _set(key: str, allowed: "list[str] | tuple[str, ...]") -> str:
    """Return what to do about a wrong setting: "set partition to one of: ..."."""
    return f"set {key} to one of: {', '.join(allowed)}"
