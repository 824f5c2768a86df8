"""What a cluster would never give is told before anything is submitted, with what to set."""

import pytest
from builders import make_site
from slurm_clients import VERSIONS, put_clients
from support.problems import assert_problem

from dlperf_slurm.checks.doctor.finding import CheckResult, make_fault, merge_places
from dlperf_slurm.checks.doctor.resource_requests import check_request
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.jobs.grouping import Group
from dlperf_slurm.provision.sites.survey import NodeKind, Partition, Qos, Survey, survey_cluster


@pytest.fixture(params=VERSIONS)
def survey(request, bin_dir):
    put_clients(bin_dir, request.param)
    return survey_cluster()


def check(survey, topology="1n1g", array_tasks=1, minutes=30, **site):
    settled = make_site(**{"gpu_request": "none", **site})
    group = Group("g", parse_topology(topology), minutes, (None,) * array_tasks)
    findings = check_request(group, settled, survey)
    return [f"{f.what}: {f.words}; {f.remedy}" for f in findings]


def test_request_that_fits_has_nothing_against_it(survey):
    assert survey.problems == ()
    assert check(survey, "4n8g", 1000, 60, cpus_per_rank=2, gpu_request="gres") == []
    assert check(survey, partition="low,high", account="root", qos="limited", minutes=5) == []


@pytest.mark.parametrize(
    ("request_", "subject", "says"),
    [
        ({"partition": "mian"}, "partition", "'mian'|mean 'main'|set partition|main, small, low"),
        ({"account": "nobody"}, "account", "'nobody'|set account"),
        ({"qos": "hihg"}, "qos", "'hihg'|mean 'high'|set qos"),
        ({"minutes": 61}, "time limit", "61 min|60|main|time_limit_minutes.default = 60"),
        ({"minutes": 61, "tasks_per_job": 4}, "time limit", "61 min|60|tasks_per_job (now 4)"),
        ({"qos": "limited", "minutes": 6}, "time limit", "6 min|5|QOS limited"),
        (
            {"qos": "limited", "minutes": 5, "array_tasks": 5},
            *("queue", "needed: 5|QOS limited|4|max_array_size = 4"),
        ),
        ({"topology": "5n1g"}, "nodes", "5|4|partition main|max_nodes = 4"),
        (
            {"topology": "2n1g", "partition": "small", "minutes": 2},
            *("nodes", "2|1|partition small|max_nodes = 1"),
        ),
        (
            {"topology": "1n9g", "gpu_request": "gres"},
            *("devices", "9 GPUs|partition main|8|max_devices_per_node = 8"),
        ),
        (
            {"gpu_request": "gpus-per-node", "gpu_type": "h100"},
            *("devices", "1 GPUs|'h100'|partition main"),
        ),
        (
            {"topology": "1n4g", "cpus_per_rank": 5},
            *("cores", "4 ranks|5 cores|partition main|16|cpus_per_rank = 4"),
        ),
        ({"memory_mib_per_node": 40000}, "memory", "40000 MiB|32000|partition main"),
        ({"launcher": {"mpi": "openmpi"}}, "MPI", "'openmpi'|set launcher.mpi|cray_shasta"),
    ],
)
def test_what_cannot_be_had_is_named_with_what_can(request_, subject, says, survey):
    (found,) = check(survey, **request_)
    assert_problem(found, key=subject, says=says.split("|"))


def test_directives_count_as_keys_do(survey):
    (found,) = check(survey, directives=["--partition=nope"])
    assert_problem(found, key="partition", says=("'nope'",))
    (found,) = check(survey, directives=["-A nobody"])
    assert_problem(found, key="account", says=("'nobody'",))


@pytest.mark.parametrize(
    "site",
    [
        # the request is one of another cluster, or needs what only Slurm knows
        {"clusters": "other", "partition": "theirs", "minutes": 9999},
        {"directives": ["-w n7"], "partition": "theirs", "minutes": 9999},
        {"reservation": "r", "partition": "theirs", "minutes": 9999},
        # no plug-in of srun is used
        {"launcher": {"name": "mpirun", "mpi": "openmpi"}},
        {"launcher": {"mpi": "none"}},
        {"launcher": {"mpi": "openmpi"}, "ranks": "slurm"},
    ],
)
def test_what_cannot_be_known_or_is_not_used_is_not_asked_for(site, survey):
    assert check(survey, **site) == []


def test_silent_cluster_stands_against_nothing():
    assert check(Survey(), "9n9g", minutes=9999, partition="x", account="y", qos="z") == []


def make_partition(**changes):
    values = {
        "is_default": True,
        "is_up": True,
        "is_exclusive": False,
        "max_nodes": None,
        "max_minutes": None,
        "accounts": None,
        "qos": None,
        "nodes": (NodeKind(2, 64, 1000, (("a100", 4),), ""), NodeKind(6, 64, 1000, (), "")),
        **changes,
    }
    return Partition("mixed", **values)


