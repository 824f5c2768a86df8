"""The command data: real files for data = "folder", small enough to make here."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlperf_slurm.provision.datasets import Recipe

LARGEST_SEED = 2**32 - 1


def add_data_commands(parser: argparse.ArgumentParser) -> None:
    """The actions of `data` and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser("make", help="make a small data set")
    kinds = action.add_subparsers(metavar="KIND", required=True)

    kind = _add_kind(kinds, "images", "made-up photographs, as large as ImageNet's, for resnet50")
    _add_numbers(kind, ("train", 1000, "training images"), ("val", 100, "validation images"))
    _add_numbers(kind, ("classes", 10, "classes"), ("size", 500, "longer side in pixels"))
    kind.set_defaults(handler=run_make_images)

    kind = _add_kind(kinds, "text", "made-up tokenised text, no real words, for bert")
    _add_numbers(kind, ("train", 1_000_000, "training ids"), ("val", 100_000, "validation ids"))
    _add_numbers(kind, ("vocabulary", 30522, "size of the vocabulary"))
    kind.set_defaults(handler=run_make_text)

    kind = _add_kind(kinds, "digits", "1,797 handwritten digits (scikit-learn's), for resnet50")
    kind.set_defaults(handler=run_make_digits)


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
    from dlperf_slurm.provision.datasets.digits import DigitRecipe

    _make(options.directory, DigitRecipe(options.seed))


# generic only in typeshed
def _add_kind(
    kinds: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str
) -> argparse.ArgumentParser:
    kind = kinds.add_parser(name, help=text)
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
    """Whether the name alone is enough for a matrix that is submitted from here."""
    return path == Path.cwd() / "data" / path.name
