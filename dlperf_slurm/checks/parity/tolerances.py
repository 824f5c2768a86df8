"""Parity files of two runs -> relative differences against tolerances, and table rows; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.config.folders import CUDA
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.parity import Parity
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.parity import NORM_FLOOR, STEPS
from dlperf_slurm.worker.update_rule import ADAMW, make_rule

LOSS_TOLERANCE = 1e-5
GRADIENT_NORM_TOLERANCE = 1e-4
TRAINED_LOSS_TOLERANCE = 1e-3
# Three steps against the update rule in float64, with the same gradients: 3e-7 was measured if they
# agree, 2e-4 without weight decay of BERT's matrices. Excludes the model's ZERO_GRADIENTS.
UPDATE_TOLERANCE = 1e-5
DATA_PARALLEL_TOLERANCE = 1e-4
RANK_TOLERANCE = 1e-6
# On a GPU cuDNN may compute a convolution by Winograd or FFT, and sums are in another order. Five
# times the tolerances above still find the errors of interest: the tanh form of GELU changes a
# gradient of BERT by 6e-5, a matrix without weight decay an update by 2e-4.
GPU_FACTOR = 5.0
# On a GPU the seed of `verify` may leave values near the kink of a ReLU: one that rounding moves
# across the kink changes a gradient by up to 5e-2 (see the tolerance of ResNet-50), but hardly the
# losses and the gradient norm.
GPU_KINK_TOLERANCE = 1e-1

# Half the distance between 1 and the next larger number in the format of a product's factors.
# Sums are in fp32 in all of these precisions.
UNIT_ROUNDOFFS = {
    "tf32": 2.0**-11,
    "amp-fp16": 2.0**-11,
    "fp16": 2.0**-11,
    "amp-bf16": 2.0**-8,
    "bf16": 2.0**-8,
}
# Precisions that store weights, gradients and the optimizer's state in 16 bits too.
STORED_PRECISIONS = ("bf16", "fp16")
# In each of three steps, clipping rounds a gradient and storing rounds a moment or velocity. An
# update with a relative error e may move weights to another 16-bit number: the square of the
# difference is then at most 2 e times the square of the update.
UPDATE_ROUNDINGS = 2 * STEPS
# N roundings in sequence differ by at most DEVIATIONS * sqrt(N) units, except with probability
# 2 exp(-DEVIATIONS^2 / 2) = 7e-4 (Higham & Mary 2019, theorem 2.4).
DEVIATIONS = 4.0
# About 12 results of each of the two layers, forward and backward, are factors of another product.
GRADIENT_ROUNDINGS = 50
# A loss is a mean over samples, whose roundings cancel: that of the logits remains.
LOSS_ROUNDINGS = 1
# The ReLUs of ResNet-50's verification: the stem's, and three in each of five blocks. Rounding that
# changes normalized values by a share e of their deviation moves e / pi of them across the kink,
# and a gradient by sqrt(2 e / pi) per ReLU. On average half of the roundings are before a ReLU.
RELUS = 16
# Gradients with few values may exceed this estimate: a change of up to 1.5 times was measured.
KINK_DEVIATIONS = 2.0
# Gradients nearer to those in fp32 than this share of one rounding were not computed in a reduced
# precision: products of fp32 numbers differ by 1e-6, the least that was measured is 1 rounding.
LEAST_ROUNDINGS = 1 / 8

_LOSS = ("loss", "initial_loss", LOSS_TOLERANCE, LOSS_ROUNDINGS)
_TRAINED_LOSS = ("loss after 3 steps", "trained_loss", TRAINED_LOSS_TOLERANCE, LOSS_ROUNDINGS)
# columns of the parity table, in order: title, attribute of Parity, tolerance, roundings
_QUANTITIES = (
    ("parameters", "parameter_count", 0.0, 0),
    _LOSS,
    ("evaluation loss", "initial_evaluation_loss", LOSS_TOLERANCE, LOSS_ROUNDINGS),
    ("gradient norm", "gradient_norm", GRADIENT_NORM_TOLERANCE, GRADIENT_ROUNDINGS),
    _TRAINED_LOSS,
    (
        "evaluation loss after 3 steps",
        "trained_evaluation_loss",
        TRAINED_LOSS_TOLERANCE,
        LOSS_ROUNDINGS,
    ),
)


@dataclass(frozen=True)
class ParityCheck:
    """One compared quantity of a run: its value, and its relative difference from the reference.

    `parameter` names the model parameter with the largest difference, for gradients and updates.
    """

    quantity: str
    value: float
    difference: float
    tolerance: float
    parameter: str = ""

    @property
    def is_within(self) -> bool:
        """Whether the difference is within the tolerance; False for a NaN."""
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        where = f" in {self.parameter}" if self.parameter else ""
        return (
            f"{self.quantity} differs by {self.difference:.1e}{where} (tolerance: "
            f"{self.tolerance:.0e})"
        )


@dataclass(frozen=True)
class Agreement:
    """One line of a table: the checks of a run against its reference, or why there are none.

    `variant` is "clip" or "no clipping", or the gradient_sync, and what else is not as in fp32
    without compiler; `problem` is "" if the checks were made. `found` is what the run computed.
    """

    framework: str
    model: str
    variant: str
    reference: str
    checks: tuple[ParityCheck, ...] = ()
    problem: str = ""
    # True without an environment or if the adapter does not support the case: not a difference
    is_left_out: bool = False
    found: Optional[Parity] = None

    @property
    def names(self) -> list[str]:
        """The cells of a table row that name the comparison: framework, model and variant."""
        return [self.framework, self.model, self.variant]

    @property
    def verdict(self) -> str:
        """The problem, else the checks that exceed their tolerance, joined by "; ", else "same"."""
        if self.problem:
            return self.problem
        return "; ".join(str(check) for check in self.checks if not check.is_within) or "same"

    @property
    def largest_difference(self) -> float:
        """The largest relative difference of all checks: infinite if one is NaN, 0 for none."""
        differences = [check.difference for check in self.checks]
        return math.inf if any(map(math.isnan, differences)) else max(differences, default=0.0)

    @property
    def is_same(self) -> bool:
        return not self.problem and all(check.is_within for check in self.checks)


def compare_frameworks(found: Parity, expected: Parity) -> tuple[ParityCheck, ...]:
    """Check each quantity of a framework's run against the reference framework's run of the case.

    `found` and `expected` are what the two runs wrote to parity.json.
    """
    return (
        *(_compare(found, expected, *quantity) for quantity in _QUANTITIES),
        check_gradients(found, choose_gradient_tolerance(found.case, expected.gradient_norm)),
        check_updates(found),
    )


def choose_gradient_tolerance(case: Case, gradient_norm: float) -> float:
    """Return the tolerance for the relative difference of a gradient from the reference.

    It depends on the case's model, device, precision, and the norm of all reference gradients.
    """
    model = load_model(case.model)
    tolerance = widen(model.VERIFICATION.gradient_tolerance, case, GRADIENT_ROUNDINGS)
    if model.HAS_BATCH_STATISTICS and case.device == CUDA and not get_unit_roundoff(case):
        return max(tolerance, GPU_KINK_TOLERANCE)
    parameters = model.Definition(**case.model_parameters).list_parameters()
    if is_stored_in_16_bits(case) and min(one.size for one in parameters) == 2:
        # The loss has log p of each class in 16 bits, so that p moves by up to u p |log p|, at most
        # u / e: in all samples alike, and with it the bias of a layer of two classes, whose
        # gradient may be as small as the least norm that differences are relative to.
        moved = math.sqrt(2) * get_unit_roundoff(case) / math.e
        tolerance = max(tolerance, moved / (NORM_FLOOR * gradient_norm))
    return max(tolerance, KINK_DEVIATIONS * estimate_kink_change(case))


def estimate_kink_change(case: Case) -> float:
    """Estimate the relative change of gradients when rounding moves values across kinks.

    A kink is the zero of a ReLU, where its derivative jumps; 0 for models without ReLUs.
    """
    # models with batch normalization are those with ReLUs
    relus = RELUS if load_model(case.model).HAS_BATCH_STATISTICS else 0
    moved = math.sqrt(GRADIENT_ROUNDINGS / 2) * get_unit_roundoff(case) / math.pi
    return math.sqrt(relus * 2 * moved)


def is_stored_in_16_bits(case: Case) -> bool:
    """Return whether the case's weights, gradients and optimizer state have 16 bits."""
    return case.axes.precision in STORED_PRECISIONS


