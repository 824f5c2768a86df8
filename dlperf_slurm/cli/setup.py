"""The commands before a run: init, data, env and config."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import add_actions, add_command, add_json_option, add_site_options
from dlperf_slurm.cli.output import make_console, print_json
from dlperf_slurm.config.folders import CUDA, get_creation_command
from dlperf_slurm.errors import EnvironmentMissingError, InputError
from dlperf_slurm.program import COMMAND, PROGRAM

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands, Handler
    from dlperf_slurm.provision.datasets import DatasetRecipe

LARGEST_SEED = 2**32 - 1


def add_commands(commands: "Commands") -> None:
    """Add `init`, `data make` for each kind of data set, and the actions of `env` and `config`."""
    command = add_command(commands, "init", run_init)
    command.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=Path(),
        help="folder to copy to (default: the current folder)",
    )

    actions = add_actions(commands, "data")
    kinds = add_actions(actions, "make", "generate a small data set", metavar="KIND")

    text = "synthetic photographs of the size of ImageNet's, for image models"
    kind = _add_kind(kinds, "images", text, run_make_images)
    _add_numbers(kind, ("train", 1000, "training images"), ("val", 100, "validation images"))
    _add_numbers(
        kind, ("classes", 10, "classes"), ("size", 500, "longer side of an image, in pixels")
    )

    text = "synthetic tokenised text, for language models"
    kind = _add_kind(kinds, "text", text, run_make_text)
    _add_numbers(
        kind, ("train", 1_000_000, "training token ids"), ("val", 100_000, "validation token ids")
    )
    _add_numbers(kind, ("vocabulary", 30522, "size of the vocabulary"))

    text = "scikit-learn's 1,797 handwritten digits, for image models"
    _add_kind(kinds, "digits", text, run_make_digits)

    actions = add_actions(commands, "env")
    text = "create or update the environments of frameworks, with pinned packages"
    action = add_command(actions, "create", run_env_create, text)
    names = f"{COMMAND} env list"
    action.add_argument(
        "frameworks",
        nargs="*",
        metavar="FRAMEWORK",
        help=f"framework to create the environment of; `{names}` lists all",
    )
    action.add_argument(
        "--all", action="store_true", help="create the environments of all frameworks"
    )
    _add_device(action)
    text = "also build Horovod, for the frameworks that support it"
    action.add_argument("--horovod", action="store_true", help=text)
    text = "also install this package, now and each time the environment is created again"
    action.add_argument(
        "--with", dest="packages", action="append", default=[], metavar="PACKAGE", help=text
    )
    action.add_argument(
        "--any-build",
        action="store_true",
        help=(
            "install any build of the pinned versions that pip finds, also one that is not on "
            "PyPI; hashes are not checked"
        ),
    )
    action.add_argument(
        "--cpu-index", default="", metavar="URL", help="package index to take CPU builds from"
    )
    action = add_command(actions, "list", run_env_list, "list the environments and their paths")
    add_json_option(action)
    _add_device(action)
    text = "check that the environments of the frameworks work"
    action = add_command(actions, "check", run_env_check, text)
    action.add_argument(
        "frameworks", nargs="*", metavar="FRAMEWORK", help="framework to check (default: all)"
    )
    add_json_option(action)
    _add_device(action)

    actions = add_actions(commands, "config")
    text = "show every setting, and the file or option that sets it"
    action = add_command(actions, "show", run_config_show, text)
    action.add_argument(
        "matrix", nargs="?", type=Path, help="matrix file; its [slurm] table changes site settings"
    )
    add_json_option(action)
    add_site_options(action)
    text = "print the JSON Schema of a file, for editors"
    action = add_command(actions, "schema", run_config_schema, text)
    action.add_argument("file", choices=("matrix", "site"))


def run_init(options: argparse.Namespace) -> None:
    from dlperf_slurm.matrix.file import make_schema
    from dlperf_slurm.provision import copy_examples

    kinds = {"matrices": "matrix", "site_configs": "site"}
    schemas = {folder: make_schema(kind) for folder, kind in kinds.items()}
    for path in copy_examples(options.directory, schemas):
        print(path)
    print(f"Next: {COMMAND} plan {options.directory / 'matrices' / 'quickstart.toml'}")


def run_make_images(options: argparse.Namespace) -> None:
    from dlperf_slurm.provision.datasets.images import ImageRecipe

    recipe = ImageRecipe(options.train, options.val, options.classes, options.size, options.seed)
    _make(options.directory, recipe)


def run_make_text(options: argparse.Namespace) -> None:
    from dlperf_slurm.provision.datasets.text import TextRecipe

    _make(
        options.directory, TextRecipe(options.train, options.val, options.vocabulary, options.seed)
    )


def run_make_digits(options: argparse.Namespace) -> None:
    from dlperf_slurm.provision.datasets.images import DigitRecipe

    _make(options.directory, DigitRecipe(options.seed))


def _add_kind(
    kinds: "Commands", name: str, text: str, handler: "Handler"
) -> argparse.ArgumentParser:
    """Add a kind of data set to `data make`; return its parser."""
    kind = add_command(kinds, name, handler, text)
    default = Path("data") / name
    kind.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=default,
        help=f"folder to create (default: {default})",
    )
    kind.add_argument(
        "--seed", type=_parse_seed, default=0, metavar="N", help="random seed (default: 0)"
    )
    return kind


def _add_numbers(parser: argparse.ArgumentParser, *options: "tuple[str, int, str]") -> None:
    for name, default, text in options:
        parser.add_argument(
            f"--{name}",
            type=_parse_positive,
            default=default,
            metavar="N",
            help=f"{text} (default: {default})",
        )


def _parse_positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least 1")
    return int(text)


def _parse_seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 0 to {LARGEST_SEED}")
    return int(text)


def _make(directory: Path, recipe: "DatasetRecipe") -> None:
    """Generate a data set in a folder, and print its size and how a matrix and a site name it."""
    import tomli_w

    from dlperf_slurm.provision.datasets import make_dataset
    from dlperf_slurm.worker.models import list_models, load_model

    asked = ", ".join(f"{name} {value}" for name, value in vars(recipe).items())
    print(f"{directory}: generating files ({asked})", flush=True)
    start = time.monotonic()
    contents = make_dataset(
        directory, recipe, lambda news: print(f"{directory}: {news}", flush=True)
    )
    size_bytes = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    seconds = time.monotonic() - start
    print(f"{directory}: {contents}, {size_bytes / 1e6:.1f} MB, in {seconds:.0f} s")
    path = directory.absolute()
    readers = [name for name in list_models() if load_model(name).DATASET == recipe.DATASET]
    model = {"name": readers[0], **recipe.sizes, "dataset": path.name}
    table = tomli_w.dumps({"model": model, "axes": {"data": "folder"}})
    print(f"\nTo use the data set for {' or '.join(readers)}, in a matrix:\n\n{table}")
    # matrices submitted from here find ./data/NAME by its name, without an entry in a site file
    is_found = path == Path.cwd() / "data" / path.name
    where = "for use from any other folder" if is_found else "so that matrices find the data set"
    print(f"In the site file, {where}:\n\n{tomli_w.dumps({'datasets': {path.name: str(path)}})}")


def _add_device(action: argparse.ArgumentParser) -> None:
    action.add_argument("--cuda", action="store_true", help="for NVIDIA GPUs (CUDA)")


def choose_device(options: argparse.Namespace) -> str:
    """Return "cuda" with the option --cuda of `env`, else "cpu"."""
    return CUDA if options.cuda else "cpu"


def resolve_frameworks(names: Sequence[str]) -> list[str]:
    """Replace package names ("torch") by framework names ("pytorch"), printing each; return all."""
    from dlperf_slurm.provision.environments.pins import PACKAGES

    for name in names:
        if name in PACKAGES:
            print(
                f"{name} is a package of environment {PACKAGES[name]}; using that environment",
                file=sys.stderr,
                flush=True,
            )
    return [PACKAGES.get(name, name) for name in names]


def run_env_create(options: argparse.Namespace) -> None:
    """Create the environments that are named, one by one; one that fails does not stop the others.

    Raises InputError if none is named or a named one cannot have Horovod, EnvironmentMissingError
    if one could not be created.
    """
    from dlperf_slurm.provision.environments.create import create_environment
    from dlperf_slurm.provision.environments.horovod import NOT_FOR_GPUS
    from dlperf_slurm.provision.environments.pins import list_pins, read_pins

    if options.all == bool(options.frameworks):
        raise InputError(f"env create: give either frameworks ({', '.join(list_pins())}) or --all")
    device = choose_device(options)
    names = list_pins() if options.all else resolve_frameworks(options.frameworks)
    chosen = [read_pins(name, device) for name in names]
    without = [pins.framework for pins in chosen if not pins.can_have_horovod]
    if options.horovod and without and not options.all:
        why = f"is not available for {', '.join(without)}" if device != CUDA else NOT_FOR_GPUS
        raise InputError(f"env create: --horovod: Horovod {why}")
    missing = []
    for pins in chosen:
        with_horovod = options.horovod and pins.can_have_horovod
        try:
            create_environment(
                pins.framework,
                lambda line: print(line, flush=True),
                with_horovod,
                options.any_build,
                device,
                options.cpu_index,
                options.packages,
            )
        except EnvironmentMissingError as error:
            print(f"{PROGRAM}: error: {error}", file=sys.stderr, flush=True)
            missing.append(pins.name)
    if missing:
        raise EnvironmentMissingError(
            f"{len(missing)} of {len(chosen)} environments could not be created: "
            f"{', '.join(missing)}"
        )


def run_env_list(options: argparse.Namespace) -> None:
    from dlperf_slurm.provision.environments.check import NOT_AVAILABLE, list_environments
    from dlperf_slurm.reports.terminal import print_table

    device = choose_device(options)
    rows = list_environments(device)
    header = ["framework", "environment", "Python", "Horovod", "added", "MB", "path"]
    if options.json:
        print_json([dict(zip(header, row)) for row in rows])
        return
    print_table(header, rows, make_console(), text_columns=None)
    for framework, state, *_ in rows:
        if state not in ("current", NOT_AVAILABLE):
            print(
                f"environment of {framework} is {state}; to create it: "
                f"{get_creation_command(framework, device)}"
            )


def run_env_check(options: argparse.Namespace) -> None:
    """Print what works in each environment (MPI, Horovod, GPU).

    Raises EnvironmentMissingError if one is broken.
    """
    from dlperf_slurm.provision.environments.check import check_environment
    from dlperf_slurm.provision.environments.pins import list_pins, read_pins
    from dlperf_slurm.reports.terminal import print_table

    device = choose_device(options)
    checks = []
    names = resolve_frameworks(options.frameworks) or list_pins()
    for pins in [read_pins(name, device) for name in names]:
        print(f"checking environment {pins.name}", file=sys.stderr, flush=True)
        checks.append(check_environment(pins))
    header = ["framework", "Python", "environment", "import", "MPI", "Horovod", "GPU"]
    if options.json:
        rows = [{**dict(zip(header, one.row)), "problems": [*one.problems]} for one in checks]
        print_json(rows)
    else:
        print_table(header, [check.row for check in checks], make_console(), text_columns=None)
        for check in checks:
            for problem in check.problems:
                print(f"{check.framework}: {problem}")
    broken = [check.framework for check in checks if check.is_broken(bool(options.frameworks))]
    if broken:
        raise EnvironmentMissingError(
            f"environments that do not work, see above: {', '.join(broken)}"
        )


def run_config_show(options: argparse.Namespace) -> None:
    """Print each value of a site, and of a matrix, with the file or option that sets the value."""
    from dlperf_slurm.config.site import list_effective_values, load_site
    from dlperf_slurm.matrix.file import list_values, read_matrix, split_assignments
    from dlperf_slurm.reports.terminal import print_table

    of_matrix, of_site = split_assignments(options.set)
    if options.matrix is None and of_matrix:
        raise InputError(
            f"--set {of_matrix[0]}: is a value of a matrix; name the matrix file: {COMMAND} config "
            "show MATRIX --set ..."
        )
    matrix = read_matrix(options.matrix, of_matrix) if options.matrix else None
    loaded = load_site(options.site, matrix.toml if matrix else None, of_site)
    settings = [("site", loaded.name, list_effective_values(loaded))]
    if matrix is not None:
        settings.append(("matrix", matrix.name, list_values(matrix, of_matrix)))
    header = ["key", "value", "source"]
    if options.json:
        print_json(
            {
                kind: {"name": name, "settings": [dict(zip(header, row)) for row in values]}
                for kind, name, values in settings
            }
        )
        return
    for number, (kind, name, values) in enumerate(settings):
        print("\n" * (number > 0), end="")
        rows = [
            [key, "-" if value is None else repr(value), source] for key, value, source in values
        ]
        print_table(header, rows, make_console(), title=f"{kind} {name}", text_columns=None)


def run_config_schema(options: argparse.Namespace) -> None:
    from dlperf_slurm.matrix.file import make_schema

    print_json(make_schema(options.file))
