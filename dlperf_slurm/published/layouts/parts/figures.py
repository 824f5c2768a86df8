"""Cases of a run, or published figures -> the frame of figures from which layouts are made."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.axes import LARGEST, ON_DEVICE, ON_HOST, WORKER
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.labels import VARIANT_AXES, VARIANTS, get_unit, label_cases
from dlperf_slurm.results.model_hardware import describe_model
from dlperf_slurm.results.notes import CASE, DOUBT
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame

OUR_SOURCE = "dlperf_slurm"
NO_SOURCE = "-"
# shown where nothing was measured
ABSENT = "-"
_SHOWN_APART = ("script", "compiler", "gradient_sync", "data")
# tensorpack's words for the location of a batch; empty on the device
_DATA_LOCATIONS = {ON_DEVICE: "", ON_HOST: "cpu"}

# a row of the frame of figures
Figure = Any

TEXTS = ("model", "model_title", "unit", "mode", "framework", "label", "source", "precision",
    "compiler", "batch_group", "batch_sizes", "data_location", "variable_update", "hardware",
    "table", "problem")  # fmt: skip
NUMBERS = ("samples_per_s", "train_seconds", *(f"latency_{part}_ms" for part in LATENCY_NAMES))
# of figures of a run alone: the means over repeats
MEANS = {name: f"mean_{name}" for name in NUMBERS}
OBJECTS = ("topology", "footnotes", "top1", "epochs", "seeds_at_target", "batches")
"""Columns of the frame; a figure is the throughput of one case, or its problem.

`model_title` names the model with its sizes. `label` is the framework, with its gradient
synchronization if that is not the default; `source` is the publisher of the script. `batch_group`
is the requested batch size: a number, or "max"; `batch_sizes` joins the measured ones, empty if
none is known. `top1` has the accuracy, as a fraction, for each seed of a training over `epochs`;
`seeds_at_target` counts the seeds that reached the target accuracy; None if the training has none.
`batches` is the fewest batches of a repeat of inference.
`table` names the published table of a figure, as figures of different tables must not be compared;
"" for figures of a run.
"""

# used where nothing was measured
NO_FIGURE = SimpleNamespace(
    **dict.fromkeys(TEXTS, ""), **dict.fromkeys(NUMBERS), topology=Topology(0, 0), footnotes=()
)
NO_FIGURE.problem, NO_FIGURE.top1, NO_FIGURE.seeds_at_target = ABSENT, (), None


def list_figures(figures: "DataFrame", mode: str) -> list[Figure]:
    """List the figures (rows) of a mode, "train" or "infer", with None for unknown numbers."""
    own = figures[figures["mode"] == mode].astype(object)
    return [*own.where(own.notna(), None).itertuples(index=False)]


def make_run_figures(results: Results) -> "DataFrame":
    """Make the frame of figures of a run: one row per case, in their order.

    A case without a result, also one that was left out of the run, has its `problem`. Cases of
    strong scaling are left out: no published layout has a table for them.
    """
    cases, repeats = results.cases, results.frames.repeats
    cases = cases[cases.global_batch_size == 0]
    notes = results.notes[results.notes.scope.isin((CASE, DOUBT))]
    # as objects: with pyarrow, pandas makes lists of Arrow from tuples
    notes = notes.note.astype(object).groupby(notes.case_id).agg(tuple).to_dict()
    measured = repeats[repeats.samples_per_s.notna()].groupby("case_id")
    means = measured[[*MEANS]].mean().rename(columns=MEANS).reindex(cases.case_id)
    # none if a seed did not reach its target
    means.mean_train_seconds = means.mean_train_seconds.where(
        cases.train_seconds.notna().to_numpy()
    )
    batches = results.frames.pooled.groupby("case_id").fewest.min()
    top1 = repeats.top1.dropna().groupby(repeats.case_id).agg(tuple).to_dict()
    names = label_cases(cases, [axis for axis in VARIANTS if axis not in _SHOWN_APART])
    return _name_figures(
        cases.assign(
            framework=[*names],
            source=cases.script.replace(WORKER, OUR_SOURCE),
            topology=[*map(parse_topology, cases.topology)],
            batch_sizes=cases.batch_sizes_measured.str.replace(" ", " and "),
            # for a batch-size search: its first size
            batch_group=cases.batch_size_per_device.str.partition(" ->")[0],
            data_location=cases.data.replace(_DATA_LOCATIONS),
            variable_update=cases.gradient_sync,
            hardware="",
            table="",
            footnotes=[notes.get(case_id, ()) for case_id in cases.case_id],
            top1=[top1.get(case_id, ()) for case_id in cases.case_id],
            epochs=cases.planned_epochs,
            batches=cases.case_id.map(batches),
            **{name: means[name].to_numpy() for name in MEANS.values()},
        )
    )


def make_published_figures(published: "DataFrame") -> "DataFrame":
    """Make the frame of figures of a published source, in its order; repeats become their median.

    `published` has the columns of `published.figures.read_source`.
    """
    # figures of one case without repeat numbers are not merged
    lines = published["where"].mask(published.repeat > 0, "")
    keyed = published.drop(columns=["repeat", "samples_per_s"]).assign(where=lines)
    same = published.samples_per_s.groupby([*map(keyed.get, keyed)], dropna=False)
    figures = published.assign(samples_per_s=same.transform("median"))[~keyed.duplicated()]
    note, names = figures.note, figures.software.str.partition(";")[0].str.partition(" (")
    is_with, is_without = note.str.startswith("w/"), note.str.startswith("W/O ")
    sizes = figures.batch_size_per_device.astype(str).replace("0", "")
    asked = figures.table.str.extract(rf"batch size = (\d+|{LARGEST})")[0]
    return _name_figures(
        figures.assign(
            model_title=[describe_model(model, {}) for model in figures.model],
            unit=figures.model.map(get_unit),
            framework=names[0] + (" " + note).where(is_without, ""),
            source=names[2].str.rstrip(")").replace("", NO_SOURCE),
            topology=[*map(Topology, figures.nodes, figures.devices_per_node)],
            batch_sizes=sizes,
            # the size in the table's title, else the figure's
            batch_group=asked.fillna(sizes.replace("", "unknown")),
            data_location=note.str[len("w/") :].where(is_with, figures.data_location),
            problem="",
            footnotes=[
                () if not text or is_variant else (text,)
                for text, is_variant in zip(note, is_with | is_without)
            ],
            top1=[()] * len(figures),
            epochs=0,
            seeds_at_target=None,
            batches=None,
        )
    )


def _name_figures(figures: "DataFrame") -> "DataFrame":
    """Return the frame of figures with labels, and without columns that layouts do not use."""
    update = figures.variable_update
    is_native = update.isin(["", VARIANT_AXES["gradient_sync"]])
    labels = figures.framework + (" " + update).mask(is_native, "")
    return figures.assign(label=labels).reindex(
        columns=[*TEXTS, *NUMBERS, *MEANS.values(), *OBJECTS]
    )
