"""Where the build for CPUs comes from, and what is installed where no index has it."""

import hashlib
import re
import socket
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from builders import make_wheel, write_program
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.config.folders import find_managed_environment
from dlperf_slurm.provision.environments import cpu_index as cpu_index_module
from dlperf_slurm.provision.environments import pins as pins_module
from dlperf_slurm.provision.environments.cpu_index import CPU_INDEX, SIZES, VARIABLE, choose_build
from dlperf_slurm.provision.environments.create import create_environment
from dlperf_slurm.provision.environments.install_steps import Installation
from dlperf_slurm.provision.environments.pins import read_pins

MIRROR = "https://mirror.example/whl/cpu"
BUILD = "torch==2.13.0+cpu"
# pip, which notes its calls, and finds that build with the options that follow the name
PIP = """\
echo "$*" >> {home}/calls
case "$* " in
  *" versions torch{options} "*) echo "Available versions: 2.15.0, 2.13.0+cpu, 2.13.0" ;;
  *) echo "Available versions: 2.15.0, 2.13.0, 2.13.0+cpuset, 12.13.0+cpu" ;;
esac
"""
TINY = """\
# python: {version}
# import: tiny
# horovod: no
tiny==1.0
"""


@pytest.fixture
def make_installation(home):
    """Return a function that makes an environment whose fake pip expects these options."""

    def make(options: str, framework: str = "pytorch", device: str = "cpu") -> Installation:
        news = []
        environment = home / "envs" / framework
        (environment / "bin").mkdir(parents=True)
        write_program(environment / "bin", "python", PIP.format(home=home, options=options))
        return Installation(framework, environment, news.append, device)

    return make


def list_pins_of(requirements):
    assert all("--hash=sha256:" in line for line in requirements)
    return [line.split()[0] for line in requirements]


@pytest.mark.parametrize(
    ("offered_with", "option", "variable", "options"),
    [
        # what pip's settings offer, before PyTorch's own index
        ("", "", "", []),
        (f" --index-url {CPU_INDEX}", "", "", ["--extra-index-url", CPU_INDEX]),
        # an index that is named before all others
        ("", MIRROR, "https://other.example", ["--extra-index-url", MIRROR]),
        ("", "", MIRROR, ["--extra-index-url", MIRROR]),
    ],
)
def test_build_for_cpus_comes_from_the_first_index_that_has_it(
    make_installation, home, monkeypatch, offered_with, option, variable, options
):
    monkeypatch.setenv(VARIABLE, variable)
    installation = make_installation(offered_with)
    requirements, found = choose_build(installation, read_pins("pytorch"), option)
    assert list_pins_of(requirements) == [BUILD, *read_pins("pytorch").requirements[1:]]
    assert found == options
    calls = (home / "calls").read_text() if (home / "calls").exists() else ""
    assert ("--index-url" in calls) == bool(offered_with)
    assert bool(calls) == (not option and not variable)


def test_build_for_cuda_comes_whole_and_with_its_size_said_before(make_installation):
    installation = make_installation(" --nowhere")
    requirements, options = choose_build(installation, read_pins("pytorch"), "")
    assert list_pins_of(requirements) == list(read_pins("pytorch", "cuda").requirements)
    assert options == []
    (news,) = installation.report.__self__
    assert_problem(news, says=(SIZES, "--cpu-index", VARIABLE))


@pytest.mark.parametrize(("framework", "device"), [("jax", "cpu"), ("pytorch", "cuda")])
def test_no_index_is_asked_for_what_has_one_build(make_installation, home, framework, device):
    pins = read_pins(framework, device)
    requirements, options = choose_build(make_installation("", framework, device), pins, MIRROR)
    assert (list_pins_of(requirements), options) == (list(pins.requirements), [])
    assert not (home / "calls").exists()


@pytest.fixture
def tiny(home, monkeypatch):
    """Pins of a framework that is one package, whose build for CPUs alone has a hash; its wheel."""
    file = make_wheel(home / "index" / "tiny" / "tiny-1.0+cpu-py3-none-any.whl")
    link = file.name.replace("+", "%2B")
    file.with_name("index.html").write_text(f'<a href="{link}">{file.name}</a>\n', encoding="utf-8")
    monkeypatch.setattr(pins_module, "PINS_DIR", home)
    version = "{}.{}".format(*sys.version_info)
    (home / "tiny.txt").write_text(TINY.format(version=version), encoding="utf-8")
    (home / "cuda").mkdir()
    (home / "cuda" / "tiny.txt").write_text("# cuda: 13\ntiny==1.0\n", encoding="utf-8")
    (home / "hashes").mkdir()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (home / "hashes" / "tiny.txt").write_text(f"tiny==1.0+cpu --hash=sha256:{digest}\n")
    # pip has an index that is empty, and whatever else a user may have set is out of the way
    (home / "empty").mkdir()
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", (home / "empty").as_uri())
    return file


@pytest.fixture
def index(home):
    """Serve a local index with the wheel of `tiny`; yield its URL."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(home / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def find_installed():
    found = find_managed_environment("tiny").glob("lib/python3.*/site-packages/tiny-*.dist-info")
    return [path.stem for path in found]


@pytest.mark.integration
@pytest.mark.parametrize("way", ["default", pytest.param("settings", marks=pytest.mark.slow)])
def test_real_pip_finds_and_installs_the_build_for_cpus(tiny, index, way, monkeypatch):
    # the default is the public one, and is not to be reached in a test
    default = index if way == "default" else "http://127.0.0.1:9"
    monkeypatch.setattr(cpu_index_module, "CPU_INDEX", default)
    if way == "settings":
        monkeypatch.setenv("PIP_FIND_LINKS", str(tiny.parent))
    create_environment("tiny", lambda line: None)
    assert find_installed() == ["tiny-1.0+cpu"]


@pytest.mark.integration
@pytest.mark.slow
def test_file_of_another_hash_is_refused_whatever_index_is_named(tiny, index, home, capsys):
    (home / "hashes" / "tiny.txt").write_text(f"tiny==1.0+cpu --hash=sha256:{'0' * 64}\n")
    command = ["env", "create", "tiny", "--cpu-index", index]
    assert main(command) == 4
    # the words of pip, or of uv
    assert re.search("HASHES|Hash mismatch", capsys.readouterr().err)
    assert main([*command, "--any-build"]) == 0
    assert find_installed() == ["tiny-1.0+cpu"]


@pytest.mark.integration
def test_index_that_does_not_answer_is_given_up_within_seconds(tiny, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setattr(cpu_index_module, "CPU_INDEX", address)
        news = []
        # the Python that runs this test has a pip, as the environment would
        installation = Installation("tiny", Path(sys.prefix), news.append)
        start = time.monotonic()
        requirements, _ = choose_build(installation, read_pins("tiny"), "")
        assert time.monotonic() - start < 2 * cpu_index_module.PROBE_LIMIT_SECONDS
    assert requirements == ["tiny==1.0"]
    assert SIZES in news[0]
