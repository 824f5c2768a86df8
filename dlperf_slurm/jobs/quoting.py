"""Values -> their quoted text on #SBATCH lines and in bash, or an error."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from dlperf_slurm.config.folders import check_search_folder
from dlperf_slurm.errors import InputError
from dlperf_slurm.launchers import ShellTemplate

_PLAIN_DIRECTIVE = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,:;/@%=&|[]()*!<>~{}^?"
)

_LONG_OPTION = re.compile(r"(--[A-Za-z0-9][\w-]*)(?:([= ])(.*))?", re.ASCII)
_SHORT_OPTION = re.compile(r"(-[A-Za-z])(?:( ?)(.+))?")
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def quote_directive(value: object) -> str:
    """Quote the value of an option `--option=value` for an #SBATCH line (sbatch(1)).

    sbatch splits the line like a shell, but drops backslashes and stops at line breaks. Raises
    InputError for both, for control characters, and for a value with both kinds of quotes.
    """
    text = str(value)
    if not text.isprintable() or "\\" in text:
        raise InputError(
            f"{text!r}: line breaks, control characters and backslashes are not allowed on an "
            "#SBATCH line"
        )
    if text and _PLAIN_DIRECTIVE.issuperset(text):
        return text
    for quote in ('"', "'"):
        if quote not in text:
            return f"{quote}{text}{quote}"
    raise InputError(f"{text!r}: a value on an #SBATCH line may contain only one kind of quotes")


def quote_option(line: str) -> str:
    """Quote an #SBATCH option, such as `--name=value` or `-C value`; else raise InputError."""
    match = _LONG_OPTION.fullmatch(line) or _SHORT_OPTION.fullmatch(line)
    if match is None:
        raise InputError(f"{line!r} is not an option of sbatch")
    name, separator, value = match.groups()
    return name if value is None else f"{name}{separator}{quote_directive(value)}"


def quote_expanding(text: str) -> str:
    """Quote a text as a word of bash that expands `${NAME}`, to '' if the variable is not set.

    `$${NAME}` becomes a literal `${NAME}`; everything else is literal.
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
    # pieces at even indices are literal text, those at odd ones variables
    quoted = [
        piece if index % 2 and piece != "${" else shlex.quote(piece)
        for index, piece in enumerate(pieces)
        if piece
    ]
    return "".join(quoted)


def quote_words(words: Sequence[str]) -> str:
    """Return a command line quoted for bash, which expands `${NAME}` in ShellTemplate words."""
    return " ".join(
        quote_expanding(word) if isinstance(word, ShellTemplate) else shlex.quote(word)
        for word in words
    )


def quote_search_folder(folder: str) -> str:
    """Quote a folder of PATH or PYTHONPATH for bash; raise InputError if it contains a colon."""
    try:
        return shlex.quote(check_search_folder(folder))
    except ValueError as error:
        raise InputError(str(error)) from error


# filters of job script templates, by name
QUOTING_FILTERS: Mapping[str, Callable[..., str]] = {
    # a line end in the text would end the comment
    "comment": lambda text: "".join(sign if sign.isprintable() else "?" for sign in text),
    "directive": quote_directive,
    "option": quote_option,
    "search_folder": quote_search_folder,
    "sh": lambda value: shlex.quote(str(value)),
    "sh_expanding": quote_expanding,
    "sh_words": quote_words,
}
