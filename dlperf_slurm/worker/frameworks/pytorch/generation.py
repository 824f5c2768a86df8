"""A model and its prompts -> the generated tokens, one at a time, with a cache of fixed shape."""

from typing import Any, List

import torch
from torch import Tensor, nn

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.worker.frameworks.pytorch import GRAPH_MODES
from dlperf_slurm.worker.frameworks.pytorch.compiler import compile_function


class Generation:
    """Greedy generation of `output_tokens` tokens for each prompt, int64 [batch, length].

    The model must have `make_cache(batch, length, dtype)` and `predict_next(ids, positions,
    cache)`: ids [batch, length], positions [length] -> logits [batch, vocabulary_size], and fill
    the cache.
    """

    def __init__(self, model: nn.Module, prompts: Tensor, cache_type: torch.dtype, axes: Axes):
        self._plain_model: Any = model
        self._prompts = prompts
        self._output_tokens = axes.output_tokens
        batch, length = prompts.shape
        self._cache = self._plain_model.make_cache(batch, length + axes.output_tokens, cache_type)
        # the positions of the prompt, and of each generated token
        positions = torch.arange(length + axes.output_tokens, device=prompts.device)
        self._prompt_positions = positions[:length]
        self._positions = [position.clone() for position in positions[length:].split(1)]
        self._tokens: List[Tensor] = []
        self._choose = compile_function(self._choose_next, axes.compiler)
        self._has_graphs = axes.compiler in GRAPH_MODES
        if self._has_graphs:
            # a graph that writes to other inputs would not be recorded
            for values in (tensor for layer in self._cache for tensor in layer):
                torch._dynamo.mark_static_address(values)

    def prefill(self) -> None:
        self._tokens = []
        self._append(self._prompts, self._prompt_positions)

    def decode(self) -> None:
        position = self._positions[len(self._tokens) - 1]
        self._append(self._tokens[-1], position)

    def _append(self, ids: Tensor, positions: Tensor) -> None:
        self.logits, token = self._choose(ids, positions)
        # the next run of a graph overwrites its results
        self._tokens.append(token.clone() if self._has_graphs else token)

    @property
    def last(self) -> Tensor:
        """The last token of each sequence, int64 [batch, 1]."""
        return self._tokens[-1]

    def read_tokens(self) -> Any:
        return torch.cat(self._tokens, dim=1).cpu().numpy()

    def continue_without_cache(self) -> Any:
        texts = self._prompts
        for _ in range(self._output_tokens):
            token = self._plain_model(texts)[:, -1].argmax(-1, keepdim=True)
            texts = torch.cat((texts, token), dim=1)
        return texts[:, self._prompts.shape[1] :].cpu().numpy()

    def _choose_next(self, ids: Tensor, positions: Tensor) -> Any:
        logits = self._plain_model.predict_next(ids, positions, self._cache)
        return logits, logits.argmax(-1, keepdim=True)
