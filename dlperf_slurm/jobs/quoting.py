"""Values -> what sbatch reads as these values on an #SBATCH line, or a refusal."""

import re
import shlex
from collections.abc import Sequence

from dlperf_slurm.config.folders import check_search_folder
from dlperf_slurm.errors import InputError
from dlperf_slurm.launchers import Expanding

_PLAIN_DIRECTIVE = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,:;/@%=&|[]()*!<>~{}^?"
)

_LONG_OPTION = re.compile(r"(--[A-Za-z0-9][\w-]*)(?:([= ])(.*))?", re.ASCII)
_SHORT_OPTION = re.compile(r"(-[A-Za-z])(?:( ?)(.+))?")
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def quote_directive(value: object) -> str:
    """A value for the right of `--option=` on an #SBATCH line (sbatch(1)).

    sbatch splits such a line as a shell would, but eats backslashes and stops at line breaks:
    both are refused, as is a value with both kinds of quotes. Raises InputError.
    """
    text = str(value)
    if not text.isprintable() or "\\" in text:
        raise InputError(
            f"{text!r}: line breaks, control characters and backslashes cannot stand on an "
            "#SBATCH line"
        )
    if text and _PLAIN_DIRECTIVE.issuperset(text):
        return text
    for quote in ('"', "'"):
        if quote not in text:
            return f"{quote}{text}{quote}"
    raise InputError(f"{text!r}: both kinds of quotes cannot stand in one #SBATCH value")


def quote_option(line: str) -> str:
    """A whole option for an #SBATCH line: `--name`, `--name=value`, `--name value` or `-C value`.

    Raises InputError for what sbatch would not read as such.
    """
    match = _LONG_OPTION.fullmatch(line) or _SHORT_OPTION.fullmatch(line)
    if match is None:
        raise InputError(f"{line!r} is not an option of sbatch")
    name, separator, value = match.groups()
    return name if value is None else f"{name}{separator}{quote_directive(value)}"


def quote_expanding(text: str) -> str:
    """A text as a word of bash: `${NAME}` is expanded, to nothing where it is not set.

    `$${NAME}` is `${NAME}` itself; all else is as it stands.
    """
    pieces: list[str] = []
    end = 0
    for match in _VARIABLE.finditer(text):
        pieces.append(text[end : match.start()])
        name = match[1]
        pieces.append(f'"${{{name}-}}"' if name else "${")
        end = match.end()
    pieces.append(text[end:])
    if len(pieces) == 1:
        return shlex.quote(text)
    # every other piece is between variables
    quoted = [
        piece if index % 2 and piece != "${" else shlex.quote(piece)
        for index, piece in enumerate(pieces)
        if piece
    ]
    return "".join(quoted)


def quote_words(words: Sequence[str]) -> str:
    """Words of a command line for bash; those that are Expanding are expanded there."""
    return " ".join(
        quote_expanding(word) if isinstance(word, Expanding) else shlex.quote(word)
        for word in words
    )


def quote_comment(text: str) -> str:
    """A text behind the `#` of a comment, which a line break would end."""
    return "".join(character if character.isprintable() else "?" for character in text)


def quote_search_folder(folder: str) -> str:
    """A folder that PATH or PYTHONPATH shall have, for the shell; raises InputError for a `:`."""
    try:
        return shlex.quote(check_search_folder(folder))
    except ValueError as error:
        raise InputError(str(error)) from error


def escape_pattern(path: str) -> str:
    """A path inside `--output`, where sbatch replaces %A, %a and others."""
    return path.replace("%", "%%")
