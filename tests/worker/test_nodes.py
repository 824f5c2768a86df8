"""What a node does before the ranks start: its checks, the data that it copies, what it reports."""

import json
import os
import signal
import subprocess
import tarfile
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from support import attempts
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.nodes import (
    NodeChecks,
    NodeCopy,
    NodeReport,
    NodeWork,
    describe_unhealthy,
    find_unhealthy_nodes,
    format_node_work,
    make_node_failure,
    read_node_reports,
    write_node_report,
)
from dlperf_slurm.contract.record import FAILED, RECORD_FILE, Record
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.nodes import checks
from dlperf_slurm.worker.nodes.checks import (
    check_node,
    find_stale_processes,
    find_xids,
    list_stale_processes,
)
from dlperf_slurm.worker.nodes.commands import run_line
from dlperf_slurm.worker.nodes.copies import CopyError, copy_dataset, hold_lock, read_on_node
from dlperf_slurm.worker.nodes.devices import read_gpus
from dlperf_slurm.worker.nodes.links import find_port_problems
from dlperf_slurm.worker.nodes.prepare import prepare_node

ON_GPUS = vary(attempts.CASE, device="cuda", topology="1n2g")
GPU = """
<gpu id="00000000:{bus}:00.0">
 <uuid>GPU-{bus}</uuid>
 <clocks_event_reasons>
  <clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
  <clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
  <clocks_event_reason_hw_thermal_slowdown>{slowdown}</clocks_event_reason_hw_thermal_slowdown>
 </clocks_event_reasons>
 <fb_memory_usage><total>81559 MiB</total><free>{free} MiB</free></fb_memory_usage>
 <ecc_errors>
  <volatile>
   <sram_uncorrectable_parity>0</sram_uncorrectable_parity>
   <dram_correctable>7</dram_correctable>
   <dram_uncorrectable>{ecc}</dram_uncorrectable>
  </volatile>
  <aggregate><dram_uncorrectable>9</dram_uncorrectable></aggregate>
 </ecc_errors>
 <remapped_rows>
  <remapped_row_pending>{pending}</remapped_row_pending>
  <remapped_row_failure>No</remapped_row_failure>
 </remapped_rows>
 <pci><pci_gpu_link_info>
  <pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>{generation}</current_link_gen></pcie_gen>
  <link_widths><max_link_width>16x</max_link_width><current_link_width>{width}</current_link_width>
  </link_widths>
 </pci_gpu_link_info></pci>
 <utilization><gpu_util>{use} %</gpu_util></utilization>
 <fabric><state>{fabric}</state><status>{status}</status></fabric>
 <gpu_recovery_action>{action}</gpu_recovery_action>
 <applications_clocks><graphics_clock>{clock}</graphics_clock></applications_clocks>
 <default_applications_clocks>
  <graphics_clock>1980 MHz</graphics_clock>
 </default_applications_clocks>
 <processes>{processes}</processes>
</gpu>
"""
PROCESS = """<process_info><pid>7</pid><type>{kind}</type><process_name>{name}</process_name>
</process_info>"""
SOUND = {
    "bus": "18",
    "slowdown": "Not Active",
    "free": "81000",
    "ecc": "0",
    "pending": "No",
    "action": "None",
    "clock": "1980 MHz",
    "width": "16x",
    "generation": "1",
    "use": "0",
    "fabric": "Completed",
    "status": "Success",
    "processes": "",
}
ALL = NodeChecks(devices=True, ecc=True, clocks=True, links=True, stale_processes=True)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Put a folder for fake programs first on PATH, and unset variables of a job."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def write_program(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def show_gpus(programs, *changes, nvlink="true"):
    """nvidia-smi tells of a GPU for each of these changes of a sound one, and of links by bash."""
    gpus = (GPU.format(**{**SOUND, "bus": f"1{i}", **change}) for i, change in enumerate(changes))
    text = f'<?xml version="1.0" ?>\n<nvidia_smi_log>{"".join(gpus)}</nvidia_smi_log>'
    shown = f"if [ \"$1\" = nvlink ]; then {nvlink}\nexit; fi\ncat <<'END'\n{text}\nEND"
    write_program(programs, "nvidia-smi", shown)


