"""Tables of resource usage: memory and energy, time to the first step, and ranks."""

from typing import TYPE_CHECKING

from dlperf_slurm.contract.phases import MEANINGS, TO_FIRST_STEP, WARMUP
from dlperf_slurm.reports.tables import ShownColumn, TableSpec, count_of, find_known
from dlperf_slurm.results.case_summary import STEP_PERCENTILES
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.collect import QUEUE
from dlperf_slurm.results.notes import RANKS, USAGE
from dlperf_slurm.results.number_formats import COUNT, MILLISECONDS, UNKNOWN, ScaledFormat
from dlperf_slurm.results.repeats import PHASES

if TYPE_CHECKING:
    from pandas import DataFrame

SECONDS = ScaledFormat(".1f")


# memory and energy

USED = ("peak_memory_bytes", "utilization", "power_watts", "samples_per_joule", "node_power_watts",
    "joules_per_sample", "node_joules_per_sample", "clock_mhz", "least_clock_mhz")  # fmt: skip

RESOURCES = TableSpec(
    "resources",
    rows=lambda results: results.cases[lambda rows: rows.is_usage_known.fillna(False)].assign(
        problem=""
    ),
    by=("model",),
    title=lambda rows: f"{rows.model_title.iloc[0]}: memory and energy",
    words=lambda rows: [ShownColumn("case_id", marks=True)],
    figures=lambda rows: [
        ShownColumn(
            name, rows.unit.iloc[0].replace("/s", "/J") if name == "samples_per_joule" else None
        )
        for name in find_known(rows, *USED)
    ],
    caption="peak memory: of the rank that used most. On GPUs it is the memory allocated by the "
    "framework's allocator; for mxnet and oneflow, the memory of the process on the device at the "
    "end. On CPUs it is the memory of the process. Utilization, power and clocks: over all devices "
    "(on CPUs: over the CPUs of the hosts) during the measured steps, medians over repeats",
    notes=(USAGE,),
)


# all-reduce


def _group_all_reduces(results: Results) -> "DataFrame":
    """Compute the median time and bus bandwidth of all-reduces by size, over all repeats."""
    sums = results.frames.sums.join(results.cases[["framework", "topology", "model"]], "case_id")
    sums["of"] = sums.model.where(sums.of_gradients.astype(bool), "")
    groups = sums.groupby(["framework", "via", "topology", "byte_count", "of"], sort=False)
    found = groups[["seconds", "gb_per_s"]].median().assign(repeats=groups.size(), problem="")
    order = {name: place for place, name in enumerate(dict.fromkeys(results.cases.topology))}
    return found.reset_index().sort_values(
        ["framework", "via", "topology", "byte_count"],
        key=lambda values: values.map(order) if values.name == "topology" else values,
    )


ALL_REDUCES = TableSpec(
    "all-reduces",
    rows=_group_all_reduces,
    title="all-reduce alone, by message size",
    words=lambda rows: [
        ShownColumn("framework"),
        ShownColumn("via", "all-reduce"),
        ShownColumn("topology"),
        ShownColumn("of", "gradients of model"),
    ],
    figures=lambda rows: [
        ShownColumn("byte_count", "MiB", ScaledFormat(".4g", 2**-20)),
        ShownColumn("seconds", "ms", MILLISECONDS),
        ShownColumn("gb_per_s", "bus bandwidth GB/s", ScaledFormat(".4g")),
        ShownColumn("repeats", form=COUNT),
    ],
    caption="measured after the training steps: the fastest of five all-reduces, each timed on its "
    "slowest rank; medians over repeats and cases. Bus bandwidth, as in NCCL's tests: 2 (n - 1) / "
    "n of the message size, for n ranks, divided by the time; for a ring it does not depend on n",
    notes=(),
)


# from the submission to the first step


def _group_starts(results: Results) -> "DataFrame":
    """Return the median time of each phase of a job's start, a row per framework and topology.

    It is the median over cases of their medians over repeats.
    """
    cases = results.cases
    names = [f"phase_{name}_seconds" for name in PHASES]
    known = cases[cases[names].notna().any(axis=1)]
    groups = known.groupby(["framework", "topology"], sort=False)
    found = groups[[*names, "to_first_step_seconds"]].median()
    return found.assign(cases=groups.size(), problem="").reset_index()