def get_unit_roundoff(case: Case) -> float:
    """Return the unit roundoff of the case's precision; 0 for fp32."""
    return UNIT_ROUNDOFFS.get(case.axes.precision, 0.0)


def widen(tolerance: float, case: Case, roundings: int = 0) -> float:
    """Return a tolerance for the case's device and precision; `tolerance` is for fp32 on CPUs.

    `roundings` is the number of results in sequence that a reduced precision rounds.
    """
    wide = GPU_FACTOR * tolerance if case.device == CUDA else tolerance
    return max(wide, DEVIATIONS * math.sqrt(roundings) * get_unit_roundoff(case))


def find_precision_problem(found: Parity) -> str:
    """Return a message if gradients equal those in fp32 too closely for the case's precision.

    The framework has then probably computed in fp32. Returns "" if the gradients differ enough.
    """
    precision = found.case.axes.precision
    least = LEAST_ROUNDINGS * get_unit_roundoff(found.case)
    difference = found.gradients[0].relative
    if difference >= least:
        return ""
    return (
        f"probably not computed in {precision}: gradients differ from those in fp32 by only "
        f"{difference:.1e}"
    )


def compare_ranks(found: Parity, expected: Parity) -> tuple[ParityCheck, ...]:
    """Check a run on two ranks against the same work on one rank, quantity by quantity.

    `found` and `expected` are from parity.json: `found` has the difference of its gradients from
    the mean that is expected; `expected` is a run whose mean losses must be the same.
    """
    return (
        check_gradients(found, widen(DATA_PARALLEL_TOLERANCE, found.case, GRADIENT_ROUNDINGS)),
        check_updates(found),
        ParityCheck(
            "model weights, compared between ranks", 0.0, found.ranks.relative, RANK_TOLERANCE
        ),
        _compare(found, expected, *_LOSS),
        _compare(found, expected, *_TRAINED_LOSS),
    )


