"""The commands: what they print, what they write, and their exit codes."""

import argparse
import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from builders import (
    IMPORT_DIR,
    SMALL_MATRIX,
    find_task,
    journal_state,
    make_failed_record,
    make_record,
    read_case,
    run_main,
    write_matrix,
    write_program,
    write_record,
)
from slurm_clients import put_clients
from support.problems import assert_problem

import dlperf_slurm.cli
from dlperf_slurm import __version__
from dlperf_slurm.cli import main, make_parser
from dlperf_slurm.cli.commands import COMMANDS
from dlperf_slurm.cli.runs import _find_matrices
from dlperf_slurm.contract.record import OUT_OF_MEMORY
from dlperf_slurm.errors import CasesFailedError
from dlperf_slurm.worker.models import list_models

SITE = """\
scheduler = "slurm"
device = "cpu"
gpu_request = "none"
[environments.pytorch]
modules = "pytorch"
"""
PLAN = ["plan", "matrix.toml", "--site", "site.toml"]
RENDER = ["render", "matrix.toml", "--site", "site.toml"]


@pytest.fixture
def files(home):
    """Write a small matrix, and a site with an environment of its own."""
    write_matrix(SMALL_MATRIX)
    Path("site.toml").write_text(SITE, encoding="utf-8")
    return home


def fill_run(run):
    """Two sound repeats on 1n1g, an out-of-memory and a missing one on 1n2g, two broken on 2n2g."""
    for repeat in (1, 2):
        task = find_task(run, "1n1g", repeat)
        write_record(run, task, make_record(read_case(run, task)))
        task = find_task(run, "2n2g", repeat)
        path = write_record(
            run, task, make_record(read_case(run, task), window_seconds=float("nan"))
        )
    path.write_text("{", encoding="utf-8")
    task = find_task(run, "1n2g", 1)
    write_record(run, task, make_failed_record(read_case(run, task), OUT_OF_MEMORY, "rank 1: x"))


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"dlperf-slurm {__version__}\n")


@pytest.mark.parametrize("arguments", [["plan"], ["env"], ["--x", "plan", "m"]])
def test_wrong_usage_exits_with_2(arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_each_command_is_listed_with_the_file_that_declares_it():
    folder = Path(dlperf_slurm.cli.__file__).parent
    texts = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    declaring = [name for name, text in texts.items() if "\ndef add_commands(" in text]
    declared = {}
    for file in declaring:
        commands = argparse.ArgumentParser().add_subparsers()
        import_module(f"dlperf_slurm.cli.{file}").add_commands(commands)
        declared |= dict.fromkeys(commands.choices, file)
    assert declared == {name: file for name, (file, _) in COMMANDS.items()}


def test_plan_ends_with_the_totals_and_what_its_repeats_can_tell(files, bin_dir, capsys):
    before = sorted(files.rglob("*"))
    # 3 topologies x 2 repeats; (1 + 1 + 2) nodes x 2 repeats x 0.5 h = 4 h
    code, out, _ = run_main(PLAN, capsys)
    totals, time, power = out.splitlines()[-3:]
    assert (code, totals) == (
        0,
        "3 cases, 3 sbatch calls, 6 jobs, 6 array tasks, at most 4.0 node-hours",
    )
    assert time.startswith("time: ")
    assert power.startswith("2 repeats: ")
    assert sorted(files.rglob("*")) == before


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("MaxArraySize = 1", 0, "3 cases, 6 sbatch calls, 6 jobs, 6 array tasks"),
        ("MaxArraySize = 0", 3, "set arrays = false"),
        ("ClusterName = alpha", 3, "array jobs cannot be used"),
    ],
)
def test_plan_cuts_arrays_at_the_clusters_own_limit(files, bin_dir, capsys, line, code, says):
    write_program(bin_dir, "scontrol", f"echo '{line}'")
    found, out, err = run_main(PLAN, capsys)
    assert (found, says in out + err) == (code, True)
    assert run_main([*PLAN, "--set", "arrays=false"], capsys)[0] == 0


