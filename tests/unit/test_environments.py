"""Environments: where they are, which Python makes them, and what a failure leaves."""

import sys
from pathlib import Path

import pytest
from builders import write_program

from dlperf_slurm import environments
from dlperf_slurm.environments import (
    create_environment,
    find_environments_dir,
    find_interpreter,
    find_managed_environment,
    is_current,
    list_pins,
    read_pins,
)
from dlperf_slurm.errors import EnvironmentMissingError, InputError
from dlperf_slurm.worker.frameworks import list_frameworks

# `python -m venv --clear DIR` makes a DIR/bin/python that notes how it is called, and installs
PYTHON = """\
PATH=/usr/bin:/bin
echo "$0 $*" >> {log}
[ "$1" = -m ] || exit 0
mkdir -p "$4/bin"
cat > "$4/bin/python" <<'END'
#!/bin/sh
echo "pip $*" >> {log}
{pip}
END
chmod +x "$4/bin/python"
"""


@pytest.fixture
def python(bin_dir, home, monkeypatch):
    """Puts fake interpreters in the place of the real ones; call it with what pip shall do."""

    def install(pip: str) -> Path:
        log = home / "calls"
        script = PYTHON.format(log=log, pip=pip)
        fake = write_program(bin_dir, "python3.10", script)
        monkeypatch.setattr(sys, "executable", str(fake))
        return log

    return install


def ignore(line: str) -> None:
    pass


def test_every_framework_has_pins():
    assert list_pins() == list_frameworks()


def test_pins_say_which_python_they_need():
    assert read_pins("pytorch").oldest_python == (3, 10)


def test_pins_are_exact():
    lines = [x for x in read_pins("pytorch").text.splitlines() if x and not x.startswith("#")]
    assert [line for line in lines if "==" not in line] == []


def test_unknown_framework_lists_the_known_ones():
    with pytest.raises(InputError, match=r"^'pytroch' has no pins; known: pytorch$"):
        read_pins("pytroch")


def test_environments_are_where_the_user_says(monkeypatch):
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", "/elsewhere")
    assert find_managed_environment("pytorch") == Path("/elsewhere/pytorch")


def test_environments_come_and_go_with_the_tools_own_venv(monkeypatch):
    monkeypatch.delenv("DLPERF_SLURM_ENVIRONMENTS")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", "/venv")
    assert find_environments_dir() == Path("/venv/environments")


def test_environments_of_a_tool_outside_a_venv_are_the_users(monkeypatch):
    monkeypatch.delenv("DLPERF_SLURM_ENVIRONMENTS")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert find_environments_dir() == Path("/data/dlperf-slurm/environments")


def test_interpreter_is_this_one_when_it_is_new_enough():
    assert find_interpreter((3, 9)) == sys.executable


@pytest.fixture
def newer(bin_dir, monkeypatch):
    """A version that this interpreter is too old for, and of which none is installed."""
    minor = sys.version_info.minor + 1
    monkeypatch.setattr(environments, "NEWEST_MINOR", minor + 1)
    monkeypatch.setenv("HOME", str(bin_dir.parent))
    return (3, minor)


def test_interpreter_is_found_on_path(bin_dir, newer):
    path = write_program(bin_dir, f"python3.{newer[1]}", "exit 0")
    assert find_interpreter(newer) == str(path)


def test_interpreter_that_does_not_run_is_passed_over(bin_dir, newer):
    write_program(bin_dir, f"python3.{newer[1]}", "echo 'pyenv: not switched on' >&2; exit 127")
    path = write_program(bin_dir, f"python3.{newer[1] + 1}", "exit 0")
    assert find_interpreter(newer) == str(path)


def test_interpreter_is_found_among_those_of_pyenv(home, newer):
    folder = home / f".pyenv/versions/3.{newer[1]}.2/bin"
    folder.mkdir(parents=True)
    path = write_program(folder, "python", "exit 0")
    assert find_interpreter(newer) == str(path)


def test_no_interpreter_is_new_enough(newer):
    assert find_interpreter(newer) is None


def test_environment_is_made_from_the_pins(python):
    python("exit 0")
    environment = create_environment("pytorch", ignore)
    pins = read_pins("pytorch")
    assert (environment / "requirements.txt").read_text(encoding="utf-8") == pins.text


def test_environment_is_current_once_it_is_made(python):
    python("exit 0")
    assert is_current(create_environment("pytorch", ignore), read_pins("pytorch"))


def test_environment_that_is_current_is_not_made_again(python):
    log = python("exit 0")
    create_environment("pytorch", ignore)
    before = log.read_text()
    create_environment("pytorch", ignore)
    assert log.read_text() == before


def test_environment_of_other_pins_is_made_again(python):
    log = python("exit 0")
    environment = create_environment("pytorch", ignore)
    (environment / "dlperf-slurm.stamp").write_text("of yesterday")
    create_environment("pytorch", ignore)
    assert log.read_text().count("-m venv --clear") == 2


def test_environment_whose_installation_fails_is_not_current(python):
    python("exit 1")
    with pytest.raises(EnvironmentMissingError):
        create_environment("pytorch", ignore)
    assert not is_current(find_managed_environment("pytorch"), read_pins("pytorch"))


def test_failure_shows_the_last_lines_of_the_installer(python):
    python("echo 'ERROR: No matching distribution found for torch' >&2; exit 1")
    with pytest.raises(EnvironmentMissingError) as caught:
        create_environment("pytorch", ignore)
    assert str(caught.value).endswith("\n  ERROR: No matching distribution found for torch")


def test_installer_does_not_see_the_tools_own_packages(python, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    log = python('echo "<$PYTHONPATH>"; exit 1')
    with pytest.raises(EnvironmentMissingError, match="<>"):
        create_environment("pytorch", ignore)
    assert log.exists()


def test_missing_python_is_named_with_what_to_install(bin_dir, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 0))
    monkeypatch.setenv("HOME", str(bin_dir.parent))
    with pytest.raises(
        EnvironmentMissingError, match=r"needs Python 3\.10 or newer.*python3\.10-venv"
    ):
        create_environment("pytorch", ignore)
