"""A case and "train" or "val" -> samples from files, with keys and shapes of synthetic ones."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Dict

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.models import load_model

if TYPE_CHECKING:
    from typing import Protocol

    from numpy.typing import NDArray

    Sample = Dict[str, NDArray[Any]]

    class Dataset(Protocol):
        """Samples by their index; read-only, so that threads share it and processes get a copy.

        It can be pickled. What is random in a sample is a function of seed, epoch and index alone,
        so that neither the number of ranks nor that of loading processes changes what is learnt.
        """

        def __len__(self) -> int: ...

        def read_sample(self, index: int, epoch: int) -> Sample:
            """New arrays: those of a batch of `worker.synthetic_batch`, without its first axis.

            Raises DataError, which names the file, for one that cannot be read.
            """


def open_dataset(case: Case, split: str) -> "Dataset":
    """The files of `case.data_dir` for its model; `split` is "train" or "val".

    The module here that has the name of the model's kind of input reads them. Raises DataError,
    with what to do, for a folder that is not one for the model.
    """
    model = load_model(case.model)
    reader: Any = import_module(f"{__name__}.{model.INPUT}")
    definition = model.Definition(**case.model_parameters)
    dataset: "Dataset" = reader.open_folder(case.data_dir, split, definition, case.seed)
    return dataset
