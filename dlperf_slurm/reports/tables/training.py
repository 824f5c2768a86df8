"""Tables of training: throughput and scaling, precisions, data sources, accuracy."""

from itertools import product
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.axes import ON_DEVICE, ON_HOST
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.reports.cells import Cell, Table, join_cells
from dlperf_slurm.reports.tables import (
    COLUMNS,
    OF_CASES,
    FootnoteMarks,
    ShownColumn,
    TableSpec,
    count_of,
    find_known,
    join_sizes,
    show_label,
    show_throughput,
)
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.columns import list_values
from dlperf_slurm.results.labels import (
    VARIANTS,
    describe_variants,
    flag_varying,
    join_words,
    label_cases,
    number_groups,
)
from dlperf_slurm.results.notes import DATA, SCALING
from dlperf_slurm.results.number_formats import NO_REFERENCE, ScaledFormat
from dlperf_slurm.results.ratios import DATA_AXES, choose_reference

if TYPE_CHECKING:
    from pandas import DataFrame


# throughput, speedup and weak-scaling efficiency


OF_THROUGHPUTS = ("model", "precision", "fixed_batch_size")


def _list_throughputs(results: Results) -> "DataFrame":
    """Return training cases sorted by table and series, from the smallest topology to the largest.

    The column `label` has framework and the values that differ within a table, `constants` (for the
    title) the other values that are not a default. `column` numbers the series.
    """
    rows = results.training
    rows = rows.assign(
        table=number_groups(rows, OF_THROUGHPUTS),
        column=number_groups(rows, ["framework", *VARIANTS]),
    ).sort_values(["table", "column", "nodes", "devices_per_node"], kind="stable")
    varying, words = flag_varying(rows, OF_THROUGHPUTS), describe_variants(rows)
    # the compiler has its own column
    own = words.where(varying, "").drop(columns="compiler")
    constants = words.where(~varying, "").to_numpy().tolist()
    return rows.assign(
        label=join_words(own, rows.framework),
        constants=[[*filter(None, own)] for own in constants],
        has_compilers=varying.compiler,
    )


def _name_throughputs(rows: "DataFrame") -> str:
    """Return the title of a throughput table: model, precision, batch size, constants."""
    shown = ("model_title", "precision", "fixed_batch_size", "constants")
    model, precision, size, constants = (rows[name].iloc[0] for name in shown)
    size += "" if size.endswith(" (global)") else " per device"
    return f"{model}: " + ", ".join([precision, f"batch size {size}", *constants])


def show_training_figures(rows: "DataFrame") -> list[ShownColumn]:
    """Return the table columns of throughput, scaling, FLOP/s, and shares of device limits."""
    most = rows.tflops_per_device.max()
    prefix, factor = ("G", 1000.0) if 0 < most < 1 else ("T", 1.0)
    is_searched = rows.has_batch_search.any()
    return [
        *([ShownColumn("batch_sizes_measured", cells=join_sizes)] if is_searched else []),
        *show_throughput(rows),
        ShownColumn("speedup"),
        *map(ShownColumn, find_efficiencies(rows)),
        ShownColumn(
            "tflops_per_device", f"{prefix}FLOP/s per device", ScaledFormat(factor=factor, digits=3)
        ),
        *map(ShownColumn, find_known(rows, *LIMITS)),
    ]


# columns of what limits a case: peaks of its device, and the efficiency that all-reduces allow
LIMITS = {
    "measured_peak_share": "measured peak: fastest matrix product of the framework on the same "
    "device, in the same precision; the interval does not include the uncertainty of this peak",
    "published_peak_share": "published peak: from the vendor's data sheet, without sparsity",
    "reachable_efficiency": "reachable efficiency: highest weak-scaling efficiency if the "
    "all-reduce of the gradients overlaps the backward pass; computed from the step time of one "
    "device and from the time of a separate all-reduce",
}


