"""Commands that come before a run: init, env, config, verify."""

import argparse
import sys

from dlperf_slurm.cli.output import PROGRAM, make_console
from dlperf_slurm.errors import CasesFailedError, EnvironmentMissingError, InputError


def run_init(options: argparse.Namespace) -> None:
    from dlperf_slurm.provision.examples import copy_examples

    for path in copy_examples(options.directory):
        print(path)
    print(f"Next: {PROGRAM} plan {options.directory / 'matrices' / 'quickstart.toml'}")


def run_env_create(options: argparse.Namespace) -> None:
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


def run_config_show(options: argparse.Namespace) -> None:
    from dlperf_slurm.config.site import list_effective_values, load_site
    from dlperf_slurm.config.toml_tables import read_toml
    from dlperf_slurm.reports.terminal import print_table

    matrix = read_toml(options.matrix) if options.matrix else None
    loaded = load_site(options.site, matrix, options.set)
    rows = [
        [key, "-" if value is None else repr(value), source]
        for key, value, source in list_effective_values(loaded)
    ]
    print_table(
        ["key", "value", "layer"],
        rows,
        make_console(),
        title=f"site {loaded.name}",
        text_columns=None,
    )


def run_config_schema(options: argparse.Namespace) -> None:
    import json

    from dlperf_slurm.config.site import Site
    from dlperf_slurm.matrix.file import Matrix

    kind = Matrix if options.file == "matrix" else Site
    print(json.dumps(kind.model_json_schema(), indent=1))


def run_verify(options: argparse.Namespace) -> None:
    from dlperf_slurm.checks.parity.run_case import make_workplace
    from dlperf_slurm.checks.parity.tolerances import (
        DATA_PARALLEL_HEADER,
        PARITY_HEADER,
        make_data_parallel_rows,
        make_parity_rows,
    )
    from dlperf_slurm.checks.parity.verify import verify_frameworks
    from dlperf_slurm.config.known_names import check_known
    from dlperf_slurm.config.site import load_site
    from dlperf_slurm.jobs.stage import make_run_id
    from dlperf_slurm.reports.terminal import print_table
    from dlperf_slurm.worker.frameworks import list_frameworks
    from dlperf_slurm.worker.models import list_models

    try:
        for framework in options.frameworks:
            check_known(framework, list_frameworks(), "a framework")
        for model in options.model:
            check_known(model, list_models(), "a model")
    except ValueError as error:
        raise InputError(f"verify: {error}") from error
    loaded = load_site(options.site, None, options.set)
    workplace = make_workplace(
        loaded.site,
        options.results / make_run_id("verify", loaded.name),
        lambda line: print(line, flush=True),
    )
    parity, data_parallel = verify_frameworks(
        options.frameworks or list_frameworks(), options.model or list_models(), workplace
    )
    console = make_console()
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
