"""A comparison of two runs -> a table with notes, and JSON."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.contract.axes import DYNAMIC
from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.plain_text import list_some
from dlperf_slurm.reports.cells import Cell, Table, join_cells
from dlperf_slurm.reports.formats.json import serialize_document
from dlperf_slurm.reports.tables import ShownColumn, TableSpec, read_intervals, tabulate_rows
from dlperf_slurm.results.columns import list_records, with_bounds
from dlperf_slurm.results.compare import FOUND, MEAN_LATENCY, PAIR, Row, RunComparison
from dlperf_slurm.results.labels import IDENTITY
from dlperf_slurm.results.number_formats import MILLISECONDS, RATIO, ScaledFormat
from dlperf_slurm.results.significance import EQUIVALENT
from dlperf_slurm.stats.median import Interval, compute_median, compute_median_interval

if TYPE_CHECKING:
    from pandas import DataFrame

SPEED = ScaledFormat(".3f")

# beginnings of changes that alone may explain a difference
_HARDWARE = ("devices ", "cpu_model ")


def tabulate_comparison(compared: RunComparison) -> tuple[Table, tuple[str, ...]]:
    """Return a table with a row per case and quantity, and the texts of its footnotes in order.

    Cases that neither run measured have rows only if there are no others; the caption names them.
    """
    counts = compared.pairs.samples_a.map(len) + compared.pairs.samples_b.map(len)
    is_measured = counts.groupby(compared.pairs.case_id).transform("max") > 0
    pairs = compared.pairs[is_measured | ~is_measured.any()].reset_index(drop=True)
    absent = list_some([*dict.fromkeys(compared.pairs.case_id[~is_measured])])
    shown = [describe_verdict(row, compared.margin) for row in list_records(pairs)]
    spec = TableSpec(
        "comparison",
        title=f"B {compared.manifest_b.run_id} against A {compared.manifest_a.run_id}",
        words=lambda rows: [
            ShownColumn("case_id"),
            # "images/s" or "ms mean latency"
            ShownColumn("quantity", cells=lambda rows: rows.unit.mask(
                rows.quantity == MEAN_LATENCY, "ms mean latency")),
        ],
        figures=lambda rows: [
            ShownColumn("A", cells=lambda rows: _make_median_cells(rows, "samples_a")),
            ShownColumn("B", cells=lambda rows: _make_median_cells(rows, "samples_b")),
            ShownColumn("speed_ratio", "speed B / A", SPEED, "none", bounds=False),
            ShownColumn("95 % interval", missing="none", cells=make_interval_cells),
            ShownColumn("shown_verdict", "verdict", marks=True),
        ],
        caption=describe_method(compared) + f"\nmeasured in neither run: {absent}" * bool(absent),
    )  # fmt: skip
    texts = ((reason, *own) for reason, own in zip(pairs.reason, pairs.changes))
    (table,), notes = tabulate_rows(spec, pairs.assign(shown_verdict=shown), texts)
    omit_first = tuple(map(table.header.index, ("A", "B", "95 % interval")))
    return replace(table, omit_first=omit_first), notes


def list_hardware_changes(compared: RunComparison) -> list[str]:
    """List the differences in devices and CPUs between the runs, as texts, each once."""
    changes = dict.fromkeys(text for own in compared.pairs.changes for text in own)
    return [text for text in changes if text.startswith(_HARDWARE)]


def describe_method(compared: RunComparison) -> str:
    """Describe how the numbers and verdicts of a comparison are computed, for its caption."""
    lines = [
        "medians over repeats; speed is throughput, or 1 / latency; each 95 % interval is for one "
        "ratio alone, and valid even if one run varies more than the other",
        _describe_test(compared),
    ]
    runs = (compared.manifest_a, compared.manifest_b)
    if not all(run.is_import or case.blocks > 1 for run in runs for case in run.cases):
        lines.append(
            "all repeats of a case ran in one array job, on the same nodes at about the same time: "
            "what changes between nodes or over time would look like a difference between A and B; "
            "to spread the repeats over several array jobs, set blocks in [protocol] above 1"
        )
    if compared.is_in_sequence:
        lines.append(
            "the runs were made one after the other: if the machine slowed down by 3 % from the "
            "first repeat to the last, this would look like a difference between the runs "
            "(docs/statistics.md, Drift); submit both matrices with --interleave, or put both "
            "variants into one matrix"
        )
    elif compared.is_paired:
        lines.append(
            "interleaved: the blocks of both runs alternated; speed and verdict are computed from "
            "pairs of one block of each run, so that drift in both runs cancels "
            "(docs/statistics.md, Drift)"
        )
    if compared.limit is not None:
        lines.append(
            "beyond the limit: the same test shows, at 95 % confidence, that B is slower than A by "
            f"more than {format_percent(compared.limit)}; within the limit: the test shows that B "
            "is not slower than A by more than this"
        )
    return "\n".join(lines)


def _describe_test(compared: RunComparison) -> str:
    """Describe the statistical test behind the verdicts, or say that too few repeats allow none."""
    if compared.test_count == 0:
        return "verdict: no case has enough repeats in both runs for a test"
    unpaired = "studentised permutation test (Fligner, Policello)"
    test = "signed-rank test (Wilcoxon) of pairs" if compared.is_paired else unpaired
    return (
        f"verdict: {test}, 95 % confidence for all {compared.test_count} comparisons together "
        f"(Holm); equivalent: differs by less than {format_percent(compared.margin)} (two "
        "one-sided tests); undecided: neither a difference nor equivalence was shown"
    )


def _make_median_cells(rows: "DataFrame", name: str) -> list[Cell]:
    """Make cells of the medians of samples; `name` is "samples_a" or "samples_b"."""
    return [
        make_median_cell(samples, MILLISECONDS if quantity == MEAN_LATENCY else RATIO)
        for samples, quantity in zip(rows[name], rows.quantity)
    ]


def make_median_cell(samples: Sequence[float], form: ScaledFormat) -> Cell:
    """Make a median's cell, in as many digits as its hidden bounds allow; "none" if empty."""
    if not samples:
        return Cell(None, problem="none")
    several = Interval(min(samples), max(samples)) if len(samples) > 1 else None
    bounds = compute_median_interval(samples) or several
    return Cell(compute_median(samples), form, bounds, hides_bounds=True)


