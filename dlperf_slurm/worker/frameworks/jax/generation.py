"""A model and its prompts -> the generated tokens, one at a time, with a cache of fixed shape."""

from typing import Any, List, NamedTuple

import jax
import numpy
from jax import Array
from jax import numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.worker.frameworks.jax.device import RANKS
from dlperf_slurm.worker.frameworks.jax.forward import (
    Forward,
    State,
    compile_over_ranks,
    make_state_specs,
)

# in inference weights are not sharded
STATE_SPECS = make_state_specs(P(), P())


class Next(NamedTuple):
    """What a prefill or decode step returns; `position` is that of `token` [batch, 1]."""

    token: Array
    logits: Array
    position: Array
    cache: Any


NEXT_SPECS = Next(P(RANKS), P(RANKS), P(), P(RANKS))


class Generation:
    """Greedy generation of `output_tokens` tokens for each prompt, int32 [batch, length].

    The model must have `make_cache(batch, length, dtype)` and `predict_next(scope, ids, position,
    cache)`: ids [batch, length], the first at `position` -> logits [batch, vocabulary_size] and the
    cache with the ids added. Prefill and decode are compiled; decode reuses (donates) the memory of
    the cache that it is given.
    """

    def __init__(self, forward: Forward, state: State, prompts: Array, axes: Axes, mesh: Mesh):
        self._forward = forward
        self._prompts = prompts
        self._output_tokens = axes.output_tokens
        self._texts_length = prompts.shape[1] + axes.output_tokens
        prefill = compile_over_ranks(self._prefill, mesh, (STATE_SPECS, P(RANKS)), NEXT_SPECS)
        decode = compile_over_ranks(
            self._decode,
            mesh,
            (STATE_SPECS, NEXT_SPECS.token, NEXT_SPECS.position, NEXT_SPECS.cache),
            NEXT_SPECS,
            donate_argnums=3,
        )
        self._run_prefill = prefill.lower(state, prompts).compile()
        first = self._run_prefill(state, prompts)
        self._run_decode = decode.lower(state, first.token, first.position, first.cache).compile()
        self._predict = compile_over_ranks(
            self._predict_without_cache, mesh, (STATE_SPECS, P(RANKS), P()), P(RANKS)
        )
        self._next: Any = None
        self._tokens: List[Array] = []

    def prefill(self, state: State) -> None:
        # free the old cache before the new one is allocated
        self._next = None
        self._next = self._run_prefill(state, self._prompts)
        self._tokens = [self._next.token]
        jax.block_until_ready(self._next)

    def decode(self, state: State) -> None:
        last = self._next
        self._next = self._run_decode(state, last.token, last.position, last.cache)
        self._tokens.append(self._next.token)
        jax.block_until_ready(self._next)

    @property
    def logits(self) -> Array:
        """The logits of the last token of each sequence, [batch, vocabulary_size]."""
        logits: Array = self._next.logits
        return logits

    @property
    def last(self) -> Array:
        """The last token of each sequence, [batch, 1]."""
        return self._tokens[-1]

    def read_tokens(self) -> Any:
        return numpy.concatenate([numpy.asarray(token) for token in self._tokens], 1).astype(int)

    def continue_without_cache(self, state: State) -> Any:
        length = self._prompts.shape[1]
        texts = jnp.pad(self._prompts, ((0, 0), (0, self._output_tokens)))
        for position in range(length, self._texts_length):
            token = self._predict(state, texts, position - 1)
            texts = texts.at[:, position].set(token)
        return numpy.asarray(texts)[:, length:].astype(int)

    def _prefill(self, state: State, prompts: Array) -> Next:
        cache = self._forward.model.make_cache(
            prompts.shape[0], self._texts_length, self._forward.compute_type
        )
        return self._predict_next(state, prompts, jnp.int32(0), cache)

    def _decode(self, state: State, token: Array, position: Array, cache: Any) -> Next:
        return self._predict_next(state, token, position, cache)

    def _predict_next(self, state: State, ids: Array, position: Array, cache: Any) -> Next:
        scope = self._forward.make_scope(state.weights, state, is_training=False)
        logits, cache = self._forward.model.predict_next(scope, ids, position, cache)
        token = logits.argmax(-1, keepdims=True).astype(ids.dtype)
        return Next(token, logits, position + ids.shape[1], cache)

    def _predict_without_cache(self, state: State, texts: Array, position: Array) -> Array:
        scope = self._forward.make_scope(state.weights, state, is_training=False)
        return self._forward.model(scope, texts)[:, position].argmax(-1).astype(texts.dtype)
