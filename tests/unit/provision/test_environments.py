"""Environments: where they are, when they are made, and what a failure leaves."""

import hashlib
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from builders import IMPORT_DIR, make_wheel, write_program
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_environments_dir, find_managed_environment
from dlperf_slurm.errors import EnvironmentMissingError, InputError
from dlperf_slurm.provision.environments import pins as pins_module
from dlperf_slurm.provision.environments.additions import list_installed, read_additions
from dlperf_slurm.provision.environments.create import (
    MPI_SETTINGS_FILE,
    create_environment,
    find_state,
    read_stamp,
)
from dlperf_slurm.provision.environments.install_steps import Installation, build_wheel
from dlperf_slurm.provision.environments.pins import add_hashes, read_pins

OWN_PYTHON = sys.executable
ANOTHER_HASH = "0" * 64

# `python -I -m venv --clear DIR` makes a DIR/bin/python that notes how it is called, and installs
PYTHON = """\
PATH=/usr/bin:/bin
echo "$0 $*" >> {log}
[ "$2" = -m ] || exit 0
mkdir -p "$5/bin"
cat > "$5/bin/python" <<'END'
#!/bin/sh
echo "pip $*" >> {log}
{pip}
END
chmod +x "$5/bin/python"
"""

TINY = """\
# python: {version}
# import: tiny
# install: --no-index --find-links {index}
# horovod: no
tiny==1.0
"""


@pytest.fixture
def python(bin_dir, home, monkeypatch):
    """Return a function that installs fake interpreters, with this script of pip."""

    def install(pip: str) -> Path:
        log = home / "calls"
        fake = write_program(bin_dir, "python3", PYTHON.format(log=log, pip=pip))
        monkeypatch.setattr(sys, "executable", str(fake))
        monkeypatch.setattr(sys, "version_info", (3, 11, 7))
        return log

    return install


@pytest.fixture
def tiny(home, monkeypatch):
    """Pins of a framework that is one small package, in an index that is a folder."""
    index = home / "index"
    make_wheel(index / "tiny-1.0-py3-none-any.whl")
    monkeypatch.setattr(pins_module, "PINS_DIR", home)
    version = "{}.{}".format(*sys.version_info)
    (home / "tiny.txt").write_text(TINY.format(version=version, index=index), encoding="utf-8")
    return "tiny"


def ignore(line: str) -> None:
    pass


def write_hash(home: Path, digest: str) -> None:
    (home / "hashes").mkdir()
    (home / "hashes" / "tiny.txt").write_text(f"tiny==1.0 --hash=sha256:{digest}\n")


@pytest.mark.parametrize(
    ("base", "variables", "file", "folder"),
    [
        ("/usr", {"DLPERF_SLURM_ENVIRONMENTS": "/elsewhere"}, "", "/elsewhere"),
        # of a virtual environment they come and go with it
        ("/usr", {}, "", "{home}/environments"),
        # unless each installation makes that anew
        ("/usr", {}, "uv-receipt.toml", "/data/dlperf-slurm/environments"),
        ("/usr", {}, "pipx_metadata.json", "/data/dlperf-slurm/environments"),
        ("{home}", {}, "", "/data/dlperf-slurm/environments"),
    ],
)
def test_folder_of_environments(home, monkeypatch, base, variables, file, folder):
    monkeypatch.delenv("DLPERF_SLURM_ENVIRONMENTS")
    for name, value in {"XDG_DATA_HOME": "/data", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "base_prefix", base.format(home=home))
    monkeypatch.setattr(sys, "prefix", str(home))
    (home / (file or "pyvenv.cfg")).touch()
    expected = Path(folder.format(home=home))
    assert find_environments_dir() == expected
    assert find_managed_environment("pytorch") == expected / "pytorch"


