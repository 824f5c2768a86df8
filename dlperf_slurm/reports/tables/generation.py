"""A frame of cases -> tables of the phases of generations: prefill and decoding, side by side."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.reports.cells import COUNT, MILLISECONDS, SHARE, Cell, Column, Table, tabulate
from dlperf_slurm.reports.tables import ShownCase, find_range, show_case
from dlperf_slurm.reports.tables.latency import TOO_FEW
from dlperf_slurm.results.cases import VARIANT_AXES, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import list_rows
from dlperf_slurm.results.generations import GenerationLatency
from dlperf_slurm.results.latencies import CaseLatency
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame

_OWN_AXES = ["topology", "prompt_length", "output_tokens"]
_PERCENTS = (50, 95, 99)
_OF_BANDWIDTH = (
    "of bandwidth: weights and cache that decoding has to read, over what a copy in that memory "
    "reads and writes; "
)


@dataclass(frozen=True)
class GenerationTable:
    """The generations of one model, topology, and lengths of prompt and output."""

    model: str
    topology: str
    prompt_length: int
    output_tokens: int
    rows: tuple[ShownCase, ...]

    @property
    def title(self) -> str:
        return (
            f"{self.model} generation: prompts of {self.prompt_length} tokens, "
            f"{self.output_tokens} generated, {self.topology}"
        )


def make_generation_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[GenerationTable, ...]:
    """One table per model, topology and lengths, with the frameworks side by side by batch size."""
    cases = frame[(frame["mode"] == INFER) & (frame["output_tokens"] > 0)]
    groups = cases.groupby(["model", *_OWN_AXES], sort=False)
    return tuple(
        GenerationTable(model, topology, prompt, output, _list_rows(group, footnotes))
        for (model, topology, prompt, output), group in groups
    )


def _list_rows(cases: "DataFrame", footnotes: Footnotes) -> tuple[ShownCase, ...]:
    rows = sorted(list_rows(cases), key=lambda row: row.planned_size)
    return tuple(
        show_case(
            row, footnotes, [*row.table_notes, *(row.generation.notes if row.generation else ())]
        )
        for row in rows
    )


def tabulate_generation(table: GenerationTable) -> Table:
    """One row per case: time to the first token, time per following token, and rates of both."""
    words: list[Column[ShownCase]] = [
        Column("batch size", lambda row: row.batch_size_text),
        Column("framework", lambda row: Cell(find_label(row), notes=row.footnotes)),
        Column("precision", lambda row: row.precision),
    ]
    figures: list[Column[ShownCase]] = [
        *_list_latencies("TTFT", lambda generation: generation.first_token),
        Column("prefill tokens/s", _make_rate(lambda one: one.prefill_tokens_per_s)),
        *_list_latencies("TPOT", lambda generation: generation.per_token),
        *_list_latencies("ITL", lambda generation: generation.between_tokens, (99,)),
        Column("decode tokens/s", _make_rate(lambda one: one.decode_tokens_per_s)),
    ]
    bandwidth = ""
    if any(row.decode_bandwidth_share is not None for row in table.rows):
        figures.append(Column("of bandwidth", lambda row: row.decode_bandwidth_share, SHARE))
        bandwidth = _OF_BANDWIDTH
    caption = (
        "TTFT: time to the first token behind the prompt; TPOT: time per following token, mean "
        "over a generation; ITL: time of each following token by itself; a rank's batch goes on "
        "together; tokens/s: of all ranks, over the mean time of the phase; "
        f"{bandwidth}intervals are in the report's CSV"
    )
    return tabulate(table.title, words, figures, table.rows, caption, lambda row: row.problem)


def find_label(row: ShownCase) -> str:
    """The case's framework with its variant but for what the title has."""
    return make_label(row, set(VARIANT_AXES) - set(_OWN_AXES))


FindLatency = Callable[[GenerationLatency], Optional[CaseLatency]]


def _list_latencies(
    name: str, find: FindLatency, percents: tuple[int, ...] = _PERCENTS
) -> list[Column[ShownCase]]:
    return [_make_latency_column(name, find, percent) for percent in percents]


def _make_latency_column(name: str, find: FindLatency, percent: int) -> Column[ShownCase]:
    place = LATENCY_NAMES.index(f"p{percent}")

    def read(row: ShownCase) -> Cell:
        latency = find(row.generation) if row.generation else None
        if latency is None:
            return Cell(None)
        return Cell(
            latency.values[place],
            MILLISECONDS,
            latency.intervals[place],
            find_range(latency.units[place]),
            hides_bounds=True,
            problem=TOO_FEW,
        )

    return Column(f"{name} {percent} % ms", read)


def _make_rate(find: Callable[[GenerationLatency], Optional[float]]) -> Callable[[ShownCase], Cell]:
    return lambda row: Cell(find(row.generation) if row.generation else None, COUNT)
