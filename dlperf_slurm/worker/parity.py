"""A case on its ranks -> losses, gradients and updates, to be compared between frameworks."""

import argparse
import io
import math
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Sequence, Tuple, Union

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.parity import PARITY_FILE, Difference, Parity
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.worker.annotations import Array, Arrays
from dlperf_slurm.worker.determinism import can_be_deterministic, make_deterministic
from dlperf_slurm.worker.frameworks import start_session
from dlperf_slurm.worker.host import read_cpu_name
from dlperf_slurm.worker.measure import Step
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.provenance import describe_python
from dlperf_slurm.worker.provenance.software import describe_code
from dlperf_slurm.worker.ranks import SingleProcess
from dlperf_slurm.worker.reference_optimizers import (
    clip_gradients,
    make_optimizer,
    measure_norm,
)
from dlperf_slurm.worker.rendezvous import RendezvousSettings, make_parser
from dlperf_slurm.worker.rendezvous.communicators import RankWorld
from dlperf_slurm.worker.rendezvous.network import choose_network
from dlperf_slurm.worker.session import Session
from dlperf_slurm.worker.weights import generate_weights, round_as_stored

GRADIENTS_FILE = "gradients.npz"
STEPS = 3

# Some gradients are zero except for rounding (a bias before a softmax), so that a difference cannot
# be relative to their own norm: the denominator is at least this fraction of the global norm.
NORM_FLOOR = 1e-3
HALF_ULP = 2.0**-24
# An element of a gradient below this fraction of its parameter's root mean square has few
# significant digits, because of cancellation. AdamW's g / (|g| + epsilon) amplifies the error
# where g is about epsilon: one of 24,576 elements changed an update's norm by 2.4e-5.
UNCERTAIN_PART = 1e-4
# Smaller numbers have fewer digits in float16: frameworks that unscale and clip gradients in it
# lose them, and AdamW scales what is left up to an update of the usual size.
SMALLEST_NORMAL = {"fp16": 2.0**-14}


class CaseMismatchError(RuntimeError):
    """A model, weights or record that do not match the case, so that no result may be used."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments after `verify` of the worker; exits with 2 for invalid ones."""
    parser = make_parser("verify")
    parser.add_argument(
        "--data-rank", type=int, default=0, help="if there is one rank: use the batch of this rank"
    )
    parser.add_argument(
        "--reference",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help=(
            "folder with the results of another `verify` run to compare with; if given several "
            "times, the mean of their gradients is used"
        ),
    )
    return parser.parse_args(arguments)


def verify_case(
    case: Case,
    world: Union[RankWorld, SingleProcess],
    directory: Path,
    rendezvous: RendezvousSettings,
    references: Sequence[Path],
) -> None:
    """Compute losses, gradients and updates; rank 0 writes the arrays, then parity.json.

    `references` are directories with gradients of other frameworks, with whose mean this one's are
    compared. Raises CaseMismatchError if the model does not have the definition's parameters and
    weights.
    """
    model = load_model(case.model)
    definition = model.Definition(**case.model_parameters)
    rank_info = world.place(case)
    versions = describe_python()
    if not isinstance(world, SingleProcess):
        rank_info = choose_network(rank_info, world, rendezvous)
        versions.update(world.describe_versions())
    if case.device == "cuda" and can_be_deterministic(case):
        make_deterministic(case.axes.framework)
    session = start_session(case, rank_info)
    check_parameter_count(case, session)
    initial_weights = session.read_weights()
    check_weights(
        initial_weights,
        {
            name: round_as_stored(values, case.axes.precision)
            for name, values in generate_weights(definition, case.seed)
        },
    )
    losses = {"initial_evaluation_loss": session.evaluate_loss()}
    initial_gradients: Arrays = {}
    expected = {name: values.astype("float64") for name, values in initial_weights.items()}
    optimizer = make_optimizer(case, definition)
    take_step = Step(session, None, case, 1)
    uncertain: Arrays = {}
    for step in range(STEPS):
        gradients = session.compute_gradients()
        check_shapes(gradients, initial_weights, "gradients")
        optimizer.update(expected, gradients)
        least = SMALLEST_NORMAL.get(case.axes.precision, 0.0)
        for name, gradient in clip_gradients(gradients, optimizer.largest_norm):
            uncertain[name] = uncertain.get(name, False) | find_uncertain(gradient, least)
        take_step()
        if step == 0:
            initial_gradients = gradients
            losses["initial_loss"] = session.read_loss()
    weights = session.read_weights()
    losses["trained_evaluation_loss"] = session.evaluate_loss()
    # the loss of a step is computed before its update
    take_step()
    losses["trained_loss"] = session.read_loss()

    gathered_losses: List[Dict[str, float]] = world.gather(losses)
    gathered_weights: List[Arrays] = world.gather(weights)
    if world.rank == 0:
        write_arrays(directory / GRADIENTS_FILE, initial_gradients)
        means = [read_mean(references)] if references else []
        parity = Parity(
            case=case,
            parameter_count=session.parameter_count,
            gradient_norm=measure_norm(initial_gradients.values()),
            updates=compute_update_difference(
                initial_weights,
                leave_out(weights, expected, uncertain),
                expected,
                model.ZERO_GRADIENTS,
            ),
            ranks=max(
                (compute_difference(others, weights) for others in gathered_weights),
                key=lambda difference: difference.relative,
            ),
            gradients=tuple(compute_difference(initial_gradients, mean) for mean in means),
            versions={**versions, **session.versions},
            device_name=session.device_name or read_cpu_name(),
            code_digest=describe_code()["code_digest"],
            **{name: sum(rank[name] for rank in gathered_losses) / world.size for name in losses},
        )
        write_json(directory / PARITY_FILE, parity)
    session.close()