@pytest.mark.slow
def test_real_environment_has_the_package_and_nothing_of_the_tool_or_the_directory(
    tiny, home, monkeypatch
):
    for name in ("tempfile", "venv", "pip", "ensurepip", "sitecustomize"):
        (home / f"{name}.py").write_text("open('pwned', 'w')\n")
    monkeypatch.setenv("PYTHONPATH", str(home))
    wheel = home / "index" / "tiny-1.0-py3-none-any.whl"
    write_hash(home, hashlib.sha256(wheel.read_bytes()).hexdigest())
    environment = create_environment(tiny, ignore)
    assert find_state(environment, read_pins(tiny)) == "current"
    assert not (home / "pwned").exists()
    program = "import importlib.util, tiny; print(tiny.__version__, end=' '); "
    program += "print(importlib.util.find_spec('dlperf_slurm'))"
    command = [str(environment / "bin" / "python"), "-I", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("1.0 None\n", "")


def test_open_mpi_of_an_environment_has_no_transport_that_sleeps(python):
    settings = find_managed_environment("jax") / MPI_SETTINGS_FILE
    pip = f"mkdir -p {settings.parent}; [ -e {settings} ] || echo '# as it came' > {settings}"
    python(f"PATH=/usr/bin:/bin; {pip}")
    create_environment("jax", ignore)
    assert settings.read_text() == "# as it came\nbtl = ^ofi\n"
    # of an earlier version of the tool
    settings.write_text("# as it came\n")
    for _ in range(2):
        create_environment("jax", ignore)
        assert settings.read_text() == "# as it came\nbtl = ^ofi\n"


@pytest.mark.slow
def test_file_of_another_hash_is_not_installed_unless_any_build_will_do(tiny, home):
    write_hash(home, ANOTHER_HASH)
    with pytest.raises(EnvironmentMissingError, match=r"HASHES|Hash mismatch"):
        create_environment(tiny, ignore)
    assert find_state(find_managed_environment(tiny), read_pins(tiny)) != "current"
    create_environment(tiny, ignore, has_any_build=True)
    assert find_state(find_managed_environment(tiny), read_pins(tiny)) == "current"


@pytest.mark.parametrize("name", [".jax.lock", "logs/jax.log"])
def test_link_in_a_shared_folder_is_not_written_through(python, home, name):
    python("exit 0")
    (home / "precious").write_text("mine")
    link = find_environments_dir() / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(home / "precious")
    with suppress(EnvironmentMissingError):
        create_environment("jax", ignore)
    assert (home / "precious").read_text() == "mine"


@pytest.mark.slow
def test_added_package_stays_in_an_environment_that_is_made_again(tiny, home):
    for name in ("extra-1.0", "extra-2.0", "tiny-2.0"):
        make_wheel(home / "index" / f"{name}-py3-none-any.whl")
    create_environment(tiny, ignore)
    environment = create_environment(tiny, ignore, packages=["extra<2"])
    assert list_installed(environment)[:1] == ["extra==1.0"]
    log = find_managed_environment("logs") / "tiny.log"
    log.unlink()
    # asked for again, or not named: nothing to do
    for packages in (["extra<2"], []):
        create_environment(tiny, ignore, packages=packages)
    assert not log.exists()
    age_stamp(environment, tiny)
    create_environment(tiny, ignore)
    assert {"extra==1.0", "tiny==1.0"} <= {*list_installed(environment)}
    # of a package that is named again, the last version counts
    create_environment(tiny, ignore, packages=["extra==2.0"])
    assert {"extra==2.0", "tiny==1.0"} <= {*list_installed(environment)}
    # the pins stay
    with pytest.raises(EnvironmentMissingError, match=r"must fit.*remove \S+tiny.with.json"):
        create_environment(tiny, ignore, packages=["tiny==2.0"])
    assert "tiny==1.0" in list_installed(environment)
    assert read_additions(environment).asked == ("extra==2.0",)


@pytest.mark.parametrize("text", ["--index-url=x", "./here", "a @ https://b", "a b", "", "a\nb"])
def test_only_names_of_packages_can_be_added(python, text):
    with pytest.raises(InputError, match="--with"):
        create_environment("jax", ignore, packages=[text])


@pytest.mark.slow
def test_source_of_another_hash_is_not_built(tiny, home):
    environment = create_environment(tiny, ignore)
    write_hash(home, ANOTHER_HASH)
    installation = Installation(tiny, environment, ignore)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(home / "index")}
    with pytest.raises(EnvironmentMissingError, match="HASHES"):
        build_wheel(installation, "tiny==1.0", "key", offline)
    (home / "hashes" / "tiny.txt").unlink()
    assert build_wheel(installation, "tiny==1.0", "key", offline).name.startswith("tiny-1.0")


