"""A session and a data set -> training over epochs, each followed by a validation."""

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator, List, Tuple

from dlperf_slurm.contract.case import COSINE, Case, Training
from dlperf_slurm.contract.record import Epoch
from dlperf_slurm.worker.annotations import Array, Arrays
from dlperf_slurm.worker.datasets import Dataset, open_dataset
from dlperf_slurm.worker.datasets.batches import (
    FileOrder,
    collate,
    list_indices,
    split_for_validation,
)
from dlperf_slurm.worker.datasets.description import TRAIN_SPLIT, VAL_SPLIT
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.measure import BOUNDARY_SAMPLES, Measurement, Step, measure_boundary
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.progress import END, MEASURED, Position
from dlperf_slurm.worker.ranks import World
from dlperf_slurm.worker.session import Session
from dlperf_slurm.worker.telemetry import Sampler
from dlperf_slurm.worker.update_rule import make_rule

VALIDATION = "validation"

# a random stream of its own, so that mixup does not change other random draws of a sample
_MIXING_STREAM = 1


def train_to_accuracy(
    session: Session,
    world: World,
    case: Case,
    rank_info: RankInfo,
    sampler: Sampler,
    position: Position,
) -> Measurement:
    """Train over the case's epochs, or up to the first that reaches the target accuracy.

    All training steps from the first on are measured, without a warm-up; the time of the
    validations between them is not. The samples of the telemetry include the validations.
    `position` receives the progress for the watchdog.
    """
    trainer = Trainer(session, world, case, rank_info, position)
    sampler.start_window()
    start = time.perf_counter()
    epochs: List[Epoch] = []
    for number in range(1, case.training.epochs + 1):
        training_seconds = trainer.train(number - 1)
        top1, validation_loss = trainer.validate()
        epochs.append(
            Epoch(
                number=number,
                top1=top1,
                validation_loss=validation_loss,
                training_loss=session.read_loss(),
                training_seconds=training_seconds,
                elapsed_seconds=time.perf_counter() - start,
            )
        )
        if case.training.target_top1 and top1 >= case.training.target_top1:
            break
    sampler.end_window()
    position.enter(END)
    clock = session.make_clock(BOUNDARY_SAMPLES + 1)
    steps = len(trainer.step_seconds)
    return Measurement(
        step_seconds=trainer.step_seconds,
        warmup_step_seconds=[],
        window_seconds=sum(epoch.training_seconds for epoch in epochs),
        clock=clock.name,
        boundary_seconds=measure_boundary(session, clock),
        data_wait_seconds=trainer.step.wait_seconds[:steps],
        epochs=tuple(epochs),
        trained_samples=steps * case.global_batch_size,
    )


class Trainer:
    """Training and validation on one rank; `step_seconds` has the steps of all epochs so far."""

    def __init__(
        self,
        session: Session,
        world: World,
        case: Case,
        rank_info: RankInfo,
        position: Position,
    ) -> None:
        definition: Any = load_model(case.model).Definition(**case.model_parameters)
        dataset = open_training_data(case, definition.classes)
        order = FileOrder(case, rank_info, len(dataset))
        batches: Iterator[Any] = session.open_pipeline(dataset, order)
        self.steps_per_epoch = order.batches_per_epoch // case.axes.gradient_accumulation
        steps = self.steps_per_epoch * case.training.epochs
        self.step = Step(session, batches, case, steps)
        self.step_seconds: List[float] = []
        self._base_rate = make_rule(case, definition).learning_rate
        self._session = session
        self._world = world
        self._case = case
        self._position = position
        self._validation_data = open_dataset(case, VAL_SPLIT)
        self._validation_batches = split_for_validation(
            list_indices(len(self._validation_data), case.seed, 0, is_shuffled=False),
            rank_info.rank,
            rank_info.world_size,
            case.axes.batch_size,
        )
        self._readers = ThreadPoolExecutor(case.axes.data_workers)

    def train(self, epoch: int) -> float:
        """Run the steps of an epoch (0-based) and return its seconds, synchronized at both ends."""
        clock = self._session.make_clock(self.steps_per_epoch + 1)
        self._position.enter(f"{MEASURED}, epoch {epoch + 1}", self.steps_per_epoch, clock)
        self._session.synchronize()
        self._world.barrier()
        start = time.perf_counter()
        clock.mark(0)
        for index in range(self.steps_per_epoch):
            # the schedule is evaluated in the middle of the step
            progress = epoch + (index + 0.5) / self.steps_per_epoch
            rate = compute_learning_rate(self._case.training, self._base_rate, progress)
            self._session.set_learning_rate(rate)
            self.step()
            clock.mark(index + 1)
            self._position.step = index + 1
        self._session.synchronize()
        seconds = time.perf_counter() - start
        self.step_seconds += clock.read_step_seconds()
        self._position.enter(VALIDATION)
        self._position.keep(self.step_seconds)
        return seconds

    def validate(self) -> Tuple[float, float]:
        """Return top-1 accuracy (0 ... 1) and mean loss on all ranks' validation data, untimed."""
        sums = self._world.exchange(self._validate_own())
        right, loss, count = (sum(part) for part in zip(*sums))
        return right / count, loss / count

    def _validate_own(self) -> Tuple[int, float, int]:
        """Validate this rank's batches; return correct samples, sum of losses, count of samples."""
        right, loss, count = 0, 0.0, 0
        for indices in self._validation_batches:
            batch = collate(list(self._readers.map(self._read, indices.tolist())))
            logits = self._session.predict(batch)
            right += int((logits.argmax(axis=1) == batch["labels"]).sum())
            loss += sum_losses(logits, batch["labels"])
            count += len(indices)
            self._position.step += 1
        return right, loss, count

    def _read(self, index: int) -> Arrays:
        return self._validation_data.read_sample(index, 0)


