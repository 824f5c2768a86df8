"""The commands, in the order of the pipeline; each imports its stages when it is called."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm import __version__
from dlperf_slurm.errors import (
    CasesFailedError,
    DlperfError,
    EnvironmentMissingError,
    InputError,
    SchedulerError,
)

if TYPE_CHECKING:
    from rich.console import Console

    from dlperf_slurm.matrix import MatrixFile
    from dlperf_slurm.plan import Plan
    from dlperf_slurm.run import Run
    from dlperf_slurm.site import LoadedSite

PROGRAM = "dlperf-slurm"
INTERRUPTED_EXIT_CODE = 130


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one command; the exit code of errors is that of their class."""
    options = make_parser().parse_args(arguments)
    try:
        options.handler(options)
    except DlperfError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"\n{PROGRAM}: interrupted; what was submitted runs on", file=sys.stderr)
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        # `| head` closed the pipe; what is still buffered must not raise again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def make_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Deep-learning benchmarks on Slurm clusters: a TOML matrix goes in, tables "
        "to defend come out.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = commands.add_parser("init", help="copy example matrices and site configs to here")
    command.add_argument("directory", nargs="?", type=Path, default=Path())
    command.set_defaults(handler=run_init)

    command = commands.add_parser("env", help="environments of the frameworks")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser("create", help="create or update environments from pins")
    action.add_argument("frameworks", nargs="*", metavar="FRAMEWORK")
    action.add_argument("--all", action="store_true", help="of every framework")
    action.add_argument("--horovod", action="store_true", help="with Horovod, where it exists")
    action.set_defaults(handler=run_env_create)
    action = actions.add_parser("list", help="which environments there are, and where")
    action.set_defaults(handler=run_env_list)
    action = actions.add_parser("check", help="what works in them, and what is missing")
    action.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help="default: all")
    action.set_defaults(handler=run_env_check)

    command = commands.add_parser("config", help="the settings in force")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser("show", help="every value and the layer that it came from")
    action.add_argument("matrix", nargs="?", type=Path, help="a matrix, for its [slurm] table")
    _add_site_options(action)
    action.set_defaults(handler=run_config_show)
    action = actions.add_parser("schema", help="JSON Schema of a file, for editors")
    action.add_argument("file", choices=("matrix", "site"))
    action.set_defaults(handler=run_config_schema)

    command = commands.add_parser("plan", help="what a matrix would submit, and what it costs")
    command.add_argument("matrix", type=Path)
    _add_site_options(command)
    command.set_defaults(handler=run_plan)

    command = commands.add_parser("render", help="write a run directory without submitting it")
    command.add_argument("matrix", type=Path)
    _add_site_options(command)
    _add_results_option(command)
    command.set_defaults(handler=run_render)

    command = commands.add_parser("submit", help="submit a matrix, or go on with a run")
    command.add_argument("matrix", nargs="?", type=Path)
    command.add_argument("--resume", metavar="RUN", help="go on with the submission of a run")
    command.add_argument(
        "--retry", action="store_true", help="with --resume: try again what failed or was lost"
    )
    command.add_argument("--wait", action="store_true", help="follow it to the end, then report")
    _add_site_options(command)
    _add_results_option(command)
    command.set_defaults(handler=run_submit)

    command = commands.add_parser("verify", help="prove that frameworks do the same work")
    command.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help="default: all")
    command.add_argument("--model", action="append", default=[], help="default: all")
    command.add_argument("--site", default="local", help="site file or its name; default: local")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set one site value"
    )
    _add_results_option(command)
    command.set_defaults(handler=run_verify)

    for name, handler, text in (
        ("status", run_status, "where the array tasks of a run stand"),
        ("wait", run_wait, "follow a run to its end, then report"),
        ("cancel", run_cancel, "cancel what has not ended"),
        ("report", run_report, "make the tables of a run, from its files alone"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "run", nargs="?", help="run directory, run id or its beginning; default: the latest"
        )
        _add_results_option(command)
        command.set_defaults(handler=handler)
    return parser


def _add_site_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--site", help="site file or its name; default: this cluster's name, else slurm or local"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set one site value"
    )


def _add_results_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of the runs (results)"
    )


