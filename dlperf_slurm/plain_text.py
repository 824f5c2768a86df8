"""A text from anywhere -> one that a terminal shows and a spreadsheet keeps, and neither obeys.

And numbers of things, as sentences have them.
"""

import re

# What terminals take for commands (C0 and C1 but for tabs and line ends, DEL), what turns the
# direction of a text around, and halves of characters.
_CONTROLS = "[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
# how spreadsheets know a formula
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\n")


def count_things(number: int, noun: str) -> str:
    """How many, in words: "1 case", "2 cases", "1,000 array tasks"; of nouns that take an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def strip_controls(text: str) -> str:
    """The text without control characters but for tabs and line ends."""
    # compiled when first asked for: --help is not kept waiting
    return re.sub(_CONTROLS, "", text)


def defuse_cell(text: str) -> str:
    """The text for a cell of a CSV file, of which no spreadsheet makes a formula.

    One that begins as a formula does has an apostrophe before it, as spreadsheets write such texts.
    """
    plain = strip_controls(text)
    return f"'{plain}" if plain.startswith(_FORMULA_SIGNS) else plain