def check(case=ON_GPUS, seconds=20.0, **asked):
    return check_node(NodeChecks(**asked), case, seconds)


@pytest.mark.parametrize(
    ("change", "asked", "says"),
    [
        ({"ecc": "2"}, {"ecc": True}, ("GPU 1", "2", "ECC")),
        ({"pending": "Yes"}, {"ecc": True}, ("GPU 1", "remapped_row_pending")),
        ({"action": "GPU Reset"}, {"ecc": True}, ("GPU 1", "GPU Reset")),
        ({"slowdown": "Active"}, {"clocks": True}, ("GPU 1", "hw_thermal_slowdown")),
        ({"clock": "900 MHz"}, {"clocks": True}, ("GPU 1", "900 MHz", "1980 MHz")),
        (
            {"processes": PROCESS.format(kind="C", name="/usr/bin/python3")},
            {"stale_processes": True},
            ("GPU 1", "in use", "python3"),
        ),
        ({"width": "8x"}, {"links": True}, ("GPU 1", "8 lanes", "16")),
        ({"generation": "3", "use": "99"}, {"links": True}, ("GPU 1", "generation 3", "5")),
        ({"fabric": "In Progress"}, {"links": True}, ("GPU 1", "nvidia-fabricmanager")),
        ({"status": "NVML_ERROR"}, {"links": True}, ("GPU 1", "NVML_ERROR")),
        ({"free": "100"}, {"free_device_memory_mib": 70000}, ("GPU 1", "100 MiB", "70000")),
    ],
)
def test_gpu_that_is_not_fit_is_named_if_the_site_asks(programs, change, asked, says):
    show_gpus(programs, {}, change)
    (problem,), unknown = check(**asked)
    assert_problem(problem, says=says)
    assert unknown == []
    assert check(devices=True) == check() == ([], [])


@pytest.mark.parametrize(
    "change",
    [
        {},
        # what a GPU does not have is no problem
        {"ecc": "N/A", "pending": "N/A", "action": "N/A", "clock": "N/A", "fabric": "N/A"},
        {"processes": PROCESS.format(kind="G", name="/usr/lib/xorg/Xorg")},
        {"processes": PROCESS.format(kind="C", name="nvidia-cuda-mps-server")},
    ],
)
def test_sound_node_has_no_problems(programs, change):
    show_gpus(programs, {}, change)
    assert check_node(ALL, ON_GPUS, 20.0) == ([], [])


@pytest.mark.parametrize(
    ("links", "problems"),
    [
        (("26.5 GB/s", "26.5 GB/s"), []),
        (("26.5 GB/s", "<inactive>"), ["GPU 1 has 1 active NVLinks; other GPUs: 2"]),
        (("<inactive>", "<inactive>"), ["GPU 1 has 0 active NVLinks; other GPUs: 2"]),
    ],
)
def test_gpu_with_fewer_nvlinks_than_the_others_is_named(programs, links, problems):
    lines = [
        f"GPU {gpu}: NVIDIA H100 (UUID: GPU-{gpu})\n\t Link 0: {first}\n\t Link 1: {second}\n"
        for gpu, (first, second) in enumerate((("26.5 GB/s", "26.5 GB/s"), links))
    ]
    show_gpus(programs, {}, {}, nvlink=f"cat <<'END'\n{''.join(lines)}END")
    assert check(links=True) == (problems, [])


