"""Values -> what sbatch reads as these values on an #SBATCH line, or a refusal."""

import shlex

from dlperf_slurm.config.folders import check_search_folder
from dlperf_slurm.errors import InputError

_PLAIN_DIRECTIVE = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,:;/@%=&|[]()*!<>~{}^?"
)


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
    """A whole `--option` or `--option=value` for an #SBATCH line.

    Raises InputError for what sbatch would not read as such.
    """
    name, equals, value = line.partition("=")
    if not all(character.isalnum() or character == "-" for character in name):
        raise InputError(f"{line!r}: {name!r} is not an option of sbatch")
    return f"{name}={quote_directive(value)}" if equals else name


def quote_search_folder(folder: str) -> str:
    """A folder that PATH or PYTHONPATH shall have, for the shell; raises InputError for a `:`."""
    try:
        return shlex.quote(check_search_folder(folder))
    except ValueError as error:
        raise InputError(str(error)) from error


def escape_pattern(path: str) -> str:
    """A path inside `--output`, where sbatch replaces %A, %a and others."""
    return path.replace("%", "%%")
