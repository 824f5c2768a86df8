"""The verdicts on the nodes of a sweep -> a table, JSON, lists for Slurm, and an error."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlperf_slurm.errors import BadNodesError, CasesFailedError, DlperfError, InconclusiveError
from dlperf_slurm.files.folders import make_folder
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.run_directory import REPORT_DIR, Run
from dlperf_slurm.plain_text import list_some
from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.reports.comparison_text import SPEED, format_percent
from dlperf_slurm.reports.tables import ShownColumn, TableSpec, tabulate_rows
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.node_differences import NodeDifference
from dlperf_slurm.results.node_verdicts import (
    ABSENT,
    FAILED,
    GOOD,
    NOT_MEASURED,
    SLOW,
    UNDECIDED,
    WRONG,
    NodeVerdicts,
)
from dlperf_slurm.results.provenance import quote
from dlperf_slurm.stats.median import Interval

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA_VERSION = 2
# in the order of the table
_ORDER = (FAILED, WRONG, SLOW, UNDECIDED, NOT_MEASURED, ABSENT, GOOD)
# number of links in the table: if fewer are bad, the slowest good ones are added
_GOOD_LINKS = 5
# file of the report folder -> verdicts of the nodes in it, for --nodelist and --exclude
_LISTS = {"good_nodes.txt": (GOOD,), "bad_nodes.txt": (FAILED, WRONG, SLOW)}


def tabulate_nodes(verdicts: NodeVerdicts) -> tuple[Table, tuple[str, ...]]:
    """Return a table with a row per node, the bad ones first, and the texts of its footnotes.

    For links, rows are the links that are not good, and the slowest of the good ones.
    """
    order = {verdict: place for place, verdict in enumerate(_ORDER)}
    nodes = verdicts.nodes.assign(place=verdicts.nodes.verdict.map(order))
    if verdicts.is_of_links:
        ratios = [min((one.ratio for one in own), default=0.0) for own in nodes.effects]
        nodes = nodes.assign(ratio=ratios).sort_values(["place", "ratio"])
        nodes = nodes.head(max(_GOOD_LINKS, int((nodes.verdict != GOOD).sum())))
    nodes = nodes.sort_values("place", kind="stable", ignore_index=True)
    texts = map(partial(_explain, verdicts.differences), nodes.node, nodes.verdict, nodes.reason)
    spec = TableSpec(
        "nodes",
        title=f"{verdicts.manifest.run_id}{', links' * verdicts.is_of_links}: "
        f"{count_verdicts(verdicts)}",
        words=lambda rows: [
            ShownColumn("node", "link" if verdicts.is_of_links else "node"),
            ShownColumn("verdict", marks=True),
        ],
        figures=lambda rows: [
            *(
                ShownColumn(name, missing="none", cells=partial(_make_cells, place))
                for place, name in enumerate(verdicts.figures)
            ),
            ShownColumn("repeats", cells=lambda rows: [
                f"{int(done)} of {int(planned)}"
                for done, planned in zip(rows.measured, rows.planned)
            ]),
        ],
        caption=_describe_method(verdicts),
    )  # fmt: skip
    (table,), notes = tabulate_rows(spec, nodes, ([text] for text in texts))
    return table, notes


def _explain(differences: Sequence[NodeDifference], node: str, verdict: str, reason: str) -> str:
    """Return the reason of a verdict on a node; for a bad node also how it differs from others."""
    own = [one.describe() for one in differences if node in one.nodes]
    if verdict not in (FAILED, WRONG, SLOW) or not own:
        return reason
    return f"{reason}; differs from other nodes: {list_some(own)}"


def tabulate_differences(differences: Sequence[NodeDifference], bad: Mapping[str, str]) -> Table:
    """Make a table with a row per difference between nodes; those of bad nodes come first.

    `bad` has the verdict on each slow or failed node, by node.
    """
    rows = sorted(differences, key=lambda one: not any(node in bad for node in one.nodes))
    has_kinds = any(one.kind for one in rows)
    return make_table(
        "What differs between nodes",
        ["fact", *["kind"] * has_kinds, "most nodes have", "other value", "nodes"],
        [
            (
                one.fact,
                *[one.kind or "all"] * has_kinds,
                "no majority" if one.usual is None else quote(one.usual),
                quote(one.value),
                f"{len(one.nodes)} of {one.compared}: {_list_nodes(one.nodes, bad)}",
            )
            for one in rows
        ],
        text_columns=4 + has_kinds,
        caption=(
            "values as last recorded, compared between nodes with the same GPU and CPU models; a "
            "value that only slow nodes have is a likely cause of the slowness"
        ),
    )  # fmt: skip


def _list_nodes(nodes: Sequence[str], bad: Mapping[str, str]) -> str:
    """List nodes, the bad ones first with their verdicts: "n3 (slow), n1"; at most 8 by name."""
    order = sorted(nodes, key=lambda node: node not in bad)
    return list_some([f"{node} ({bad[node]})" if node in bad else node for node in order], 8)


def _make_cells(place: int, rows: "DataFrame") -> list[Cell]:
    """Make a column of cells: each node's speed relative to the other nodes, with its interval.

    `place` is the index of the measured figure in `NodeVerdicts.figures`.
    """
    effects = [own[place] if own else None for own in rows.effects]
    return [
        Cell(one.ratio, SPEED, interval=Interval(one.low, one.high) if one.low > 0 else None)
        if one and one.ratio == one.ratio
        else Cell(None)
        for one in effects
    ]


def _describe_method(verdicts: NodeVerdicts) -> str:
    """Describe how nodes or links are compared, and from which slowdown one is slow."""
    if verdicts.manifest.has_pairs:
        of_links = (
            "speed of a pair of nodes relative to the speed that both nodes have in other pairs: "
            "median over the blocks",
            "speed of a node relative to the other nodes, corrected for the nodes that it was "
            "paired with: median over the rounds",
        )[not verdicts.is_of_links]
        return (
            f"{of_links} (95 % interval); verdict slow: significantly slower, and by at least "
            f"{format_percent(verdicts.least_effect)}; the risk that any node is called slow by "
            "chance is at most 5 %, and the same holds for links (docs/statistics.md, slow links)"
        )
    return (
        "speed of a node relative to the median of the nodes that are not slow, in the same block "
        "of repeats: median over the blocks (95 % interval); verdict slow: significantly slower, "
        f"and by at least {format_percent(verdicts.least_effect)}; the risk that any "
        "measured value of any node is called slow by chance is at most 5 % "
        "(docs/statistics.md, slow nodes)" + "".join(f"; {note}" for note in verdicts.bit_notes)
    )


def count_verdicts(verdicts: NodeVerdicts) -> str:
    """Count the nodes of each verdict: "1 failed, 2 slow, 5 good"."""
    found = verdicts.nodes.verdict.tolist()
    return ", ".join(f"{found.count(one)} {one}" for one in _ORDER if one in found)


def serialize_nodes(
    sweeps: Sequence[NodeVerdicts], differences: Sequence[NodeDifference], bad: Mapping[str, str]
) -> dict[str, Any]:
    """Return verdicts, differences and `bad` nodes' verdicts as a JSON object, in full precision.

    "bit_notes" says for each group of equal nodes of a sweep what was compared bitwise, or why not.
    """
    nodes = []
    for verdicts in sweeps:
        for row in list_records(verdicts.nodes):
            effects = [
                {
                    "figure": name,
                    **{key: None if value != value else value for key, value in vars(one).items()},
                }
                for name, one in zip(verdicts.figures, row["effects"])
            ]
            names = {"run_id": verdicts.manifest.run_id, "least_effect": verdicts.least_effect}
            nodes.append({**names, **row, "effects": effects})
    return {
        "schema_version": SCHEMA_VERSION,
        "nodes": nodes,
        "bit_notes": [
            {"run_id": verdicts.manifest.run_id, "note": note}
            for verdicts in sweeps
            for note in verdicts.bit_notes
        ],
        "differences": [
            {**vars(one), "bad_nodes": [node for node in one.nodes if node in bad]}
            for one in differences
        ],
    }


def write_lists(run: Run, verdicts: NodeVerdicts) -> list[Path]:
    """Write files of the good and of the bad nodes, one per line, for sbatch; return their paths.

    The files are in the report folder of the run; for an archive none are written. Raises OSError
    if the run directory is read-only.
    """
    if not run.path.is_dir():
        return []
    make_folder(run.path / REPORT_DIR, root=run.path)
    paths = []
    for name, kinds in _LISTS.items():
        path = run.path / REPORT_DIR / name
        text = "".join(f"{node}\n" for node in verdicts.list_nodes(*kinds))
        write_file(path, text.encode(), root=run.path)
        paths.append(path)
    return paths


def guard_nodes(sweeps: Sequence[NodeVerdicts]) -> None:
    """Raise an error unless all nodes of the sweeps are good, or were not available.

    BadNodesError for bad nodes, else CasesFailedError for nodes that were not measured, else
    InconclusiveError for undecided nodes. The message names the nodes of all these kinds.
    """
    errors: Sequence[tuple[str, type[DlperfError]]] = (
        *((kind, BadNodesError) for kind in (FAILED, WRONG, SLOW)),
        *((NOT_MEASURED, CasesFailedError), (UNDECIDED, InconclusiveError)),
    )
    found = [
        (kind, error, list(dict.fromkeys(n for one in sweeps for n in one.list_nodes(kind))))
        for kind, error in errors
    ]
    named = [(f"{kind}: {list_some(nodes)}", error) for kind, error, nodes in found if nodes]
    if named:
        raise named[0][1]("; ".join(text for text, _ in named))
