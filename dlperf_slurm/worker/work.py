"""A case on this rank -> what every session needs: network, weights, batch and update rule."""

from importlib import import_module
from typing import Any, Iterator, List, Mapping, Optional, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Array, Arrays
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.synthetic_batch import make_batch
from dlperf_slurm.worker.update_rule import make_rule
from dlperf_slurm.worker.weights import generate_weights

# attention as separate matrix products and a softmax, not as a fused kernel
UNFUSED = "unfused"


class Work:
    """What the session of a case needs on this rank, in plain Python and NumPy.

    `builder` is the module of the case's model in the adapter's `package`.
    """

    def __init__(self, case: Case, rank_info: RankInfo, package: str) -> None:
        self.builder: Any = import_module(f"{package}.{case.model}")
        model = load_model(case.model)
        self.definition: Any = model.Definition(**case.model_parameters)
        # the arrays of a batch that the network takes
        self.inputs = model.INPUTS
        self.has_attention = "attention" in model.LAYERS
        self.rule = make_rule(case, self.definition)
        # the global norm to which gradients are clipped; None without clipping
        self.largest_norm: Optional[float] = (
            self.definition.CLIP_GLOBAL_NORM if case.axes.clip_global_norm else None
        )
        # weights are the same on all ranks, dropout masks are not
        self.dropout_seed = case.seed + 1 + rank_info.rank
        # number of classes if labels are class probabilities (mixup), else 0
        self.classes: int = self.definition.classes if case.training.mixup_alpha else 0
        self._case = case
        self._rank = rank_info.rank

    def take_inputs(self, batch: Mapping[str, Any]) -> List[Any]:
        """Return the arrays of a batch that the network takes as arguments, in its order."""
        return [batch[name] for name in self.inputs]

    def compute_loss(self, logits: Any, batch: Mapping[str, Any]) -> Any:
        """Return the model's loss for the network's logits and the batch that they are of."""
        return self.builder.compute_loss(self.definition, logits, batch)

    def describe_attention(self, kernel: str = UNFUSED) -> str:
        """Return `kernel`, the name of an attention kernel, or '' for a model without attention."""
        return kernel if self.has_attention else ""

    def generate_weights(self) -> Iterator[Tuple[str, Array]]:
        """Yield the initial weights as (canonical name, array), one at a time."""
        return generate_weights(self.definition, self._case.seed)

    def make_batch(self) -> Arrays:
        """Return this rank's synthetic batch, name -> array; for a generation, the prompts only."""
        axes = self._case.axes
        batch = make_batch(self.definition, axes.batch_size, self._case.seed, self._rank)
        if axes.is_generation:
            return {name: values[:, : axes.prompt_length] for name, values in batch.items()}
        return batch
