"""The commands init and data: examples to begin with, and small sets of real files."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import add_actions, add_command
from dlperf_slurm.cli.output import PROGRAM

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands, Handler
    from dlperf_slurm.provision.datasets import Recipe

LARGEST_SEED = 2**32 - 1


def add_commands(commands: "Commands") -> None:
    """Add `init`, and `data make` for each kind of data set."""
    text = "copy example matrices and site configs to here"
    command = add_command(commands, "init", text, run_init)
    command.add_argument("directory", nargs="?", type=Path, default=Path(), help="default: here")

    actions = add_actions(commands, "data", "make small sets of real files for models to read")
    kinds = add_actions(actions, "make", "make a small data set", metavar="KIND")

    text = "made-up photographs, as large as ImageNet's, for resnet50"
    kind = _add_kind(kinds, "images", text, run_make_images)
    _add_numbers(kind, ("train", 1000, "training images"), ("val", 100, "validation images"))
    _add_numbers(kind, ("classes", 10, "classes"), ("size", 500, "longer side in pixels"))

    text = "made-up tokenised text, no real words, for bert"
    kind = _add_kind(kinds, "text", text, run_make_text)
    _add_numbers(kind, ("train", 1_000_000, "training ids"), ("val", 100_000, "validation ids"))
    _add_numbers(kind, ("vocabulary", 30522, "size of the vocabulary"))

    text = "1,797 handwritten digits (scikit-learn's), for resnet50"
    _add_kind(kinds, "digits", text, run_make_digits)


def run_init(options: argparse.Namespace) -> None:
    from dlperf_slurm.provision.examples import copy_examples

    for path in copy_examples(options.directory):
        print(path)
    print(f"Next: {PROGRAM} plan {options.directory / 'matrices' / 'quickstart.toml'}")


def run_make_images(options: argparse.Namespace) -> None:
    from dlperf_slurm.provision.datasets.images import ImageRecipe

    recipe = ImageRecipe(options.train, options.val, options.classes, options.size, options.seed)
    _make(options.directory, recipe)


def run_make_text(options: argparse.Namespace) -> None:
    from dlperf_slurm.provision.datasets.text import TextRecipe

    _make(
        options.directory,
        TextRecipe(options.train, options.val, options.vocabulary, options.seed),
    )


def run_make_digits(options: argparse.Namespace) -> None:
    from dlperf_slurm.provision.datasets.images import DigitRecipe

    _make(options.directory, DigitRecipe(options.seed))


def _add_kind(
    kinds: "Commands", name: str, text: str, handler: "Handler"
) -> argparse.ArgumentParser:
    kind = add_command(kinds, name, text, handler)
    default = Path("data") / name
    kind.add_argument(
        "directory", nargs="?", type=Path, default=default, help=f"to be made ({default})"
    )
    kind.add_argument(
        "--seed", type=_parse_seed, default=0, metavar="N", help="another one, other files (0)"
    )
    return kind


def _add_numbers(parser: argparse.ArgumentParser, *options: "tuple[str, int, str]") -> None:
    for name, default, text in options:
        parser.add_argument(
            f"--{name}",
            type=_parse_positive,
            default=default,
            metavar="N",
            help=f"{text} ({default})",
        )


def _parse_positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer of 1 or more")
    return int(text)


def _parse_seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer of 0 ... {LARGEST_SEED}")
    return int(text)


def _make(directory: Path, recipe: "Recipe") -> None:
    import tomli_w

    from dlperf_slurm.provision.datasets import make_dataset

    contents = make_dataset(directory, recipe)
    size_bytes = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    print(f"{directory}: {contents}, {size_bytes / 1e6:.1f} MB")
    path = directory.absolute()
    model = {**recipe.model, "dataset": path.name}
    print(f"\nIn a matrix:\n\n{tomli_w.dumps({'model': model, 'axes': {'data': 'folder'}})}")
    where = "from any other folder than this one" if _is_found(path) else "to find it"
    print(f"In the site file, {where}:\n\n{tomli_w.dumps({'datasets': {path.name: str(path)}})}")


def _is_found(path: Path) -> bool:
    """Whether a matrix that is submitted from here finds the data set by its name alone."""
    return path == Path.cwd() / "data" / path.name
