"""What stands beside a record on others on its machines: real ranks beside a real busy process."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support import attempts
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.contract.host_noise import (
    HOST_NOISE_FILE,
    CpuUse,
    GpuState,
    HostNoise,
    NoiseReport,
    OtherProcess,
)
from dlperf_slurm.contract.json_files import build_dataclass
from dlperf_slurm.contract.phases import MEANINGS, PYTHON, WINDOW
from dlperf_slurm.contract.record import OK
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.host_noise import (
    describe_local_load,
    describe_noise,
    gather_noise,
    merge_hosts,
    probe_host,
)

# of this process alone: the same tests may run beside it
BUSY_NAME = f"busy-{os.getpid()}"
LAUNCHERS = {"mpirun", "prterun", "orted", "prted"}
NEIGHBOUR = Path(__file__).resolve().parents[1] / "support" / "neighbour.py"
FIRST = RankInfo(0, 0, 2, "n1", "127.0.0.1", 0)
CUDA = vary(attempts.CASE, device="cuda")
QUIET = CpuUse(0.5, 4, 0.3, 0.01, 0.0)


class TwoRanks:
    """The world of one of two ranks whose namespaces of processes are these."""

    def __init__(self, *spaces):
        self.spaces = spaces

    def exchange(self, value):
        host, own = value
        return [(host, space or own) for space in self.spaces]

    def barrier(self):
        pass

    def gather(self, value):
        return [value]


TOGETHER = TwoRanks("", "")


@contextmanager
def run_other_process(*words):
    """As many of these processes as it takes to keep a tenth of all CPUs busy."""
    with ExitStack() as stack:
        for _ in range(1 + (os.cpu_count() or 1) // 10):
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.enter_context(process)
            assert process.stdout.readline() == b"busy\n"
        yield


@pytest.fixture
def launch(tmp_path, code_dir, mpi):
    """Return a function that runs real ranks, and returns the file beside the record and stderr."""
    pytest.importorskip("psutil", reason="needs psutil: pip install psutil")

    def run():
        attempt = attempts.Attempt(tmp_path / "a1", code_dir, measured_steps=100)
        attempt.launch(step_seconds=0.02)
        assert attempt.read_record().status == OK, attempt.stderr
        path = attempt.path / HOST_NOISE_FILE
        data = json.loads(path.read_text(encoding="utf-8"))
        return build_dataclass(NoiseReport, data, path.name), attempt.stderr

    return run


def test_busy_neighbour_of_a_real_run_is_named_before_and_in_its_window(launch):
    with run_other_process(sys.executable, str(NEIGHBOUR), BUSY_NAME):
        noise, stderr = launch()
    (host,) = noise.hosts
    assert BUSY_NAME in stderr
    for (use,) in (host.before, host.window):
        shares = {one.name: one.cpu_share for one in use.other_processes}
        # what it gets depends on who else is there
        assert shares[BUSY_NAME] > 0
        assert use.other_share >= shares[BUSY_NAME] - 0.05
        assert use.has_other_processes


def test_machine_is_looked_at_before_a_local_run():
    # an orphan, as it would be a process of ours otherwise; the shell gives it no standard input
    orphan = 'exec 3<&0; "$@" <&3 &'
    command = ["sh", "-c", orphan, "sh", sys.executable, str(NEIGHBOUR), BUSY_NAME]
    with run_other_process(*command):
        lines = list(describe_local_load())
    assert any(BUSY_NAME in line and "load average" in line for line in lines)


def list_launchers():
    """List the names of all launchers of ranks on this machine."""
    psutil = pytest.importorskip("psutil", reason="needs psutil: pip install psutil")
    return LAUNCHERS & {process.info["name"] for process in psutil.process_iter(["name"])}


def test_run_without_it_names_neither_it_nor_its_own_ranks_and_has_its_phases(launch):
    # launchers of other tests that run beside this one
    others = list_launchers()
    noise, stderr = launch()
    others |= list_launchers()
    (host,) = noise.hosts
    names = {one.name for use in (*host.before, *host.window) for one in use.other_processes}
    assert not ({BUSY_NAME} | LAUNCHERS - others) & names
    assert BUSY_NAME not in stderr
    told = {one.name: one.seconds for one in noise.phases}
    # without a job script, they begin with the Python of rank 0
    assert list(told) == list(MEANINGS)[list(MEANINGS).index(PYTHON) :]
    # 100 steps of 20 ms
    assert told[WINDOW] >= 2.0


@pytest.mark.parametrize(
    ("gpu", "before"),
    [
        ({"ComputeRunningProcesses": None, "CurrentClocksThrottleReasons": 0x1}, ()),
        ({"CurrentClocksThrottleReasons": 0x44}, ("power cap", "thermal slowdown by hardware")),
        # a driver that is older than pynvml
        (
            {"ComputeRunningProcesses": "mismatch", "CurrentClocksThrottleReasons": 0x4},
            ("power cap",),
        ),
    ],
)
def test_clocks_of_gpus_are_seen_before_the_ranks_use_them(fake_nvml, gpu, before):
    fake_nvml(gpu)
    assert probe_host(CUDA, FIRST, TOGETHER).gpus == (GpuState(0, (), before),)


def test_run_without_telemetry_reports_no_other_load():
    case = vary(attempts.CASE, telemetry_interval_seconds=0)
    assert probe_host(case, FIRST, TOGETHER) is None
    assert gather_noise(case, TOGETHER, None, None).hosts == ()


def test_ranks_that_cannot_see_each_other_blame_nobody():
    before = probe_host(attempts.CASE, FIRST, TwoRanks("pid:[1]", "pid:[2]"))
    gathered = gather_noise(attempts.CASE, TOGETHER, before, QUIET)
    assert gathered.hosts[0].before == gathered.hosts[0].window == ()


def test_gpus_that_other_ranks_watched_are_those_of_their_host():
    first = HostNoise("n1", 1.0, (QUIET,), (GpuState(0),))
    others = [HostNoise("n2", 2.0), HostNoise("n1", 0.0, gpus=(GpuState(1),))]
    united = merge_hosts([first, *others])
    assert [(one.host, one.load_average) for one in united] == [("n1", 1.0), ("n2", 2.0)]
    assert united[0].gpus == (GpuState(0), GpuState(1))


@pytest.mark.parametrize(
    ("use", "gpu", "says"),
    [
        (QUIET, GpuState(0), ()),
        (
            CpuUse(0.5, 4, 0, 0.3, 0, (OtherProcess("x", 0.25),)),
            GpuState(0),
            ("n1", "30% of its 4 CPUs (x 25%)", "3.1"),
        ),
        (CpuUse(0.5, 4, 0.3, 0.0, 0.2), GpuState(0), ("n1", "hypervisor", "20% of its CPU time")),
        (QUIET, GpuState(2, ("python", "process 7")), ("GPU 2 of n1", "python, process 7")),
        (QUIET, GpuState(2, (), ("power cap",)), ("GPU 2 of n1", "clocks", "power cap")),
    ],
)
def test_what_is_not_quiet_is_one_line(use, gpu, says):
    lines = list(describe_noise(HostNoise("n1", 3.14, (use,), (gpu,))))
    assert len(lines) == bool(says)
    assert_problem(*lines or [""], says=says)
