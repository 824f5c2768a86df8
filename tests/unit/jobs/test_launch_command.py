"""How scripts start ranks: `ranks` and `rendezvous`, templates over the topology, variables."""

import re
import subprocess
from pathlib import Path

import pytest
from builders import HARNESS, list_directives, make_matrix_case, make_site, read_launch
from builders import render_script as render
from support.problems import assert_problem

from dlperf_slurm.config.overrides import get_job_kind
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.plan import make_case
from dlperf_slurm.jobs.quoting import quote_expanding, quote_words
from dlperf_slurm.jobs.render import render_verification
from dlperf_slurm.jobs.unsupported import explain_unsupported
from dlperf_slurm.launchers import LAUNCHERS, ShellTemplate
from dlperf_slurm.worker.processes import TIME_LIMIT_SIGNAL
from dlperf_slurm.worker.rendezvous import KINDS
from dlperf_slurm.worker.rendezvous.communicators import read_secret

RUN_DIR = Path("/shared/run")
RENDEZVOUS = {"host_suffix": "i", "interface": "ib0"}


def run_activation(script: str, *names: str, job_id: str = "71") -> list[str]:
    """Return the values of variables in the ranks' environment."""
    function = script[script.index("activate_pytorch()") : script.index("launch_pytorch()")]
    shown = "\n".join(f'printenv {name} || echo "no {name}"' for name in names)
    start = f"run_dir=/run group_id=g\nsource {HARNESS}\ncheck_python() {{ :; }}"
    text = f"{start}\n{function}\nactivate_pytorch\n{shown}"
    env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": job_id}
    done = subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True)
    assert not done.stderr
    return done.stdout.splitlines()


def explain(site, **changes):
    case = make_matrix_case(**{"topology": "2n8g", **changes})
    settled = site.resolve(get_job_kind(case.axes))
    return explain_unsupported(case, make_case(case, settled, "run", 1, 1), settled)


NETWORK = "--host-suffix=i --interface=ib0"
WORKER = "python -m dlperf_slurm.worker run"
ACCELERATE = {"name": "command", "command": "accelerate launch"}


@pytest.mark.parametrize(
    ("values", "start", "end"),
    [
        ({}, "exec srun --nodes=2 --ntasks=16 ", f"{WORKER} "),
        ({"ranks": "slurm"}, "exec srun --nodes=2 --ntasks=16 ", "run --ranks=slurm "),
        ({"task_request": "ntasks"}, "exec srun --nodes=2 --ntasks=16 --cpus", f"{WORKER} "),
        (
            {"ranks": "torchrun", "cpus_per_rank": 7, "rendezvous": {"host_suffix": "i"}},
            "exec srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=56 ",
            '--rdzv-endpoint="${SLURMD_NODENAME-}"i:"${DLPERF_SLURM_PORT-}" --nnodes=2 '
            f"--nproc-per-node=8 --no-python {WORKER} --ranks=torchrun --host-suffix=i ",
        ),
        (
            {"ranks": "torchrun", "launcher": ACCELERATE},
            *("exec accelerate launch python -m ", " --ranks=torchrun "),
        ),
        # the network of the site reaches ranks and libraries
        (
            {"ranks": "slurm", "rendezvous": RENDEZVOUS},
            "exec srun ",
            f" env GLOO_SOCKET_IFNAME=ib0 NCCL_SOCKET_IFNAME=ib0 {WORKER} --ranks=slurm {NETWORK} ",
        ),
        (
            {"rendezvous": RENDEZVOUS, "env": {"NCCL_SOCKET_IFNAME": "ib"}},
            *("exec srun ", f" env GLOO_SOCKET_IFNAME=ib0 {WORKER} {NETWORK} "),
        ),
    ],
)
def test_ranks_are_started_as_the_site_says(values, start, end):
    script = render(make_site(**values))
    launch = read_launch(script)
    assert launch.startswith(start)
    assert launch.endswith(f'{end}"$attempt_dir"')
    assert ("--mpi" in launch, "export_secret" in script) == (
        "ranks" not in values, "ranks" in values
    )  # fmt: skip


def test_each_task_has_a_secret_of_its_own_that_no_file_has():
    script = render(make_site(ranks="slurm"))
    (first,) = run_activation(script, "DLPERF_SLURM_SECRET")
    (second,) = run_activation(script, "DLPERF_SLURM_SECRET")
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert first != second
    assert len(read_secret({"DLPERF_SLURM_SECRET": first})) == 32
    assert "SECRET" not in read_launch(script)


@pytest.mark.parametrize(("job_id", "port"), [("71", "20071"), ("8120033", "20033")])
def test_torchrun_has_a_port_of_its_job_and_hands_on_the_warning_of_the_limit(job_id, port):
    script = render(make_site(ranks="torchrun"))
    names = ("DLPERF_SLURM_PORT", "PET_SIGNALS_TO_HANDLE")
    found, signals = run_activation(script, *names, job_id=job_id)
    assert found == port
    assert {"SIGTERM", TIME_LIMIT_SIGNAL.name} < set(signals.split(","))


def test_verification_joins_ranks_as_the_jobs_do():
    site = make_site(ranks="slurm", scheduler="slurm")
    kind = get_job_kind(make_matrix_case("1n2g").axes)
    script = render_verification(kind, site, ["--data-rank=0"], RUN_DIR, RUN_DIR / "case")
    assert "worker verify --ranks=slurm --data-rank=0 " in script
    assert "  export_secret\n" in script