@pytest.fixture
def amd_programs(programs, monkeypatch):
    """Have the fake programs alone on PATH, as this machine may have an nvidia-smi."""
    monkeypatch.setenv("PATH", str(programs))
    return programs


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({}, None),
        ({"width": 8}, ("GPU 1", "8 lanes", "16")),
        ({"speed": 2.5}, None),
        ({"speed": 16, "busy": 90}, ("GPU 1", "busy", "16 GT/s", "32")),
        ({"links": ["U", "D", "D", "X"]}, ("GPU 1", "2 xGMI links down", "1 up")),
        ({"links": ["U/U", "SELF", "U/D"]}, ("GPU 1", "1 xGMI links down", "3 up")),
        ({"links": "N/A"}, None),
    ],
)
def test_amd_gpu_with_a_slow_or_narrow_or_missing_link_is_named(amd_programs, second, words):
    sound = {"width": 16, "speed": 32, "busy": 0, "links": ["U", "N/A", "U", "X"]}
    static, metric, xgmi = [], [], []
    for number, gpu in enumerate((sound, {**sound, **second})):
        speed = {"value": gpu["speed"], "unit": "GT/s"}
        use = {"gfx_activity": {"value": gpu["busy"], "unit": "%"}}
        most = {"max_pcie_width": 16, "max_pcie_speed": {"value": 32, "unit": "GT/s"}}
        static.append({"gpu": number, "bus": most})
        metric.append(
            {"gpu": number, "usage": use, "pcie": {"width": gpu["width"], "speed": speed}}
        )
        xgmi.append({"gpu": number, "link_status": gpu["links"]})
    # a list, or in an object
    answers = {"static": static, "metric": {"gpu_data": metric}}
    answers["xgmi"] = {"cpu_data": [{"cpu": 0}], "link_status": xgmi}
    lines = [f"[ $1 = {name} ] && echo '{json.dumps(told)}'" for name, told in answers.items()]
    write_program(
        amd_programs, "amd-smi", "\n".join(["echo 'WARNING: no render' >&2", *lines, ":"])
    )
    problems, unknown = check(links=True)
    assert unknown == []
    assert len(problems) == (words is not None)
    for problem in problems:
        assert_problem(problem, says=words)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            """[ $1 != xgmi ] || exit 2
            echo '[{"gpu": 0, "bus": {"max_pcie_width": 16}, "pcie": {"width": 16}}]'""",
            ("xGMI", "amd-smi", "exit code 2"),
        ),
        ("exit 3", ("amd-smi", "exit code 3")),
        ("echo broken", ("amd-smi", "JSON")),
        ("echo '{}'", ("amd-smi", "JSON")),
        (
            """echo '[{"gpu": 0, "bus": {}, "pcie": "N/A", "link_status": "N/A"}]'""",
            ("amd-smi", "PCIe", "GPU 0"),
        ),
        (
            """echo '[{"gpu": 0, "bus": {"max_pcie_width": 16}, "pcie": {"width": 16}}]'""",
            ("amd-smi", "xGMI", "GPU 0"),
        ),
    ],
)
def test_link_that_amd_smi_does_not_report_is_no_problem(amd_programs, answer, says):
    write_program(amd_programs, "amd-smi", answer)
    problems, (reason,) = check(links=True)
    assert problems == []
    assert_problem(reason, says=says)


def test_links_that_the_driver_does_not_tell_are_no_problem(programs):
    show_gpus(programs, {"width": "N/A"}, nvlink="exit 3")
    problems, (width, nvlinks) = check(links=True)
    assert problems == []
    assert_problem(width, says=("PCIe", "GPU 0"))
    assert_problem(nvlinks, says=("NVLinks", "exit code 3"))


def add_port(root, device, rate="200 Gb/sec (4X HDR)", state="4: ACTIVE", mtu="", gid=""):
    """Add the first port of an adapter to a made-up /sys; one with an MTU is a RoCE port."""
    port = root / "class/infiniband" / device / "ports/1"
    for folder in ("gids", "gid_attrs/ndevs"):
        (port / folder).mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    (port / "rate").write_text(f"{rate}\n")
    (port / "link_layer").write_text("Ethernet" if mtu else "InfiniBand")
    (port / "gids/0").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    (port / "gids/3").write_text(f"{gid}\n")
    if mtu:
        (port / "gid_attrs/ndevs/0").write_text(f"eth-{device}\n")
        (root / "class/net" / f"eth-{device}").mkdir(parents=True)
        (root / "class/net" / f"eth-{device}" / "mtu").write_text(f"{mtu}\n")


GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"