def _explain_throughputs(rows: "DataFrame") -> str:
    """Return the caption of a throughput table: the baselines, and what the columns LIMITS mean."""
    baselines: dict[int, str] = {}
    different = {baseline for baseline in list_values(rows.baseline) if baseline}
    for column, label, baseline in zip(rows.column, rows.label, list_values(rows.baseline)):
        if baseline:
            baselines.setdefault(column, f"{label}: {baseline}")
    if not different:
        text = "no case of this table was measured"
    else:
        each = ", ".join(baselines.values() if len(different) > 1 else different)
        text = f"{describe_scaling(rows)} against {each}"
    return "; ".join([text, *explain_limits(rows)])


def find_efficiencies(rows: "DataFrame") -> list[str]:
    """Return the names of the columns of efficiency: weak scaling, strong scaling, or both."""
    kinds = {"strong" if size else "weak" for size in rows.global_batch_size}
    return [f"{kind}_scaling_efficiency" for kind in sorted(kinds, reverse=True)]


def describe_scaling(rows: "DataFrame") -> str:
    """Return which ratios these cases have: "speedup and weak-scaling efficiency"."""
    kinds = [name.partition("_")[0] for name in find_efficiencies(rows)]
    return f"speedup and {' or '.join(f'{kind}-scaling' for kind in kinds)} efficiency"


def explain_limits(rows: "DataFrame") -> list[str]:
    """Return a sentence for each column of LIMITS that has a value in any case."""
    return [LIMITS[name] for name in find_known(rows, *LIMITS)]


THROUGHPUT = TableSpec(
    "throughput",
    rows=_list_throughputs,
    by=OF_THROUGHPUTS,
    title=_name_throughputs,
    words=lambda rows: [
        ShownColumn("label", "framework"),
        *([ShownColumn("compiler")] if rows.has_compilers.iloc[0] else []),
        ShownColumn("topology"),
    ],
    figures=show_training_figures,
    caption=_explain_throughputs,
    notes=(*OF_CASES, "speedup", SCALING),
)


# speedups of precisions and compilers, as a pivot table: a row per topology, a column per precision


PRECISIONS = "precision"
OF_PRECISIONS = ("samples_per_s", "precision_speedup", "speedup")


def make_precision_table(rows: "DataFrame", marks: FootnoteMarks) -> Table:
    """Make the table of throughputs, precision speedups and weak scaling of these cases.

    They are of one model and framework (`number_precision_tables`). The table has a row per
    topology and columns per precision; cells have one value per compiler, separated by slashes.
    """
    first = rows.iloc[0]
    reference = first.reference_precision
    precisions, compilers = rows.precision.unique(), rows.compiler.unique()
    topologies = rows.sort_values(["nodes", "devices_per_node"]).topology.unique()
    shape = (len(precisions), len(topologies), len(compilers))
    sizes = rows.groupby("precision", sort=False).batch_size_per_device.first()
    places = [*product(precisions, topologies, compilers)]
    # select few columns, because reindexing is slow for frames with many
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
        """Make cells [precisions][topologies] of a column, each with a value per compiler.

        `bounds`: with confidence intervals; `has_marks`: with footnote marks.
        """
        cells = iter(ShownColumn(name, bounds=bounds, missing=NO_REFERENCE).make_cells(full))
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
        title=f"{first.model_title}: {name}, {', '.join(what)}",
        header=("topology", *columns),
        rows=tuple(zip(map(Cell, topologies), *columns.values())),
        text_columns=1,
        caption=f"{values}medians; weak scaling against the smallest topology measured",
        kind=PRECISIONS,
        model=first.model,
    )


# data sources


def _list_sources(results: Results) -> "DataFrame":
    """Return the training cases of models that use data from elsewhere than the device.

    Cases that differ only in their data source are adjacent.
    """
    rows = results.training
    rows = rows[rows.model.isin(rows.model[rows.data != ON_DEVICE])]
    if rows.empty:
        return rows
    column = number_groups(rows, ["model", *(axis for axis in AXES if axis not in DATA_AXES)])
    table = number_groups(rows, ["model"])
    return rows.assign(table=table, column=column).sort_values(["table", "column"], kind="stable")


