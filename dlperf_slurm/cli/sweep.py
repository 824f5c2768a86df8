"""The commands sweep and nodes: measure every node of a partition, and name the bad ones."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.cli import staging
from dlperf_slurm.cli.options import (
    RUN_HELP,
    add_command,
    add_json_option,
    add_results_option,
    add_site_options,
)
from dlperf_slurm.cli.output import make_console, print_json, say, warn, write_file
from dlperf_slurm.cli.runs import (
    add_wait_options,
    check_submission,
    mark_own,
    print_result,
    submit_and_follow,
)
from dlperf_slurm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.jobs.run_directory import Run
    from dlperf_slurm.results.node_verdicts import NodeVerdicts


# a workload that gives the same bits on equal nodes, as far as the framework can
_DETERMINISTIC = (
    *(f"protocol.min_{phase}_seconds=0" for phase in ("warmup", "measured")),
    'env.DLPERF_SLURM_DETERMINISTIC="1"',
)
# minimum number of nodes for a sweep over pairs of nodes
_LEAST_NODES = 4


def add_commands(commands: "Commands") -> None:
    """Add the commands `sweep` and `nodes` to the parser."""
    parser = add_command(commands, "sweep", run_sweep)
    parser.add_argument("matrix", type=Path,
        help="matrix file (TOML) whose cases use one node each, or two with --pairs")  # fmt: skip
    parser.add_argument("--nodes", metavar="LIST", default="",
        help="nodes to measure, such as n[1-8] (default: all of the site's partition)")  # fmt: skip
    parser.add_argument("--blocks", type=int, default=5, metavar="N",
        help="repeats of each case on each node or pair (default: 5; at least 3)")  # fmt: skip
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--bits", action="store_true",
        help="compare losses bit by bit, with deterministic kernels and a fixed number "
        "of steps")  # fmt: skip
    kinds.add_argument("--pairs", action="store_true",
        help="measure all pairs of nodes, each node in one pair at a time")  # fmt: skip
    parser.add_argument("--rounds", type=int, metavar="K",
        help="with --pairs: measure only K rounds, chosen at random; in a round each node is in at "
        "most one pair (default: all; at least 3)")  # fmt: skip
    parser.add_argument(
        "--unchecked",
        action="store_true",
        help="submit without checking the jobs against the cluster's limits",
    )
    add_wait_options(parser)
    add_site_options(parser)
    add_results_option(parser)
    parser.set_defaults(within=None, exclude_bad_nodes=False)
    parser = add_command(commands, "nodes", run_nodes)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"{RUN_HELP}; default: latest")
    add_results_option(parser)
    parser.add_argument("--at-least", metavar="PERCENT", default="2%",
        help="smallest slowdown at which a node counts as slow (default: 2%%)")  # fmt: skip
    parser.add_argument("--markdown", type=Path, metavar="FILE",
        help="write the tables as Markdown")  # fmt: skip
    add_json_option(parser)


def run_sweep(options: argparse.Namespace) -> None:
    """Submit array jobs that measure a matrix's cases on each node; raises as `submit` does."""
    from dlperf_slurm.jobs.grouping import choose_pairs
    from dlperf_slurm.stats.slow_nodes import LEAST_BLOCKS

    if options.blocks < LEAST_BLOCKS:
        raise InputError(
            f"--blocks: {options.blocks} is not allowed; allowed: at least {LEAST_BLOCKS}; fewer "
            "cannot tell a slow node from noise"
        )
    options.set = [*(_DETERMINISTIC if options.bits else ()), *options.set]
    with print_result(options) as runs:
        _, loaded, plan, *_ = staging.load_plan(options, must_reach_cluster=False)
        if loaded.site.scheduler != "slurm":
            raise InputError(f"site {loaded.name} has no Slurm; a sweep needs a Slurm partition")
        size = 2 if options.pairs else 1
        if any(case.topology.nodes != size for case in plan.cases):
            raise InputError(
                f"{options.matrix}: this sweep measures {('one node', 'two nodes')[size - 1]} at a "
                f"time; set the topology: --set axes.topology={size}n8g"
            )
        partitions = {site.partition or "" for site in plan.sites.values()}
        nodes, absent = _choose_nodes(loaded.site.clusters or "", partitions, options.nodes)
        measured, rounds = nodes, 1
        if options.pairs or options.rounds is not None:
            rounds = _count_rounds(options, len(nodes))
            measured = choose_pairs(nodes, rounds, plan.cases[0].protocol.shuffle_seed)
        repeats = len(measured) * options.blocks
        options.set = [*options.set, f"protocol.repeats={repeats}", f"protocol.blocks={rounds}"]
        checked = check_submission(options, measured)._replace(absent_nodes=absent)
        other = [one.case_id for one in checked.plan.cases if one.protocol.repeats != repeats]
        if other:
            raise InputError(
                f"{options.matrix}: {other[0]}: an [[override]] sets the repeats of this case, but "
                "in a sweep only --blocks may set repeats; remove repeats from the [[override]]"
            )
        if options.pairs:
            say(f"{rounds} rounds, each with {len(measured) // rounds} pairs of nodes")
        each = "pair" if options.pairs else "node"
        say(
            f"{len(nodes)} nodes, {options.blocks} repeats of each case on each {each}; nodes not "
            f"available: {len(absent)}"
        )
        runs += staging.stage_matrices(options, [checked])
        mark_own(runs[0])
        submit_and_follow(runs[0], options.wait, is_new=True)