def run_init(options: argparse.Namespace) -> None:
    from dlperf_slurm.init import copy_examples

    for path in copy_examples(options.directory):
        print(path)
    print(f"Next: {PROGRAM} plan {options.directory / 'matrices' / 'quickstart.toml'}")


def run_env_create(options: argparse.Namespace) -> None:
    from dlperf_slurm.environments.create import create_environment
    from dlperf_slurm.environments.pins import list_pins, read_pins

    if options.all == bool(options.frameworks):
        raise InputError(f"env create: name either frameworks ({', '.join(list_pins())}) or --all")
    chosen = [read_pins(name) for name in (list_pins() if options.all else options.frameworks)]
    without = [pins.framework for pins in chosen if not pins.can_have_horovod]
    if options.horovod and without and not options.all:
        raise InputError(f"env create: Horovod does not exist for {', '.join(without)}")
    missing = []
    for pins in chosen:
        with_horovod = options.horovod and pins.can_have_horovod
        try:
            create_environment(pins.framework, lambda line: print(line, flush=True), with_horovod)
        except EnvironmentMissingError as error:
            print(f"{PROGRAM}: error: {error}", file=sys.stderr, flush=True)
            missing.append(pins.framework)
    if missing:
        raise EnvironmentMissingError(
            f"{len(missing)} of {len(chosen)} environments could not be made: {', '.join(missing)}"
        )


def run_env_list(options: argparse.Namespace) -> None:
    from dlperf_slurm.environments.check import list_environments
    from dlperf_slurm.reports.terminal import print_table

    rows = list_environments()
    header = ["framework", "environment", "Python", "Horovod", "MB", "path"]
    print_table(header, rows, _make_console(), figures=False)
    for framework, state, *_ in rows:
        if state != "current":
            print(f"{framework} is {state}: {PROGRAM} env create {framework}")


def run_env_check(options: argparse.Namespace) -> None:
    from dlperf_slurm.environments.check import check_environment
    from dlperf_slurm.environments.pins import list_pins, read_pins
    from dlperf_slurm.reports.terminal import print_table

    names = [read_pins(name).framework for name in options.frameworks or list_pins()]
    checks = []
    for name in names:
        print(f"checking {name}", file=sys.stderr, flush=True)
        checks.append(check_environment(name))
    header = ["framework", "Python", "environment", "import", "MPI", "Horovod"]
    print_table(header, [check.row for check in checks], _make_console(), figures=False)
    for check in checks:
        for problem in check.problems:
            print(f"{check.framework}: {problem}")
    broken = [check.framework for check in checks if check.is_broken(bool(options.frameworks))]
    if broken:
        raise EnvironmentMissingError(f"not in order: {', '.join(broken)}")


def run_config_show(options: argparse.Namespace) -> None:
    from dlperf_slurm.config import read_toml
    from dlperf_slurm.reports.terminal import print_table
    from dlperf_slurm.site import list_effective_values, load_site

    matrix = read_toml(options.matrix) if options.matrix else None
    loaded = load_site(options.site, matrix, options.set)
    rows = [
        [key, "-" if value is None else repr(value), source]
        for key, value, source in list_effective_values(loaded)
    ]
    print_table(
        ["key", "value", "layer"], rows, _make_console(), title=f"site {loaded.name}", figures=False
    )


def run_config_schema(options: argparse.Namespace) -> None:
    import json

    from dlperf_slurm.matrix import Matrix
    from dlperf_slurm.site import Site

    kind = Matrix if options.file == "matrix" else Site
    print(json.dumps(kind.model_json_schema(), indent=1))


def run_plan(options: argparse.Namespace) -> None:
    from rich.text import Text

    from dlperf_slurm.reports.terminal import print_plan

    _, loaded, plan = _load_plan(options, must_reach_cluster=False)
    console = _make_console()
    print_plan(plan, console)
    for line in _list_missing_environments(loaded, plan):
        console.print(Text(f"note: {line}", style="yellow"))


def run_render(options: argparse.Namespace) -> None:
    run = _stage(options, must_reach_cluster=False)
    for group_id in run.list_group_ids():
        print(run.find_script(group_id))
    print(f"Submit it: {PROGRAM} submit --resume {run.path}")