def test_cores_of_nodes_without_gpus_do_not_count():
    nodes = (NodeKind(1, 8, 1000, (("a100", 2),), ""), NodeKind(6, 64, 1000, (), ""))
    survey = Survey(partitions=(make_partition(nodes=nodes),))
    (found,) = check(survey, "1n2g", cpus_per_rank=5, gpu_request="gres")
    assert found.startswith("cores: ")
    assert "set cpus_per_rank = 4" in found


def test_accounts_are_not_asked_for_where_slurm_does_not_enforce_them(survey):
    free = Survey(partitions=survey.partitions, associations=survey.associations)
    assert check(free, account="nobody", qos="nosuch") == []


LIMITED = frozenset(("limits",))


@pytest.mark.parametrize(
    ("flags", "of_partition", "partition", "finds"),
    [
        ("", None, {"max_minutes": 20}, "partition mixed allows jobs of 20 min"),
        ("PartitionTimeLimit", None, {"max_minutes": 20}, ""),
        ("", None, {"max_nodes": 1}, "partition mixed allows 1 node"),
        ("PartitionMaxNodes", None, {"max_nodes": 1}, ""),
        # the partition's QOS goes before the job's
        ("", 60, {"own_qos": "part"}, ""),
        ("", 9, {"own_qos": "part"}, "QOS part allows jobs of 9 min"),
        ("OverPartQOS", 60, {"own_qos": "part"}, "QOS job allows jobs of 25 min"),
    ],
)
def test_qos_may_exceed_the_limits_of_a_partition(flags, of_partition, partition, finds):
    # the job's QOS has a limit of its own where there is one of the partition
    of_job = Qos("job", 25 if of_partition else None, None, frozenset(flags.split(",")))
    survey = Survey(
        partitions=(make_partition(**partition),),
        qos=(of_job, Qos("part", of_partition, None)),
        enforced=LIMITED,
    )
    found = check(survey, "2n1g", qos="job", minutes=30)
    assert [finds in line for line in found] == [True] * (finds != "")


def test_gpus_cores_and_memory_are_counted_over_as_many_nodes_as_the_job_has():
    mixed = Survey(partitions=(make_partition(),))
    assert check(mixed, "2n4g", gpu_request="gres", gpu_type="a100") == []
    (found,) = check(mixed, "3n4g", gpu_request="gres")
    assert_problem(found, key="devices", says=("mixed has them on 2 nodes;", "set max_nodes = 2,"))
    nodes = (NodeKind(1, 8, 10, (("a100", 8),), ""), NodeKind(2, 64, 10, (("a100", 4),), ""))
    uneven = Survey(partitions=(make_partition(nodes=nodes),))
    (found,) = check(uneven, "2n8g", gpu_request="gres")
    says = ("them on 1 node, at most 4 on each of 2", "max_nodes = 1 or max_devices_per_node = 4")
    assert_problem(found, key="devices", says=says)
    # one node has 64 cores, but two have 8 at most
    nodes = (NodeKind(1, 64, 1000, (), ""), NodeKind(1, 8, 10, (), ""))
    uneven = Survey(partitions=(make_partition(nodes=nodes),))
    cores, memory = check(uneven, "2n4g", cpus_per_rank=4, memory_mib_per_node=500)
    assert_problem(cores, key="cores", says=("at most 8 cores", "cpus_per_rank = 2"))
    assert_problem(memory, key="memory", says=("at most 10 MiB", "memory_mib_per_node = 10,"))
    (found,) = check(mixed, gpu_request="gres", gpu_type="v100")
    assert_problem(found, key="devices", says=("set gpu_type", "a100"))


def test_one_of_several_partitions_that_fits_is_enough():
    short = make_partition(max_minutes=5)
    both = Survey(partitions=(short, Partition(**{**vars(short), "name": "b", "max_minutes": 60})))
    assert check(both, partition="mixed,b") == []
    (found,) = check(both, partition="mixed,b", minutes=90)
    assert_problem(found, key="time limit", says=("90 min", "5", "mixed"))


@pytest.mark.parametrize(
    ("partition", "key", "says"),
    [
        ({"accounts": ("staff",)}, "account", ("mixed", "'ml'", "set account", "staff")),
        ({"is_default": False}, "partition", ("no default", "set partition", "mixed")),
    ],
)
def test_partition_that_cannot_be_used_is_named(partition, key, says):
    (found,) = check(Survey(partitions=(make_partition(**partition),)), account="ml")
    assert_problem(found, key=key, says=says)


def test_one_fault_of_several_array_jobs_is_one_line():
    fault = make_fault("partition", "there is\nnone", "set one")
    findings = [fault.at(f"g{n}") for n in range(6)]
    (merged,) = merge_places([*findings, findings[0]])
    assert str(merged) == ("fault     partition: g0, g1, g2, g3 and 2 more: there is none; set one")
    assert str(CheckResult("ok", "limits", (), "fit")) == "ok        limits: fit"


def test_partition_that_is_down_may_come_back():
    down = Survey(partitions=(make_partition(is_up=False),))
    settled = make_site(gpu_request="none")
    (found,) = check_request(Group("g", parse_topology("1n1g"), 30, (None,)), settled, down)
    assert_problem(found, key="undecided partition: g", says=("mixed", "`sinfo -p mixed`"))
