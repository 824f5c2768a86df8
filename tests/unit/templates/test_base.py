"""A site's own lines in a script that bash runs: as they are, and named when they fail."""

import subprocess

import pytest
from builders import make_group, make_site, write_program, write_scripts

from dlperf_slurm.jobs.render import render_scripts

SETUP_FAILED = 69


def run_task(home, **settings):
    """Run one array task on this site; each program notes itself. Return code, notes and errors."""
    site = make_site(**settings)
    group = make_group(site)
    run_dir = home / "run"
    write_scripts(run_dir, render_scripts([group], site, "run", run_dir))
    (run_dir / group.array_tasks[0].attempt_dir).mkdir(parents=True)
    programs, notes = home / ".programs", home / "notes"
    programs.mkdir()
    write_program(programs, "srun", f'echo "ranks <${{VALUE-}}> ${{LD_PRELOAD-}} $*" >> {notes}')
    write_program(programs, "python", 'echo "$@" >> "$NOTES"')
    done = subprocess.run(
        ["bash", str(run_dir / "scripts/1n1g.sbatch"), "0"],
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": "/home/alice", "NOTES": str(notes)},
        cwd=home,
        capture_output=True,
    )
    err = "".join(path.read_text() for path in sorted(run_dir.glob("cases/**/err")))
    return done.returncode, notes.read_text() if notes.exists() else "", err


def set_up(*lines):
    return {"environments": {"pytorch": {"setup": list(lines)}}}


def test_lines_of_a_site_run_once_and_ranks_have_what_they_export(home):
    code, notes, err = run_task(
        home,
        setup=["echo setup >> $NOTES", "export PART=p"],
        after_modules=["echo after >> $NOTES", "VALUE=not-$THAT_IS_NOT_SET_ANYWHERE"],
        env={"VALUE": "${PART}q"},
    )
    assert (code, err) == (0, "")
    first, second, ranks, conclude = notes.splitlines()
    assert (first, second) == ("setup", "after")
    assert ranks.startswith("ranks <pq> ")
    assert conclude.startswith("-m dlperf_slurm.worker conclude ")


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (["export VALUE=a", "export VALUE=${VALUE}b"], "ab"),
        (["export VALUE=a; false || true"], "a"),
        (["if true; then", "  export VALUE=a", "fi"], "a"),
        (["export VALUE=a\\", "b"], "ab"),
        (["read -r VALUE <<END", "ab", "END", "export VALUE"], "ab"),
        (["set_it() {", "  export VALUE='a", "b'", "}", "set_it"], "a\nb"),
        (["export VALUE=a # 'quoted", "export OTHER=b"], "a"),
        (["export VALUE=a\nexport VALUE=${VALUE}b"], "ab"),
    ],
)
def test_setup_lines_run_as_the_bash_that_they_are(home, lines, value):
    code, notes, err = run_task(home, **set_up(*lines))
    assert (code, err) == (0, "")
    assert notes.startswith(f"ranks <{value}> ")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"setup": ["false", "echo not reached >> $NOTES"]}, "exit code 1: false\n"),
        (set_up("export VALUE=a", "$(exit 7)", "export VALUE=b"), "exit code 7: $(exit 7)\n"),
        (set_up("if true; then", "  false", "fi"), "exit code 1: if true; then\n  false\nfi\n"),
    ],
)
def test_line_that_fails_ends_the_task_before_its_ranks(home, settings, told):
    code, notes, err = run_task(home, **settings)
    assert code == SETUP_FAILED
    assert err.endswith(told)
    assert "ranks" not in notes
    if "setup" in settings:
        assert notes.startswith("-m dlperf_slurm.worker conclude ")
        assert notes.endswith(f" {SETUP_FAILED}\n")


def test_variables_of_ranks_do_not_touch_the_commands_of_the_script(home):
    code, notes, err = run_task(home, rank_env={"LD_PRELOAD": "/nonexistent.so"})
    assert (code, err) == (0, "")
    assert " env LD_PRELOAD=/nonexistent.so python -m " in notes
