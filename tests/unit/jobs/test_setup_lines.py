"""A site's setup lines in a rendered script: bash runs them, or the task says which one failed."""

import subprocess

import pytest
from builders import make_group, make_site, write_program, write_scripts

from dlperf_slurm.jobs.render import render_scripts

SETUP_FAILED = 69


class Task:
    """An array task with these setup lines, whose ranks note SETUP."""

    def __init__(self, home, *setup):
        site = make_site(environments={"pytorch": {"setup": list(setup)}})
        group = make_group(site)
        run_dir = home / "run"
        write_scripts(run_dir, render_scripts([group], site, "run", run_dir))
        attempt_dir = run_dir / group.array_tasks[0].attempt_dir
        attempt_dir.mkdir(parents=True)
        programs = home / ".programs"
        programs.mkdir()
        self.noted = home / "noted"
        write_program(programs, "srun", f'printf "%s" "${{SETUP-}}" > {self.noted}')
        write_program(programs, "python", "exit 0")
        done = subprocess.run(
            ["bash", str(run_dir / "scripts/1n1g.sbatch"), "0"],
            env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": "/home/alice"},
            cwd=home,
            capture_output=True,
        )
        self.exit_code = done.returncode
        self.err = "".join(path.read_text() for path in sorted(run_dir.glob("cases/**/err")))

    @property
    def setup(self):
        return self.noted.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (["export SETUP=a", "export SETUP=${SETUP}b"], "ab"),
        (["export SETUP=a; false || true"], "a"),
        (["if true; then", "  export SETUP=a", "fi"], "a"),
        (["case x in", "  x) export SETUP=a ;;", "esac"], "a"),
        (["for part in a b; do", "  SETUP+=$part", "done", "export SETUP"], "ab"),
        (["export SETUP=a\\", "b"], "ab"),
        (["SETUP=$(cat <<END", "ab", "END", ")", "export SETUP"], "ab"),
        (["read -r SETUP <<END", "ab", "END", "export SETUP"], "ab"),
        (["set_it() {", "  export SETUP='a", "b'", "}", "set_it"], "a\nb"),
        (["export SETUP=a # 'quoted", "export OTHER=b"], "a"),
        (["export SETUP=a\nexport SETUP=${SETUP}b"], "ab"),
        (["true", "export SETUP='<'$NOT_SET_ANYWHERE'>'"], "<>"),
    ],
)
def test_setup_lines_run_as_the_bash_that_they_are(home, lines, value):
    task = Task(home, *lines)
    assert (task.exit_code, task.err) == (0, "")
    assert task.setup == value


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ["source /nonexistent", "export SETUP=a"],
            "the site's setup line failed with exit code 1: source /nonexistent\n",
        ),
        (
            ["export SETUP=a", "$(exit 7)", "export SETUP=b"],
            "the site's setup line failed with exit code 7: $(exit 7)\n",
        ),
        (["if true; then", "  false", "fi"], "exit code 1: if true; then\n  false\nfi\n"),
        (["if true; then"], "if true; then\n"),
    ],
)
def test_setup_line_that_fails_ends_the_task_and_is_named(home, lines, told):
    task = Task(home, *lines)
    assert task.exit_code == SETUP_FAILED
    assert told in task.err
    assert task.err.endswith(told)
    assert not task.noted.exists()