@pytest.mark.parametrize(
    ("ports", "environ", "says"),
    [
        ([{}, {}], {}, ()),
        ([{}, {"state": "1: DOWN"}], {}, ("mlx5_1:1 is DOWN", 'NCCL_IB_HCA = "=mlx5_0:1"')),
        ([{}, {"rate": "50 Gb/sec (1X HDR)"}], {}, ("mlx5_1:1 runs at 50 Gb/sec", "mlx5_0:1")),
        ([{}, {"state": "1: DOWN"}], {"NCCL_IB_HCA": "=mlx5_0:1"}, ()),
        ([{}, {"state": "1: DOWN"}], {"NCCL_IB_HCA": "^mlx5_1"}, ()),
        ([{}, {"state": "1: DOWN"}], {"NCCL_IB_HCA": "mlx5"}, ("mlx5_1:1 is DOWN",)),
        ([{}], {"NCCL_IB_HCA": "ibp"}, ("NCCL_IB_HCA = 'ibp' names no port",)),
        ([{"mtu": "9000", "gid": GID}, {"mtu": "1500", "gid": GID}], {}, ("1500", "9000")),
        ([{"mtu": "9000", "gid": GID}, {"mtu": "9000"}], {}, ("mlx5_1:1 has no GID",)),
        ([{"mtu": "9000", "gid": GID}], {"NCCL_IB_GID_INDEX": "3"}, ()),
        ([{"mtu": "9000", "gid": GID}], {"NCCL_IB_GID_INDEX": "1"}, ("no GID 1", "of 3")),
    ],
)
def test_ports_of_adapters_are_active_and_alike(tmp_path, ports, environ, says):
    for index, port in enumerate(ports):
        add_port(tmp_path, f"mlx5_{index}", **port)
    unknown = []
    problems = find_port_problems(tmp_path, environ, unknown)
    assert unknown == []
    if says:
        assert_problem(" ".join(problems), says=says)
    else:
        assert problems == []


def test_node_without_ports_is_told_and_no_problem(tmp_path):
    unknown = []
    assert find_port_problems(tmp_path, {}, unknown) == []
    assert "no InfiniBand or RoCE port" in " ".join(unknown)


def test_limits_below_those_of_the_site_are_problems(monkeypatch):
    limits = {checks.resource.RLIMIT_NOFILE: 1024, checks.resource.RLIMIT_MEMLOCK: 8 * 2**20}
    monkeypatch.setattr(checks.resource, "getrlimit", lambda kind: (limits[kind], limits[kind]))
    asked = {"open_files": 4096, "locked_memory_mib": 1024, "shared_memory_mib": 2**40}
    files, locked, shared = check(**asked)[0]
    assert_problem(files, says=("1024", "4096", "LimitNOFILE"))
    assert_problem(locked, says=("8 MiB", "1024", "LimitMEMLOCK"))
    assert_problem(shared, says=("/dev/shm", str(2**40)))
    limits.update(dict.fromkeys(limits, checks.resource.RLIM_INFINITY))
    assert check(open_files=2**30, locked_memory_mib=2**40) == ([], [])


def test_counters_of_former_drivers_are_read():
    volatile = "<volatile><double_bit><register_file>1</register_file><total>3</total></double_bit>"
    (gpu,) = read_gpus(
        f"<nvidia_smi_log><gpu><ecc_errors>{volatile}</volatile></ecc_errors>"
        "<clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>"
        "</gpu></nvidia_smi_log>"
    )
    assert checks.find_ecc_problem(gpu) == "GPU 0 has 3 uncorrectable ECC errors"
    assert checks.find_clock_problem(gpu) == "clocks of GPU 0 are throttled: hw_slowdown"


@pytest.mark.parametrize(
    ("visible", "problems"),
    [
        ("0,1", []),
        ("GPU-11,GPU-12", []),
        # behind what is no device CUDA sees no other
        ("0,7,1", ["1 of 2 GPUs respond"]),
        ("0,-1,1", ["1 of 2 GPUs respond"]),
        ("", ["0 of 2 GPUs respond"]),
    ],
)
def test_gpus_of_the_job_alone_count(programs, monkeypatch, visible, problems):
    show_gpus(programs, {}, {}, {})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert check(devices=True) == (problems, [])


INSTANCE = """<mig_device><gpu_instance_id>{place}</gpu_instance_id>
<compute_instance_id>0</compute_instance_id><fb_memory_usage><free>{free} MiB</free>
</fb_memory_usage></mig_device>"""
STRANGER = """<process_info><gpu_instance_id>2</gpu_instance_id>
<compute_instance_id>0</compute_instance_id><type>C</type><process_name>python</process_name>
</process_info>"""


