"""The commands and their options; handlers import their stage when they are called."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

from dlperf_slurm import __version__
from dlperf_slurm.cli import audit, compare, data, history, imports, preparation, report, runs
from dlperf_slurm.cli.output import PROGRAM, escape_unencodable, silence_output
from dlperf_slurm.errors import DlperfError, InputError

INTERRUPTED_EXIT_CODE = 130
# as of any program that SIGPIPE ends: 0 might be taken for a verdict
READER_GONE_EXIT_CODE = 141


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one command; the exit code of errors is that of their class."""
    escape_unencodable()
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
        silence_output()
        return READER_GONE_EXIT_CODE
    except OSError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return InputError.exit_code
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
    command.set_defaults(handler=preparation.run_init)

    command = commands.add_parser("env", help="environments of the frameworks")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser("create", help="create or update environments from pins")
    action.add_argument("frameworks", nargs="*", metavar="FRAMEWORK")
    action.add_argument("--all", action="store_true", help="of every framework")
    action.add_argument("--horovod", action="store_true", help="with Horovod, where it exists")
    action.set_defaults(handler=preparation.run_env_create)
    action = actions.add_parser("list", help="which environments there are, and where")
    action.set_defaults(handler=preparation.run_env_list)
    action = actions.add_parser("check", help="what works in them, and what is missing")
    action.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help="default: all")
    action.set_defaults(handler=preparation.run_env_check)

    data.add_data_commands(commands.add_parser("data", help="real files for models to read"))

    command = commands.add_parser("config", help="the settings in force")
    actions = command.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser("show", help="every value and the layer that it came from")
    action.add_argument("matrix", nargs="?", type=Path, help="a matrix, for its [slurm] table")
    _add_site_options(action)
    action.set_defaults(handler=preparation.run_config_show)
    action = actions.add_parser("schema", help="JSON Schema of a file, for editors")
    action.add_argument("file", choices=("matrix", "site"))
    action.set_defaults(handler=preparation.run_config_schema)

    command = commands.add_parser("plan", help="what a matrix would submit, and what it costs")
    command.add_argument("matrix", type=Path)
    _add_site_options(command)
    command.set_defaults(handler=runs.run_plan)

    command = commands.add_parser("render", help="write a run directory without submitting it")
    command.add_argument("matrix", type=Path)
    _add_site_options(command)
    _add_results_option(command)
    command.set_defaults(handler=runs.run_render)

    command = commands.add_parser("submit", help="submit a matrix, or go on with a run")
    command.add_argument("matrix", nargs="?", type=Path)
    command.add_argument("--resume", metavar="RUN", help="go on with the submission of a run")
    command.add_argument(
        "--retry", action="store_true", help="with --resume: try again what failed or was lost"
    )
    command.add_argument("--wait", action="store_true", help="follow it to the end, then report")
    _add_site_options(command)
    _add_results_option(command)
    command.set_defaults(handler=runs.run_submit)

    command = commands.add_parser("verify", help="prove that frameworks do the same work")
    command.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help="default: all")
    command.add_argument("--model", action="append", default=[], help="default: all")
    command.add_argument("--site", default="local", help="site file or its name; default: local")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set one site value"
    )
    _add_results_option(command)
    command.set_defaults(handler=preparation.run_verify)

    command = commands.add_parser("import", help="make records of other scripts' logs")
    command.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="file or directory")
    command.add_argument("--format", help="the logs' format; default: found in each log")
    command.add_argument("--rule", help="the publisher's rule by its name; default: the format's")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="say what logs do not: devices, nodes, batch_size_per_device, precision, ...",
    )
    command.add_argument("--name", default="logs", help="name of the run (logs)")
    command.add_argument("--dry-run", action="store_true", help="write nothing")
    command.add_argument("--json", action="store_true", help="print one JSON list of the logs")
    _add_results_option(command)
    command.set_defaults(handler=imports.run_import)

    command = commands.add_parser("audit", help="which cells of tables do not follow from others")
    command.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="CSV, Markdown, run, published source"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(handler=audit.run_audit)

    for name, handler, text in (
        ("status", runs.run_status, "where the array tasks of a run stand"),
        ("wait", runs.run_wait, "follow a run to its end, then report"),
        ("cancel", runs.run_cancel, "cancel what has not ended"),
        ("report", report.run_report, "make the tables of a run, from its files alone"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "run", nargs="?", help="run directory, run id or its beginning; default: the latest"
        )
        _add_results_option(command)
        command.set_defaults(handler=handler)
        if name == "report":
            report.add_report_options(command)

    command = commands.add_parser("compare", help="which cases of run B are faster or slower")
    compare.add_compare_options(command)
    _add_results_option(command)

    command = commands.add_parser("history", help="what each case measured from run to run")
    history.add_history_options(command)
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
