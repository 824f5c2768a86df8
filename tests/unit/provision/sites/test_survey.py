"""Words of Slurm's clients become numbers, or no limit."""

import pytest

from dlperf_slurm.provision.sites.login_node import MAX_MODULES, choose_modules
from dlperf_slurm.provision.sites.survey import (
    find_capability,
    parse_gpus,
    parse_minutes,
    parse_mpi_plugins,
    parse_names,
    parse_partitions,
)


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("01:00:00", 60),
        *(("30", 30), ("2:00", 2), ("1-12", 2160)),
        ("1-00:00:00", 1440),
        ("7-01:30", 10170),
        ("00:00:30", 0),
        ("UNLIMITED", None),
        ("n/a", None),
    ],
)
def test_time_limit_is_read_in_each_of_slurms_forms(text, minutes):
    assert parse_minutes(text) == minutes


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a100:4(S:0),gpu:v100:2(S:1)", {"a100": 4, "v100": 2}),
        ("gpu:1g.5gb:7", {"1g.5gb": 7}),
        ("craynetwork:4,gpu:4", {"": 4}),
        ("(null)", {}),
    ],
)
def test_gpus_are_read_by_type(gres, gpus):
    assert parse_gpus(gres) == gpus


@pytest.mark.parametrize(
    ("gpu_type", "capability"),
    [
        ("tesla_v100-sxm2-16gb", "7.0"),
        ("nvidia_a100-sxm4-80gb", "8.0"),
        ("gh200", "9.0"),
        ("nvidia_h100_80gb_hbm3_1g.10gb", "9.0"),
        ("mi250x", "gfx90a"),
        # of which GPUs is not said
        ("1g.5gb", ""),
        ("", ""),
    ],
)
def test_type_of_gpu_tells_what_code_it_runs(gpu_type, capability):
    assert find_capability(gpu_type) == capability


def test_list_of_all_is_no_list():
    assert parse_names("ALL") is None
    assert parse_names("a,b") == ("a", "b")


def test_mpi_plugins_are_read_from_old_and_new_clients():
    older = "srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: pmix_v3\n"
    newer = "MPI plugin types are...\n\tpmix\n\tnone\nspecific pmix plugin versions available: "
    assert parse_mpi_plugins(older) == ("none", "pmi2", "pmix_v3")
    assert parse_mpi_plugins(newer + "pmix_v4,pmix_v5\n") == ("none", "pmix", "pmix_v4", "pmix_v5")


def test_partition_has_the_limits_that_it_says():
    shown = (
        "PartitionName=gpu AllowAccounts=ml,hpc AllowQos=ALL Default=NO MaxNodes=8 "
        "MaxTime=2-00:00:00 OverSubscribe=EXCLUSIVE State=DOWN"
    )
    listed = "gpu|6|64|512000|gpu:h100:4|(null)\ngpu|2|32|256000|(null)|big\n"
    (partition,) = parse_partitions(shown, listed)
    assert (partition.accounts, partition.qos) == (("ml", "hpc"), None)
    assert (partition.max_nodes, partition.max_minutes) == (8, 2880)
    assert (partition.is_up, partition.is_exclusive, partition.is_default) == (False, True, False)
    assert (partition.node_count, partition.gpus_per_node) == (8, 4)


def test_modules_that_jobs_may_need_are_chosen():
    listed = "/opt/modules:\ncuda/12.6(default)\nemacs/29\nOpenMPI/5.0.3\n"
    assert choose_modules(listed) == ("OpenMPI/5.0.3", "cuda/12.6")


def test_every_kind_of_module_keeps_its_latest_where_there_are_many():
    listed = "".join(f"cuda/{i:02}\n" for i in range(60)) + "python/3.11\nucx/1.17\n"
    chosen = choose_modules(listed)
    assert {"cuda/59", "python/3.11", "ucx/1.17"} < set(chosen)
    assert len(chosen) == MAX_MODULES
