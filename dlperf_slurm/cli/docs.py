"""The command docs: the pages of documentation that were installed with the tool."""

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import add_command
from dlperf_slurm.cli.output import find_plain_output
from dlperf_slurm.cli.streams import find_width
from dlperf_slurm.cli.unknown_words import describe_unknown_choice
from dlperf_slurm.errors import InputError
from dlperf_slurm.program import COMMAND

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands

_HEADING = re.compile(r"^(#+) (.+)$", re.M)
# its comments look like headings
_CODE = re.compile(r"^```.*?^```", re.M | re.S)


def add_commands(commands: "Commands") -> None:
    """Add the command `docs` to the parser."""
    command = add_command(commands, "docs", run_docs)
    text = (
        "page, or section of a page, such as statistics or statistics#drift; default: list the "
        "pages"
    )
    command.add_argument("page", metavar="PAGE", nargs="?", help=text)


def run_docs(options: argparse.Namespace) -> None:
    """Print a page or section as Markdown (formatted, paged on a terminal), or list the pages."""
    pages = {path.stem: path for path in sorted(_find_folder().glob("*.md"))}
    if options.page is None:
        for name, path in pages.items():
            title = _HEADING.search(path.read_text(encoding="utf-8"))
            print(f"{name:19}{title[2] if title else ''}")
        folder = next(iter(pages.values())).parent
        print(f"To read a page: {COMMAND} docs PAGE. Folder of the pages: {folder}")
        return
    page, _, section = options.page.partition("#")
    name = Path(page).stem
    if name not in pages:
        raise InputError(describe_unknown_choice(page, [*pages]))
    text = pages[name].read_text(encoding="utf-8")
    _print_page(_cut_section(text, section) if section else text)


def _find_folder() -> Path:
    """Return docs/ of the checkout, or the folder of pages that was installed with the tool."""
    package = Path(__file__).parents[1]
    # share/ is at the top of an environment, or in the folder of `pip install --target`
    installed = (parent / "share/doc/dlperf-slurm" for parent in [*package.parents][:4])
    for folder in (package.parent / "docs", *installed):
        if (folder / "index.md").is_file():
            return folder
    raise InputError(f"no documentation is installed beside {package}; reinstall dlperf-slurm")


def _cut_section(text: str, anchor: str) -> str:
    """Return the section of a page, with its subsections; raise InputError if there is none."""
    headings = [*_HEADING.finditer(_CODE.sub(lambda code: " " * len(code[0]), text))]
    # as in a link: "what-is-compared"
    names = (re.sub(r"[^\w\s-]", "", heading[2].lower()) for heading in headings)
    anchors = [re.sub(r"[\s-]+", "-", name).strip("-") for name in names]
    if anchor not in anchors:
        raise InputError(describe_unknown_choice(anchor, anchors[1:]))
    first, *later = headings[anchors.index(anchor) :]
    ends = [heading.start() for heading in later if len(heading[1]) <= len(first[1])]
    return text[first.start() : ends[0] if ends else None]


def _print_page(text: str) -> None:
    if not sys.stdout.isatty():
        print(text, end="")
        return
    import rich.console
    import rich.markdown

    console = rich.console.Console(file=find_plain_output(), width=min(find_width(), 100))
    with console.pager():
        console.print(rich.markdown.Markdown(text, hyperlinks=False))
