"""What a record says of its machines, from trees of /proc and /sys that are made here."""

import os
import resource
from pathlib import Path

import pytest

from dlperf_slurm.contract.record import HostPlatform
from dlperf_slurm.worker.provenance import describe_platform, merge_platforms
from dlperf_slurm.worker.provenance.gpu import describe_gpus
from dlperf_slurm.worker.provenance.gpu_affinity import describe_gpu_affinity, read_gpu_node
from dlperf_slurm.worker.provenance.machine import (
    describe_binding,
    describe_cpu,
    describe_network,
    format_ranges,
)
from dlperf_slurm.worker.provenance.software import (
    describe_code,
    describe_container,
    describe_libraries,
    describe_limits,
    describe_system,
)
from dlperf_slurm.worker.provenance.variables import (
    MAX_CHARACTERS,
    cut_credentials,
    describe_environment,
)

CPUINFO = """\
processor\t: 0
model name\t: Example 9000 : 32 cores @ 2.0GHz
microcode\t: 0xd0003b9

processor\t: 1
model name\t: another one
"""
TWO_SOCKETS = {
    f"sys/devices/system/cpu/cpu{cpu}/topology/{name}": text
    for cpu in range(8)
    for name, text in (
        ("physical_package_id", str(cpu // 2 % 2)),
        ("thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}"),
    )
}


@pytest.fixture
def grow(tmp_path):
    """Return a function that writes files below a fake root, and returns the root."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


def test_this_machine_is_described_without_an_empty_fact():
    facts = describe_platform()
    assert {"cpu_model", "kernel", "cpu_list", "code_digest", "limit_nofile"} <= set(facts)
    assert [name for name, value in facts.items() if not isinstance(value, str) or not value] == []


def test_machine_that_shows_nothing_is_described_by_what_is_left(tmp_path):
    assert set(describe_cpu(tmp_path)) == {"cpu_model", "cpu_count"}
    for describe in (describe_network, describe_libraries):
        assert describe(tmp_path) == {}
    assert "os" not in describe_system(tmp_path)


CPU = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
POLICIES = {
    f"{CPU}/cpufreq/policy{policy}/{name}": text
    for policy in range(3)
    for name, text in (
        ("scaling_min_freq", "800000"),
        ("scaling_max_freq", "3500000" if policy < 2 else "2000000"),
        ("scaling_governor", "performance\n"),
    )
}


NUMA_CPUS = (("node0", "0-1"), ("node1", "2-3"), ("node2", ""), ("power", "0-3"))


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (
            {"proc/cpuinfo": CPUINFO},
            {"cpu_model": "Example 9000 : 32 cores @ 2.0GHz", "cpu_microcode": "0xd0003b9"},
        ),
        (
            {**TWO_SOCKETS, f"{CPU}/smt/control": "on\n"},
            {"cpu_sockets": "2", "cpu_cores": "4", "cpu_smt": "on"},
        ),
        ({f"{NODES}/{name}/cpulist": cpus for name, cpus in NUMA_CPUS}, {"numa_nodes": "2"}),
        # rounded, so that nodes of one make agree
        ({"proc/meminfo": "MemTotal:  527896512 kB\n"}, {"memory_gib": "503"}),
        ({"proc/meminfo": "MemTotal:  527834120 kB\n"}, {"memory_gib": "503"}),
        # limits in MHz, and each once
        (POLICIES, {"cpu_limits_mhz": "800 to 3500, 800 to 2000", "cpu_governor": "performance"}),
        ({f"{CPU}/cpufreq/boost": "0"}, {"cpu_boost": "off"}),
        ({f"{CPU}/cpufreq/boost": "1"}, {"cpu_boost": "on"}),
        ({f"{CPU}/intel_pstate/no_turbo": "1"}, {"cpu_boost": "off"}),
        ({f"{CPU}/intel_pstate/no_turbo": "0"}, {"cpu_boost": "on"}),
    ],
)
def test_cpus_and_memory_are_those_of_the_host(grow, files, facts):
    assert facts.items() <= describe_cpu(grow(files)).items()


def test_binding_lists_its_cpus_as_linux_does():
    numbers = ([0, 1, 2, 8], [5], [0, 2, 4, 5], [])
    assert [*map(format_ranges, numbers)] == ["0-2,8", "5", "0,2,4-5", ""]
    facts, cpus = describe_binding(), os.sched_getaffinity(0)
    assert facts["cpus_allowed"] == str(len(cpus))
    assert facts["cpu_list"] == format_ranges(sorted(cpus))


def test_interfaces_that_are_up_and_ports_of_infiniband_are_described(grow):
    net, port = "sys/class/net", "sys/class/infiniband/mlx5_0/ports/1"
    root = grow(
        {
            f"{net}/eth0/operstate": "up\n",
            f"{net}/eth0/speed": "25000\n",
            f"{net}/eth0/mtu": "9000\n",
            f"{net}/eth0/device/vendor": "",
            f"{net}/eth1/operstate": "down\n",
            f"{net}/eth1/device/vendor": "",
            f"{net}/lo/operstate": "unknown\n",
            f"{net}/veth1/operstate": "up\n",
            f"{net}/bond0/operstate": "up\n",
            f"{net}/bond0/speed": "-1\n",
            f"{net}/bond0/mtu": "1500\n",
            f"{net}/bond0/bonding/mode": "",
            f"{port}/state": "4: ACTIVE\n",
            f"{port}/rate": "200 Gb/sec (4X HDR)\n",
            f"{port}/link_layer": "InfiniBand\n",
            "sys/class/infiniband/mlx5_0/fw_ver": "20.31.1014\n",
        }
    )
    drivers = root / "sys/bus/drivers/mlx5_core"
    drivers.mkdir(parents=True)
    (root / net / "eth0/device/driver").symlink_to(drivers)
    assert describe_network(root) == {
        "network": "bond0 mtu 1500; eth0 mlx5_core 25000 Mbit/s mtu 9000",
        "infiniband": "mlx5_0/1 ACTIVE 200 Gb/sec (4X HDR) InfiniBand firmware 20.31.1014",
    }


def test_system_has_distribution_and_huge_pages_and_what_the_kernel_was_told(grow):
    root = grow(
        {
            "etc/os-release": 'NAME="Example"\nPRETTY_NAME="Example Linux 9.4 (Plow)"\nID=x\n',
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "proc/cmdline": "root=UUID=1234 mitigations=off isolcpus=2-7 quiet huge=1\n",
        }
    )
    expected = {
        "os": "Example Linux 9.4 (Plow)",
        "transparent_huge_pages": "madvise",
        "kernel_options": "mitigations=off isolcpus=2-7",
    }
    assert expected.items() <= describe_system(root).items()


IMAGE_OPTION = "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image"


@pytest.mark.parametrize(
    ("files", "environ", "expected"),
    [
        # the one that the job script has started, without credentials
        (
            {},
            {
                "DLPERF_SLURM_CONTAINER": "pyxis",
                "DLPERF_SLURM_CONTAINER_IMAGE": "docker://someone:secret@registry/pytorch:1",
                "DLPERF_SLURM_CONTAINER_DIGEST": "sha256:0123",
                IMAGE_OPTION: "another",
            },
            ["pyxis", "docker://...@registry/pytorch:1", "sha256:0123"],
        ),
        ({}, {"DLPERF_SLURM_CONTAINER": "uenv", "DLPERF_SLURM_CONTAINER_DIGEST": ""}, ["uenv"]),
        ({}, {"APPTAINER_CONTAINER": "/images/a b.sif"}, ["apptainer", "/images/a b.sif"]),
        ({}, {IMAGE_OPTION: "nvcr.io#nvidia/pytorch:24"}, ["enroot", "nvcr.io#nvidia/pytorch:24"]),
        (
            {"run/.containerenv": 'engine="podman-4"\nimage="q.io/x:1"\nimageid="ab12"\n'},
            {},
            ["podman", "q.io/x:1", "ab12"],
        ),
        ({".dockerenv": ""}, {}, ["docker"]),
        ({}, {}, []),
    ],
)
def test_container_tells_its_image_and_digest(grow, files, environ, expected):
    names = ("container", "container_image", "container_digest")
    assert describe_container(grow(files), environ) == dict(zip(names, expected))


def test_code_digest_changes_with_any_module_and_with_nothing_else(tmp_path):
    (tmp_path / "part").mkdir()
    module = tmp_path / "part" / "module.py"
    module.write_text("x = 1\n")
    before = describe_code(tmp_path)
    (tmp_path / "notes.txt").write_text("new")
    assert describe_code(tmp_path) == before
    module.write_text("x = 2\n")
    assert describe_code(tmp_path) != before


def test_loaded_libraries_are_named_once_without_their_folders(grow):
    row = "7f00-7f01 r-xp 00000000 08:01 12 {}\n"
    paths = [
        "/opt/a b/libnccl.so.2.21.5",
        "/opt/a b/libnccl.so.2.21.5",
        "/usr/lib/libmpi.so.40.40.5",
        "/usr/lib/libompeter.so.1",
        "/x/libgomp-a34b3233.so.1.0.0",
        "/usr/lib/libc.so.6",
        "[heap]",
    ]
    text = "".join(map(row.format, paths)) + "7f00-7f01 rw-p 00000000 00:00 0 \n"
    facts = describe_libraries(grow({"proc/self/maps": text}))
    assert facts["libraries"] == "libgomp-a34b3233.so.1.0.0, libmpi.so.40.40.5, libnccl.so.2.21.5"


def test_limits_are_those_of_this_process(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    expected = str(soft) if soft == hard else f"{soft} of {hard}"
    facts = describe_limits(tmp_path)
    assert facts["limit_nofile"] == expected
    assert (facts["cgroup_memory_mib"], facts["cgroup_cpus"]) == ("none", "none")


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        # the tightest above counts
        (
            {
                "proc/self/cgroup": "0::/slurm/job_1/step_0\n",
                "sys/fs/cgroup/slurm/job_1/step_0/memory.max": "max\n",
                "sys/fs/cgroup/slurm/job_1/memory.max": str(64 * 2**30),
                "sys/fs/cgroup/slurm/memory.max": str(256 * 2**30),
                "sys/fs/cgroup/slurm/job_1/step_0/cpu.max": "max 100000\n",
                "sys/fs/cgroup/slurm/job_1/cpu.max": "250000 100000\n",
            },
            ("65536", "2.50"),
        ),
        # version 1
        (
            {
                "proc/self/cgroup": "9:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(2**30),
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "400000",
                "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            ("1024", "4.00"),
        ),
    ],
)
def test_limits_of_cgroups_are_told(grow, files, limits):
    facts = describe_limits(grow(files))
    assert (facts["cgroup_memory_mib"], facts["cgroup_cpus"]) == limits


KEPT = {
    **{"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "8", "LD_PRELOAD": "x.so"},
    **{"MPICH_GPU_SUPPORT_ENABLED": "1", "RCCL_MSCCL_ENABLE": "0"},
    **{"HSA_ENABLE_SDMA": "0", "MIOPEN_FIND_MODE": "NORMAL", "ROCR_VISIBLE_DEVICES": "0,1"},
}
# variables of libraries whose values may be secrets
HIDDEN = ("NCCL_API_TOKEN", "FLAGS_API_TOKEN", "XLA_API_TOKEN")
# of no library, or set anew by each launch
LEFT_OUT = (
    "HF_TOKEN",
    "AWS_SECRET_KEY",
    "WANDB_API_KEY",
    "HOME",
    "OMPI_MCA_initial_wdir",
    "TF_CONFIG",
)


def test_variables_of_frameworks_and_libraries_are_kept_without_secrets():
    facts = describe_environment({**KEPT, **dict.fromkeys([*HIDDEN, *LEFT_OUT], "x")})
    assert facts == {f"env.{name}": KEPT.get(name, "set") for name in (*KEPT, *HIDDEN)}


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("https://alice:s3cret@proxy:3128/x", "https://...@proxy:3128/x"),
        ("docker://token@registry/image", "docker://...@registry/image"),
        ("https://host/x?token=s3cret&n=1", "https://host/x?token=...&n=1"),
        ("--api_key=s3cret --n=1", "--api_key=... --n=1"),
        ("https://host/a@b", "https://host/a@b"),
        ("alice@host", "alice@host"),
    ],
)
def test_credentials_are_cut_out_of_values(text, cut):
    assert cut_credentials(text) == cut
    assert describe_environment({"XLA_FLAGS": text}) == {"env.XLA_FLAGS": cut}
    assert describe_container(Path("/nowhere"), {"APPTAINER_CONTAINER": text}) == {
        "container": "apptainer", "container_image": cut,
    }  # fmt: skip


def test_long_values_are_cut_and_say_so():
    text = describe_environment({"XLA_FLAGS": "é\n" * 5000})["env.XLA_FLAGS"]
    assert text.endswith("... (10000 characters)")
    assert len(text) < MAX_CHARACTERS + 30


def test_gpus_of_one_kind_are_described_once(fake_nvml):
    gpu = {
        "Name": "NVIDIA A100-SXM4-80GB",
        "EnforcedPowerLimit": 400000,
        "MaxClockInfo": 1410,
        "EccMode": [[1, 1]],
        "MaxPcieLinkGeneration": 4,
        "CurrPcieLinkWidth": 16,
        "NvLinkState": [1, 1, 1, 0],
    }
    fake_nvml({**gpu, "UUID": "GPU-a"}, {**gpu, "UUID": "GPU-b"})
    assert describe_gpus() == {
        "cuda_driver": "12.4",
        "gpu_count": "2",
        "gpu_driver": "550.54.15",
        "gpu_ecc": "on",
        "gpu_greatest_clock_mhz": "1410",
        "gpu_models": "NVIDIA A100-SXM4-80GB",
        "gpu_nvlinks": "3",
        "gpu_pcie": "gen4 x16",
        "gpu_power_limit_watts": "400",
        "gpu_topology": "1 x host bridge",
        "gpu_uuids": "GPU-a, GPU-b",
    }


def test_gpus_that_differ_show_and_a_host_without_a_driver_has_none(fake_nvml, monkeypatch):
    fake_nvml({"EnforcedPowerLimit": 400000}, {"EnforcedPowerLimit": 300000})
    assert describe_gpus()["gpu_power_limit_watts"] == "400, 300"
    monkeypatch.delenv("FAKE_NVML")
    assert describe_gpus() == {}


GPUS = (
    {"PciInfo": {"busId": "00000000:3B:00.0"}},
    {"PciInfo": {"busId": "00000000:AF:00.0"}},
    {"UUID": "MIG-1"},
)


@pytest.fixture
def host(fake_nvml, grow, monkeypatch):
    """Two nodes of four CPUs with a GPU each; the process may use the CPUs of the first."""
    fake_nvml(*GPUS)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 4})
    return grow(
        {
            "sys/devices/system/node/node0/cpulist": "0-1,4-5\n",
            "sys/devices/system/node/node1/cpulist": "2-3,6-7\n",
            "sys/bus/pci/devices/0000:3b:00.0/numa_node": "0\n",
            "sys/bus/pci/devices/0000:af:00.0/numa_node": "1\n",
        }
    )


@pytest.mark.parametrize(
    ("rank", "cpus", "environ", "facts"),
    [
        (0, {0, 4}, {}, ("0", "0", "near")),
        (1, {0, 4}, {}, ("1", "0", "far")),
        # it is the GPU that the rank drives
        (0, {0, 4}, {"CUDA_VISIBLE_DEVICES": "1,0"}, ("1", "0", "far")),
        # CPUs of both nodes are near to either
        (1, {1, 2, 3}, {}, ("1", "0-1", "near")),
        # an instance of MIG, a rank without a GPU
        (2, {0, 4}, {}, ()),
        (3, {0, 4}, {}, ()),
    ],
)
def test_gpu_is_near_to_cpus_of_its_node(host, monkeypatch, rank, cpus, environ, facts):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cpus)
    names = ("gpu_numa_node", "cpu_numa_nodes", "gpu_affinity")
    assert describe_gpu_affinity(rank, environ, host) == dict(zip(names, facts))


@pytest.mark.parametrize(
    ("node", "distance", "affinity"),
    [("2", "10 40 10", "near"), ("2", "40 10 10", "far"), ("2", "", None), ("3", "", None)],
)
def test_nearest_node_with_cpus_stands_for_one_of_memory_alone(host, node, distance, affinity):
    (host / "sys/bus/pci/devices/0000:3b:00.0/numa_node").write_text(node)
    memory = host / "sys/devices/system/node/node2"
    memory.mkdir()
    (memory / "cpulist").write_text("\n")
    (memory / "distance").write_text(distance)
    assert describe_gpu_affinity(0, {}, host).get("gpu_affinity") == affinity


def test_nothing_is_said_of_nodes_that_are_not_known(host, tmp_path, monkeypatch):
    assert read_gpu_node(b"00000000:AF:00.0", host) == "1"
    assert describe_gpu_affinity(0, {}, tmp_path / "none") == {}
    (host / "sys/bus/pci/devices/0000:3b:00.0/numa_node").write_text("-1\n")
    assert describe_gpu_affinity(0, {}, host) == {}
    monkeypatch.delenv("FAKE_NVML")
    assert describe_gpu_affinity(1, {}, host) == {}


def test_host_has_only_what_differs_and_what_it_lacks():
    first = ("n1", {"cpu_model": "A", "kernel": "5", "gpu": "x"}, {})
    assert merge_platforms([first, ("n2", *first[1:])]) == (first[1], ())
    _, hosts = merge_platforms([first, ("n2", {"cpu_model": "B", "kernel": "5"}, {})])
    assert hosts == (HostPlatform("n2", {"cpu_model": "B", "gpu": ""}),)
    # on ranks to which nothing was gathered
    assert merge_platforms([]) == ({}, ())


def test_fact_on_which_ranks_of_a_host_differ_has_all_values():
    told = [("n1", {"kernel": "5"}, {"cpu_list": "0-3", "env.X": "1"}),
            ("n1", {}, {"cpu_list": "4-7"})]  # fmt: skip
    platform, _ = merge_platforms(told)
    assert platform == {"kernel": "5", "cpu_list": "0-3; 4-7", "env.X": "1; none"}