def run_submit(options: argparse.Namespace) -> None:
    from dlperf_slurm.retry import stage_retry
    from dlperf_slurm.run import find_run
    from dlperf_slurm.submit import submit_run

    if (options.matrix is None) == (options.resume is None):
        raise InputError("submit: name either a MATRIX or --resume RUN")
    if options.retry and options.resume is None:
        raise InputError("submit: --retry goes with --resume RUN")
    if options.resume is not None:
        if options.site or options.set:
            raise InputError("submit: a run keeps its site; --site and --set go with a MATRIX")
        run = find_run(options.resume, options.results)
        if options.retry:
            print(f"{stage_retry(run)} array tasks to try again", flush=True)
    else:
        run = _stage(options, must_reach_cluster=True)
    print(f"Run directory: {run.path}", flush=True)
    submit_run(run, lambda line: print(line, flush=True))
    if options.wait:
        _follow(run)
        return
    print(f"Follow it:  {PROGRAM} status {run.path}")
    print(f"Or wait:    {PROGRAM} wait {run.path}")
    print(f"At the end: {PROGRAM} report {run.path}")


def run_verify(options: argparse.Namespace) -> None:
    from dlperf_slurm.agreement import (
        DATA_PARALLEL_HEADER,
        PARITY_HEADER,
        make_data_parallel_rows,
        make_parity_rows,
    )
    from dlperf_slurm.config import check_known
    from dlperf_slurm.reports.terminal import print_table
    from dlperf_slurm.site import load_site
    from dlperf_slurm.stage import make_run_id
    from dlperf_slurm.verify import SIZES, verify_frameworks
    from dlperf_slurm.worker.frameworks import list_frameworks
    from dlperf_slurm.workplace import make_workplace

    try:
        for framework in options.frameworks:
            check_known(framework, list_frameworks(), "a framework")
        for model in options.model:
            check_known(model, list(SIZES), "a model")
    except ValueError as error:
        raise InputError(f"verify: {error}") from error
    loaded = load_site(options.site, None, options.set)
    workplace = make_workplace(
        loaded.site,
        options.results / make_run_id("verify", loaded.name),
        lambda line: print(line, flush=True),
    )
    parity, data_parallel = verify_frameworks(
        options.frameworks or list_frameworks(), options.model or list(SIZES), workplace
    )
    console = _make_console()
    rows = make_parity_rows(parity)
    print_table(PARITY_HEADER, rows, console, "one rank, fp32: values, relative differences")
    rows = make_data_parallel_rows(data_parallel)
    print_table(DATA_PARALLEL_HEADER, rows, console, "two ranks, fp32: relative differences")
    print(f"Files: {workplace.folder}", flush=True)
    compared = [line for line in (*parity, *data_parallel) if not line.is_left_out]
    unlike = [line for line in compared if not line.is_same]
    if unlike:
        raise CasesFailedError(f"{len(unlike)} of {len(compared)} comparisons failed, see above")
    if options.frameworks and not compared:
        raise EnvironmentMissingError("\n".join(line.problem for line in parity))


def run_status(options: argparse.Namespace) -> None:
    from dlperf_slurm.reports.progress import print_states
    from dlperf_slurm.run import find_run
    from dlperf_slurm.track import Tracker

    run = find_run(options.run, options.results)
    tracker = Tracker(run)
    print_states(run, tracker.refresh(ask_scheduler=True), _make_console())
    if tracker.scheduler_error:
        raise SchedulerError(f"{tracker.scheduler_error}\nWhat is shown comes from files alone.")


def run_wait(options: argparse.Namespace) -> None:
    from dlperf_slurm.run import find_run

    _follow(find_run(options.run, options.results))


def run_cancel(options: argparse.Namespace) -> None:
    from dlperf_slurm.run import find_run
    from dlperf_slurm.track import Tracker, cancel_run

    run = find_run(options.run, options.results)
    print(f"{cancel_run(Tracker(run))} array tasks of {run.run_id} cancelled")


def run_report(options: argparse.Namespace) -> None:
    from dlperf_slurm.run import find_run

    _report(find_run(options.run, options.results))


