"""Records of a case that trained to accuracy -> what it reached, over its seeds, and how soon."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.record import Record
from dlperf_slurm.stats.median import find_median


@dataclass(frozen=True)
class Accuracy:
    """What trainings to accuracy came to, over their seeds.

    `top1` is by seed, after its last epoch, a fraction of the validation samples; `deviation` is
    their standard deviation (n - 1), None for a single one. `reached` is how many seeds reached the
    target, None without one, and `epochs` the median number of epochs that were run.
    `target` is the least top-1 asked for, 0 for none.
    """

    top1: tuple[float, ...] = ()
    average: Optional[float] = None
    deviation: Optional[float] = None
    epochs: Optional[float] = None
    reached: Optional[int] = None
    target: float = 0.0


def find_accuracy(records: Sequence[Record]) -> Accuracy:
    """All of it is empty for records that did not train to accuracy."""
    trained = [record for record in records if record.epochs]
    top1 = tuple(record.epochs[-1].top1 for record in trained)
    targets = [record.case.training.target_top1 for record in trained]
    reached = [value >= target for value, target in zip(top1, targets)]
    return Accuracy(
        top1=top1,
        average=statistics.fmean(top1) if top1 else None,
        deviation=statistics.stdev(top1) if len(top1) > 1 else None,
        epochs=find_median(float(len(record.epochs)) for record in trained),
        reached=sum(reached) if any(targets) else None,
        target=max(targets, default=0.0),
    )


def find_train_seconds(record: Record) -> Optional[float]:
    """From the first step to the end of the last epoch's validation; None without epochs."""
    return record.epochs[-1].elapsed_seconds if record.epochs else None