def check_parameter_count(case: Case, session: Session) -> None:
    """Raise CaseMismatchError unless the model has as many parameters as its definition."""
    expected = load_model(case.model).Definition(**case.model_parameters).parameter_count
    if session.parameter_count != expected:
        raise CaseMismatchError(
            f"{case.axes.framework} built a model with {session.parameter_count} parameters; the "
            f"model's definition has {expected}"
        )


def check_weights(weights: Arrays, expected: Arrays) -> None:
    """Raise CaseMismatchError unless the initial weights are exactly those of the case's seed."""
    check_shapes(weights, expected, "weights")
    for name, values in expected.items():
        if (weights[name] != values).any():
            raise CaseMismatchError(
                f"the initial weights of {name} are not those of the case's seed"
            )


def check_shapes(arrays: Arrays, expected: Arrays, what: str) -> None:
    """Raise CaseMismatchError for the first name or shape that is not expected, or not float32.

    `what` names the arrays in the message, such as "weights".
    """
    unlike = sorted(set(arrays) ^ set(expected))
    if unlike:
        lacks = "definition" if unlike[0] in arrays else "framework's model"
        raise CaseMismatchError(f"{what}: {unlike[0]} is missing in the {lacks}")
    for name, values in expected.items():
        found = (arrays[name].shape, str(arrays[name].dtype))
        if found != (values.shape, "float32"):
            raise CaseMismatchError(
                f"{what}: {name} has shape and type {found}; expected: {values.shape} in float32"
            )


def find_uncertain(gradient: Array, least: float = 0.0) -> Array:
    """Return a mask of a gradient's nonzero elements that are so small that rounding dominates.

    They are small compared to the gradient's root mean square, or below `least`.
    """
    import numpy

    size = numpy.abs(gradient, dtype=numpy.float64)
    return (size > 0) & (size < max(least, UNCERTAIN_PART * math.sqrt(numpy.square(size).mean())))


def leave_out(weights: Arrays, expected: Arrays, uncertain: Arrays) -> Arrays:
    """Return float64 weights, with expected elements where the boolean `uncertain` is true."""
    import numpy

    return {
        name: numpy.where(uncertain[name], expected[name], values.astype("float64"))
        for name, values in weights.items()
    }


def compute_update_difference(
    initial: Arrays, final: Arrays, expected: Arrays, zero_gradients: Tuple[str, ...] = ()
) -> Difference:
    """Find the parameter whose update differs most from the expected one; return that difference.

    It is relative to the expected update's norm, and without the rounding error. An update is the
    final minus the initial weights. Parameters whose names end with one of `zero_gradients` are
    left out: their gradient is nothing but rounding, which AdamW scales up to an arbitrary update
    of the usual size.
    """
    compared = {n: values for n, values in initial.items() if not n.endswith(zero_gradients)}
    return compute_difference(
        {name: final[name].astype("float64") - values for name, values in compared.items()},
        {name: expected[name] - values for name, values in compared.items()},
        {name: STEPS * HALF_ULP * measure_norm([values]) for name, values in compared.items()},
    )


def compute_difference(
    arrays: Arrays, expected: Arrays, rounding: Mapping[str, float] = MappingProxyType({})
) -> Difference:
    """Find the parameter with the largest norm of the difference, relative to the expected norm.

    The expected norm counts as at least NORM_FLOOR, a fraction of that of all parameters together.
    Returns the relative difference, inf if it is not finite, and the parameter; 0.0 and "" if none
    differs. `rounding` is, by parameter, an absolute norm that is subtracted first.
    """
    floor = NORM_FLOOR * measure_norm(expected.values())
    largest = Difference(0.0, "")
    for name, values in expected.items():
        distance = measure_norm([arrays[name].astype("float64") - values])
        # not max(0, ...), which would hide a NaN
        if distance <= rounding.get(name, 0.0):
            continue
        relative = (distance - rounding.get(name, 0.0)) / max(measure_norm([values]), floor)
        if not math.isfinite(relative):
            return Difference(math.inf, name)
        if relative > largest.relative:
            largest = Difference(relative, name)
    return largest


def read_mean(directories: Sequence[Path]) -> Arrays:
    """Read GRADIENTS_FILE in several directories; return the means by parameter, in float64."""
    total: Dict[str, Any] = {}
    for directory in directories:
        for name, values in read_arrays(directory / GRADIENTS_FILE).items():
            total[name] = total.get(name, 0.0) + values.astype("float64") / len(directories)
    return total


def read_arrays(path: Path) -> Arrays:
    import numpy

    with numpy.load(str(path)) as file:
        return {name: file[name] for name in file.files}


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to an .npz file, atomically."""
    import numpy

    buffer = io.BytesIO()
    numpy.savez(buffer, **arrays)
    write_file(path, buffer.getvalue())