@pytest.mark.parametrize(
    ("ranks", "changes", "need"),
    [
        ("slurm", {"gradient_sync": "horovod"}, "gradient_sync 'horovod'"),
        ("torchrun", {"framework": "megengine", "gradient_sync": "mpi"}, "gradient_sync 'mpi'"),
        ("slurm", {"framework": "mindspore"}, "mindspore"),
    ],
)
def test_what_needs_mpi_is_refused_without_it(ranks, changes, need):
    reason = explain(make_site(ranks=ranks), **changes)
    assert_problem(reason, says=(need, "MPI", f'ranks = "{ranks}"'))
    assert "needs MPI" not in (explain(make_site(), **changes) or "")
    # mindspore alone has no other ranks
    if "framework" in changes and "gradient_sync" not in changes:
        assert explain(make_site(ranks=ranks), **changes, topology="1n1g") is None


@pytest.mark.parametrize(
    ("ranks", "launcher", "instead"),
    [
        ("mpi", "torchrun", "'command' or 'mpirun' or 'srun', or ranks = \"torchrun\""),
        ("slurm", "mpirun", "'command' or 'srun', or ranks = \"mpi\""),
        ("torchrun", "mpirun", "'command' or 'torchrun', or ranks = \"mpi\""),
    ],
)
def test_launcher_that_places_ranks_otherwise_is_refused(ranks, launcher, instead):
    reason = explain(make_site(ranks=ranks, launcher={"name": launcher}))
    assert reason.startswith(f"launcher {launcher!r} ")
    assert f'ranks = "{ranks}"' in reason
    assert reason.endswith(f"use launcher {instead}")


def test_each_way_of_ranks_has_launchers():
    assert {kind for launcher in LAUNCHERS.values() for kind in launcher.rendezvous_methods} == set(
        KINDS
    )


def test_directives_are_templates_over_the_topology():
    site = make_site(
        directives=["--gpus={{ world_size }}", "--switches={{ 1 if nodes < 3 else 2 }}", "-C gpu"],
        environments={"pytorch": {"container": {"runtime": "shifter", "image": "a"}}},
    )
    # after the container's, as the last of the same option counts
    assert list_directives(render(site))[-3:] == ["--gpus=16", "--switches=1", "-C gpu"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--gpus={{ gpus }}", ("'gpus'", "known: topology, nodes")),
        ("--gpus={{ 1", ("line 1: TemplateSyntaxError",)),
        ("{{ '--array=0-9' }}", ("'--array=0-9': --array", "matrix")),
    ],
)
def test_directive_that_is_none_for_a_topology_is_refused(text, says):
    # what a template makes is known when the topology is
    site = make_site().model_copy(update={"directives": (text,)})
    with pytest.raises(InputError) as caught:
        render(site)
    assert_problem(caught.value, key="directives", says=says)


def test_command_with_an_open_quote_is_refused():
    site = make_site(launcher={"name": "command", "command": "ibrun 'a"})
    with pytest.raises(InputError, match=r"^launcher\.command: .*No closing quotation"):
        render(site)


def test_words_of_the_launch_are_templates_and_variables_of_ranks_are_for_python_alone():
    wrapper = ["select_gpu", "{{ devices_per_node }}"]
    own = {"venv": "/v", "rank_env": {"A": "${HOME}/a b"}, "wrapper": wrapper}
    site = make_site(
        launcher={"flags": ["--gpus={{ world_size }}", "--label={{ framework }}-{{ topology }}"]},
        rank_env={"LD_PRELOAD": "/opt/libnccl.so", "A": "0"},
        environments={"pytorch": own},
        node={"energy_command": "ipmi | grep 'a'"},
    )
    script = render(site)
    words = """ --gpus=16 --label=pytorch-2n8g select_gpu 8 env A="${HOME-}"'/a b' """
    energy = """'DLPERF_SLURM_ENERGY_COMMAND=ipmi | grep '"'"'a'"'"'' """
    assert f"{words}{energy}LD_PRELOAD=/opt/libnccl.so python -m " in read_launch(script)
    assert "export LD_PRELOAD" not in script


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/tmp/${USER}-${JOB}", "/tmp/alice-7"),
        ("$${USER}", "${USER}"),
        ("$USER $(x) `x` ${USER:-a}", "$USER $(x) `x` ${USER:-a}"),
        ("<${NOT_SET_ANYWHERE}>", "<>"),
        ("${SPACED}", "a  b *"),
        ("it's ${JOB}\n", "it's 7\n"),
    ],
)
def test_names_in_braces_alone_are_expanded(text, value):
    lines = f"set -u; USER=alice JOB=7 SPACED='a  b *'; printf '%s|' {quote_expanding(text)}"
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout == f"{value}|"


def test_word_that_is_not_expanding_stays_as_it_is():
    assert quote_words(["${A}", ShellTemplate("${A}")]) == "'${A}' \"${A-}\""


def test_head_of_a_script_says_what_made_it_in_one_line():
    script = render(make_site(), header="dlperf-slurm 1.0: matrix a\nrm -rf x, site b")
    assert script.splitlines()[1] == "# dlperf-slurm 1.0: matrix a?rm -rf x, site b"
