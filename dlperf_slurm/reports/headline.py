"""The results of a run -> its main findings in sentences, for the top of a report."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.plain_text import count_things
from dlperf_slurm.reports.cells import Cell
from dlperf_slurm.reports.tables import COLUMNS, read_intervals
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.labels import VARIANTS, label_cases
from dlperf_slurm.results.proofs import list_unproven
from dlperf_slurm.results.stability import MAX_VARIATION
from dlperf_slurm.stats.median import compute_coefficient_of_variation

if TYPE_CHECKING:
    from pandas import DataFrame, Series

EFFICIENCIES = ("weak_scaling_efficiency", "strong_scaling_efficiency")
# shares of a device's peak, and that peak in words
PEAKS = {
    "measured_peak_share": "the measured peak of the devices",
    "published_peak_share": "the published peak of the devices",
}


@dataclass(frozen=True)
class Headline:
    """A sentence about a run; `is_warning` marks a warning about its results."""

    text: str
    is_warning: bool = False


def list_findings(results: Results) -> tuple[Headline, ...]:
    """List the best throughput, scaling and precision speedup of each model, then warnings."""
    measured = results.cases[results.cases.samples_per_s.notna()]
    texts: list[str] = []
    for _, rows in measured.groupby(["model", "mode"], sort=False):
        names = _name_cases(rows)
        texts += [_describe_best(rows, names), *_describe_scaling(rows, names)]
        texts += _describe_precision(rows, names)
    doubts = _list_warnings(results, measured)
    if list_unproven(measured) and (measured.parity_proof == "").all():
        texts.append(
            "Not checked (command parity): whether the cases do the same work on these devices."
        )
    return (*map(Headline, texts), *(Headline(text, True) for text in doubts))


def _name_cases(rows: "DataFrame") -> dict[str, str]:
    """Return a text for each case id that tells the cases apart: "jax xla, amp, batch size 64".

    It has framework, the axes that vary, precision and batch size.
    """
    varying = [axis for axis in VARIANTS if rows[axis].nunique(dropna=False) > 1]
    named = zip(rows.index, label_cases(rows, varying), rows.precision, rows.batch_size_per_device)
    return {
        case_id: f"{label}, {precision}, batch size {size}"
        for case_id, label, precision, size in named
    }


def _describe_best(rows: "DataFrame", names: dict[str, str]) -> str:
    """Describe the case of the highest throughput; `names` has texts by case id (`_name_cases`)."""
    best = rows.loc[[rows.samples_per_s.idxmax()]]
    case = best.iloc[0]
    # with the same digits as in the tables, which depend on the bounds
    (interval,) = read_intervals(best, ("interval_low", "interval_high"))
    (extent,) = read_intervals(best, ("smallest", "largest"))
    several = extent if case.repeats_measured > 1 else None
    rate = Cell(case.samples_per_s, interval=interval, range=several).text
    doubt = "Doubtful, above a peak of the devices: " if (case[[*PEAKS]] > 1).any() else ""
    return (
        f"{doubt}{case.model_title} {'trains' if case['mode'] == TRAIN else 'infers'} at {rate} "
        f"{case.unit} at best: {names[case.case_id]} on {case.topology} ({case.hardware})"
        f"{_describe_ties(rows, case, names)}."
    )


def _describe_ties(rows: "DataFrame", best: "Series", names: dict[str, str]) -> str:
    """Describe the cases whose 95 % interval overlaps with that of the fastest case `best`.

    "" if there is none. `names` has texts by case id (`_name_cases`).
    """
    is_tie = (rows.interval_high >= best.interval_low) & (rows.case_id != best.case_id)
    ties = rows[is_tie].sort_values("samples_per_s", ascending=False)
    if ties.empty:
        return ""
    second = ties.iloc[0]
    others = f" and {count_things(len(ties) - 1, 'other case')}" if len(ties) > 1 else ""
    verb = "are" if len(ties) > 1 else "is"
    return (
        f"; {names[second.case_id]} on {second.topology}{others} {verb} as fast within the "
        "95 % intervals"
    )


def _write_share(case: "Series", name: str) -> str:
    """Format a case's value in the column `name` with its interval, if any: "93 % (91 to 95)"."""
    column = COLUMNS[name]
    (interval,) = read_intervals(case.to_frame().T, column.bounds)
    cell = Cell(float(case[name]), column.form, interval=interval)
    return f"{cell.text} {cell.bounds}".rstrip()


