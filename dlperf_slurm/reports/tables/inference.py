"""Tables of inference: latencies by batch size, and the phases of generations."""

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from dlperf_slurm.reports.cells import Cell
from dlperf_slurm.reports.tables import (
    OF_CASES,
    MakeCells,
    ShownColumn,
    TableSpec,
    find_known,
    join_sizes,
    show_label,
    show_throughput,
)
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.labels import VARIANTS, label_cases, number_groups
from dlperf_slurm.results.notes import GENERATION, LATENCY
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame


# inference


def _list_latencies(results: Results) -> "DataFrame":
    """Sort inference cases by table, batch size, and precision in the order of the matrix."""
    rows = results.inference
    if rows.empty:
        return rows
    column = number_groups(rows, ["precision_table", "precision"])
    order = ["precision_table", "planned_size", "column"]
    return rows.assign(column=column, label=label_cases(rows)).sort_values(order, kind="stable")


def _is_compared(rows: "DataFrame") -> bool:
    """Return whether a latency table has several precisions and a reference for speedups."""
    return rows.precision.nunique() > 1 and bool(rows.reference_precision.iloc[0])


def _show_latencies(rows: "DataFrame") -> list[ShownColumn]:
    """Return the table columns of NVIDIA's tables: throughput, latencies, and speedups if any.

    Only the mean latency and its speedup have intervals, so that the table stays readable; files
    have all.
    """
    is_compared = _is_compared(rows)
    shown = [ShownColumn("batch_sizes_measured", cells=_list_sizes), *show_throughput(rows)]
    if is_compared:
        shown.append(ShownColumn("precision_speedup"))
    for part in LATENCY_NAMES:
        has_bounds = part == LATENCY_NAMES[0]
        shown.append(ShownColumn(f"latency_{part}_ms", bounds=has_bounds))
        if is_compared:
            shown.append(ShownColumn(f"latency_{part}_speedup", bounds=has_bounds))
    return shown


def _list_sizes(rows: "DataFrame") -> list[Any]:
    """Make cells of the measured batch sizes; of a case not measured, the planned size."""
    asked = rows.batch_size_per_device
    return [
        cell if text else size
        for cell, text, size in zip(join_sizes(rows), rows.batch_sizes_measured, asked)
    ]


def _explain_latencies(rows: "DataFrame") -> str:
    """Return the caption of a latency table."""
    reference = rows.reference_precision.iloc[0]
    speedups = f"speedup over {reference}; " if _is_compared(rows) else ""
    return (
        f"{speedups}latency of one batch: mean and percentiles over the batches of all ranks, "
        "then medians over repeats; p100: the slowest batch; the report's CSV also has the 95 % "
        "intervals of the percentiles"
    )


LATENCIES = TableSpec(
    "latency",
    rows=_list_latencies,
    by=("precision_table",),
    title=lambda rows: (
        f"{rows.model_title.iloc[0]} inference: {rows.label.iloc[0]}, {rows.topology.iloc[0]}"
    ),
    words=lambda rows: [ShownColumn("precision")],
    figures=_show_latencies,
    caption=_explain_latencies,
    notes=(*OF_CASES, "precision_speedup", LATENCY),
)


# generation

OF_TITLE = ("topology", "prompt_length", "output_tokens")
BANDWIDTH = (
    "share of bandwidth: weights and cache that decoding reads per second, divided by what a copy "
    "in device memory reads and writes per second; "
)


def _list_generations(results: Results) -> "DataFrame":
    """Return the cases of text generation, sorted by table and batch size; adds `table`."""
    rows = results.inference[results.inference.output_tokens > 0]
    if rows.empty:
        return rows
    table = number_groups(rows, ["model", *OF_TITLE])
    return rows.assign(table=table).sort_values(["table", "planned_size"], kind="stable")


def _show_generation(rows: "DataFrame") -> list[ShownColumn]:
    """Return the table columns for text generation: TTFT, TPOT, ITL and rates."""

    def show(name: str, phase: str, *percents: int) -> list[ShownColumn]:
        return [
            ShownColumn(
                f"{phase}_p{percent}_ms", f"{name} p{percent} ms", bounds=False, missing="",
                cells=_read_phase(phase, percent),
            )
            for percent in percents
        ]  # fmt: skip

    has_bandwidth = bool(find_known(rows, "decode_bandwidth_share"))
    return [
        *show("TTFT", "ttft", 50, 95, 99),
        ShownColumn("prefill_tokens_per_s"),
        *show("TPOT", "tpot", 50, 95, 99),
        *show("ITL", "itl", 99),
        ShownColumn("decode_tokens_per_s"),
        *([ShownColumn("decode_bandwidth_share")] if has_bandwidth else []),
    ]


@cache
def _read_phase(phase: str, percent: int) -> MakeCells:
    """Return a function that makes cells of a percentile of a latency of generation.

    `phase` is "ttft", "tpot" or "itl" (time to first token, per output token, between tokens).
    """

    def make_cells(rows: "DataFrame") -> list[Cell]:
        cells = ShownColumn(f"{phase}_p{percent}_ms", bounds=False).read_cells(rows)
        known = rows[f"{phase}_avg_ms"].notna()
        return [
            replace(cell, problem="too few values" if is_known else "")
            for cell, is_known in zip(cells, known)
        ]

    return make_cells


GENERATIONS = TableSpec(
    "generation",
    rows=_list_generations,
    by=("model", *OF_TITLE),
    title=lambda rows: (
        "{model_title} generation: prompts of {prompt_length} tokens, {output_tokens} "
        "generated, {topology}".format(**rows.iloc[0])
    ),
    words=lambda rows: [
        ShownColumn("batch_size_per_device", "batch size"),
        show_label(set(VARIANTS) - set(OF_TITLE), marks=True),
        ShownColumn("precision"),
    ],
    figures=_show_generation,
    caption=lambda rows: (
        "TTFT: time to first token; TPOT: time per output token after the first, mean over a "
        "generation; ITL: inter-token latency, the time of each token after the first; a rank "
        "generates the sequences of its batch together; tokens/s: tokens of all ranks divided by "
        "the mean time of the phase (prefill or decode); "
        f"{BANDWIDTH if find_known(rows, 'decode_bandwidth_share') else ''}intervals are in the "
        "report's CSV"
    ),
    notes=(*OF_CASES, GENERATION),
)