def open_training_data(case: Case, classes: int) -> Dataset:
    """Open the case's training data; mixup, if used, makes labels probabilities of `classes`."""
    dataset = open_dataset(case, TRAIN_SPLIT)
    if not case.training.mixup_alpha:
        return dataset
    return MixupImages(dataset, classes, case.training.mixup_alpha, case.seed)


def compute_learning_rate(training: Training, base_rate: float, progress: float) -> float:
    """Compute the learning rate after `progress` epochs; `base_rate` is that after the warm-up.

    Linear from 0 over the warm-up (Goyal et al. 2017, arXiv:1706.02677), then constant, or cosine
    decay to 0 at the end (Loshchilov and Hutter 2016, arXiv:1608.03983, without restarts).
    """
    if progress < training.warmup_epochs:
        return base_rate * progress / training.warmup_epochs
    if training.schedule != COSINE:
        return base_rate
    rest = (progress - training.warmup_epochs) / (training.epochs - training.warmup_epochs)
    return base_rate * 0.5 * (1 + math.cos(math.pi * rest))


def sum_losses(logits: Array, labels: Array) -> float:
    """Sum the cross-entropies of logits [batch, classes] and labels [batch], in float64."""
    import numpy

    shifted = logits.astype(numpy.float64) - logits.max(axis=1, keepdims=True)
    chosen = numpy.take_along_axis(shifted, labels[:, None], axis=1)[:, 0]
    return float((numpy.log(numpy.exp(shifted).sum(axis=1)) - chosen).sum())


class MixupImages:
    """A data set of images with mixup: samples blended in pairs (Zhang et al. 2017, 1710.09412).

    A sample's own weight is Beta(alpha, alpha) distributed, its partner a uniformly chosen sample.
    Both depend on seed, epoch and index alone, so that a sample is the same on any rank; the cost
    is that two images are decoded per sample.
    """

    def __init__(self, dataset: Dataset, classes: int, alpha: float, seed: int) -> None:
        self._dataset = dataset
        self._classes = classes
        self._alpha = alpha
        self._seed = seed

    def __len__(self) -> int:
        return len(self._dataset)

    def read_sample(self, index: int, epoch: int) -> Arrays:
        """Return the mixed images and labels: float32 [classes], the probability of each class."""
        import numpy

        random = numpy.random.RandomState([self._seed, epoch, index, _MIXING_STREAM])
        share = numpy.float32(random.beta(self._alpha, self._alpha))
        partner = random.randint(len(self._dataset))
        parts = [self._dataset.read_sample(i, epoch) for i in (index, partner)]
        labels: Array = numpy.zeros(self._classes, numpy.float32)
        for part, weight in zip(parts, (share, 1 - share)):
            labels[part["labels"]] += weight
        images = share * parts[0]["images"] + (1 - share) * parts[1]["images"]
        return {"images": images, "labels": labels}
