"""A secret reaches the job, and nobody else: no manifest, script or page, no other user's eyes."""

import grp
import os
import stat
import subprocess

import pytest
from builders import write_matrix

from dlperf_slurm.cli import main
from dlperf_slurm.config.site import load_site, read_frozen_site
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.plan import PlannedMatrix, resolve
from dlperf_slurm.jobs.private_values import hide_private_values
from dlperf_slurm.jobs.run_directory import PRIVATE_FILE
from dlperf_slurm.jobs.stage import stage_run
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix

SECRET = "hf_s3cret'$(touch pwned)"
SITE = """\
scheduler = "local"
device = "cpu"
max_devices_per_node = 9
max_nodes = 9
env = { PLAIN = "in a file" }
environments.pytorch.python = "/usr/bin/python3"
"""


@pytest.fixture
def stage(home, monkeypatch):
    """Stages a run with these lines in its site file and these settings."""
    monkeypatch.setenv("HOME", str(home))

    def stage(*settings, site=""):
        (home / "tiny.toml").write_text(site + SITE, encoding="utf-8")
        file = read_matrix(write_matrix())
        loaded = load_site("tiny.toml", file.toml, settings)
        plan = resolve(expand_matrix(file), loaded.site, max_array_size=1001)
        command = ["dlperf-slurm", "submit", *(f"--set={text}" for text in settings)]
        return stage_run(home / "results", PlannedMatrix(file, loaded, plan), command)

    return stage


def find_files_with(folder, text):
    """Names of the files below a folder that have this text."""
    return [
        path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and text.encode() in path.read_bytes()
    ]


SETTINGS = [f"env.HF_TOKEN={SECRET}", f"environments.pytorch.env.HF_TOKEN={SECRET}"]


def run_prologue(run, then):
    """Run the site's lines of a script, and then this instead of its array task."""
    script = (run.path / "scripts" / "1n1g.sbatch").read_text(encoding="utf-8")
    return subprocess.run(
        ["bash", "-c", script.replace('run_array_tasks "$@"', f"prepare_task\n{then}")],
        cwd=run.path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("setting", SETTINGS)
def test_variable_that_is_set_stands_in_one_file_for_its_owner_and_reaches_the_job(
    stage, setting, home
):
    run = stage(setting)
    assert find_files_with(run.path, "s3cret") == [PRIVATE_FILE]
    assert stat.S_IMODE((run.path / PRIVATE_FILE).stat().st_mode) == 0o600
    assert read_frozen_site(run.path / "site.toml").env_from == ("HF_TOKEN",)
    assert run.manifest.command[-1] == f"--set={setting.partition('=')[0]}=..."
    run_prologue(run, f'printf %s "$HF_TOKEN/$PLAIN" > {home}/seen')
    assert (home / "seen").read_text() == f"{SECRET}/in a file"
    assert not (run.path / "pwned").exists()


def test_variable_that_is_set_is_expanded_as_that_of_the_site_file_is(stage, home):
    run = stage("env.NCCL_PLUGIN=/opt/x:${NO_SUCH}${PATH}")
    run_prologue(run, f'printf %s "$NCCL_PLUGIN" > {home}/seen')
    assert (home / "seen").read_text() == f"/opt/x:{os.environ['PATH']}"


def test_variable_is_inherited_by_its_name_if_it_is_set(stage, home, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(InputError, match="env_from: HF_TOKEN is not set"):
        stage(site='env_from = "HF_TOKEN"\n')
    assert not [*home.glob("results/*")]
    monkeypatch.setenv("HF_TOKEN", SECRET)
    run = stage(site='env_from = "HF_TOKEN"\n')
    assert find_files_with(run.path, "s3cret") == [PRIVATE_FILE]
    run_prologue(run, f'printf %s "$HF_TOKEN" > {home}/seen')
    assert (home / "seen").read_text() == SECRET


@pytest.mark.parametrize("table", ["rank_env", "environments.pytorch.rank_env"])
def test_variable_for_command_lines_is_not_taken_from_the_command(stage, home, table):
    with pytest.raises(
        InputError, match=rf"--set {table}: HF_TOKEN would be visible to other users"
    ):
        stage(f"{table}.HF_TOKEN={SECRET}")
    assert not find_files_with(home, "s3cret")
    assert hide_private_values([f"--set={table}.HF_TOKEN={SECRET}"]) == (
        f"--set={table}.HF_TOKEN=...",
    )


def test_settings_that_are_known_stay_to_be_read(stage):
    run = stage('env.OMP_NUM_THREADS="4"')
    assert read_frozen_site(run.path / "site.toml").env["OMP_NUM_THREADS"] == "4"
    assert run.manifest.command[-1] == '--set=env.OMP_NUM_THREADS="4"'
    assert not (run.path / PRIVATE_FILE).exists()


def test_report_of_a_run_does_not_have_what_is_private(stage):
    run = stage(SETTINGS[0])
    main(["report", str(run.path), "--plots", "none"])
    assert find_files_with(run.path, "s3cret") == [PRIVATE_FILE]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--set", "env.A=x"], ["--set", "env.A=..."]),
        (["--se=env.A=x"], ["--se=env.A=..."]),
        (["--set", 'env."A"="x"'], ["--set", 'env."A"=...']),
        (["--set", 'env={A="x"}'], ["--set", "env=..."]),
        (["--set", 'environments={pytorch={env={A="x"}}}'], ["--set", "environments=..."]),
        (["--set", "account=x"], ["--set", "account=x"]),
        (["https://a:b@host/x"], ["https://...@host/x"]),
        (["matrix.toml", "--results=r"], ["matrix.toml", "--results=r"]),
    ],
)
def test_command_line_is_shown_without_what_is_private(words, shown):
    assert hide_private_values(words) == tuple(shown)


@pytest.mark.parametrize(
    ("site", "shell", "modes"),
    [("", 0o022, (0o700, 0o600)), ('umask = "022"\n', 0o077, (0o755, 0o644))],
)
def test_run_is_for_its_owner_alone_unless_the_site_lets_others_read(
    stage, home, site, shell, modes
):
    old = os.umask(shell)
    try:
        run = stage(SETTINGS[0], site=site)
        run_prologue(run, f"umask > {home}/seen")
    finally:
        os.umask(old)
    paths = (run.path, run.path / "manifest.json", run.path / PRIVATE_FILE)
    assert tuple(stat.S_IMODE(path.stat().st_mode) for path in paths) == (*modes, 0o600)
    assert (home / "seen").read_text() == "0022\n"


def test_site_may_let_a_group_read_that_there_is(stage, home):
    with pytest.raises(InputError, match="group: cannot give"):
        stage(site='group = "no-such-group"\n')
    assert not [*home.glob("results/*")]
    name = grp.getgrgid(os.getgid()).gr_name
    run = stage(site=f'group = "{name}"\n')
    assert run.path.group() == name
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o2750
