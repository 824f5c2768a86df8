"""uv in the place of pip: with the same settings, the same hashes, and the same result."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders import make_wheel, write_program

from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.provision.environments.install_steps import (
    Installation,
    find_uv,
    translate_pip_settings,
)

SETTINGS = """\
:env:.find-links='/opt/wheels https://a.example/wheels'
global.cert='/etc/ca.crt'
global.extra-index-url='file:///b https://c.example/simple'
global.find-links='/elsewhere'
global.index-url='https://d.example/simple'
install.index-url='https://e.example/simple'
list.format='json'
"""


@pytest.fixture(autouse=True)
def without_settings(monkeypatch):
    for name in os.environ:
        if name.startswith("UV_") or name in ("SSL_CERT_FILE", "ALL_PROXY"):
            monkeypatch.delenv(name)


def test_settings_of_pip_are_told_in_uvs_variables():
    assert translate_pip_settings(SETTINGS.splitlines()) == {
        "SSL_CERT_FILE": "/etc/ca.crt",
        "UV_DEFAULT_INDEX": "https://e.example/simple",
        "UV_FIND_LINKS": "/opt/wheels,https://a.example/wheels",
        "UV_INDEX": "file:///b https://c.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def test_settings_of_uv_come_first_and_paths_are_absolute(home, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://mine.example/simple")
    (home / "wheels").mkdir()
    lines = ["global.find-links='wheels none'", "global.index-url='https://d.example/simple'"]
    found = translate_pip_settings(lines)
    assert found["UV_FIND_LINKS"] == f"{home / 'wheels'},none"
    assert "UV_DEFAULT_INDEX" not in found


def test_program_that_does_not_run_is_no_uv(bin_dir):
    assert find_uv() == ""
    write_program(bin_dir, "uv", "exit 127")
    assert find_uv() == ""
    write_program(bin_dir, "uv", "exit 0")
    assert find_uv() == str(bin_dir / "uv")


@pytest.fixture(scope="session")
def real_uv(tmp_path_factory) -> Path:
    """Return the folder of a real uv: the one on PATH, or one that pip installs here."""
    found = shutil.which("uv")
    if found:
        return Path(found).parent
    folder = tmp_path_factory.mktemp("uv")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs uv, and pip cannot install it: {done.stderr.strip()[-200:]}")
    return folder / "bin"


# installs uv from an index if there is none
@pytest.mark.slow
def test_real_uv_installs_by_hash_what_pips_settings_offer(real_uv, home, monkeypatch):
    wheel = make_wheel(home / "wheels" / "tiny-1.0+cpu-py3-none-any.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setenv("PATH", f"{real_uv}:{os.environ['PATH']}")
    monkeypatch.setenv("UV_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "wheels")
    # of a project that the user works at
    (home / "uv.toml").write_text("no-such-setting = true\n")
    environment = home / "environments" / "tiny"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    news = []
    installation = Installation("tiny", environment, news.append)
    with pytest.raises(EnvironmentMissingError, match="Hash mismatch"):
        installation.install("installing", [f"tiny==1.0+cpu --hash=sha256:{'0' * 64}"])
    hashed = f"tiny==1.0+cpu --hash=sha256:{digest}"
    with pytest.raises(EnvironmentMissingError, match="require-hashes"):
        installation.install("installing", [hashed, "pip"])
    installation.install("installing", [hashed])
    assert "uv" in news[0]
    assert installation.find_package("tiny") == "tiny-1.0+cpu"
    assert list(installation.site_packages.glob("__pycache__/tiny.*.pyc"))