@pytest.mark.parametrize(
    ("visible", "asked", "says"),
    [
        ("MIG-a,MIG-d", {"devices": True}, ""),
        ("MIG-a,MIG-gone", {"devices": True}, "1 of 2"),
        ("0,3", {"devices": True}, ""),
        ("3,4", {"devices": True}, "1 of 2"),
        ("MIG-GPU-10aa/1/0,MIG-GPU-11aa/2/0", {"devices": True}, ""),
        ("GPU-10,GPU-11", {"devices": True}, ""),
        ("MIG-a", {"stale_processes": True}, ""),
        ("MIG-b", {"stale_processes": True}, "GPU 0 instance 1 is in use by python"),
        ("MIG-a", {"free_device_memory_mib": 101}, "100 MiB"),
        ("MIG-a", {"ecc": True}, "GPU 0 instance 0 has 2 uncorrectable"),
    ],
)
def test_instances_of_gpus_count_as_devices(programs, monkeypatch, visible, asked, says):
    instances = "".join(INSTANCE.format(place=place, free=100 * place) for place in (1, 2))
    gpus = "".join(
        f"<gpu><uuid>GPU-{bus}aa</uuid><mig_devices>{instances}</mig_devices><fb_memory_usage>"
        "<free>9999 MiB</free></fb_memory_usage><ecc_errors><volatile><dram_uncorrectable>2"
        f"</dram_uncorrectable></volatile></ecc_errors><processes>{STRANGER}</processes></gpu>"
        for bus in (10, 11)
    )
    listed = "".join(f"  MIG 3g.40gb Device: (UUID: MIG-{name})\n" for name in "abcd")
    shown = f"<nvidia_smi_log>{gpus}</nvidia_smi_log>"
    write_program(programs, "nvidia-smi", f"[ $1 = -L ] && printf '{listed}' || printf '{shown}'")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    problems, _ = check(**asked)
    assert (says in " ".join(problems)) if says else problems == []


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'No devices were found'; exit 6", "exit code 6: No devices were found"),
        ("echo oops", "invalid XML: "),
        ("sleep 60", "0.5 s"),
    ],
)
def test_driver_that_does_not_tell_is_a_problem(programs, script, problem):
    write_program(programs, "nvidia-smi", script)
    (found,), unknown = check(devices=True, seconds=0.5)
    assert problem in found
    assert unknown == []


def test_processes_on_gpus_are_asked_for_only_where_gpus_compute(programs, monkeypatch):
    monkeypatch.setenv("PATH", str(programs))
    assert check(attempts.CASE, stale_processes=True) == ([], [])
    for asked in ("stale_processes", "devices"):
        (problem,), _ = check(ON_GPUS, **{asked: True})
        assert problem.startswith("nvidia-smi cannot be started")


LOG = """\
[   10.000001] NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.
[ 5000.000001] NVRM: Xid (PCI:0000:19:00): 31, pid=2, name=python, MMU Fault
[ 5000.000002] NVRM: Xid (PCI:0000:19:00): 95, pid=2, Uncontained ECC error
[ 5000.000003] NVRM: Xid (PCI:0000:19:00): 95, pid=2, Uncontained ECC error
"""


def test_xid_errors_of_the_hardware_count_for_as_long_as_the_site_says():
    assert find_xids(LOG, 3600.0, 6000.0) == ["Xid 95 of the GPU at 0000:19:00"]
    assert find_xids(LOG, 7200.0, 6000.0)[0] == "Xid 79 of the GPU at 0000:18:00"
    assert find_xids(LOG, 60.0, 6000.0) == []


OFF_THE_BUS = "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."
NEEDS_RESET = "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x0 (None) to 0x1"
HAS_RECOVERED = "NVRM: Xid (PCI:0000:18:00): 154, GPU recovery action changed from 0x1 (x) to 0x0"


