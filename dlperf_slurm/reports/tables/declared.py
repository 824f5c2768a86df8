"""The tables of a report, in the order in which their footnotes are numbered."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.axes import ON_DEVICE, ON_HOST
from dlperf_slurm.contract.phases import MEANINGS, TO_FIRST_STEP, WARMUP
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.reports.cells import Cell, Table, join_cells
from dlperf_slurm.reports.tables import (
    COLUMNS,
    OF_CASES,
    MakeCells,
    Marks,
    Show,
    TableSpec,
    count_of,
    find_known,
    join_sizes,
    show_label,
    show_throughput,
)
from dlperf_slurm.results.case_summary import STEP_PERCENTILES
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.labels import (
    VARIANTS,
    find_variants,
    find_varying,
    join_words,
    label_cases,
    number_groups,
)
from dlperf_slurm.results.notes import DATA, GENERATION, LATENCY, RANKS, SCALING, USAGE
from dlperf_slurm.results.number_formats import (
    COUNT,
    MILLISECONDS,
    NO_REFERENCE,
    UNKNOWN,
    Number,
)
from dlperf_slurm.results.ratios import DATA_AXES, choose_reference
from dlperf_slurm.results.starts import QUEUE, QUEUE_MEANING
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame

SECONDS = Number(".1f")


# throughput, speedup and weak-scaling efficiency


OF_THROUGHPUTS = ("model", "precision", "batch_size_per_device")


def _list_throughputs(results: Results) -> "DataFrame":
    """Order cases by series, each from the smallest topology to the largest.

    Their labels have what tells them apart in their table, and titles the rest.
    """
    rows = results.training
    rows = rows.assign(
        table=number_groups(rows, OF_THROUGHPUTS),
        column=number_groups(rows, ["framework", *VARIANTS]),
    ).sort_values(["table", "column", "nodes", "devices_per_node"], kind="stable")
    varying, words = find_varying(rows, OF_THROUGHPUTS), find_variants(rows)
    # the compiler has a column of its own
    own = words.where(varying, "").drop(columns="compiler")
    constants = words.where(~varying, "").to_numpy().tolist()
    return rows.assign(
        label=join_words(own, rows.framework),
        constants=[[*filter(None, own)] for own in constants],
        has_compilers=varying.compiler,
    )


def _name_throughputs(rows: "DataFrame") -> str:
    first = rows[["model", "precision", "batch_size_per_device", "constants"]].iloc[0]
    size = f"batch size {first.batch_size_per_device} per device"
    return f"{first.model}: " + ", ".join([first.precision, size, *first.constants])


def show_training_figures(rows: "DataFrame", is_wide: bool = True) -> list[Show]:
    """Show throughput, its scaling, and how near it is to what can be reached."""
    measured = rows[rows.repeats_measured > 0]
    most = measured.tflops_per_device.max()
    prefix, factor = ("G", 1000.0) if 0 < most < 1 else ("T", 1.0)
    is_searched = rows.has_batch_search.any()
    return [
        *([Show("batch_sizes_measured", cells=join_sizes)] if is_searched else []),
        *show_throughput(rows),
        Show("speedup"),
        Show("weak_scaling_efficiency", bounds=is_wide),
        Show("tflops_per_device", f"{prefix}FLOP/s per device", Number(".3g", factor)),
        *map(Show, find_known(measured, *LIMITS)),
    ]


LIMITS = {
    "measured_peak_share": "measured peak: the framework's best matrix product on the same device "
    "and in the same numbers",
    "published_peak_share": "published peak: the vendor's, without sparsity",
    "reachable_efficiency": "reachable: one device's step, with the sum of all gradients "
    "beside its backward pass",
}


def _explain_throughputs(rows: "DataFrame") -> str:
    baselines = rows[["label", "column", "baseline"]][rows.baseline != ""]
    different = baselines.baseline.unique()
    if len(different) == 0:
        text = "no case of this table was measured"
    elif len(different) == 1:
        text = f"speedup and weak-scaling efficiency against {different[0]}"
    else:
        own = baselines.drop_duplicates("column")
        each = ", ".join(f"{name}: {base}" for name, base in zip(own.label, own.baseline))
        text = f"speedup and weak-scaling efficiency against {each}"
    return "; ".join([text, *explain_limits(rows[rows.repeats_measured > 0])])


def explain_limits(measured: "DataFrame") -> list[str]:
    """Explain those of the columns that say what could be reached."""
    return [LIMITS[name] for name in find_known(measured, *LIMITS)]


def _show_cases(rows: "DataFrame") -> list[Show]:
    compiler = [Show("compiler")] if rows.has_compilers.iloc[0] else []
    return [Show("label", "framework"), *compiler, Show("topology")]


THROUGHPUT = TableSpec(
    "throughput",
    rows=_list_throughputs,
    by=OF_THROUGHPUTS,
    title=_name_throughputs,
    words=_show_cases,
    figures=show_training_figures,
    caption=_explain_throughputs,
    notes=(*OF_CASES, "speedup", SCALING),
)


# where there is no room for the intervals of efficiencies, which are those of speedups per device
NARROW_THROUGHPUT = replace(THROUGHPUT, figures=partial(show_training_figures, is_wide=False))


# inference


def _list_latencies(results: Results) -> "DataFrame":
    """Order cases by batch size, each with its precisions in the order of the matrix."""
    rows = results.inference
    if rows.empty:
        return rows
    column = number_groups(rows, ["precision_table", "precision"])
    order = ["precision_table", "planned_size", "column"]
    return rows.assign(column=column, label=label_cases(rows)).sort_values(order, kind="stable")


def _is_compared(rows: "DataFrame") -> bool:
    return rows.precision.nunique() > 1 and bool(rows.reference_precision.iloc[0])


def _show_latencies(rows: "DataFrame", is_wide: bool = True) -> list[Show]:
    """Show NVIDIA's columns: throughput and latencies, each with its speedup if there is one.

    The mean latency and its speedup have their intervals: with those of the percentiles, which the
    files have, nobody could read the table. Not wide it has neither, nor the latencies' speedups.
    """
    is_compared = _is_compared(rows)
    shown = [Show("batch_sizes_measured", cells=_list_sizes), *show_throughput(rows)]
    if is_compared:
        shown.append(Show("precision_speedup"))
    for part in LATENCY_NAMES:
        has_bounds = is_wide and part == LATENCY_NAMES[0]
        cells = _blank_unmeasured(f"latency_{part}_ms", has_bounds)
        shown.append(Show(f"latency_{part}_ms", cells=cells))
        if is_compared and is_wide:
            shown.append(Show(f"latency_{part}_speedup", bounds=has_bounds))
    return shown


def _list_sizes(rows: "DataFrame") -> list[Any]:
    asked = rows.batch_size_per_device
    return [
        cell if text else size
        for cell, text, size in zip(join_sizes(rows), rows.batch_sizes_measured, asked)
    ]


@cache
def _blank_unmeasured(name: str, has_bounds: bool) -> MakeCells:
    """Print the problem, not "too few", of a case without a mean: it was not measured."""

    def make_cells(rows: "DataFrame") -> list[Cell]:
        cells = Show(name, bounds=has_bounds).read_cells(rows)
        return [
            cell if is_known else replace(cell, problem=problem)
            for cell, is_known, problem in zip(cells, rows.latency_avg_ms.notna(), rows.problem)
        ]

    return make_cells


def _explain_latencies(rows: "DataFrame", is_wide: bool = True) -> str:
    reference = rows.reference_precision.iloc[0]
    speedups = f"speedup over {reference}; " if _is_compared(rows) else ""
    return (
        f"{speedups}latency of one batch, all ranks' batches alike, medians over repeats; 100 %: "
        "the slowest of as many as there were; "
        f"their intervals {'but for the average ' if is_wide else ''}are in the report's CSV"
    )


LATENCIES = TableSpec(
    "latency",
    rows=_list_latencies,
    by=("precision_table",),
    title=lambda rows: (
        f"{rows.model.iloc[0]} inference: {rows.label.iloc[0]}, {rows.topology.iloc[0]}"
    ),
    words=lambda rows: [Show("precision")],
    figures=_show_latencies,
    caption=_explain_latencies,
    notes=(*OF_CASES, "precision_speedup", LATENCY),
)


NARROW_LATENCIES = replace(
    LATENCIES,
    figures=partial(_show_latencies, is_wide=False),
    caption=partial(_explain_latencies, is_wide=False),
)


# generation

OF_TITLE = ("topology", "prompt_length", "output_tokens")
BANDWIDTH = (
    "of bandwidth: weights and cache that decoding has to read, over what a copy in that memory "
    "reads and writes; "
)


def _list_generations(results: Results) -> "DataFrame":
    rows = results.inference[results.inference.output_tokens > 0]
    if rows.empty:
        return rows
    table = number_groups(rows, ["model", *OF_TITLE])
    return rows.assign(table=table).sort_values(["table", "planned_size"], kind="stable")


def _show_generation(rows: "DataFrame") -> list[Show]:
    def show(name: str, phase: str, *percents: int) -> list[Show]:
        return [
            Show(
                f"{phase}_p{percent}_ms", f"{name} {percent} % ms", bounds=False, missing="",
                cells=_read_phase(phase, percent),
            )
            for percent in percents
        ]  # fmt: skip

    has_bandwidth = bool(find_known(rows, "decode_bandwidth_share"))
    return [
        *show("TTFT", "ttft", 50, 95, 99),
        Show("prefill_tokens_per_s"),
        *show("TPOT", "tpot", 50, 95, 99),
        *show("ITL", "itl", 99),
        Show("decode_tokens_per_s"),
        *([Show("decode_bandwidth_share")] if has_bandwidth else []),
    ]


@cache
def _read_phase(phase: str, percent: int) -> MakeCells:
    def make_cells(rows: "DataFrame") -> list[Cell]:
        cells = Show(f"{phase}_p{percent}_ms", bounds=False).read_cells(rows)
        known = rows[f"{phase}_avg_ms"].notna()
        return [
            replace(cell, problem="too few" if is_known else "")
            for cell, is_known in zip(cells, known)
        ]

    return make_cells


GENERATIONS = TableSpec(
    "generation",
    rows=_list_generations,
    by=("model", *OF_TITLE),
    title=lambda rows: (
        "{model} generation: prompts of {prompt_length} tokens, {output_tokens} "
        "generated, {topology}".format(**rows.iloc[0])
    ),
    words=lambda rows: [
        Show("batch_size_per_device", "batch size"),
        show_label(set(VARIANTS) - set(OF_TITLE), marks=True),
        Show("precision"),
    ],
    figures=_show_generation,
    caption=lambda rows: (
        "TTFT: time to the first token behind the prompt; TPOT: time per "
        "following token, mean over a generation; ITL: time of each following token by itself; a "
        "rank's batch goes on together; tokens/s: of all ranks, over the mean time of the phase; "
        f"{BANDWIDTH if find_known(rows, 'decode_bandwidth_share') else ''}intervals are in the "
        "report's CSV"
    ),
    notes=(*OF_CASES, GENERATION),
)


# where data come from


def _list_sources(results: Results) -> "DataFrame":
    """Select models of which any case has its data elsewhere than on the device.

    The data sources of one case stand together.
    """
    rows = results.training
    rows = rows[rows.model.isin(rows.model[rows.data != ON_DEVICE])]
    if rows.empty:
        return rows
    column = number_groups(rows, ["model", *(axis for axis in AXES if axis not in DATA_AXES)])
    table = number_groups(rows, ["model"])
    return rows.assign(table=table, column=column).sort_values(["table", "column"], kind="stable")


def _describe_sources(rows: "DataFrame") -> list[str]:
    return [
        data if data in (ON_DEVICE, ON_HOST) else f"{data}, {workers} x {prefetch}"
        for data, workers, prefetch in zip(rows.data, rows.data_workers, rows.prefetch_batches)
    ]


SOURCES = TableSpec(
    "data",
    rows=_list_sources,
    by=("model",),
    title=lambda rows: f"{rows.model.iloc[0]}: where the data come from",
    words=lambda rows: [
        show_label(set(VARIANTS) - set(DATA_AXES)),
        Show("data", cells=_describe_sources),
        Show("topology"),
        *([Show("precision")] if rows.precision.nunique() > 1 else []),
    ],
    figures=lambda rows: [
        *([Show("batch_size_per_device", "batch size")]
          if rows.batch_size_per_device.nunique() > 1 else []),
        Show("samples_per_s", bounds=False, marks=True),
        Show("computed_samples_per_s"),
        Show("data_waiting_share"),
        Show("relative_to_device_data"),
    ],
    caption="medians; waiting: share of the window in which the rank that waited longest had "
    "no batch, by the host's clock",
    notes=(*OF_CASES, "relative_to_device_data", DATA),
)  # fmt: skip


# training to accuracy


def _show_accuracy(rows: "DataFrame") -> list[Show]:
    target = rows.target_top1.max()
    reached = Show(
        "seeds_at_target", f"reached {100 * target:g} %",
        cells=lambda rows: count_of(rows.seeds_at_target, rows.seeds.fillna(0)),
    )  # fmt: skip
    reference = choose_reference(set(rows.precision[rows.repeats_measured > 0]))
    is_compared = reference and rows.precision.nunique() > 1
    speedup = Show("train_speedup", f"speedup over {reference}")
    return [
        Show("batch_size_per_device", "batch size"),
        Show("seeds", cells=_count_seeds, marks=True),
        *map(Show, ("top1_average", "top1_deviation", "top1_lowest", "top1_highest", "epochs")),
        *([reached] if target > 0 else []),
        Show("train_seconds"),
        *([speedup] if is_compared else []),
    ]


def _count_seeds(rows: "DataFrame") -> list[Cell]:
    return [
        Cell(count or None, Number(".0f", unit="" if count == planned else f" of {planned}"))
        for count, planned in zip(rows.seeds.fillna(0).tolist(), rows.repeats_planned.tolist())
    ]


ACCURACY = TableSpec(
    "accuracy",
    rows=lambda results: results.training[lambda rows: rows.planned_epochs > 0],
    by=("model",),
    title=lambda rows: "{model}: training to accuracy, {planned_epochs} epochs".format(
        **rows.iloc[0]
    ),
    words=lambda rows: [
        show_label(set(VARIANTS) - {"data"}), Show("precision"), Show("topology"),
    ],
    figures=_show_accuracy,
    caption="top-1 after the last epoch, one value per seed; standard deviation (n - 1) in "
    "percentage points; time to train with the validations, median over seeds",
    notes=(*OF_CASES, "train_speedup"),
)  # fmt: skip


# memory and energy

USED = ("peak_memory_bytes", "utilization", "power_watts", "samples_per_joule", "clock_mhz",
    "least_clock_mhz")  # fmt: skip

RESOURCES = TableSpec(
    "resources",
    rows=lambda results: results.cases[lambda rows: rows.is_usage_known.fillna(False)].assign(
        problem=""
    ),
    by=("model",),
    title=lambda rows: f"{rows.model.iloc[0]}: memory and energy",
    words=lambda rows: [Show("case_id", marks=True)],
    figures=lambda rows: [
        Show(name, rows.unit.iloc[0].replace("/s", "/J") if name == "samples_per_joule" else None)
        for name in find_known(rows, *USED)
    ],
    caption="peak memory of the rank that takes most (on GPUs what the framework's allocator gave "
    "out, with mxnet and oneflow all that is taken of the device at the end; on CPUs what the "
    "process took); use, power and clocks of all devices (of the hosts' CPUs, where these are the "
    "devices) over the window, medians over repeats",
    notes=(USAGE,),
)


# from the submission to the first step


def _group_starts(results: Results) -> "DataFrame":
    """Compute medians over cases for each framework and topology."""
    cases = results.cases
    names = [f"phase_{name}_seconds" for name in (QUEUE, *MEANINGS)]
    known = cases[cases[names].notna().any(axis=1)]
    groups = known.groupby(["framework", "topology"], sort=False)
    found = groups[[*names, "to_first_step_seconds"]].median()
    return found.assign(cases=groups.size(), problem="").reset_index()


def _show_starts(rows: "DataFrame") -> list[Show]:
    def show(phase: str) -> Show:
        return Show(f"phase_{phase}_seconds", phase.replace("_", " "), SECONDS, UNKNOWN)

    return [
        Show("cases", form=COUNT),
        *map(show, _list_known_phases(rows)),
        Show("to_first_step_seconds", form=SECONDS),
        show(WARMUP),
    ]


def _list_known_phases(rows: "DataFrame") -> list[str]:
    return [name for name in (QUEUE, *TO_FIRST_STEP) if rows[f"phase_{name}_seconds"].notna().any()]


def _explain_starts(rows: "DataFrame") -> str:
    meanings = {QUEUE: QUEUE_MEANING, **MEANINGS}
    told = "; ".join(f"{n.replace('_', ' ')}: {meanings[n]}" for n in _list_known_phases(rows))
    return f"rank 0, medians over repeats, then over cases. {told}; warmup: {MEANINGS[WARMUP]}"


STARTS = TableSpec(
    "starts",
    rows=_group_starts,
    by=(),
    title="from the submission to the first step, in seconds",
    words=lambda rows: [Show("framework"), Show("topology")],
    figures=_show_starts,
    caption=_explain_starts,
    notes=(),
)


# ranks

SHOWN_SLOW_RANKS = 3


def _list_spread_cases(results: Results) -> "DataFrame":
    """Select the cases of several ranks, with their slowest device."""
    names = {"ranks": "ranks", "host": "host", "slowest_repeats": "slowest_repeats",
        "repeats": "repeats_of_device"}  # fmt: skip
    devices = results.frames.devices.groupby("case_id", sort=False)[[*names]].first()
    cases = results.cases[results.cases.imbalance.notna()]
    return cases.join(devices.rename(columns=names)).assign(problem="")


RANK_SPREADS = TableSpec(
    "ranks",
    rows=_list_spread_cases,
    by=(),
    title="ranks",
    words=lambda rows: [
        Show("case_id"),
        Show(
            "slowest rank",
            marks=True,
            cells=lambda rows: [
                f"{ranks.replace(' ', ' or ')} on {host}"
                for ranks, host in zip(rows.ranks, rows.host)
            ],
        ),
    ],
    figures=lambda rows: [
        Show("slowest in", cells=lambda r: count_of(r.slowest_repeats, r.repeats_of_device)),
        Show("imbalance"),
        Show("waiting_share"),
    ],
    caption="imbalance: the slowest rank's median step over the median rank's; waiting: 1 - "
    "mean over ranks / slowest rank, averaged over steps; medians over repeats. Ranks that "
    "meet within a step, as in an all-reduce, wait there: there may be more of both",
    notes=(RANKS,),
)


def _list_shown_devices(results: Results) -> "DataFrame":
    """Select the slowest devices of each case, and the fastest."""
    devices = results.frames.devices.assign(problem="")
    own = devices.groupby("case_id", sort=False)
    from_start, from_end = own.cumcount(), own.cumcount(ascending=False)
    return devices[(from_start < SHOWN_SLOW_RANKS) | (from_end == 0)]


RANK_TIMES = TableSpec(
    "rank times",
    rows=_list_shown_devices,
    by=(),
    title="step times by rank",
    words=lambda rows: [
        Show("case_id", "case"),
        Show("ranks", "rank", cells=lambda rows: list(rows.ranks.str.replace(" ", " or "))),
        Show("host"),
        Show("device_name", "device"),
    ],
    figures=lambda rows: [
        Show("slowest in", cells=lambda rows: count_of(rows.slowest_repeats, rows.repeats)),
        Show("slowness", "of the median rank", Number(".3f")),
        *(Show(f"p{p}_seconds", f"{p} % ms", MILLISECONDS) for p in STEP_PERCENTILES),
    ],
    caption=f"up to {SHOWN_SLOW_RANKS} slowest ranks of each case and the fastest; "
    "percentiles of the steps of all repeats. The JSON report has every rank",
    notes=(),
)  # fmt: skip


# what precisions and compilers bring, as a pivot: a row for each topology, a column for each


def make_precision_tables(results: Results, marks: Marks) -> Iterator[Table]:
    """Make a table for each model and framework with several precisions or compilers."""
    training = results.training
    for _, rows in training.groupby("precision_table"):
        yield _make_precision_table(rows, marks)


PRECISIONS = "precision"
OF_PRECISIONS = ("samples_per_s", "precision_speedup", "speedup")


def _make_precision_table(rows: "DataFrame", marks: Marks) -> Table:
    first = rows.iloc[0]
    reference = first.reference_precision
    precisions, compilers = rows.precision.unique(), rows.compiler.unique()
    topologies = rows.sort_values(["nodes", "devices_per_node"]).topology.unique()
    shape = (len(precisions), len(topologies), len(compilers))
    sizes = rows.groupby("precision", sort=False).batch_size_per_device.first()
    places = [*product(precisions, topologies, compilers)]
    # few columns: each of those that a frame has costs as much as its rows
    shown = [part for name in OF_PRECISIONS for part in COLUMNS[name].names]
    counts = ["repeats_measured", "repeats_planned"]
    keys = ["precision", "topology", "compiler"]
    full = rows[[*keys, "case_id", "problem", *counts, *shown]].set_index(keys).reindex(places)
    full["problem"] = full.problem.fillna("not in the matrix")
    scopes = (*OF_CASES, "precision_speedup")
    notes = [
        marks.number(case_id, scopes) if is_there else ()
        for case_id, is_there in zip(full.case_id, full.case_id.notna())
    ]

    def join(name: str, bounds: bool = False, has_marks: bool = False) -> Any:
        """Make cells [precisions][topologies], each with a value for each compiler."""
        cells = iter(Show(name, bounds=bounds, missing=NO_REFERENCE).make_cells(full))
        numbers = iter(notes)
        return [
            [
                join_cells(
                    [next(cells) for _ in range(shape[2])],
                    " / ",
                    [n for _ in range(shape[2]) for n in next(numbers) if has_marks],
                )
                for _ in range(shape[1])
            ]
            for _ in range(shape[0])
        ]

    columns = {
        f"{first.unit} {precision} bs {sizes[precision]}": cells
        for precision, cells in zip(precisions, join("samples_per_s", has_marks=True))
    }
    columns |= {
        f"speedup {precision} / {reference}": cells
        for precision, cells in zip(precisions, join("precision_speedup", bounds=True))
        if reference and precision != reference
    }
    columns |= {
        f"weak scaling {precision}": cells for precision, cells in zip(precisions, join("speedup"))
    }
    what = [
        *(["precisions"] if len(precisions) > 1 else []),
        *([" / ".join(compilers)] if len(compilers) > 1 else []),
    ]
    values = f"in a cell: {' / '.join(compilers)}; " if len(compilers) > 1 else ""
    name = label_cases(rows[:1], set(VARIANTS) - {"compiler"}).iloc[0]
    return Table(
        title=f"{first.model}: {name}, {', '.join(what)}",
        header=("topology", *columns),
        rows=tuple(zip(map(Cell, topologies), *columns.values())),
        text_columns=1,
        caption=f"{values}medians; weak scaling against the smallest topology measured",
        kind=PRECISIONS,
        model=first.model,
    )