def test_plan_takes_slurms_default_where_users_may_not_read_the_limit(files, bin_dir, capsys):
    denied = "slurm_load_ctl_conf error: Access/permission denied"
    write_program(bin_dir, "scontrol", f"echo '{denied}' >&2; exit 1")
    assert run_main(PLAN, capsys)[0] == 0


def test_missing_matrix_points_to_init(capsys):
    code, _, err = run_main(["plan", "nowhere.toml"], capsys)
    assert code == 2
    assert_problem(err, file="nowhere.toml", says=("dlperf-slurm init",))


def test_render_prints_the_scripts_it_wrote_where_it_is_told(files, bin_dir, capsys):
    _, out, _ = run_main([*RENDER, "--results", "elsewhere"], capsys)
    scripts = [Path(line) for line in out.splitlines()[:-1]]
    assert [path.name for path in scripts] == ["1n1g.sbatch", "1n2g.sbatch", "2n2g.sbatch"]
    assert all(path.is_file() for path in scripts)
    assert len(list((files / "elsewhere").glob("*/manifest.json"))) == 1


def test_site_that_can_run_nothing_says_why(files, bin_dir, capsys):
    arguments = [*RENDER, "--set", "max_nodes=1", "--set", "max_devices_per_node=1"]
    write_matrix(SMALL_MATRIX.replace('"1n1g", ', ""))
    code, _, err = run_main(arguments, capsys)
    assert (code, Path("results").exists()) == (2, False)
    assert_problem(err, file="matrix.toml", says=("1n2g needs 2 devices", "2n2g needs 2 nodes"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["resume", "x"],
        ["status", "x"],
        ["report", "--plots", "none"],
        ["env", "create", "pytroch"],
        ["config", "show", "--site", "nowhere"],
        ["config", "show", "--set", "partition"],
    ],
)
def test_argument_to_correct_exits_with_2_and_one_error(files, bin_dir, capsys, arguments):
    code, _, err = run_main(arguments, capsys)
    assert (code, err.startswith("dlperf-slurm: error: ")) == (2, True)


def test_variables_choose_site_and_results_as_the_options_do(files, bin_dir, monkeypatch, capsys):
    monkeypatch.setenv("DLPERF_SLURM_SITE", "site.toml")
    monkeypatch.setenv("DLPERF_SLURM_RESULTS", "elsewhere")
    assert run_main(["render", "matrix.toml"], capsys)[0] == 0
    assert len(list((files / "elsewhere").glob("*/manifest.json"))) == 1
    assert "chosen by DLPERF_SLURM_SITE" in run_main(["plan", "matrix.toml"], capsys)[1]
    of_local = run_main([*PLAN[:-1], "local"], capsys)[1]
    assert "chosen by --site" in of_local
    assert "sbatch calls" not in of_local


@pytest.mark.parametrize(
    ("words", "find"),
    [
        (["config", "show", "matrix.toml"], lambda data: data["matrix"]["settings"][0]["key"]),
        (["env", "list"], lambda data: data[0]["framework"]),
        (["report", "--plots", "none"], lambda data: data["cases"][0]["case_id"]),
    ],
)
def test_json_is_all_that_is_printed(words, find, files, staged_run, capsys):
    _, out, _ = run_main([*words, "--json"], capsys)
    assert find(json.loads(out))


def test_dry_run_makes_the_checks_prints_the_plan_and_writes_nothing(files, bin_dir, capsys):
    put_clients(bin_dir, "22.05", sbatch="exit 1")
    for changes, code in (([], 0), (["--set", "partition=nowhere"], 3)):
        words = ["submit", *PLAN[1:], *changes, "--dry-run", "--json"]
        found, out, _ = run_main(words, capsys)
        assert (found, Path("results").exists()) == (code, False)
        assert code or json.loads(out)["array_tasks"] == 6