@pytest.mark.parametrize(
    ("log", "xids"),
    [
        # with whatever time a kernel or dmesg writes
        (OFF_THE_BUS, ["79"]),
        (f"[Wed Nov 25 10:00:00 2026] {OFF_THE_BUS}", ["79"]),
        (f"2026-11-25T10:00:00,500000+00:00 {OFF_THE_BUS}", ["79"]),
        (f"[ 1000.5 <    0.000001>] {OFF_THE_BUS}", ["79"]),
        (f"[ 1000.5][ T1234] {OFF_THE_BUS}", ["79"]),
        (OFF_THE_BUS.replace("PCI:", ""), ["79"]),
        # by the catalogue: contained, remapped, nothing to be done
        *((OFF_THE_BUS.replace("79", xid), []) for xid in ("63", "94", "121")),
        *((OFF_THE_BUS.replace("79", xid), [xid]) for xid in ("46", "109", "158")),
        (OFF_THE_BUS.replace("79", "145, RLW Nonfatal"), []),
        (OFF_THE_BUS.replace("79", "144, SAW Fatal"), ["144"]),
        (f"{NEEDS_RESET} (GPU Reset Required)", ["154"]),
        (f"{NEEDS_RESET} (GPU Reset Required)\n{HAS_RECOVERED} (None)", []),
        ("nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 28", ["20034"]),
        ("nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 12028, Non-fatal, Link 28", []),
    ],
)
def test_xid_errors_count_by_the_catalogue_and_what_their_message_says(log, xids):
    assert [problem.split()[1] for problem in find_xids(log, 3600.0, 1100.0)] == xids


def test_kernel_log_is_read_by_journalctl_if_dmesg_is_forbidden(programs):
    write_program(programs, "dmesg", "echo 'dmesg: Operation not permitted' >&2; exit 1")
    entry = f"[    1.000001] n1 kernel: {OFF_THE_BUS}"
    write_program(programs, "journalctl", f"echo '{entry}'")
    problems, unknown = check(xid_hours=10**6)
    assert (problems, unknown) == (["Xid 79 of the GPU at 0000:18:00"], [])
    # what it prints to users who may see their own messages alone
    write_program(programs, "journalctl", "echo '-- No entries --'")
    problems, (reason,) = check(xid_hours=24.0)
    assert problems == []
    assert_problem(reason, says=("Xid", "dmesg: Operation not permitted"))


def test_memory_that_is_not_free_is_a_problem():
    (problem,), _ = check(free_memory_mib=2**40)
    assert problem.endswith(f" {2**40}")
    assert check(free_memory_mib=1) == ([], [])


def test_commands_of_the_site_are_all_run():
    problems, _ = check(commands=("true", "echo a; echo 'no link' >&2; exit 4", "false"))
    first, second = problems
    assert_problem(first, says=("\"echo a; echo 'no link' >&2; exit 4\"", "exit code 4: no link"))
    assert_problem(second, says=("'false'", "exit code 1"))


def test_line_that_hangs_is_ended():
    assert run_line("sleep 60", "setup", 0.5) == "setup 'sleep 60' took longer than 0.5 s"


def test_process_of_another_job_is_stale_only_without_its_daemon(monkeypatch):
    environ = {**os.environ, "SLURM_JOB_ID": "1"}
    with subprocess.Popen(["sleep", "60"], env=environ) as process:
        try:
            assert process.pid in list_stale_processes("2")
            assert process.pid not in list_stale_processes("1")
            # by hand there is no job that it could be left over from
            assert list_stale_processes("") == {}
            monkeypatch.setattr(checks, "_STEP_DAEMON", Path("/proc/self/comm").read_text().strip())
            assert process.pid not in list_stale_processes("2")
        finally:
            process.kill()


def test_process_that_stays_is_named_and_one_that_ends_is_not(monkeypatch):
    monkeypatch.setattr(checks, "ENDING_SECONDS", 0.5)
    left = iter([{1: "a", 2: "b"}, {1: "a"}])
    monkeypatch.setattr(checks, "list_stale_processes", lambda job_id: next(left, {1: "a"}))
    (problem,) = find_stale_processes("7")
    assert problem.endswith(": a (1)")
    monkeypatch.setattr(checks, "list_stale_processes", lambda job_id: next(left, {}))
    assert find_stale_processes("7") == []


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "train").mkdir(parents=True)
    (folder / "dataset.json").write_text("{}")
    (folder / "train" / "a b.bin").write_bytes(bytes(1000))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(bytes(24))
    (folder / "train" / "link.bin").symlink_to(elsewhere)
    return folder


