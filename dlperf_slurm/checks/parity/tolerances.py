"""Parity files of two runs -> relative differences against tolerances, and table rows; pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dlperf_slurm.config.folders import CUDA
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.parity import Parity
from dlperf_slurm.worker.models import load_model

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

_LOSS = ("loss", "initial_loss", LOSS_TOLERANCE)
_TRAINED_LOSS = ("loss after 3 steps", "trained_loss", TRAINED_LOSS_TOLERANCE)
# columns of the parity table, in order: title, attribute of Parity, tolerance
_QUANTITIES = (
    ("parameters", "parameter_count", 0.0),
    _LOSS,
    ("evaluation loss", "initial_evaluation_loss", LOSS_TOLERANCE),
    ("gradient norm", "gradient_norm", GRADIENT_NORM_TOLERANCE),
    _TRAINED_LOSS,
    ("evaluation loss after", "trained_evaluation_loss", TRAINED_LOSS_TOLERANCE),
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
        # a NaN is not within any tolerance: comparisons with NaN are false
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        where = f" in {self.parameter}" if self.parameter else ""
        return f"{self.quantity} differs by {self.difference:.1e} > {self.tolerance:.0e}{where}"


@dataclass(frozen=True)
class Agreement:
    """One line of a table: the checks of a run against its reference, or why there are none.

    `variant` is "clip" or "no clip", or the gradient_sync; `problem` is "" if the checks were made.
    """

    framework: str
    model: str
    variant: str
    reference: str
    checks: tuple[ParityCheck, ...] = ()
    problem: str = ""
    # True without an environment or if the adapter does not support the case: not a difference
    is_left_out: bool = False

    @property
    def verdict(self) -> str:
        """The problem, or the checks that exceed their tolerance, or "same"."""
        if self.problem:
            return self.problem
        return "; ".join(str(check) for check in self.checks if not check.is_within) or "same"

    @property
    def largest_difference(self) -> float:
        """The largest difference over all checks; infinite if one is NaN."""
        differences = [check.difference for check in self.checks]
        return math.inf if any(map(math.isnan, differences)) else max(differences, default=0.0)

    @property
    def is_same(self) -> bool:
        return not self.problem and all(check.is_within for check in self.checks)


def compare_frameworks(found: Parity, expected: Parity) -> tuple[ParityCheck, ...]:
    """Compare one framework's run with the reference framework's run of the same case.

    `found` and `expected` are what the two runs wrote to parity.json.
    """
    return (
        *(_compare(found, expected, *quantity) for quantity in _QUANTITIES),
        check_gradients(found, choose_gradient_tolerance(found.case)),
        check_updates(found),
    )


def choose_gradient_tolerance(case: Case) -> float:
    """Return how much a parameter's gradient may differ from the reference, relatively.

    It depends on the case's model and device.
    """
    model = load_model(case.model)
    tolerance = widen(model.VERIFICATION.gradient_tolerance, case)
    # models with batch normalization are those with ReLUs
    has_kinks = case.device == CUDA and model.HAS_BATCH_STATISTICS
    return max(tolerance, GPU_KINK_TOLERANCE) if has_kinks else tolerance


def widen(tolerance: float, case: Case) -> float:
    """Return a tolerance for the case's device: larger on GPUs; `tolerance` is the one on CPUs."""
    return GPU_FACTOR * tolerance if case.device == CUDA else tolerance


def compare_ranks(found: Parity, expected: Parity) -> tuple[ParityCheck, ...]:
    """Compare a run on two ranks with the same work on one rank.

    `found` contains the difference of its gradients from the expected mean over the ranks;
    `expected` is a run whose mean losses must be the same.
    """
    return (
        check_gradients(found, widen(DATA_PARALLEL_TOLERANCE, found.case)),
        check_updates(found),
        ParityCheck("weights of the ranks", 0.0, found.ranks.relative, RANK_TOLERANCE),
        _compare(found, expected, *_LOSS),
        _compare(found, expected, *_TRAINED_LOSS),
    )


def check_gradients(found: Parity, tolerance: float) -> ParityCheck:
    """Check the gradients' largest difference from the reference, over the parameters."""
    worst = found.gradients[0]
    return ParityCheck("gradients", found.gradient_norm, worst.relative, tolerance, worst.parameter)


def check_updates(found: Parity) -> ParityCheck:
    """Check the largest difference of the optimizer's updates from the model's update rule."""
    tolerance = widen(UPDATE_TOLERANCE, found.case)
    return ParityCheck("updates", 0.0, found.updates.relative, tolerance, found.updates.parameter)


def _compare(
    found: Parity, expected: Parity, text: str, name: str, tolerance: float
) -> ParityCheck:
    """Check one quantity of two runs: its title, attribute of Parity and tolerance on CPUs."""
    value, reference = getattr(found, name), getattr(expected, name)
    difference = abs(value - reference) / abs(reference) if reference else abs(value)
    return ParityCheck(text, value, difference, widen(tolerance, found.case))


PARITY_HEADER = (
    "framework",
    "model",
    "clip",
    "parameters",
    "loss",
    "evaluation",
    "gradient norm",
    "after 3 steps",
    "evaluation",
    "gradients",
    "updates",
    "largest",
    "verdict",
)


def make_parity_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    """Make the rows of the parity table: values, relative differences, then the verdict."""
    return [
        [*_name(agreement, agreement.variant), *_show_parity(agreement), agreement.verdict]
        for agreement in agreements
    ]


def _show_parity(agreement: Agreement) -> list[str]:
    """Format the checks of a run for the parity table; "-" where there are none."""
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


DATA_PARALLEL_HEADER = (
    "framework",
    "model",
    "gradient_sync",
    "averaged gradient against",
    "gradients",
    "updates",
    "ranks",
    "loss",
    "after 3 steps",
    "verdict",
)


def make_data_parallel_rows(agreements: Sequence[Agreement]) -> list[list[str]]:
    """Make the rows of the data-parallel table: relative differences, then the verdict."""
    empty = ["-"] * (len(DATA_PARALLEL_HEADER) - 5)
    return [
        [
            *_name(agreement, agreement.variant),
            agreement.reference,
            *([f"{check.difference:.0e}" for check in agreement.checks] or empty),
            agreement.verdict,
        ]
        for agreement in agreements
    ]


def _name(agreement: Agreement, variant: str) -> list[str]:
    return [agreement.framework, agreement.model, variant]