def _describe_sources(rows: "DataFrame") -> list[str]:
    """Describe the data source of each case: "folder, 4 x 2" (workers x prefetched batches)."""
    return [
        data if data in (ON_DEVICE, ON_HOST) else f"{data}, {workers} x {prefetch}"
        for data, workers, prefetch in zip(rows.data, rows.data_workers, rows.prefetch_batches)
    ]


SOURCES = TableSpec(
    "data",
    rows=_list_sources,
    by=("model",),
    title=lambda rows: f"{rows.model_title.iloc[0]}: data sources",
    words=lambda rows: [
        show_label(set(VARIANTS) - set(DATA_AXES)),
        ShownColumn("data", cells=_describe_sources),
        ShownColumn("topology"),
        *([ShownColumn("precision")] if rows.precision.nunique() > 1 else []),
    ],
    figures=lambda rows: [
        *([ShownColumn("batch_size_per_device", "batch size")]
          if rows.batch_size_per_device.nunique() > 1 else []),
        ShownColumn("samples_per_s", bounds=False, marks=True),
        ShownColumn("computed_samples_per_s"),
        ShownColumn("data_waiting_share"),
        ShownColumn("relative_to_device_data"),
    ],
    caption="medians; waiting: share of the measured time that ranks spent waiting for data, "
    "measured with the host's clock; the value is that of the rank that waited longest; without "
    "waiting: throughput without the time that ranks waited for data",
    notes=(*OF_CASES, "relative_to_device_data", DATA),
)  # fmt: skip


# training to accuracy


def _show_accuracy(rows: "DataFrame") -> list[ShownColumn]:
    """Return the table columns for training to accuracy: seeds, top-1, time to train, speedup."""
    target = rows.target_top1.max()
    reached = ShownColumn(
        "seeds_at_target", f"reached {100 * target:g} %",
        cells=lambda rows: count_of(rows.seeds_at_target, rows.seeds.fillna(0)),
    )  # fmt: skip
    reference = choose_reference(set(rows.precision[rows.repeats_measured > 0]))
    is_compared = reference and rows.precision.nunique() > 1
    speedup = ShownColumn("train_speedup", f"speedup over {reference}")
    return [
        ShownColumn("batch_size_per_device", "batch size"),
        ShownColumn("seeds", cells=_count_seeds, marks=True),
        *map(
            ShownColumn, ("top1_average", "top1_deviation", "top1_lowest", "top1_highest", "epochs")
        ),
        *([reached] if target > 0 else []),
        ShownColumn("train_seconds"),
        *([speedup] if is_compared else []),
    ]


def _count_seeds(rows: "DataFrame") -> list[Cell]:
    """Make cells of the number of measured seeds: "3", or "2 of 3" if some are missing."""
    return [
        Cell(count or None, ScaledFormat(".0f", unit="" if count == planned else f" of {planned}"))
        for count, planned in zip(rows.seeds.fillna(0).tolist(), rows.repeats_planned.tolist())
    ]


ACCURACY = TableSpec(
    "accuracy",
    rows=lambda results: results.training[lambda rows: rows.planned_epochs > 0],
    by=("model",),
    title=lambda rows: "{model_title}: training to accuracy, {planned_epochs} epochs".format(
        **rows.iloc[0]
    ),
    words=lambda rows: [
        show_label(set(VARIANTS) - {"data"}), ShownColumn("precision"), ShownColumn("topology"),
    ],
    figures=_show_accuracy,
    caption="top-1 accuracy after the last epoch, one value per seed; standard deviation (n - "
    "1) in percentage points; time to train includes the validations, median over seeds",
    notes=(*OF_CASES, "train_speedup"),
)  # fmt: skip
