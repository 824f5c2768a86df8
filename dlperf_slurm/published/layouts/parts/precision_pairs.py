"""Figures -> the precisions that NVIDIA's tables show side by side, and their names there."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.published.layouts.parts.document import Document
from dlperf_slurm.published.layouts.parts.figures import Figure
from dlperf_slurm.results.ratios import choose_reference

PRECISION_NAMES = {
    "amp-fp16": "mixed precision",
    "amp-bf16": "mixed precision (BF16)",
    "tf32": "TF32",
    "fp32": "FP32",
}


@dataclass(frozen=True)
class PrecisionPair:
    """The precisions that a table compares, "amp-fp16" and "fp32"; a missing one is ""."""

    reduced: str
    reference: str

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that are not missing, the reduced one first."""
        return tuple(precision for precision in (self.reduced, self.reference) if precision)

    @property
    def is_complete(self) -> bool:
        return len(self.precisions) == 2


def pair_precisions(figures: Sequence[Figure], draft: Document) -> list[PrecisionPair]:
    """Return pairs of a reduced and the full precision, one for each table.

    If the figures have only one of the two, the other is "", and a note in `draft` says so.
    """
    precisions = dict.fromkeys(figure.precision for figure in figures)
    measured = {figure.precision for figure in figures if figure.samples_per_s is not None}
    reference = choose_reference(measured or precisions)
    pairs = [PrecisionPair(name, reference) for name in precisions if name != reference]
    mode = "inference" if figures[0].mode == INFER else "training"
    what = f"{figures[0].label} {figures[0].model} {mode}"
    if not pairs:
        name = format_precision(reference)
        draft.note(f"{what}: measured only in {name}, so there is no speedup over {name}")
    elif not reference:
        draft.note(f"{what}: no figures in TF32 or FP32, so no speedup over them")
    return pairs or [PrecisionPair("", reference)]


def format_precision(precision: str) -> str:
    """Return NVIDIA's name of a precision: "mixed precision" for "amp-fp16", "FP32" for "fp32"."""
    return PRECISION_NAMES.get(precision, precision.upper())