def _describe_scaling(rows: "DataFrame", names: dict[str, str]) -> Iterator[str]:
    """Yield a sentence on the best and worst efficiency on the largest topology.

    There is one for weak and one for strong scaling; `names` has the name of each case by its id.
    """
    for name in EFFICIENCIES:
        scaled = rows[_is_scaled(rows, name) & ~_is_beyond_devices(rows, name)]
        if scaled.empty:
            continue
        largest = scaled.topology[scaled.world_size.idxmax()]
        efficiencies = scaled[name][scaled.topology == largest]
        best, worst = efficiencies.idxmax(), efficiencies.idxmin()
        shares = {case_id: _write_share(scaled.loc[case_id], name) for case_id in (best, worst)}
        what = f"{name.partition('_')[0]}-scaling efficiency relative to {scaled.baseline[best]}"
        text = f"On {largest} the {what} is {shares[best]}: {names[best]}"
        is_worse = efficiencies[worst] < efficiencies[best]
        yield text + (f"; {shares[worst]} at worst: {names[worst]}." if is_worse else ".")


def _is_scaled(rows: "DataFrame", name: str) -> "DataFrame":
    """Return a mask of the cases whose efficiency is relative to another case: bool [cases].

    `name` is the column of the efficiency.
    """
    return rows[name].notna() & ~rows[f"{name}_is_baseline"]


def _is_beyond_devices(rows: "DataFrame", name: str = EFFICIENCIES[0]) -> "DataFrame":
    """Return a mask of the cases that scale super-linearly: bool [cases].

    The whole interval of their efficiency (column `name`) is above 1 or, without an interval, the
    efficiency is by more than MAX_VARIATION.
    """
    low, value = rows[f"{name}_low"], rows[name]
    return _is_scaled(rows, name) & ((low > 1) | (low.isna() & (value > 1 + MAX_VARIATION)))


def _describe_precision(rows: "DataFrame", names: dict[str, str]) -> Iterator[str]:
    """Yield sentences on the largest significant gain and loss of a reduced precision, if any.

    `names` has texts by case id (`_name_cases`).
    """
    speedup = rows.precision_speedup
    gains, losses = (
        speedup[rows.precision_speedup_low > 1],
        speedup[rows.precision_speedup_high < 1],
    )
    for found, words in ((gains, "gains most speed"), (losses, "loses most speed")):
        if len(found):
            case = rows.loc[found.idxmax() if found is gains else found.idxmin()]
            yield (
                f"{case.precision} {words} on {case.topology} ({names[case.case_id]}): "
                f"{_write_share(case, 'precision_speedup')} times as fast as "
                f"{case.reference_precision}."
            )


def _list_warnings(results: Results, rows: "DataFrame") -> Iterator[str]:
    """Yield warnings: repeats that vary, efficiencies or peaks above 100 %, too few repeats.

    `rows` are the measured cases.
    """
    cases = count_things(len(rows), "case")
    repeats = results.frames.repeats
    rates = repeats[repeats.samples_per_s.notna()].groupby("case_id", sort=False).samples_per_s
    spread = {
        case_id: compute_coefficient_of_variation([1 / rate for rate in own])
        for case_id, own in rates
    }
    varied = {case_id: spread[case_id] for case_id in rows.index if spread[case_id] > MAX_VARIATION}
    if varied:
        most = max(varied, key=lambda case_id: varied[case_id])
        yield (
            f"Warning: in {len(varied)} of {cases} the step time varies between repeats by more "
            f"than {100 * MAX_VARIATION:.0f} % (standard deviation); largest in {most}: "
            f"{100 * varied[most]:.0f} %."
        )
    beyond = rows[_is_beyond_devices(rows)]
    if len(beyond):
        case = beyond.loc[beyond.weak_scaling_efficiency.idxmax()]
        verb = "scales" if len(beyond) == 1 else "scale"
        yield (
            f"Warning: {count_things(len(beyond), 'case')} of {len(rows)} {verb} super-linearly: "
            f"{case.case_id} has {case.weak_scaling_efficiency:.3g} times the throughput per "
            f"device of {case.baseline}."
        )
    for name, words in PEAKS.items():
        above = rows[rows[name] > 1]
        if len(above):
            case = above.loc[above[name].idxmax()]
            yield (
                f"Warning: {count_things(len(above), 'case')} of {len(rows)} exceeded {words}, "
                f"{case.case_id} with {100 * case[name]:.0f} % of it: the steps did not do the "
                "whole work, or the measured time or the peak is wrong."
            )
    few = int(rows.interval_low.isna().sum())
    if few:
        yield (
            f"Warning: {few} of {cases} {'has' if few == 1 else 'have'} too few valid repeats for "
            "a 95 % interval."
        )