def make_interval_cells(rows: "DataFrame") -> list[Cell]:
    """Make cells of the 95 % interval of the speed ratio: "0.985 to 1.012"; empty without one."""
    found = read_intervals(rows, with_bounds("speed_ratio"))
    return [
        join_cells([Cell(end, SPEED.limit(one)) for end in (one.low, one.high)], " to ")
        if one
        else Cell(None)
        for one in found
    ]


def describe_verdict(pair: Row, margin: float) -> str:
    """Describe a verdict: "equivalent within 2 %", or "slower, beyond the limit".

    `pair` is a row of `RunComparison.pairs`; a difference up to `margin` (fraction) is equivalent.
    """
    text: str = pair["verdict"]
    if text == EQUIVALENT:
        text += f" within {format_percent(margin)}"
    elif pair["is_within_margin"]:
        text += f", within {format_percent(margin)}"
    return text + (", beyond the limit" if pair["is_beyond_limit"] else "")


def describe_pair(pair: Row, ratio: str = "speed B / A") -> str:
    """Describe a row of `RunComparison.pairs` in one line: verdict, speed ratio, interval, notes.

    Without a speed ratio, say why there is none. `ratio` is the words for the ratio in the text.
    """
    if pair["speed_ratio"] is None:
        return f"{pair['verdict']}: {pair['reason']}"
    interval = find_interval(pair)
    speed = SPEED.limit(interval)
    text = f"{pair['verdict']}: {ratio} {speed.write(pair['speed_ratio'])}"
    if interval is not None:
        text += f", 95 % interval {speed.write(interval.low)} to {speed.write(interval.high)}"
    return "; ".join(filter(None, [text, pair["reason"], *pair["changes"]]))


def find_interval(pair: Row) -> Optional[Interval]:
    """Return the 95 % interval of the speed ratio of a row of `RunComparison.pairs`, or None."""
    low, high = (pair[name] for name in with_bounds("speed_ratio"))
    return None if low is None else Interval(low, high)


def format_percent(share: float) -> str:
    """Format a fraction as a percentage: 0.025 -> "2.5 %"."""
    return f"{100 * share:g} %"


def serialize_comparison(compared: RunComparison) -> str:
    """Serialize a comparison as JSON, with all numbers in full precision."""
    data = {
        "a": _describe_run(compared.manifest_a),
        "b": _describe_run(compared.manifest_b),
        "limit": compared.limit,
        "margin": compared.margin,
        "test_count": compared.test_count,
        "comparisons": [list_facts(pair) for pair in list_records(compared.pairs)],
    }
    return serialize_document(data)


def list_facts(pair: Row) -> dict[str, Any]:
    """Return a row of `RunComparison.pairs` as JSON, with "interval" as {"low", "high"} or None."""
    names = (*IDENTITY, *PAIR, *FOUND)
    renamed = ("counted", *with_bounds("speed_ratio"))
    interval = find_interval(pair)
    return {
        **{name: pair[name] for name in names if name not in renamed},
        **list_matrix_values(pair),
        "unit": pair["counted"],
        "interval": None if interval is None else vars(interval),
    }


def list_matrix_values(case: Row) -> dict[str, Any]:
    """Return a case's batch size and loss scale as a matrix file has them, by axis.

    Data frames have the batch size as text (here int if a number), dynamic loss scale as missing.
    """
    size, scale = case["batch_size_per_device"], case["loss_scale"]
    return {
        "batch_size_per_device": int(size) if size.isdecimal() else size,
        "loss_scale": scale or DYNAMIC,
    }


def _describe_run(manifest: Manifest) -> dict[str, str]:
    return {
        name: getattr(manifest, name) for name in ("run_id", "title", "site_name", "created_at")
    }


def name_comparison(compared: RunComparison) -> str:
    """Name a comparison for CI by its run ids: "RUN_A -> RUN_B"."""
    return f"{compared.manifest_a.run_id} -> {compared.manifest_b.run_id}"
