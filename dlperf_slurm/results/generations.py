"""Repeats of generations -> how long prefill and decoding of a case take, and how fast they are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.peaks import NUMBER_FORMATS
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.latencies import CaseLatency, Timed, unite_latencies
from dlperf_slurm.results.peaks import GIGA
from dlperf_slurm.stats.median import compute_latency
from dlperf_slurm.worker.models import load_model

# of the times of all tokens [ranks, generations, tokens], the values that a latency is of
FindSeconds = Callable[[Any], Any]


@dataclass(frozen=True)
class GenerationLatency:
    """Seconds of the phases of a generation; a rank's batch of prompts goes on together.

    `first_token` is from the call to the first token behind the prompt (TTFT), `per_token` the mean
    time of a following token over one generation (TPOT), `between_tokens` the time of each
    following token by itself (ITL). Nothing follows where one token is all.
    `prefill_tokens_per_s` are tokens of prompts, and `decode_tokens_per_s` following tokens, of all
    ranks together over the mean time of the phase. `decode_gb_per_s` is what a decoding has to read
    of a device's memory, over the mean time of one: weights once, and the keys and values of all
    words before.
    """

    first_token: CaseLatency
    per_token: Optional[CaseLatency] = None
    between_tokens: Optional[CaseLatency] = None
    prefill_tokens_per_s: Optional[float] = None
    decode_tokens_per_s: Optional[float] = None
    decode_gb_per_s: Optional[float] = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What says of which percentiles there are too few generations, or tokens."""
        parts = (self.first_token, self.per_token, self.between_tokens)
        return tuple(dict.fromkeys(note for part in parts if part for note in part.notes))


def find_generation_latency(outcomes: CaseOutcomes) -> Optional[GenerationLatency]:
    """The latency over the sound repeats of a case; None where it is no generation."""
    timed = [(o, o.beside.token_seconds) for o in outcomes.outcomes if o.record]
    if not timed or any(seconds is None for _, seconds in timed):
        return None
    case = outcomes.records[0].case
    samples, axes = case.global_batch_size, case.axes

    def unite(find: FindSeconds, what: str) -> CaseLatency:
        values = [
            Timed(outcome.repeat, own, compute_latency(own))
            for outcome, seconds in timed
            for own in [find(seconds).ravel().tolist()]
        ]
        return unite_latencies(outcomes, values, what)

    first = unite(lambda seconds: seconds[:, :, 0], "prefills")
    prefill_rate = _find_rate(samples * axes.prompt_length, first)
    if axes.output_tokens < 2:
        return GenerationLatency(first, prefill_tokens_per_s=prefill_rate)
    mean = unite(lambda seconds: seconds[:, :, 1:].mean(axis=2), "decodings")
    return GenerationLatency(
        first_token=first,
        per_token=mean,
        between_tokens=unite(lambda seconds: seconds[:, :, 1:], "tokens"),
        prefill_tokens_per_s=prefill_rate,
        decode_tokens_per_s=_find_rate(samples, mean),
        decode_gb_per_s=_find_rate(count_decoded_bytes(case) / GIGA, mean),
    )


def count_decoded_bytes(case: Case) -> float:
    """What one decoding of a rank's batch has to read of its device's memory, on average.

    Mixed precision reads weights in full precision, and has its keys and values as it multiplies.
    """
    axes = case.axes
    definition = load_model(case.model).Definition(**case.model_parameters)
    # the first of them reads the prompt and the token behind it, the last all tokens but one
    positions = axes.prompt_length + axes.output_tokens / 2
    weights, cached = definition.count_decoded_values(axes.batch_size, positions)
    weight_bytes = 2 if axes.precision in ("bf16", "fp16") else 4
    cache_bytes = 2 if NUMBER_FORMATS.get(axes.precision) in ("bf16", "fp16") else 4
    return float(weight_bytes * weights + cache_bytes * cached)


def _find_rate(amount: float, latency: CaseLatency) -> Optional[float]:
    """The rate of so many tokens, or bytes, in the mean time."""
    mean = latency.values[0]
    return amount / mean if mean else None