def list_files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_folder_is_copied_whole_and_taken_as_it_is_when_it_is_there(tmp_path, source):
    # of one that was killed
    (tmp_path / "job" / "data.partial").mkdir(parents=True)
    (tmp_path / "job" / "data.partial" / "half").write_text("x")
    for was_there in (False, True):
        copy = copy_dataset(str(source), "${SCRATCH}/job/data", {"SCRATCH": str(tmp_path)})
        target = tmp_path / "job" / "data"
        assert list_files(target) == list_files(source)
        assert not (target / "train" / "link.bin").is_symlink()
        assert copy == NodeCopy(str(source), str(target), 3, 1026, copy.seconds, was_there)
        assert copy.seconds > 0


def test_archive_is_unpacked(tmp_path, source):
    archive = tmp_path / "data.tar.gz"
    with tarfile.open(str(archive), "w:gz", dereference=True) as tar:
        tar.add(str(source), ".")
    copy = copy_dataset(str(archive), "$SCRATCH/data", {"SCRATCH": str(tmp_path)})
    assert list_files(tmp_path / "data") == list_files(source)
    assert (copy.files, copy.size_bytes) == (3, 1026)


def test_other_data_in_the_place_is_left_and_told(tmp_path, source):
    target = tmp_path / "data"
    target.mkdir()
    (target / "precious").write_text("x")
    with pytest.raises(CopyError, match=r"1 files of 1 bytes"):
        copy_dataset(str(source), str(target), {})
    assert list_files(target) == {"precious": b"x"}


@pytest.mark.parametrize("is_locked", [False, True])
def test_copy_or_lock_of_another_user_is_refused(monkeypatch, tmp_path, source, is_locked):
    """It could hold other data of the same size, or be held for ever."""
    target = tmp_path / "data"
    if not is_locked:
        copy_dataset(str(source), str(target), {})
        monkeypatch.setattr(
            "dlperf_slurm.worker.nodes.copies.hold_lock", lambda path: nullcontext()
        )
    strange = tmp_path / "data.lock" if is_locked else target
    strange.touch()
    user = os.geteuid()
    if user == 0:
        os.chown(str(strange), 4242, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(CopyError, match="another user"):
        copy_dataset(str(source), str(target), {})


@pytest.mark.parametrize(
    ("target", "problem"), [("${SCRATCH}/data", "SCRATCH is not set"), ("/proc/data", "to /proc")]
)
@pytest.mark.parametrize("environ", [{}, {"SCRATCH": ""}])
def test_place_that_is_none_is_told(source, environ, target, problem):
    with pytest.raises(CopyError, match=problem):
        copy_dataset(str(source), target, environ)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (
            '/bin/cp "$@"; rm "${@: -1}/dataset.json"',
            "2 files of 1024 bytes; expected: 3 files of 1026",
        ),
        ('mkdir "${@: -1}"; echo "cp: No space left" >&2; exit 1', "exit code 1: cp: No space"),
    ],
)
def test_copy_that_fails_says_why_and_leaves_nothing(programs, tmp_path, source, script, problem):
    write_program(programs, "cp", script)
    with pytest.raises(CopyError, match=problem):
        copy_dataset(str(source), str(tmp_path / "data"), {})
    assert sorted(p.name for p in tmp_path.glob("data*")) == ["data.lock"]


def test_second_job_on_a_node_waits_for_the_copy_of_the_first(tmp_path, source):
    child = os.fork()
    if child == 0:
        with hold_lock(tmp_path / "data"):
            (tmp_path / "held").touch()
            time.sleep(0.5)
            copied = subprocess.run(["cp", "-rL", str(source), str(tmp_path / "data")])
        os._exit(copied.returncode)
    while not (tmp_path / "held").exists():
        time.sleep(0.01)
    assert copy_dataset(str(source), str(tmp_path / "data"), {}).was_there
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def attempt(tmp_path, source):
    """Make the folder of a start of a case that reads `source`."""
    folder = tmp_path / "attempt"
    folder.mkdir()
    write_json(folder / "case.json", vary(attempts.CASE, data="folder", data_dir=str(source)))
    return folder


