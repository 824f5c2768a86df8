"""What a script has its nodes do before the ranks start: nothing, or as its golden file."""

from pathlib import Path

import pytest
from builders import make_matrix_case, make_site
from golden import GOLDEN, assert_is_golden, assert_script_is_golden

from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import FOLDER
from dlperf_slurm.contract.nodes import NodeChecks
from dlperf_slurm.jobs.grouping import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.render import render_scripts

RUN_DIR = Path("/shared/results/run")
NODE = {
    "setup": "nvidia-smi -pm 1",
    "check": {"devices": True, "ecc": True, "xid_hours": 24, "commands": ["nhc -t 60"]},
    "timeout_seconds": 90,
}
STAGED = {"digits": {"path": "/data/digits.tar", "stage_to": "$SLURM_TMPDIR/${USER}/digits"}}


def render(site: Site, case=None, run_dir=RUN_DIR) -> dict[str, str]:
    """All files of an array job of one repeat on two nodes."""
    case = case or make_matrix_case("2n8g")
    groups = group_array_tasks([ArrayTask(case, 1, 1)], site, 1001)
    return render_scripts(groups, site, "run", run_dir)


def make_environment(**values):
    return {"pytorch": {"venv": "/venvs/pytorch", **values}}


def test_script_whose_nodes_make_ready_is_as_its_golden_file():
    site = make_site(node=NODE, datasets=STAGED, environments=make_environment())
    files = render(site, make_matrix_case("2n8g", data=FOLDER, dataset="digits"))
    assert_script_is_golden(files["scripts/2n8g.sbatch"], GOLDEN / "nodes" / "2n8g.sbatch")
    assert_is_golden(files["scripts/2n8g.node.json"], GOLDEN / "nodes" / "2n8g.node.json")


def test_every_check_of_a_site_file_is_one_of_the_nodes():
    checks = make_site().node.check.model_dump()
    assert NodeChecks(**checks) == NodeChecks()
    assert set(checks) == set(NodeChecks.__dataclass_fields__)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"scheduler": "local"}, "  exec python -m dlperf_slurm.worker node /shared/"),
        # a step of one task has all GPUs, though the job asks for them by task
        ({"directives": ["--gpus-per-task=1"]}, " --gres=gpu:8 "),
    ],
)
def test_node_makes_ready_as_its_site_starts_programs(values, words):
    site = make_site(node=NODE, environments=make_environment(), **values)
    (line,) = (x for x in render(site)["scripts/2n8g.sbatch"].splitlines() if "worker node " in x)
    assert words in line


def test_host_makes_ready_where_ranks_are_in_a_container_and_they_see_the_copy():
    container = {"runtime": "apptainer", "image": "/images/pytorch"}
    site = make_site(datasets=STAGED, environments={"pytorch": {"container": container}})
    case = make_matrix_case("2n8g", data=FOLDER, dataset="digits")
    lines = render(site, case)["scripts/2n8g.sbatch"].splitlines()
    (node,) = (line for line in lines if "worker node " in line)
    assert "apptainer" not in node
    assert " python3 -m dlperf_slurm.worker node " in node
    (launch,) = (line for line in lines if "worker run " in line)
    assert '"${SLURM_TMPDIR-}"/"${USER-}"/digits:' in launch
    assert "digits.tar" not in launch