def check_gradients(found: Parity, tolerance: float) -> ParityCheck:
    """Check the gradients' largest relative difference from the reference against `tolerance`.

    `found` is from parity.json, which has the largest difference over all model parameters.
    """
    worst = found.gradients[0]
    return ParityCheck("gradients", found.gradient_norm, worst.relative, tolerance, worst.parameter)


def check_updates(found: Parity) -> ParityCheck:
    """Check the largest difference of the optimizer's updates from the model's update rule."""
    tolerance = widen(UPDATE_TOLERANCE, found.case)
    if is_stored_in_16_bits(found.case):
        tolerance = math.sqrt(2 * UPDATE_ROUNDINGS * get_unit_roundoff(found.case))
    return ParityCheck("updates", 0.0, found.updates.relative, tolerance, found.updates.parameter)


def _compare(
    found: Parity, expected: Parity, text: str, name: str, tolerance: float, roundings: int
) -> ParityCheck:
    """Check one quantity, the field `name` of parity.json, of a run against the expected run.

    `text` names it in tables. `tolerance` and `roundings` are as in `widen`.
    """
    value, reference = getattr(found, name), getattr(expected, name)
    difference = abs(value - reference) / abs(reference) if reference else abs(value)
    tolerance = widen(tolerance, found.case, roundings)
    if name.startswith("trained"):
        # A gradient with a random relative error r keeps 1 - r^2 / 2 of its direction, so that the
        # steps along it reduce the loss by this share of what they should.
        tolerance = max(tolerance, estimate_kink_change(found.case) ** 2 / 2)
        if is_stored_in_16_bits(found.case):
            # updates below half the spacing of 16-bit weights are lost: up to all of them
            start = getattr(expected, name.replace("trained", "initial"))
            lost = abs(start - reference) / abs(reference)
            definition = load_model(found.case.model).Definition(**found.case.model_parameters)
            is_adamw = make_rule(found.case, definition).name == ADAMW
            # its second moments below 2^-25 become 0 in fp16: weights then move too far
            is_far = is_adamw and found.case.axes.precision == "fp16"
            tolerance += 2 * lost if is_far else lost
    return ParityCheck(text, value, difference, tolerance)


PARITY_HEADER = ("framework", "model", "variant", "parameters", "loss", "evaluation",
    "gradient norm", "after 3 steps", "evaluation", "gradients", "updates", "largest",
    "verdict")  # fmt: skip


def make_parity_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    """Make the rows of the parity table, one per comparison: name, values, differences, verdict."""
    return [
        [*agreement.names, *_show_parity(agreement), agreement.verdict] for agreement in agreements
    ]


def _show_parity(agreement: Agreement) -> list[str]:
    """Format the checks of a comparison as cells of the parity table, all "-" without checks."""
    if not agreement.checks:
        return ["-"] * (len(PARITY_HEADER) - 4)
    count, *figures, gradients, updates = agreement.checks
    return [
        f"{count.value:,.0f}",
        *(f"{check.value:.6f} {check.difference:.0e}" for check in figures),
        f"{gradients.difference:.0e}",
        f"{updates.difference:.0e}",
        f"{agreement.largest_difference:.0e}",
    ]


DATA_PARALLEL_HEADER = ("framework", "model", "variant", "averaged gradient compared with",
    "gradients", "updates", "ranks", "loss", "after 3 steps", "verdict")  # fmt: skip


def make_data_parallel_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    """Make the rows of the data-parallel table, one per comparison: names, differences, verdict."""
    empty = ["-"] * (len(DATA_PARALLEL_HEADER) - 5)
    return [
        [
            *agreement.names,
            agreement.reference,
            *([f"{check.difference:.0e}" for check in agreement.checks] or empty),
            agreement.verdict,
        ]
        for agreement in agreements
    ]
