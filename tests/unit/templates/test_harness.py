"""The static part of every job script, sourced by a script of a dozen lines; no Slurm, no ranks."""

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from builders import HARNESS, write_program
from support.tool import await_that

from dlperf_slurm.config.suggestions import SCRIPT_VARIABLES
from dlperf_slurm.jobs.markers import LOG_WORDS

# bash takes it, whatever the Python
pytestmark = pytest.mark.integration

SCRIPT = """\
set -u
run_dir={run_dir}
group_id=g
source "$run_dir/scripts/harness.sh" || exit 69
{settings}
prepare_task() {{
  set +u
{prepare}
}}
activate_f() {{
  set +u
{activate}
}}
launch_f() {{
{launch}
}}
conclude_f() {{
  echo "$1" >> "$attempt_dir/concluded"
}}
{functions}
run_array_tasks "$@"
"""
MEASURE = """  printf '{\\n "status": "ok"}\\n' > record.json"""
HANG = """\
  trap 'echo USR1 >> heard' USR1
  trap 'echo TERM >> heard; exit 143' TERM
  touch hangs
  for ((i = 0; i < 600; i++)); do sleep 0.1; done"""
SHARED = "tasks_per_job=3 last_array_task_id=3 limit_seconds=600 end_seconds=1"


class Job:
    """A run directory with one script of framework `f`, and the programs that it may call."""

    def __init__(self, run_dir, launch=MEASURE, count=1, **parts):
        self.run_dir = run_dir
        self.bin_dir = run_dir.with_name("bin")
        for folder in (run_dir / "scripts", run_dir / "markers", self.bin_dir):
            folder.mkdir(parents=True)
        shutil.copy(HARNESS, run_dir / "scripts")
        parts = {"settings": "", "prepare": "", "activate": "", "functions": "", **parts}
        self.script = run_dir / "scripts" / "g.sbatch"
        self.script.write_text(SCRIPT.format(run_dir=run_dir, launch=launch, **parts))
        self.write_rows(*(f"r{number}/a1\tlaunch\t-\t7\t0" for number in range(1, count + 1)))
        (run_dir / "cases.jsonl").write_text('{"axes": {"a": 1}, "case_id": "c", "z": 2}\n')
        for name in ("scontrol", "squeue", "scancel"):
            write_program(self.bin_dir, name, f'echo {name} "$@" >> {run_dir}/calls')

    def write_rows(self, *rows):
        text = "".join(f"f\tcases/c/{row}\n" for row in rows)
        (self.run_dir / "scripts" / "g.tasks").write_text(text)

    def start(self, task=0, *arguments, **env):
        """Start an array task as Slurm would; None in `env` leaves a variable out."""
        env = {
            "PATH": f"{self.bin_dir}:/usr/bin:/bin",
            "SLURM_JOB_ID": "71",
            "SLURM_ARRAY_JOB_ID": "70",
            "SLURM_ARRAY_TASK_ID": str(task),
            "SLURM_JOB_NODELIST": "n1",
            **env,
        }
        self.log = self.run_dir / "scripts" / f"70_{task}.log"
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["bash", str(self.script), *arguments],
                env={name: value for name, value in env.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, task=0, *arguments, **env):
        return self.start(task, *arguments, **env).wait(timeout=60)

    def run_by_hand(self, task=0):
        names = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID")
        return self.run(task, str(task), **dict.fromkeys(names))

    def find_folder(self, repeat=1, start=0):
        return self.run_dir / f"cases/c/r{repeat}/a1/s{start}"

    def read(self, name, repeat=1, start=0):
        return (self.find_folder(repeat, start) / name).read_text()

    def read_marker(self, kind="finished", task=0, start=0):
        return json.loads((self.run_dir / f"markers/g.{task}.s{start}.{kind}").read_text())

    def read_link(self, name):
        return str((self.run_dir / "markers" / name).readlink())

    def list_markers(self):
        return sorted(path.name for path in (self.run_dir / "markers").iterdir())

    def await_hang(self):
        await_that((self.find_folder() / "hangs").exists, "the launcher runs")


