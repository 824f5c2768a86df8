"""A case and "train" or "val" -> samples from files, with the keys and shapes of synthetic ones."""

from importlib import import_module
from typing import Any

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Arrays, Protocol
from dlperf_slurm.worker.models import load_model


class Dataset(Protocol):
    """Samples by index; read-only, so that threads can share it and processes get a copy.

    It can be pickled. Randomness in a sample depends on seed, epoch and index only, so that
    neither the number of ranks nor that of loader processes changes the training result.
    """

    def __len__(self) -> int: ...

    def read_sample(self, index: int, epoch: int) -> Arrays:
        """Return a sample as new arrays: a batch of `worker.synthetic_batch` less an axis.

        Raises DataError, naming the file, if a file cannot be read.
        """


def open_dataset(case: Case, split: str) -> Dataset:
    """Open the files of `case.data_dir` for the case's model; `split` is "train" or "val".

    Returns the samples by index: a `Folder` of the module here that the model's kind of input
    names, such as "images". Raises DataError, with a remedy, if the files do not fit the model.
    """
    model = load_model(case.model)
    reader: Any = import_module(f"{__name__}.{model.INPUT}")
    definition = model.Definition(**case.model_parameters)
    dataset: Dataset = reader.Folder(case.data_dir, split, definition, case.seed)
    return dataset
