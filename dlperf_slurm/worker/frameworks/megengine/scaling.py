"""The loss scale of a case -> MegEngine's scaler, dynamic or with a constant scale."""

from typing import Optional

from megengine import amp

from dlperf_slurm.contract.case import Case


def make_scaler(case: Case) -> Optional[amp.GradScaler]:
    """None where nothing is scaled."""
    if case.axes.constant_loss_scale:
        # by this interval it neither looks for an overflow nor changes the scale
        return amp.GradScaler(init_scale=case.axes.constant_loss_scale, growth_interval=0)
    # It reads the overflow flag back in every step.
    return amp.GradScaler() if case.axes.precision == "amp-fp16" else None
