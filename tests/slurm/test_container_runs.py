"""A matrix in real containers on the real Slurm: Charliecloud and Podman, PyTorch on two nodes."""

import getpass
import json
import os
import resource
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.slurm_runs import CHECKOUT, SITE, SMALL_RESNET, read_records, write_matrix
from support.tool import run_tool

from dlperf_slurm.config.folders import find_managed_environment
from dlperf_slurm.jobs.run_directory import find_run

pytestmark = pytest.mark.containers

MAKE_IMAGE = "tests/containers/make-image"
IMAGE = Path(os.environ.get("CONTAINER_IMAGE") or CHECKOUT / ".venv" / "container-image") / "root"
PODMAN_IMAGE = "localhost/dlperf-slurm-test"
# the OS name that make-image writes into the image
OS_OF_IMAGE = "The image of the tests"
TOPOLOGIES = ("1n2g", "2n2g")
# each container reads torch from the disk again, through its mounts
TIME_LIMIT = "time_limit_minutes.default=15"
REPEATS = 1
# with few steps, a pause between two of them on a busy machine would make a record invalid
STEPS = 30
SITE_TABLES = """
[environments.pytorch]
python = "{python}"
host_python = "{host_python}"
env.USER = "{user}"

[environments.pytorch.container]
runtime = "{runtime}"
image = "{image}"
options = {options}
mounts = {mounts}
"""


def find_obstacle(runtime: str) -> str:
    """Return why the runtime starts no container here, and what to do, or ''."""
    again = f"as root: {MAKE_IMAGE} {IMAGE.parent}, then: make test-containers"
    image = PODMAN_IMAGE if runtime == "podman" else str(IMAGE)
    command = {
        "charliecloud": ["ch-run", image, "--", "true"],
        "podman": ["podman", "run", "--rm", "--network=host", *limit_podman(), image, "true"],
    }[runtime]
    if shutil.which(command[0]) is None:
        return f"{command[0]} is not there; {again}"
    env = {**os.environ, "USER": getpass.getuser()}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    return f"{' '.join(command)}: {done.stderr.strip()}; {again}" if done.returncode else ""


def limit_podman() -> list[str]:
    """Return limits that this process may set: Podman 4's own need CAP_SYS_RESOURCE."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    # Podman's own maximum
    processes = 32768 if processes == resource.RLIM_INFINITY else min(processes, 32768)
    return [f"--ulimit=nofile={files}:{files}", f"--ulimit=nproc={processes}:{processes}"]


def write_site(path: Path, runtime: str) -> None:
    """Write the test cluster's site, with ranks that run the host's PyTorch in the image."""
    environment = find_managed_environment("pytorch")
    python = environment / "bin" / "python"
    ask_prefix = [str(python), "-c", "import sys; print(sys.base_prefix)"]
    prefix = subprocess.run(ask_prefix, check=True, capture_output=True, text=True).stdout.strip()
    # the image also contains Debian's Python
    mounts = [str(environment.resolve()), *([prefix] if prefix != "/usr" else [])]
    if runtime == "charliecloud":
        for folder in mounts:
            (IMAGE / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        # ch-run mounts the host's /tmp, with Slurm's PMIx folders, but not /etc/hosts
        options, mounts = [], [*mounts, "/etc/hosts"]
        image = str(IMAGE)
    else:
        # the nodes see only a part of the cgroup hierarchy, which runc looks up from its root
        options = ["--volume=/sys/fs/cgroup:/sys/fs/cgroup", *limit_podman()]
        mounts = [*mounts, os.environ["SLURM_TESTBED"]]
        image = PODMAN_IMAGE
    tables = SITE_TABLES.format(
        python=environment.resolve() / "bin" / "python",
        host_python=sys.executable,
        user=getpass.getuser(),
        runtime=runtime,
        image=image,
        options=json.dumps(options),
        mounts=json.dumps(mounts),
    )
    path.write_text(SITE.read_text(encoding="utf-8") + tables, encoding="utf-8")


@pytest.fixture(scope="module", params=["charliecloud", "podman"])
def finished(cluster, request, tmp_path_factory):
    """Run `submit --wait`; return the runtime and the records."""
    obstacle = find_obstacle(request.param)
    if obstacle:
        pytest.skip(obstacle)
    folder = tmp_path_factory.mktemp(request.param)
    write_site(folder / "site.toml", request.param)
    matrix = write_matrix(folder, TOPOLOGIES, REPEATS, SMALL_RESNET, measured_steps=STEPS)
    options = ["--site", str(folder / "site.toml"), "--results", str(folder / "results"), "--wait"]
    options += ["--set", TIME_LIMIT]
    done = run_tool(["submit", str(matrix), *options], CHECKOUT)
    run = find_run(None, folder / "results")
    errors = "".join(
        (run.path / task.attempt_dir / "s0" / "err").read_text() for task in run.read_all_tasks()
    )
    assert done.returncode == 0, done.stdout + done.stderr + errors
    return request.param, read_records(run)


def test_ranks_stand_on_the_nodes_that_the_topology_asks_for(finished):
    _, records = finished
    assert len(records) == len(TOPOLOGIES) * REPEATS
    for record in records:
        hosts = Counter(rank.host for rank in record.ranks)
        assert set(hosts) == {f"n{number + 1}" for number in range(record.case.nodes)}
        assert set(hosts.values()) == {record.case.devices_per_node}


def test_ranks_were_in_the_image(finished):
    _, records = finished
    assert {record.platform["os"] for record in records} == {OS_OF_IMAGE}
    # records contain only those facts of other hosts that differ
    others = [host.facts for record in records for host in record.hosts]
    assert not [facts for facts in others if "os" in facts]


def test_record_names_runtime_image_and_digest(finished):
    runtime, records = finished
    images = {"charliecloud": str(IMAGE), "podman": PODMAN_IMAGE}
    kinds = {"charliecloud": "listing-sha256", "podman": "sha256"}
    for record in records:
        assert record.platform["container"] == runtime
        assert record.platform["container_image"] == images[runtime]
        kind, _, digest = record.platform["container_digest"].partition(":")
        assert (kind, len(digest)) == (kinds[runtime], 64)
    assert len({record.platform["container_digest"] for record in records}) == 1
