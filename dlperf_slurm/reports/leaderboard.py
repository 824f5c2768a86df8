"""The history of a results folder -> leaderboards, headline figures and the list of runs."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.reports.tables import read_intervals
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.compare import Row
from dlperf_slurm.results.history.entries import describe_machine
from dlperf_slurm.results.history.run_cache import read_facts
from dlperf_slurm.results.labels import label_cases
from dlperf_slurm.results.model_hardware import describe_model
from dlperf_slurm.results.number_formats import ScaledFormat

if TYPE_CHECKING:
    from pandas import DataFrame

_SHARE = ScaledFormat(".0f", factor=100, unit=" %")
# what a leaderboard has in common: model with sizes, mode, hardware and precision
Subject = tuple[str, str, str, str]


def list_bests(history: "DataFrame") -> dict[Subject, list[Row]]:
    """Return the newest results by (model, mode, hardware, precision), best first per topology.

    Of each framework and variant only the fastest batch size is kept. The rows have the columns of
    the history and `label`, `cell` (throughput), and `share`, the ratio to the fastest result of
    the topology.
    """
    rows = history.assign(
        label=label_cases(history),
        cell=[
            Cell(median, interval=interval)
            for median, interval in zip(
                history["median"].tolist(),
                read_intervals(history, ("interval_low", "interval_high")),
            )
        ],
    )
    newest: dict[tuple[int, str], Row] = {}
    row: Row
    for row in list_records(rows):
        if row["median"] is not None:
            machine = describe_machine(row["provenance"]) or "unknown hardware"
            newest[row["timeline"], machine] = row
    fastest: dict[tuple[Subject, str, str], Row] = {}
    for (_, machine), row in newest.items():
        subject = (_name_model(row), row["mode"], machine, row["precision"])
        key = (subject, row["topology"], row["label"])
        if key not in fastest or fastest[key]["median"] < row["median"]:
            fastest[key] = row
    best: dict[tuple[Subject, str], float] = {}
    for (subject, topology, _), row in fastest.items():
        best[subject, topology] = max(row["median"], best.get((subject, topology), 0.0))
    boards: dict[Subject, list[Row]] = {}
    for (subject, topology, _), row in fastest.items():
        share = row["median"] / best[subject, topology]
        boards.setdefault(subject, []).append({**row, "share": share})
    for own in boards.values():
        own.sort(key=lambda row: (_rank_topology(row["topology"]), -row["median"]))
    return dict(sorted(boards.items()))


def _rank_topology(topology: str) -> tuple[int, int]:
    parsed = parse_topology(topology)
    return parsed.world_size, parsed.nodes


def _name_model(row: Row) -> str:
    counts = read_facts(row["work"]).get("parameter_count", [""])
    count = int(counts[0]) if counts[0].isdecimal() else None
    return describe_model(row["model"], json.loads(row["parameters"]), count)


def tabulate_leaderboards(
    bests: Mapping[Subject, Sequence[Row]], links: Mapping[str, str]
) -> Iterator[Table]:
    """Yield a leaderboard per subject, the first with a caption that holds for all.

    A subject is (model, mode, hardware, precision). `links` has the page of each run by id.
    """
    caption = (
        "the newest result of each framework at its fastest batch size: median over repeats with "
        "its 95 % interval; within each topology, the fastest framework comes first"
    )
    for (model, mode, hardware, precision), rows in bests.items():
        has_shares = any(row["share"] < 1 for row in rows)
        table = make_table(
            f"{model} {'training' if mode == TRAIN else 'inference'}, {precision}, on {hardware}",
            (
                *("topology", "framework", rows[0]["unit"]),
                *["share of the fastest"] * has_shares,
                *("batch size", "run"),
            ),
            [
                (
                    *(row["topology"], row["label"]),
                    replace(row["cell"], link=links.get(row["run_id"], "")),
                    *[Cell(row["share"], _SHARE)] * has_shares,
                    row["batch_size_per_device"],
                    Cell(shorten_run_id(row["run_id"]), link=links.get(row["run_id"], "")),
                )
                for row in rows
            ],
            2,
            caption,
            # omitted first if space is short: the run, to which the throughput links too
            (4 + has_shares,),
        )
        yield replace(table, kind="leaderboard")
        caption = ""


def list_headlines(bests: Mapping[Subject, Sequence[Row]]) -> list[str]:
    """Describe the best throughput of each model, mode and hardware in a sentence."""
    found: dict[tuple[str, str, str], Row] = {}
    for (model, mode, hardware, _), rows in bests.items():
        best = max(rows, key=lambda row: row["median"])
        key = (model, mode, hardware)
        if key not in found or found[key]["median"] < best["median"]:
            found[key] = best
    return [
        f"{model} {'trains' if mode == TRAIN else 'infers'} at {row['cell'].unmarked} "
        f"{row['unit']} at best on {hardware}: {row['label']}, {row['precision']}, batch size "
        f"{row['batch_size_per_device']} on {row['topology']}, {row['created_at'][:10]}."
        for (model, mode, hardware), row in found.items()
    ]


def tabulate_runs(
    runs: Sequence[Row],
    history: "DataFrame",
    links: Mapping[str, str],
    comparisons: Mapping[str, str],
) -> Table:
    """Make the table of runs; `links` and `comparisons` have the pages of each run by id.

    `runs` are rows of `list_rows`; `history` has the verdicts to count for each run.
    """
    verdicts: dict[str, Counter[str]] = {}
    for row in list_records(history):
        if row["verdict"]:
            verdicts.setdefault(row["run_id"], Counter())[row["verdict"]] += 1
    table = make_table(
        "Runs, the newest first",
        (
            *("run", "title", "site", "state", "files"),
            *("compared with previous run", "best result", "case of the best result"),
        ),
        [
            (
                Cell(shorten_run_id(row["run_id"]), link=links.get(row["run_id"], "")),
                *(row["title"], row["site"], row["state"]),
                Cell("CSV", link=f"{links[row['run_id']].removesuffix('.html')}.csv")
                if row["run_id"] in links
                else "",
                Cell(
                    ", ".join(
                        f"{n} {v}" for v, n in sorted(verdicts.get(row["run_id"], {}).items())
                    )
                    or ("compared" if row["run_id"] in comparisons else "first"),
                    link=comparisons.get(row["run_id"], ""),
                ),
                *(row["headline"], row["best_case"]),
            )
            for row in runs
        ],
        8,
        "compared with previous run: number of cases with each verdict. Each case is compared with "
        "the last earlier run that measured the case. The linked page compares the run with the "
        "last earlier run of the same matrix and site",
        # omitted first if space is short; the run links to its files, its title says what ran
        (2, 4, 5, 7),
    )
    return replace(table, kind="leaderboard")


def shorten_run_id(run_id: str) -> str:
    """Return date and time of a run id: "20240501-120000"; the whole id if it has none."""
    return run_id[:15] if run_id[:8].isdecimal() else run_id
