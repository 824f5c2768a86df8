"""Hostile values in a rendered script: refused by name, or carried through bash as they are."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from builders import make_group, make_site, write_program, write_scripts

from dlperf_slurm.config.site import Site
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.render import render_scripts

# hundreds, and what takes them is bash
pytestmark = pytest.mark.integration

HOSTILE = {
    "space": "a b",
    "quote": "a'b",
    "double quote": 'a"b',
    "substitution": "$(touch pwned)",
    "backticks": "`touch pwned`",
    "variable": "$HOME",
    "second command": "x; touch pwned #",
    "comment": "a #b",
    "backslash": "a\\b\\",
    "newline": "a\ntouch pwned",
    "percent": "%A %% %a",
    "glob": "*",
    "brace": "{a,b}",
    "template": "{{ job }} {% raw %}",
    "option": "--help",
    "unicode": "Grüße 東京 🚀",
    "10 kB": "x" * 10_000,
    "empty": "",
}
# what sbatch's own parser of #SBATCH lines cannot take: it eats backslashes and ends at line breaks
REFUSED_IN_DIRECTIVES = {"backslash", "newline"}


# the first two are refused as well, the others are no names of folders
NO_RUN_DIRECTORY = {*REFUSED_IN_DIRECTIVES, "10 kB", "empty"}
# the `module` of a site is a function that login shells export; here it notes what it was given
MODULE = '() { [ -e "$SEEN/argv" ] || printf "%s\\0" "$@" >> "$SEEN/modules"; }'


def _split(path: Path) -> list[str]:
    return os.fsdecode(path.read_bytes()).split("\0")[:-1] if path.exists() else []


def escape_template(value: str) -> str:
    """Escape a value for a flag, which is a template."""
    return f"{{{{ {value!r} }}}}" if "{{" in value else value


@pytest.mark.parametrize("name", HOSTILE)
def test_value_arrives_as_it_is_wherever_a_user_can_put_it(tmp_path, name):
    """Bash runs an array task whose launcher notes what it was given."""
    value = HOSTILE[name]
    environment = {"venv": f"/opt/v{value}", "modules": ["first", value], "env": {"OWN": value}}
    site = make_site(
        env={"SITE": value},
        environments={"pytorch": environment},
        launcher={"mpi": value, "flags": ["--first", escape_template(value)]},
    )
    run_dir = tmp_path / ("run" if name in NO_RUN_DIRECTORY else value)
    group = make_group(site)
    write_scripts(run_dir, render_scripts([group], site, "run", run_dir))
    attempt_dir = run_dir / group.array_tasks[0].attempt_dir
    attempt_dir.mkdir(parents=True)
    programs, seen = tmp_path / ".programs", tmp_path / ".seen"
    programs.mkdir()
    seen.mkdir()
    write_program(programs, "srun", 'printf "%s\\0" "$@" > "$SEEN/argv"; env -0 > "$SEEN/env"')
    write_program(programs, "python", "exit 0")
    done = subprocess.run(
        ["bash", str(run_dir / "scripts/1n1g.sbatch"), "0"],
        env={
            **{"PATH": f"{programs}:/usr/bin:/bin", "HOME": "/home/alice"},
            **{"SEEN": str(seen), "BASH_FUNC_module%%": MODULE},
        },
        cwd=tmp_path,
        capture_output=True,
    )
    err = (attempt_dir / "s0" / "err").read_text(encoding="utf-8")
    assert (done.returncode, done.stderr, err) == (0, b"", "")
    env = dict(item.split("=", 1) for item in _split(seen / "env"))
    assert (env["SITE"], env["OWN"]) == (value, value)
    assert _split(seen / "modules") == ["load", "first", "load", value]
    assert env["PATH"].startswith(f"/opt/v{value}/bin:")
    assert env["PYTHONPATH"] == f"{run_dir}/code"
    argv = _split(seen / "argv")
    assert argv[argv.index("--first") + 1 :][:2] == [value, "python"]
    assert f"--mpi={value}" in argv
    assert Path(argv[-1]).parts[:-5] == run_dir.parts
    assert list(tmp_path.rglob("pwned")) == []


def read_directive(site: Site, name: str, run_dir: Path = Path("/run")) -> str:
    """Return the value of an #SBATCH option, with its line split as by a shell."""
    scripts = render_scripts([make_group(site)], site, "run", run_dir)
    lines = scripts["scripts/1n1g.sbatch"].splitlines()
    (line,) = (line for line in lines if line.startswith(f"#SBATCH --{name}="))
    (word,) = shlex.split(line[len("#SBATCH ") :], comments=True)
    return word.partition("=")[2]


OPTIONS = ["partition", "account", "qos", "constraint", "reservation"]


@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in REFUSED_IN_DIRECTIVES])
def test_directive_holds_the_literal_value(name):
    value = HOSTILE[name]
    site = make_site(
        **dict.fromkeys(OPTIONS, value), directives=f"--comment={escape_template(value)}"
    )
    assert {read_directive(site, option) for option in (*OPTIONS, "comment")} == {value}
    output = read_directive(make_site(), "output", Path("/base") / value)
    assert output == str(Path("/base") / value / "scripts" / "").replace("%", "%%") + "/%A_%a.log"
    if value:
        site = make_site(gpu_request="gres", gpu_type=value)
        assert read_directive(site, "gres") == f"gpu:{value}:1"


def test_run_directory_that_would_be_two_of_the_search_path_is_refused():
    with pytest.raises(InputError, match=r"^'/base/a:b': ':' .*PATH"):
        read_directive(make_site(), "output", Path("/base/a:b"))