def test_two_matrices_are_submitted_in_turns_and_both_followed(files, bin_dir, monkeypatch, capsys):
    followed = []

    def fail(run, *_):
        followed.append(run.path.name)
        raise CasesFailedError(run.run_id)

    monkeypatch.setattr("dlperf_slurm.cli.runs.follow_run", fail)
    sbatch = (
        f'echo "$@" >> {files}/calls; n=0; while read -r _; do n=$((n + 1)); done < {files}/calls'
    )
    put_clients(bin_dir, "22.05", sbatch=f"{sbatch}; echo $n")
    words = ["submit", "matrix.toml", "matrix.toml", *PLAN[2:], "-q"]
    in_blocks = ["--interleave", "--set", "protocol.blocks=2"]
    for change in ([], ["--interleave"], [*in_blocks, "--wait"]):
        code, out, err = run_main([*words, *change], capsys)
        if len(change) < 2:
            assert (code, out, Path("results").exists()) == (2, "", False)
            assert_problem(err, says=("--interleave", "protocol.blocks" if change else "two"))
    assert run_main(["submit", "matrix.toml", *PLAN[2:], "--interleave"], capsys)[0] == 2
    assert (code, len(set(out.split()))) == (5, 2), err
    calls = [line.split() for line in Path("calls").read_text().splitlines()]
    runs = [Path(words[-1]).parts[-3] for words in calls if "--parsable" in words]
    names = [Path(path).name for path in out.split()]
    in_turns = [name for name in (*names, *names) for _ in range(3)]
    assert (runs, followed) == (in_turns, names)


@pytest.mark.parametrize("words", ["A B --interleave", "A --interleave B", "--interleave A B"])
def test_second_matrix_may_stand_behind_interleave(words):
    typed = ["submit", *words.split()]
    assert _find_matrices(make_parser(typed).parse_args(typed)) == (Path("A"), Path("B"))


@pytest.mark.parametrize("option", ["--json", "-q"])
def test_submit_prints_the_run_alone(option, files, bin_dir, capsys):
    put_clients(bin_dir, "22.05", sbatch="echo 17")
    code, out, _ = run_main(["submit", *PLAN[1:], option], capsys)
    assert code == 0
    if option == "-q":
        assert Path(out.rstrip()).is_dir()
        return
    run = json.loads(out)
    assert [job["array_job"] for job in run["array_jobs"]] == ["17"] * 3
    assert [case["repeats"] for case in run["cases"]] == [2] * 3
    assert Path(run["path"]).name == run["run_id"]


def test_status_exits_with_5_on_request_if_array_tasks_failed(staged_run, bin_dir, capsys):
    put_clients(bin_dir, "22.05")
    for repeat, state, code in ((1, "CANCELLED", 5), (2, "FAILED", 5)):
        assert run_main(["status", "--exit-code"], capsys)[0] == code * (repeat > 1)
        task = find_task(staged_run, "1n1g", repeat)
        journal_state(staged_run, task, state)
    assert run_main(["status"], capsys)[0] == 0


def test_config_show_has_a_row_for_each_value_with_its_layer(files, capsys):
    write_matrix(SMALL_MATRIX + "[slurm]\nqos = 'long'\n")
    command = ["config", "show", "matrix.toml", "--site", "site.toml", "--set", "partition=a b"]
    _, out, _ = run_main([*command, "--set", "protocol.repeats=3"], capsys)
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert {
        "scheduler 'slurm' site.toml",
        "partition 'a b' --set partition=a b",
        "qos 'long' matrix.toml --set protocol.repeats=3 [slurm]",
        "account - default",
        "protocol.repeats 3 --set protocol.repeats=3",
        "protocol.seed 1 default",
        "axes.framework ['pytorch'] matrix.toml",
    } <= set(rows)


@pytest.mark.parametrize(("file", "key"), [("matrix", "axes"), ("site", "partition")])
def test_config_schema_describes_every_key(capsys, file, key):
    _, out, _ = run_main(["config", "schema", file], capsys)
    schema = json.loads(out)
    assert key in schema["properties"]
    tables = {file: schema, **schema["$defs"]}
    keys = [(name, *item) for name, table in tables.items() for item in table["properties"].items()]
    assert [(name, key) for name, key, value in keys if not value.get("description")] == []


