"""A case on this rank -> what any session is made of: network, weights, batch and update rule."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.synthetic_batch import make_batch
from dlperf_slurm.worker.update_rule import make_rule
from dlperf_slurm.worker.weights import generate_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

# of attention: products and a softmax, one after the other
WRITTEN_OUT = "written out"


class Work:
    """What a case asks of a rank, in plain Python and NumPy.

    `builder` is the module of the case's model in the adapter's `package`.
    """

    def __init__(self, case: Case, placement: Placement, package: str) -> None:
        self.builder: Any = import_module(f"{package}.{case.model}")
        model = load_model(case.model)
        self.definition: Any = model.Definition(**case.model_parameters)
        # the names of what the network takes of a batch
        self.inputs = model.INPUTS
        self.has_attention = "attention" in model.LAYERS
        self.rule = make_rule(case, self.definition)
        # of all gradients together, where they are clipped
        self.largest_norm: Optional[float] = (
            self.definition.CLIP_GLOBAL_NORM if case.axes.clip_global_norm else None
        )
        # The same weights on all ranks, but dropout of their own.
        self.dropout_seed = case.seed + 1 + placement.rank
        # of labels that are probabilities; 0 where they are numbers
        self.classes: int = self.definition.classes if case.training.mixup_alpha else 0
        self._case = case
        self._rank = placement.rank

    def take_inputs(self, batch: Mapping[str, Any]) -> List[Any]:
        """What the network takes of a batch of any framework's arrays, in its order."""
        return [batch[name] for name in self.inputs]

    def compute_loss(self, logits: Any, batch: Mapping[str, Any]) -> Any:
        """The builder's, of what the network gave and the batch that this was of."""
        return self.builder.compute_loss(self.definition, logits, batch)

    def name_attention(self, kernel: str = WRITTEN_OUT) -> str:
        """The kernel that the adapter has for it; empty for a model without."""
        return kernel if self.has_attention else ""

    def generate_weights(self) -> "Iterator[Tuple[str, NDArray[Any]]]":
        """The initial weights by canonical name, one at a time."""
        return generate_weights(self.definition, self._case.seed)

    def make_batch(self) -> "Dict[str, NDArray[Any]]":
        """This rank's own batch; of texts to be continued, the prompts alone."""
        axes = self._case.axes
        batch = make_batch(self.definition, axes.batch_size, self._case.seed, self._rank)
        if axes.is_generation:
            return {name: values[:, : axes.prompt_length] for name, values in batch.items()}
        return batch