def _count_rounds(options: argparse.Namespace, node_count: int) -> int:
    """Return the number of rounds of a sweep over pairs: `--rounds`, or those of all pairs.

    In a round, each node is in at most one pair. Raises InputError without `--pairs`, for too few
    nodes, or for a number of rounds that is not allowed.
    """
    from dlperf_slurm.stats.slow_nodes import LEAST_BLOCKS

    if not options.pairs:
        raise InputError("--rounds: allowed only with --pairs")
    if node_count < _LEAST_NODES:
        raise InputError(
            f"--pairs: {node_count} nodes; allowed: at least {_LEAST_NODES}; fewer cannot tell a "
            "slow node from a slow link"
        )
    most = node_count - 1 + node_count % 2
    rounds = most if options.rounds is None else options.rounds
    if not LEAST_BLOCKS <= rounds <= most:
        raise InputError(
            f"--rounds: {rounds} is not allowed; allowed: {LEAST_BLOCKS} to {most}; {most} rounds "
            f"measure all pairs of {node_count} nodes"
        )
    return int(rounds)


def _choose_nodes(
    clusters: str, partitions: "set[str]", names: str
) -> "tuple[list[str], list[str]]":
    """Return the partitions' nodes that can run jobs, and "NODE: STATE" of the other nodes.

    `names` restricts both to a list such as "n[1-8]"; "" is all nodes. Raises InputError if no node
    can run jobs, or too few to compare.
    """
    from dlperf_slurm.jobs.manifest import MAX_NODES
    from dlperf_slurm.slurm_client import is_usable, read_node_states

    states: dict[str, str] = {}
    for partition in sorted(partitions):
        states.update(read_node_states(clusters, partition, names))
    nodes = [node for node, state in states.items() if is_usable(state)]
    absent = [f"{node}: {state}" for node, state in states.items() if not is_usable(state)]
    if len(states) > MAX_NODES:
        raise InputError(
            f"--nodes: {len(states)} nodes; at most {MAX_NODES} are allowed: name fewer"
        )
    if len(nodes) < 2:
        where = ", ".join(filter(None, sorted(partitions))) or "the default partition"
        option = f"--nodes {names}" if names else "--nodes"
        raise InputError(
            f"{option}: {len(nodes)} nodes of {where} can run jobs; a sweep needs at least 2"
            + "".join(f"; {text}" for text in absent)
        )
    return nodes, absent


