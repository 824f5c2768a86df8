"""The command env: the environments of the frameworks, made from pins, listed and checked."""

import argparse
import sys
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import add_actions, add_command
from dlperf_slurm.cli.output import PROGRAM, make_console
from dlperf_slurm.errors import EnvironmentMissingError, InputError

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add `env create`, `env list` and `env check`."""
    actions = add_actions(commands, "env", "make, list and check environments of the frameworks")
    text = "create or update environments from pins"
    action = add_command(actions, "create", text, run_env_create)
    action.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help="as in env list")
    action.add_argument("--all", action="store_true", help="for every framework")
    action.add_argument("--horovod", action="store_true", help="with Horovod, where it exists")
    add_command(actions, "list", "which environments there are, and where", run_env_list)
    text = "what works in them, and what is missing"
    action = add_command(actions, "check", text, run_env_check)
    action.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help="default: all")


def run_env_create(options: argparse.Namespace) -> None:
    """Make the named environments one after the other; one that fails does not stop the others.

    Raises InputError when none is named or a named one cannot have Horovod,
    EnvironmentMissingError when one could not be made.
    """
    from dlperf_slurm.provision.environments.create import create_environment
    from dlperf_slurm.provision.environments.pins import list_pins, read_pins

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
    from dlperf_slurm.provision.environments.check import list_environments
    from dlperf_slurm.reports.terminal import print_table

    rows = list_environments()
    header = ["framework", "environment", "Python", "Horovod", "MB", "path"]
    print_table(header, rows, make_console(), text_columns=None)
    for framework, state, *_ in rows:
        if state != "current":
            print(f"{framework} is {state}: {PROGRAM} env create {framework}")


def run_env_check(options: argparse.Namespace) -> None:
    """Print what works in environments; raises EnvironmentMissingError when one must be mended."""
    from dlperf_slurm.provision.environments.check import check_environment
    from dlperf_slurm.provision.environments.pins import list_pins, read_pins
    from dlperf_slurm.reports.terminal import print_table

    names = [read_pins(name).framework for name in options.frameworks or list_pins()]
    checks = []
    for name in names:
        print(f"checking {name}", file=sys.stderr, flush=True)
        checks.append(check_environment(name))
    header = ["framework", "Python", "environment", "import", "MPI", "Horovod"]
    print_table(header, [check.row for check in checks], make_console(), text_columns=None)
    for check in checks:
        for problem in check.problems:
            print(f"{check.framework}: {problem}")
    broken = [check.framework for check in checks if check.is_broken(bool(options.frameworks))]
    if broken:
        raise EnvironmentMissingError(f"not in order: {', '.join(broken)}")
