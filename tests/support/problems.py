"""Assertions about error messages: where the problem is, and which values are allowed."""

import re

# usage and program name before the message of a command
_PRINTED = re.compile(r"\A(?:.*\n)*?dlperf-slurm[\w -]*: (?:error: |(?=warning: ))")


def assert_problem(error, *, file="", line=None, key="", says=()):
    """Assert that a message begins with file, line and key, and contains each word of `says`.

    `says` are the allowed values, or a word that is specific to this mistake. `error` is a message,
    an exception with that message, or the output of a command.
    """
    text = _PRINTED.sub("", str(error))
    place = str(file) if line is None else f"{file}:{line}"
    where = ": ".join(part for part in (place, key) if part)
    assert text.startswith(f"{where}: " if where else ""), f"not about {where!r}: {text!r}"
    rest = text[len(where) :]
    missing = [word for word in says if not re.search(_as_word(str(word)), rest)]
    assert not missing, f"does not say {missing}: {text!r}"


def _as_word(word):
    """Return a pattern for words that are not part of a longer word."""
    start = r"(?<![\w-])" if word[0].isalnum() else ""
    end = r"(?![\w-])" if word[-1].isalnum() else ""
    return f"{start}{re.escape(word)}{end}"