def _load_plan(
    options: argparse.Namespace, must_reach_cluster: bool
) -> "tuple[MatrixFile, LoadedSite, Plan]":
    from dlperf_slurm.cases import expand_matrix
    from dlperf_slurm.matrix import read_matrix
    from dlperf_slurm.plan import make_plan
    from dlperf_slurm.site import load_site

    if not options.matrix.exists():
        raise InputError(
            f"{options.matrix}: there is no such file; `{PROGRAM} init` copies examples to here"
        )
    file = read_matrix(options.matrix)
    expansion = expand_matrix(file)
    loaded = load_site(options.site, file.toml, options.set)
    max_array_size = _find_max_array_size(loaded, must_reach_cluster)
    return file, loaded, make_plan(expansion, loaded.site, max_array_size)


def _find_max_array_size(loaded: "LoadedSite", must_reach_cluster: bool) -> int:
    from dlperf_slurm import slurm
    from dlperf_slurm.plan import DEFAULT_MAX_ARRAY_SIZE

    if loaded.site.max_array_size is not None:
        return loaded.site.max_array_size
    if loaded.site.scheduler == "local":
        return DEFAULT_MAX_ARRAY_SIZE
    try:
        text = slurm.read_cluster_config().get("MaxArraySize", "not shown")
    except SchedulerError:
        if must_reach_cluster:
            raise
        return DEFAULT_MAX_ARRAY_SIZE
    if not text.isdigit() or int(text) == 0:
        raise SchedulerError(f"this cluster takes no array jobs: its MaxArraySize is {text}")
    return int(text)


def _stage(options: argparse.Namespace, must_reach_cluster: bool) -> "Run":
    from dlperf_slurm.stage import stage_run

    file, loaded, plan = _load_plan(options, must_reach_cluster)
    if not plan.groups:
        reasons = dict.fromkeys(left_out.reason for left_out in plan.left_out)
        raise InputError(
            f"{options.matrix}: site {loaded.name} can run none of its cases:\n  "
            + "\n  ".join(reasons)
        )
    missing = _list_missing_environments(loaded, plan)
    if missing:
        raise EnvironmentMissingError("\n".join(missing))
    return stage_run(options.results, file, loaded, plan, sys.argv)


def _list_missing_environments(loaded: "LoadedSite", plan: "Plan") -> list[str]:
    frameworks = {framework for group in plan.groups for framework in group.frameworks}
    lines = []
    for framework in sorted(frameworks):
        venv = loaded.site.find_environment(framework).venv
        if venv is not None and not (Path(venv) / "bin" / "python").exists():
            lines.append(
                f"{framework}: no environment at {venv}; create it with `{PROGRAM} env create "
                f"{framework}`, or name your own under [environments.{framework}] of the site file"
            )
    return lines


def _follow(run: "Run") -> None:
    from dlperf_slurm.reports.progress import show_progress
    from dlperf_slurm.track import Tracker

    tracker = Tracker(run)
    show_progress(tracker, _make_console())
    calls = ", ".join(f"{count} {name}" for name, count in tracker.watcher.calls.items())
    if calls:
        print(f"{len(tracker.array_job_ids)} sbatch; while waiting: {calls}")
    _report(run)


def _report(run: "Run") -> None:
    from dlperf_slurm.collect import collect_outcomes
    from dlperf_slurm.reports import FILE_FORMATS, load_format
    from dlperf_slurm.reports.terminal import print_summary
    from dlperf_slurm.run import REPORT_DIR
    from dlperf_slurm.summarize import summarize

    summary = summarize(run.manifest, collect_outcomes(run))
    folder = run.path / REPORT_DIR
    folder.mkdir(exist_ok=True)
    for name in FILE_FORMATS:
        report_format = load_format(name)
        text = report_format.serialize(summary)
        # as bytes: CSV has line ends of its own, and write_text(newline=) is Python 3.10
        (folder / report_format.FILE_NAME).write_bytes(text.encode())
    print_summary(summary, _make_console())
    print(f"\nReport: {folder}", flush=True)
    if not summary.is_complete:
        missing = summary.planned_repeats - summary.ok_repeats
        raise CasesFailedError(
            f"{missing} of {summary.planned_repeats} repeats have no sound record; "
            "the footnotes name each"
        )


def _make_console() -> "Console":
    from rich.console import Console

    # piped output is read by programs and by grep: no wrapping at 80 columns there
    width = None if sys.stdout.isatty() else 200
    return Console(width=width)