@pytest.fixture(autouse=True)
def default_interrupt():
    """Restore SIGINT, which background processes of a shell ignore, and bash then cannot trap."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def make(tmp_path):
    return lambda **parts: Job(tmp_path / "run", **parts)


def test_array_task_leaves_its_files_one_marker_and_no_log(make):
    job = make()
    assert job.run() == 0
    assert job.list_markers() == ["g.0.s0.finished"]
    marker = job.read_marker()
    assert (marker["job_id"], marker["nodes"], marker["exit_code"]) == ("70", "n1", 0)
    assert str((job.find_folder().parent / "claim").readlink()) == "70"
    assert not job.log.exists()
    assert sorted(path.name for path in job.find_folder().iterdir()) == [
        *("case.json", "concluded", "err", "out", "record.json")
    ]
    assert job.read("concluded") == "0\n"
    case = {"attempt": 1, "repeat": 1, "seed": 7, "axes": {"a": 1}, "case_id": "c", "z": 2}
    assert json.loads(job.read("case.json")) == case


def test_log_of_a_script_that_said_more_stays(make):
    job = make(settings="echo a warning")
    assert job.run() == 0
    assert job.log.read_text().startswith(f"a warning\n{LOG_WORDS} ")


def test_task_reads_its_row_its_case_and_its_external_script(make):
    job = make()
    first = '{"axes": {}, "case_id": "b"}\n'
    cases = job.run_dir / "cases.jsonl"
    cases.write_text(first + cases.read_text())
    (job.run_dir / "scripts" / "external_scripts").write_bytes(b"one\n\0two\n\0")
    job.write_rows("r1/a1\tnot_this\t-\t7\t0", f"r3/a2\tlaunch\t-\t-5\t{len(first)}\t5")
    assert job.run(1) == 0
    (folder,) = job.run_dir.glob("cases/c/*/*/s0")
    assert str(folder.relative_to(job.run_dir)) == "cases/c/r3/a2/s0"
    case = json.loads((folder / "case.json").read_text())
    assert (case["repeat"], case["attempt"], case["seed"], case["case_id"]) == (3, 2, -5, "c")
    assert (folder / "script.sh").read_text() == "two\n"


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_signal_ends_the_launcher_and_the_task_is_concluded(make, name, code):
    job = make(launch=HANG)
    process = job.start()
    job.await_hang()
    process.send_signal(signal.Signals[name])
    assert process.wait(timeout=30) == code
    assert job.read("heard") == "TERM\n"
    assert job.read("concluded") == f"{code}\n"
    assert job.read_marker()["exit_code"] == code


@pytest.mark.parametrize(("preempted", "files"), [("None", 0), ("2026-11-26T16:45:59", 1)])
def test_warning_of_the_time_limit_reaches_the_launcher(make, preempted, files):
    job = make(launch=HANG)
    answer = f"   PreemptEligibleTime=2026-11-26T16:45:54 PreemptTime={preempted}"
    write_program(job.bin_dir, "scontrol", f"echo '{answer}'")
    process = job.start()
    job.await_hang()
    process.send_signal(signal.SIGUSR1)
    await_that((job.find_folder() / "heard").exists, "the launcher is warned")
    assert len([*job.find_folder().glob("preempted")]) == files
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert job.read("heard") == "USR1\nTERM\n"


def test_each_start_has_a_folder_of_its_own_with_the_files_of_the_attempt(make):
    job = make(launch="  exit 1")
    attempt = job.find_folder().parent
    attempt.mkdir(parents=True)
    (attempt / "found_batch.json").write_text("64")
    assert [job.run(), job.run(), job.run(SLURM_RESTART_COUNT="4")] == [1, 1, 1]
    assert {f"g.0.s{n}.finished" for n in (0, 1, 4)} < set(job.list_markers())
    assert [job.read("found_batch.json", start=n) for n in (0, 1, 4)] == ["64"] * 3
    assert job.read_marker(start=4)["restart"] == 4


def test_attempt_that_is_measured_is_not_run_again_and_another_job_names_the_first(make):
    job = make()
    assert [job.run(), job.run(SLURM_RESTART_COUNT="1")] == [0, 0]
    assert job.run(SLURM_ARRAY_JOB_ID="99") == 0
    assert job.list_markers() == ["g.0.s0.finished"]
    assert "job 70" in job.log.read_text()


def test_task_can_be_run_by_hand_again_and_holds_nothing(make):
    job = make(count=3, launch="  exit 9")
    assert [job.run_by_hand(number) for number in (0, 1, 2, 2)] == [9] * 4
    assert str((job.find_folder().parent / "claim").readlink()) == "by-hand"
    assert job.list_markers()[-1] == "g.2.s1.finished"
    assert job.run(SLURM_ARRAY_TASK_ID=None) != 0
    assert "usage: bash SCRIPT ARRAY_TASK_ID" in job.log.read_text()


on_host_without_modules = pytest.mark.skipif(
    subprocess.run(["bash", "-lc", "type module"], capture_output=True).returncode == 0,
    reason="needs a host whose login shells have no command `module`",
)


@pytest.mark.parametrize("place", ["prepare", "activate"])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run_setup true 'source /nonexistent'", "exit code 1: source /nonexistent\n"),
        pytest.param(
            *("load_modules gcc/99", "no command 'module' on "), marks=on_host_without_modules
        ),
        (
            "module() { return 3; }; load_modules gcc/99",
            "module load gcc/99 failed with exit code 3",
        ),
        ("check_python /nonexistent/python", "the environment's python cannot be run on "),
        ("check_host_python /nonexistent", "host_python of the site's environment: /nonexistent"),
    ],
)
def test_environment_that_cannot_be_set_up_ends_the_task_before_its_launch(
    make, place, command, words
):
    job = make(**{place: f"  {command}"})
    assert job.run() == 69
    assert words in job.read("err")
    assert not (job.find_folder() / "record.json").exists()
    assert job.read_marker()["exit_code"] == 69


@pytest.mark.parametrize(
    "name", ["MODULESHOME", "LMOD_CMD", pytest.param("HOME", marks=on_host_without_modules)]
)
@pytest.mark.parametrize("load", ["load_modules a/1", "run_setup 'module load a/1'"])
def test_modules_are_loaded_though_the_shell_did_not_export_the_command(make, name, load):
    job = make(prepare=f"  {load}; load_modules b/2", launch="  echo $seen > seen")
    (job.run_dir / "init").mkdir()
    defined = 'module() { seen+=" $2"; }\n'
    (job.run_dir / "init" / "bash").write_text(defined * (name != "HOME"))
    (job.run_dir / ".bash_profile").write_text(f"echo welcome\n{defined}")
    place = {"MODULESHOME": "", "LMOD_CMD": "/libexec/lmod", "HOME": ""}[name]
    assert job.run(**{name: f"{job.run_dir}{place}"}) == 0
    assert job.read("seen") == "a/1 b/2\n"


def test_last_words_of_a_failed_setup_are_of_what_failed_first(make):
    job = make(prepare="  run_setup 'ls /nonexistent'", activate="  echo 'no module b/2' >&2")
    assert job.run() == 69
    assert job.read("err").endswith("setup line failed with exit code 2: ls /nonexistent\n")


def test_environment_that_fails_after_the_launch_says_why(make):
    failing = (
        '  if [ -e "$run_dir/second" ]; then echo gone >&2; exit 69; fi; touch "$run_dir/second"'
    )
    job = make(activate=failing)
    assert job.run() == 0
    assert job.read("err").endswith("gone\n")
    assert not (job.find_folder() / "concluded").exists()


FASTEST = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
USER_HOME = pwd.getpwuid(os.geteuid()).pw_dir


@pytest.mark.parametrize(
    ("shown", "parts", "env", "seen"),
    [
        ("$A $B $PWD", {"prepare": "  export A=1", "activate": "  export B=2"}, {}, "1 2 {folder}"),
        # where it is not set, it is that of the password database
        ("$HOME", {}, {"HOME": None}, USER_HOME),
        ("$HOME", {}, {"HOME": ""}, USER_HOME),
        # GPUs are numbered by the bus unless user or site say otherwise
        ("$CUDA_DEVICE_ORDER", {}, {}, "PCI_BUS_ID"),
        ("$CUDA_DEVICE_ORDER", {}, FASTEST, "FASTEST_FIRST"),
        (
            *("$CUDA_DEVICE_ORDER", {"prepare": "  export CUDA_DEVICE_ORDER=FASTEST_FIRST"}),
            *({}, "FASTEST_FIRST"),
        ),
        # a site's PYTHONPATH hides the code of the ranks neither before nor after the activation
        ("$PYTHONPATH", {"prepare": "  export PYTHONPATH=/a"}, {}, "{code}:/a"),
        ("$PYTHONPATH", {"activate": "  export PYTHONPATH=/b"}, {}, "{code}:/b"),
        ("$PYTHONPATH", {"activate": "  unset PYTHONPATH"}, {}, "{code}"),
        ("$PYTHONPATH", {"prepare": "  PYTHONPATH+=:/c"}, {}, "{code}:/c"),
        # ranks have no token of the user
        ("${{SLURM_JWT-none}} $SLURM_JOB_ID", {}, {"SLURM_JWT": "abc"}, "none 71"),
    ],
)
def test_launch_has_the_environment_of_user_and_site(make, shown, parts, env, seen):
    job = make(launch=f"  echo {shown.format()} > seen", **parts)
    assert job.run(**env) == 0
    places = {"folder": job.find_folder(), "code": job.run_dir / "code"}
    assert job.read("seen") == seen.format(**places) + "\n"


def test_soft_limits_are_raised(make):
    limit = "ulimit -S -n 300 && ulimit -H -n 400 && ulimit -S -l 8"
    job = make(launch="  echo $(ulimit -S -n) $(ulimit -S -l) > seen")
    script = job.script.read_text()
    job.script.write_text(f"{limit}\n{script}")
    assert job.run() == 0
    locked = subprocess.check_output(["bash", "-c", "ulimit -H -l"], text=True).strip()
    assert job.read("seen").split() == ["400", locked]


def is_bound(server, port):
    try:
        server.bind(("", port))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_port_of_torchrun_is_one_where_nobody_listens(make, family):
    job = make(prepare="  export_torchrun_settings", launch="  echo $DLPERF_SLURM_PORT > seen")
    with socket.socket(family) as server:
        # the port that is tried first follows from the job id
        port = next(port for port in range(20001, 29999) if is_bound(server, port))
        server.listen()
        assert job.run(SLURM_JOB_ID=str(port - 20000)) == 0
    assert port < int(job.read("seen")) < 30000


def test_clean_up_of_the_site_runs_before_the_failure_is_concluded(make):
    clean = '  finish_task() { ls "$attempt_dir" > "$run_dir/at_clean_up"; }'
    job = make(functions=clean, launch="  exit 3")
    assert job.run() == 3
    assert "concluded" not in (job.run_dir / "at_clean_up").read_text()
    assert job.read("concluded") == "3\n"
    assert job.log.read_text() == f"{LOG_WORDS} {job.find_folder()}, files out and err\n"


@pytest.mark.parametrize(("code", "has_launched"), [(0, True), (1, False)])
def test_ranks_start_once_the_nodes_are_prepared(make, code, has_launched):
    job = make(functions=f"prepare_nodes_f() {{ touch prepared; exit {code}; }}")
    assert job.run() == code
    assert (job.find_folder() / "prepared").exists()
    assert (job.find_folder() / "record.json").exists() == has_launched


def test_image_of_the_ranks_is_exported_with_its_digest(make):
    activate = '  export_container "$run_dir/../bin/py" pyxis "a b" enroot digest'
    shown = "$DLPERF_SLURM_CONTAINER/$DLPERF_SLURM_CONTAINER_IMAGE/$DLPERF_SLURM_CONTAINER_DIGEST"
    job = make(activate=activate, launch=f'  echo "{shown}" > seen')
    write_program(job.bin_dir, "py", 'echo "$@"')
    assert job.run() == 0
    command = f"-m dlperf_slurm.worker.image_digest {job.run_dir}/images a b enroot digest"
    assert job.read("seen") == f"pyxis/a b/{command}\n"


def test_launches_that_fail_alike_hold_the_array(make):
    # behind a NUL, as of mpirun's messages
    job = make(launch=r"  printf '\0no such program\n' >&2; exit 127", count=3)
    assert [job.run(number) for number in range(2)] == [127] * 2
    assert not (job.run_dir / "calls").exists()
    assert job.run(2) == 127
    held = job.read_link("g.held")
    assert held.startswith("exit code 127 on ")
    assert held.endswith(": no such program")
    assert "null byte" not in (job.find_folder() / "err").read_text()
    assert (job.run_dir / "calls").read_text() == "scontrol uhold 70\n"
    assert not [name for name in job.list_markers() if "unlaunched" in name]


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param("  exit ${attempt_dir: -7:1}", id="other exit codes"),
        pytest.param("  echo '{}' > record.json; exit 1", id="records"),
        pytest.param("  exit 143", id="ended from outside"),
    ],
)
def test_failures_of_another_kind_hold_nothing(make, launch):
    job = make(launch=launch, count=3)
    assert 0 not in [job.run(number) for number in range(3)]
    assert "g.held" not in job.list_markers()
    assert not (job.run_dir / "calls").exists()


def test_case_that_is_not_there_is_named_and_nothing_starts(make):
    job = make()
    (job.run_dir / "cases.jsonl").write_text("{}\n")
    assert job.run() == 69
    assert f"{job.run_dir}/cases.jsonl" in job.log.read_text()
    assert "g.0.finished" in job.list_markers()


def cut_off(path):
    text = path.read_text()
    path.write_text(text[: text.index("claim_attempt() {")] + "claim_attempt() {\n")


@pytest.mark.parametrize("damage", [Path.unlink, cut_off])
def test_harness_that_cannot_be_read_is_named_in_the_log(make, damage):
    job = make()
    damage(job.run_dir / "scripts" / "harness.sh")
    assert job.run() == 69
    assert f"{job.run_dir}/scripts/harness.sh: " in job.log.read_text()
    assert not (job.run_dir / "cases").exists()


def list_variables(text):
    return {name for name in text.split() if name.islower()}


def test_no_variable_that_a_site_may_export_is_one_of_the_harness(make):
    """What a site exports comes after the harness has set its own."""
    functions = '  finish_task() { compgen -v > "$attempt_dir/names"; }'
    job = make(functions=functions, settings=SHARED, launch="  exit 1")
    assert job.run(0, "0") == 1
    bare = subprocess.run(["bash", "-c", "compgen -v"], env={}, capture_output=True, text=True)
    found = list_variables(job.read("names")) - list_variables(bare.stdout)
    assert found == list_variables(" ".join(SCRIPT_VARIABLES))


def test_array_tasks_of_a_job_run_one_after_the_other(make):
    fails = f"  case $attempt_dir in */r2/*) exit 9;; esac\n{MEASURE}"
    job = make(settings=SHARED, count=4, launch=fails)
    assert job.run(0) == 1
    codes = [job.read_link(f"g.{number}.over") for number in range(3)]
    assert codes == ["exit code 0", "exit code 9", "exit code 0"]
    assert "g.3.over" not in job.list_markers()
    assert job.run(1) == 0
    assert job.read_link("g.3.over") == "exit code 0"


def test_job_of_several_array_tasks_goes_on_where_it_was(make):
    job = make(settings=SHARED, count=3)
    (job.run_dir / "markers" / "g.0.over").symlink_to("exit code 0")
    assert job.run(0, SLURM_RESTART_COUNT="1") == 0
    assert not job.find_folder(repeat=1).exists()
    assert job.list_markers()[1:] == [
        *("g.1.over", "g.1.s1.finished", "g.2.over", "g.2.s1.finished")
    ]


def test_array_task_that_takes_too_long_ends_no_other_one(make):
    hangs = f"  case $attempt_dir in */r1/*) exec sleep 60;; esac\n{MEASURE}"
    settings = SHARED.replace("limit_seconds=600", "limit_seconds=2")
    job = make(settings=settings, count=2, launch=hangs)
    job.script.write_text(
        job.script.read_text().replace("last_array_task_id=3", "last_array_task_id=1")
    )
    assert job.run(0) == 1
    assert (job.run_dir / "markers/g.0.killed").read_text() == "TIMEOUT"
    assert job.read_link("g.0.over") in ("exit code 143", "exit code 137")
    assert job.read_link("g.1.over") == "exit code 0"
    assert (job.run_dir / "calls").read_text().startswith("squeue --noheader --steps --jobs=70_0 ")


def test_array_tasks_of_a_job_that_is_held_are_cancelled(make):
    job = make(settings=SHARED.replace("per_job=3", "per_job=4"), count=4, launch="  exit 5")
    assert job.run(0) == 1
    assert "g.held" in job.list_markers()
    assert (job.run_dir / "markers/g.3.killed").read_text() == "CANCELLED"
    assert not job.find_folder(repeat=4).exists()


def test_job_that_is_ended_starts_no_further_array_task(make):
    job = make(settings=SHARED, count=3, launch=HANG)
    process = job.start()
    job.await_hang()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert job.list_markers() == ["g.0.s0.finished"]