def age_stamp(environment, framework="jax"):
    """Make the environment look as if it were of other pins."""
    stamp = environment / "dlperf-slurm.stamp"
    stamp.write_text(stamp.read_text().replace(read_pins(framework).stamp, "of yesterday"))


def test_environment_is_made_once(python):
    log = python("exit 0")
    news = []
    environment = create_environment("jax", news.append)
    text = (environment / "requirements.txt").read_text(encoding="utf-8")
    assert text.splitlines() == add_hashes("jax", read_pins("jax").requirements)
    assert_problem(news[-1], key="jax", says=(environment, "Python 3.11", "MiB"))
    before = log.read_text()
    assert create_environment("jax", ignore) == environment
    assert log.read_text() == before
    assert find_state(environment, read_pins("jax")) == "current"
    assert find_state(environment, read_pins("paddle")) == "outdated"


@pytest.mark.parametrize(
    "spoil", [age_stamp, lambda environment: (environment / "bin" / "python").unlink()]
)
def test_environment_of_other_pins_or_without_its_interpreter_is_made_again(python, spoil):
    log = python("exit 0")
    spoil(create_environment("jax", ignore))
    create_environment("jax", ignore)
    assert log.read_text().count("-m venv --clear") == 2


def test_environment_whose_installation_fails_is_half_made_and_made_again(python):
    for is_first in (True, False):
        if not is_first:
            age_stamp(find_managed_environment("jax"))
        python("exit 1")
        with pytest.raises(EnvironmentMissingError):
            create_environment("jax", ignore)
        assert find_state(find_managed_environment("jax"), read_pins("jax")) == "incomplete"
        assert read_stamp(find_managed_environment("jax")) is None
        python("exit 0")
        assert read_stamp(create_environment("jax", ignore))


def test_two_at_a_time_make_one_environment(python):
    log = python("/bin/sleep 0.3")
    threads = [threading.Thread(target=create_environment, args=("jax", ignore)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.read_text().count("-m venv --clear") == 1


@pytest.mark.integration
def test_installer_that_outlives_the_tool_is_waited_for(python, home):
    log = python("/bin/sleep 2; exit 1")
    program = (
        "import sys; from dlperf_slurm.provision.environments.create import create_environment\n"
        f"sys.executable, sys.version_info = {sys.executable!r}, (3, 11, 7)\n"
        "create_environment('jax', lambda line: None)"
    )
    environment = {**os.environ, "PYTHONPATH": IMPORT_DIR}
    tool = subprocess.Popen([OWN_PYTHON, "-c", program], env=environment)
    while tool.poll() is None and not (log.exists() and "pip -I -m pip" in log.read_text()):
        time.sleep(0.01)
    tool.kill()
    tool.wait()
    python("exit 0")
    news = []
    create_environment("jax", news.append)
    assert_problem(news[0], key="jax", says=("another process", "waiting"))


@pytest.mark.parametrize(
    ("pip", "end"),
    [
        ("echo 'ERROR: No matching jax' >&2; echo noise; exit 1", "\n  ERROR: No matching jax"),
        ("/usr/bin/seq 100; exit 1", "99\n  100"),
        # neither the tool's own packages, nor another place to install to
        ('echo "error: <$PYTHONPATH$PIP_TARGET$PIP_PREFIX>$PIP_USER"; exit 1', "error: <>0"),
    ],
)
def test_failure_shows_errors_of_the_installer_or_its_end(python, monkeypatch, pip, end):
    for name in ("PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX"):
        monkeypatch.setenv(name, "/somewhere")
    python(pip)
    with pytest.raises(EnvironmentMissingError) as caught:
        create_environment("jax", ignore)
    assert str(caught.value).endswith(end)


def test_missing_python_is_named_with_what_to_install(bin_dir, home, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 0))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    with pytest.raises(EnvironmentMissingError, match=r"^tensorflow1: needs Python 3\.7.*pyenv"):
        create_environment("tensorflow1", ignore)


def test_folder_that_cannot_be_written_is_named(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", str(home / "file" / "below"))
    with pytest.raises(EnvironmentMissingError, match="set DLPERF_SLURM_ENVIRONMENTS"):
        create_environment("jax", ignore)