def _show_starts(rows: "DataFrame") -> list[ShownColumn]:
    """Return the table columns for the start of jobs: known phases, their sum and the warm-up."""

    def show(phase: str) -> ShownColumn:
        return ShownColumn(f"phase_{phase}_seconds", phase.replace("_", " "), SECONDS, UNKNOWN)

    return [
        ShownColumn("cases", form=COUNT),
        *map(show, _list_known_phases(rows)),
        ShownColumn("to_first_step_seconds", form=SECONDS),
        show(WARMUP),
    ]


def _list_known_phases(rows: "DataFrame") -> list[str]:
    """Return the names of phases before the first step that have a time in any row."""
    return [name for name in (QUEUE, *TO_FIRST_STEP) if rows[f"phase_{name}_seconds"].notna().any()]


STARTS = TableSpec(
    "starts",
    rows=_group_starts,
    title="time from the submission to the first step, in seconds",
    words=lambda rows: [ShownColumn("framework"), ShownColumn("topology")],
    figures=_show_starts,
    caption=lambda rows: (
        "times of rank 0: medians over the repeats of a case, then over the cases. "
        + "".join(f"{n.replace('_', ' ')}: {PHASES[n]}; " for n in _list_known_phases(rows))
        + f"warmup: {MEANINGS[WARMUP]}"
    ),
    notes=(),
)


# ranks

SHOWN_SLOW_RANKS = 3


def _list_spread_cases(results: Results) -> "DataFrame":
    """Return the cases with several ranks, joined with their slowest device and its host."""
    names = ["ranks", "host", "slowest_repeats", "repeats"]
    devices = results.frames.devices.groupby("case_id", sort=False)[names].first()
    devices = devices.rename(columns={"repeats": "repeats_of_device"})
    cases = results.cases[results.cases.imbalance.notna()]
    return cases.join(devices).assign(problem="")


RANK_SPREADS = TableSpec(
    "ranks",
    rows=_list_spread_cases,
    title="slowest rank of each case",
    words=lambda rows: [
        ShownColumn("case_id"),
        ShownColumn(
            "slowest rank",
            marks=True,
            cells=lambda rows: [
                f"{ranks.replace(' ', ' or ')} on {host}"
                for ranks, host in zip(rows.ranks, rows.host)
            ],
        ),
    ],
    figures=lambda rows: [
        ShownColumn(
            "slowest in repeats",
            cells=lambda rows: count_of(rows.slowest_repeats, rows.repeats_of_device),
        ),
        ShownColumn("imbalance"),
        ShownColumn("waiting_share"),
    ],
    caption="imbalance: median step time of the slowest rank / median step time of the median "
    "rank; waiting: 1 - mean step time of the ranks / step time of the slowest rank, averaged "
    "over steps; medians over repeats. If ranks synchronize within a step, as in an all-reduce, "
    "their step times include that wait, so the true imbalance and waiting may be higher",
    notes=(RANKS,),
)


def _list_shown_devices(results: Results) -> "DataFrame":
    """Return the SHOWN_SLOW_RANKS slowest devices and the fastest device of each case."""
    devices = results.frames.devices.assign(problem="")
    own = devices.groupby("case_id", sort=False)
    from_start, from_end = own.cumcount(), own.cumcount(ascending=False)
    return devices[(from_start < SHOWN_SLOW_RANKS) | (from_end == 0)]


RANK_TIMES = TableSpec(
    "rank times",
    rows=_list_shown_devices,
    title="step times by rank",
    words=lambda rows: [
        ShownColumn("case_id", "case"),
        ShownColumn("ranks", "rank", cells=lambda rows: list(rows.ranks.str.replace(" ", " or "))),
        ShownColumn("host"),
        ShownColumn("device_name", "device"),
    ],
    figures=lambda rows: [
        ShownColumn("slowest in repeats",
            cells=lambda rows: count_of(rows.slowest_repeats, rows.repeats)),
        ShownColumn("slowness", "step time / that of median rank", ScaledFormat(".3f")),
        *(ShownColumn(f"p{p}_seconds", f"p{p} ms", MILLISECONDS) for p in STEP_PERCENTILES),
    ],
    caption=f"up to {SHOWN_SLOW_RANKS} slowest ranks of each case, and the fastest; "
    "percentiles are over the steps of all repeats. The JSON report has all ranks",
    notes=(),
)  # fmt: skip
