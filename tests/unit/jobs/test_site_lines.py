"""A site's own lines in a script that bash runs: once a task, and what comes of one that fails."""

import subprocess

from builders import make_group, make_site, write_program, write_scripts

from dlperf_slurm.jobs.render import render_scripts


def run_task(home, python='echo "$@" >> "$NOTES"', **settings):
    """One array task on this site; each program notes itself. Returns its output and the notes."""
    site = make_site(**settings)
    group = make_group(site)
    run_dir = home / "run"
    write_scripts(run_dir, render_scripts([group], site, "run", run_dir))
    (run_dir / group.array_tasks[0].attempt_dir).mkdir(parents=True)
    programs = home / ".programs"
    programs.mkdir()
    notes = home / "notes"
    write_program(programs, "srun", f'echo "ranks ${{VALUE-}} ${{LD_PRELOAD-}} $*" >> {notes}')
    write_program(programs, "python", python)
    done = subprocess.run(
        ["bash", str(run_dir / "scripts/1n1g.sbatch"), "0"],
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": "/home/alice", "NOTES": str(notes)},
        cwd=home,
        capture_output=True,
        text=True,
    )
    err = "".join(path.read_text() for path in sorted(run_dir.glob("cases/**/err")))
    return done, notes.read_text().splitlines() if notes.exists() else [], err


def test_lines_of_a_site_run_once_and_ranks_have_what_they_export(home):
    done, notes, err = run_task(
        home,
        setup=["echo setup >> $NOTES", "export PART=p"],
        after_modules=["echo after >> $NOTES", "VALUE=not-$THAT_IS_NOT_SET_ANYWHERE"],
        env={"VALUE": "${PART}q"},
    )
    assert (done.returncode, done.stderr, err) == (0, "", "")
    assert notes[:2] == ["setup", "after"]
    assert notes[2].startswith("ranks pq ")
    assert notes[3].startswith("-m dlperf_slurm.worker conclude ")
    assert len(notes) == 4


def test_line_of_a_site_that_fails_ends_the_task_before_its_ranks_and_concludes_it(home):
    done, notes, err = run_task(home, setup=["false", "echo not reached >> $NOTES"])
    assert done.returncode == 69
    assert "the site's setup line failed with exit code 1: false\n" in err
    (note,) = notes
    assert note.startswith("-m dlperf_slurm.worker conclude ")
    assert note.endswith(" 69")


def test_first_line_of_the_scheduler_s_log_says_where_the_output_is(home):
    done, _, _ = run_task(home)
    (line,) = done.stdout.splitlines()
    folder = home / "run/cases/pytorch-resnet50-1n1g-bs8-fp32"
    assert line.startswith(f"what this array task prints is in {folder}/r")


def test_variables_of_ranks_do_not_touch_the_commands_of_the_script(home):
    done, notes, err = run_task(home, rank_env={"LD_PRELOAD": "/nonexistent.so"})
    assert (done.returncode, err) == (0, "")
    assert " env LD_PRELOAD=/nonexistent.so python -m " in notes[0]


def test_host_python_that_is_too_old_is_named(home):
    container = {"runtime": "apptainer", "image": "/i.sif"}
    done, notes, err = run_task(
        home,
        python="exit 1",
        environments={"pytorch": {"container": container, "host_python": "python"}},
    )
    assert done.returncode == 69
    assert "host_python of the site's environment: python is not there, or older than 3.7" in err
    assert notes == []