def run_nodes(options: argparse.Namespace) -> None:
    """Print the verdict on each node of a sweep (good, slow, failed, ...).

    Raises BadNodesError, CasesFailedError or InconclusiveError unless all nodes are good.
    """
    from dlperf_slurm.jobs.archives import find_readable_run
    from dlperf_slurm.reports.regression_check import parse_percent

    least_effect = parse_percent(options.at_least)
    names = options.runs or [None]
    runs = [find_readable_run(name, options.results) for name in names]
    show_nodes(runs, least_effect, options.json, options.markdown)


def show_nodes(
    runs: "Sequence[Run]",
    least_effect: Optional[float] = None,
    is_json: bool = False,
    markdown: Optional[Path] = None,
) -> None:
    """Print the verdict on each node of sweeps, and what differs between the nodes of all runs.

    Writes lists of a sweep's good and bad nodes into its report folder, and the tables to the file
    `markdown`, if any. `least_effect` is the slowdown from which a node is slow, such as 0.02; None
    is LEAST_EFFECT. `is_json` prints JSON instead of tables. Raises InputError for runs without any
    record; BadNodesError, CasesFailedError or InconclusiveError unless all nodes of the sweeps are
    good.
    """
    from dlperf_slurm.reports import node_verdicts_text
    from dlperf_slurm.reports.formats.markdown import write_document
    from dlperf_slurm.reports.terminal import print_footnotes, show_table
    from dlperf_slurm.results.collect import collect_outcomes
    from dlperf_slurm.results.node_differences import list_differences, read_node_facts
    from dlperf_slurm.results.node_verdicts import LEAST_EFFECT, find_bad_nodes, judge_nodes
    from dlperf_slurm.results.pair_verdicts import judge_pairs

    least = LEAST_EFFECT if least_effect is None else least_effect
    read = [(run.manifest, collect_outcomes(run)) for run in runs]
    sweeps: list[NodeVerdicts] = []
    for manifest, cases in read:
        if manifest.has_pairs:
            sweeps += judge_pairs(manifest, cases, least)
        elif manifest.nodes:
            sweeps.append(judge_nodes(manifest, cases, least))
    facts = read_node_facts(read)
    if not (facts or sweeps):
        names = ", ".join(str(run.path) for run in runs)
        raise InputError(
            f"{names}: no repeat has a record, so no nodes can be compared; see `status`"
        )
    differences = list_differences(facts)
    bad = find_bad_nodes(sweeps, [cases for manifest, cases in read if not manifest.nodes])
    tables = [node_verdicts_text.tabulate_nodes(verdicts) for verdicts in sweeps]
    if differences:
        tables.append((node_verdicts_text.tabulate_differences(differences, bad), ()))
    if is_json:
        print_json(node_verdicts_text.serialize_nodes(sweeps, differences, bad))
    else:
        console = make_console()
        for table, notes in tables:
            show_table(table, console)
            print_footnotes(notes, console)
        if facts and not differences:
            say("No node differs from the majority in hardware, software or settings")
    if markdown is not None:
        documents = [([table], notes) for table, notes in tables] or [([], ())]
        text = "\n".join(write_document("Nodes", *one) for one in documents)
        write_file(markdown, "--markdown", text.encode())
    of_nodes = iter([one for one in sweeps if not one.is_of_links])
    for run in runs:
        if run.manifest.nodes:
            _write_lists(run, next(of_nodes), is_json)
    node_verdicts_text.guard_nodes(sweeps)


def _write_lists(run: "Run", verdicts: "NodeVerdicts", is_quiet: bool) -> None:
    """Write the lists of good and bad nodes of a sweep, and print their paths unless `is_quiet`."""
    from dlperf_slurm.files.folders import run_permissions
    from dlperf_slurm.reports import node_verdicts_text

    try:
        with run_permissions(run.path):
            paths = node_verdicts_text.write_lists(run, verdicts)
    except OSError as error:
        warn(f"the lists of nodes were not written: {error}")
        return
    if not is_quiet:
        for path in paths:
            say(f"{path.name}: {path}")
