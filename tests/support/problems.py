"""What a message for a user has to say, whatever its sentence: where, and what is allowed there."""

import re

# what stands before the message of a command: its usage, its name
_PRINTED = re.compile(r"\A(?:.*\n)*?dlperf-slurm[\w -]*: (?:error: |(?=warning: ))")


def assert_problem(error, *, file="", line=None, key="", says=()):
    """Assert that a message begins with file, line and key, and then has each of these words.

    `says` are the values that are allowed, or a word that tells this mistake from others. `error`
    is the message, an exception of which it is all, or what a command printed.
    """
    text = _PRINTED.sub("", str(error))
    place = str(file) if line is None else f"{file}:{line}"
    where = ": ".join(part for part in (place, key) if part)
    assert text.startswith(f"{where}: " if where else ""), f"not about {where!r}: {text!r}"
    rest = text[len(where) :]
    missing = [word for word in says if not re.search(_as_word(str(word)), rest)]
    assert not missing, f"does not say {missing}: {text!r}"


def _as_word(word):
    """The pattern of a word, or of several, that is no part of a longer one."""
    start = r"(?<![\w-])" if word[0].isalnum() else ""
    end = r"(?![\w-])" if word[-1].isalnum() else ""
    return f"{start}{re.escape(word)}{end}"
