"""Lines of text -> a terminal or a file of some width, without control characters from the texts.

rich does more, but its import takes a tenth of a second, and a table of thousands of rows minutes.
"""

import re
import unicodedata
from typing import NamedTuple, TextIO, Union

from dlperf_slurm.plain_text import break_workflow_commands, strip_controls

# the parameters of ANSI's SGR escape sequence
_STYLES = {"bold": "1", "dim": "2", "red": "31", "yellow": "33"}
_HOLD = "\N{NO-BREAK SPACE}"
_FIGURE = re.compile(r"(?<=\d) (?:to (?=\d)|(?=%))")


class Text(NamedTuple):
    """A text to print, with a style such as "bold yellow"; "" for none."""

    content: str
    style: str = ""


class PlainConsole:
    """A terminal or a file to print on, `width` columns wide; styles appear on a terminal only."""

    def __init__(self, file: TextIO, width: int = 80, is_terminal: bool = False) -> None:
        self.file = file
        self.width = width
        self.is_terminal = is_terminal

    def print(self, text: Union[Text, str] = "") -> None:
        """Print a text, with line breaks between words where it is wider than the console.

        Raises BrokenPipeError if the reader, such as `head`, has ended.
        """
        content, style = (text, "") if isinstance(text, str) else text
        # figures stay whole: "5 %", "(21 to 34)"
        held = _FIGURE.sub(lambda found: found[0].replace(" ", _HOLD), strip_controls(content))
        wrapped = (part for line in held.split("\n") for part in wrap(line, self.width))
        lines = [part.replace(_HOLD, " ") for part in wrapped]
        if style and self.is_terminal:
            codes = ";".join(_STYLES[word] for word in style.split())
            lines = [f"\x1b[{codes}m{line}\x1b[0m" for line in lines]
        self.file.write(break_workflow_commands("".join(f"{line}\n" for line in lines)))
        self.file.flush()


def measure(text: str) -> int:
    """Return the width of a line in columns of a terminal; an East Asian character has two."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF")
        for one in text
    )


def wrap(line: str, width: int) -> list[str]:
    """Break a line between words into lines of at most `width` columns; longer words are cut."""
    if measure(line) <= width:
        return [line]
    import textwrap

    return textwrap.wrap(
        line, width, expand_tabs=False, replace_whitespace=False, break_on_hyphens=False
    ) or [""]