def test_config_schema_has_the_known_names(capsys):
    _, out, _ = run_main(["config", "schema", "matrix"], capsys)
    tables = json.loads(out)["$defs"]
    # one value, or a list of them
    for table in ("AxesTable", "Condition", "Override"):
        single, several = tables[table]["properties"]["optimizer"]["anyOf"]
        assert (single["type"], several["items"]) == ("string", single)
        assert single["enum"] == ["default", "sgd", "momentum", "adamw"]
    assert tables["ModelTable"]["properties"]["name"]["enum"] == list_models()
    # a condition may be a comparison
    nodes = tables["Condition"]["properties"]["nodes"]
    assert nodes["anyOf"][0] == {"type": ["integer", "string"]}


def test_env_list_has_a_row_for_each_framework(capsys):
    _, out, _ = run_main(["env", "list"], capsys)
    rows = [line.split() for line in out.splitlines()]
    assert ["pytorch", "absent"] in [row[:2] for row in rows]


def test_init_names_the_next_command_and_keeps_what_is_there(home, capsys):
    _, out, _ = run_main(["init"], capsys)
    assert out.splitlines()[-1] == "Next: dlperf-slurm plan matrices/quickstart.toml"
    assert run_main(["init"], capsys)[0] == 2


def test_report_of_a_run_with_holes_names_the_reason_of_each(staged_run, capsys):
    fill_run(staged_run)
    code, out, err = run_main(["report", "--plots", "none"], capsys)
    assert (code, "4 of 6 repeats" in err) == (5, True)
    # where lines are folded depends on the path of the run
    shown = " ".join(out.split())
    assert [reason for reason in (
        "1n2g-bs8-fp32 repeat 1: out of memory: rank 1: x",
        "1n2g-bs8-fp32 repeat 2: not submitted",
        "2n2g-bs8-fp32 repeat 1: broken record: ",
        "record.json: ranks[0].window_seconds is nan",
        "2n2g-bs8-fp32 repeat 2: broken record: ",
    ) if reason not in shown] == []  # fmt: skip
    text = (staged_run.path / "report/report.md").read_text(encoding="utf-8")
    cells = [c for line in text.splitlines() if line.startswith("|") for c in line.split("|")[1:-1]]
    bad = [cell for cell in cells if not cell.strip() or "nan" in cell.lower() or "None" in cell]
    # throughput of three topologies, and memory of the only case that was measured
    assert (len(cells), bad) == (36, [])


def run_bare(arguments, cwd) -> "subprocess.CompletedProcess[str]":
    """Run the tool in a process whose PATH is empty: no Slurm, no MPI, no git."""
    env = {"PATH": "", "HOME": str(cwd), "PYTHONPATH": IMPORT_DIR}
    command = [sys.executable, "-m", "dlperf_slurm", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


@pytest.mark.integration
def test_report_of_a_copied_run_needs_nothing_but_its_files(staged_run, home):
    for task in staged_run.read_all_tasks():
        write_record(staged_run, task, make_record(read_case(staged_run, task)))
    shutil.copytree(staged_run.path, home / "laptop" / "copy")
    shutil.rmtree(staged_run.path)
    done = run_bare(["report", "--all", "--plots", "none", "copy"], home / "laptop")
    assert (home / "laptop/copy/report/report.md").is_file()
    # 8 samples x 10 steps in 2 s; two and four ranks as long with twice and four times as many
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(" pytorch ")]
    assert [(row[1], row[2], row[-7]) for row in rows] == [
        ("1n1g", "40.00", "1.00"), ("1n2g", "80.00", "2.00"), ("2n2g", "160.00", "4.00"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["config", "show"], "1"),
        (["env", "list"], ""),
        (["--help"], ""),
    ],
)
def test_closed_pipe_ends_quietly_as_by_sigpipe(home, bin_dir, monkeypatch, arguments, unbuffered):
    monkeypatch.setenv("PYTHONPATH", IMPORT_DIR)
    # what is buffered meets the closed pipe later
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "dlperf_slurm", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (141, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_disk_below_standard_output_is_one_line(home, bin_dir, monkeypatch, unbuffered):
    monkeypatch.setenv("PYTHONPATH", IMPORT_DIR)
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    command = [sys.executable, "-m", "dlperf_slurm", "config", "schema", "matrix"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
    (line,) = done.stderr.decode().splitlines()
    assert (done.returncode, "No space left on device" in line) == (2, True)