@pytest.fixture
def handler():
    """Restore the handler of SIGUSR1, which the node's own process ignores."""
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def prepare(attempt, copies=None, **asked):
    work = NodeWork(asked.pop("setup", ()), NodeChecks(**asked), 20.0, copies or {})
    path = attempt / "work.json"
    path.write_text(format_node_work(work), encoding="utf-8")
    return prepare_node(path, attempt)


@pytest.mark.usefixtures("handler")
def test_node_sets_up_then_checks_then_copies(attempt, tmp_path, source, monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    copies = {str(source): str(tmp_path / "copy")}
    state = tmp_path / "state"
    done = prepare(attempt, copies, setup=(f"echo a > {state}",), commands=(f"grep a {state}",))
    assert done == 0
    (report,) = read_node_reports(attempt)
    assert (report.node, report.problems) == ("n7", ())
    assert [copy.path for copy in report.copies] == [str(tmp_path / "copy")]
    assert not (attempt / "failures").exists()
    # which ranks then read
    case = read_json(attempt / "case.json", type(attempts.CASE))
    assert read_on_node(case, attempt).data_dir == str(tmp_path / "copy")
    assert read_on_node(case, attempt / "trials" / "b8").data_dir == str(tmp_path / "copy")


@pytest.mark.usefixtures("handler")
def test_node_that_is_not_fit_copies_nothing_and_is_in_the_record(
    attempt, tmp_path, source, monkeypatch, capfd
):
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    copies = {str(source): str(tmp_path / "copy")}
    assert prepare(attempt, copies, commands=("echo on eth0; false",)) == 1
    assert not (tmp_path / "copy").exists()
    conclude_attempt(attempt, 1)
    record = read_json(attempt / RECORD_FILE, Record)
    why = "node n7 is unhealthy: check 'echo on eth0; false' failed with exit code 1: on eth0"
    assert record.status == FAILED
    assert describe_unhealthy(record) == why
    assert find_unhealthy_nodes(why) == ["n7"]
    assert why in capfd.readouterr().err


@pytest.mark.usefixtures("handler")
def test_setup_ends_at_its_first_line_that_fails(attempt, tmp_path):
    noted = tmp_path / "noted"
    lines = (f"echo a > {noted}", "exit 5", f"echo b > {noted}")
    assert prepare(attempt, setup=lines, commands=("echo checked >&2; false",)) == 1
    assert noted.read_text() == "a\n"
    (report,) = read_node_reports(attempt)
    (problem,) = report.problems
    assert_problem(problem, says=("setup 'exit 5'", "exit code 5"))


def test_each_node_of_a_failure_is_named(attempt):
    for node in ("n1", "n-2.site"):
        report = NodeReport(node, node, 0.0, 0.0, ("a; b",))
        folder = attempt / "failures"
        folder.mkdir(exist_ok=True)
        write_json(folder / f"node-{node}.json", make_node_failure(report))
    conclude_attempt(attempt, 1)
    why = describe_unhealthy(read_json(attempt / RECORD_FILE, Record))
    assert set(find_unhealthy_nodes(why)) == {"n1", "n-2.site"}


def test_rank_in_a_container_with_another_name_reads_what_all_nodes_agree_on(attempt, source):
    case = read_json(attempt / "case.json", type(attempts.CASE))

    def report(node, path):
        copy = NodeCopy(str(source), path, 1, 1, 1.0, False)
        write_node_report(attempt, NodeReport(node, node, 0.0, 0.0, copies=(copy,)))

    # before any report, and with one of no copy
    assert read_on_node(case, attempt) is case
    write_node_report(attempt, NodeReport("n1", "n1", 0.0, 0.0))
    assert read_on_node(case, attempt) is case
    report("n1", "/scratch/data")
    report("n2", "/scratch/data")
    assert read_on_node(case, attempt).data_dir == "/scratch/data"
    report("n2", "/other")
    with pytest.raises(FileNotFoundError, match="no copy of"):
        read_on_node(case, attempt)
