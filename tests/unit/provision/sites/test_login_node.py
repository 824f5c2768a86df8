"""Modules are those that jobs find, whatever the profiles of the user's shell do."""

import time

import pytest

from dlperf_slurm.provision.sites.login_node import find_tools

AVAIL = """module() { [ "$*" != "--terse avail" ] || printf '%s\\n' /opt/mods: cuda/12.4 >&2; }\n"""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    for name in ("MODULESHOME", "LMOD_CMD", "BASH_ENV", "BASH_FUNC_module%%"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path


@pytest.mark.parametrize("profile", ["echo conda", "sleep 60 &"])
def test_profile_neither_delays_the_list_nor_is_read_as_modules(shell, profile):
    (shell / ".bash_profile").write_text(f"{AVAIL}{profile}\n", encoding="utf-8")
    begun = time.monotonic()
    assert find_tools().modules == ("cuda/12.4",)
    assert time.monotonic() - begun < 30


def test_profile_is_not_run_where_job_scripts_find_the_command(shell, monkeypatch):
    (shell / ".bash_profile").write_text("touch ~/profile\n", encoding="utf-8")
    (shell / "init").mkdir()
    (shell / "init" / "bash").write_text(f"echo python\n{AVAIL}", encoding="utf-8")
    monkeypatch.setenv("MODULESHOME", str(shell))
    assert find_tools().modules == ("cuda/12.4",)
    assert not (shell / "profile").exists()
