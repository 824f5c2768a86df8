"""A matrix in words of earlier versions -> the same in today's words, and what to tell of it."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Optional

from dlperf_slurm.config.key_paths import KeyPath, drop_indices
from dlperf_slurm.config.toml_tables import TomlFile, TomlTable

# kinds of tables, from the kind of table that they stand in, by today's key; "*" is any key
TABLES: Mapping[str, Mapping[str, str]] = {
    "matrix": {
        "axes": "axes",
        "include": "axes",
        "override": "axes",
        "exclude": "rule",
        "note": "rule",
        "protocol": "protocol",
        "scripts": "scripts",
    },
    "axes": {"when": "axes"},
    "rule": {"when": "axes"},
    "scripts": {"*": "script"},
}

# old keys and today's, by kind of table
KEYS: Mapping[str, Mapping[str, str]] = {
    "matrix": {"sources": "scripts"},
    "axes": {"update": "gradient_sync", "distribution": "gradient_sync", "source": "script"},
    "protocol": {"batch_granularity": "batch_size_step"},
    "script": {"start": "launch"},
}

# old values and today's, by kind of table and today's key
VALUES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("axes", "mode"): {"val": "infer"},
    # tf_cnn_benchmarks' word for an all-reduce by the framework's own means
    ("axes", "gradient_sync"): {"replicated": "native"},
    ("script", "launch"): {"once": "single", "ranks": "per-rank"},
}

# keys whose value is a Jinja2 template, in which axes are variables
TEMPLATES = (("script", "command"),)
_EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
# a quoted text, or a name that is no attribute of another one
_QUOTE_OR_NAME = re.compile(r"'[^']*'|\"[^\"]*\"|(?<![.\w])[A-Za-z_]\w*")


@dataclasses.dataclass(frozen=True)
class Modernized:
    """A file in today's words; `warnings` and `problems` are of keys, with what to say of each.

    A problem is a key that is there twice, by its old word and by today's.
    """

    toml: TomlFile
    warnings: tuple[tuple[KeyPath, str], ...]
    problems: tuple[tuple[KeyPath, str], ...]


def modernize(toml: TomlFile) -> Modernized:
    """Put today's words in the place of old ones, in keys and in values."""
    translation = _Translation()
    data = translation.translate_table(toml.data, "matrix", (), ())
    renamed = {
        drop_indices(old, toml.data): drop_indices(new, data)
        for old, new in translation.paths.items()
    }
    return Modernized(
        dataclasses.replace(toml, data=data, renamed=renamed),
        tuple(translation.warnings),
        tuple(translation.problems),
    )


class _Translation:
    """What was found on the way through one file."""

    def __init__(self) -> None:
        self.warnings: list[tuple[KeyPath, str]] = []
        self.problems: list[tuple[KeyPath, str]] = []
        # today's path of a key, by the one in the file
        self.paths: dict[KeyPath, KeyPath] = {}

    def translate_table(self, table: TomlTable, kind: str, old: KeyPath, new: KeyPath) -> TomlTable:
        """The table in today's words; `old` and `new` are its path in both."""
        translated: TomlTable = {}
        for key, value in table.items():
            word = KEYS.get(kind, {}).get(key, key)
            here, there = (*old, key), (*new, word)
            if word != key:
                if word in translated or word in table:
                    self.problems.append((here, f"is called {word} now, which is there too"))
                    continue
                self.warnings.append((there, f"is the new word for {key}"))
            if here != there:
                self.paths[here] = there
            inner = TABLES.get(kind, {})
            child = inner.get(word, inner.get("*"))
            translated[word] = self._translate(value, (kind, word), child, here, there)
        return translated

    def _translate(
        self,
        value: Any,
        axis: tuple[str, str],
        child: Optional[str],
        old: KeyPath,
        new: KeyPath,
    ) -> Any:
        if isinstance(value, list):
            return [
                self._translate(item, axis, child, (*old, index), (*new, index))
                for index, item in enumerate(value)
            ]
        if isinstance(value, dict) and child is not None:
            return self.translate_table(value, child, old, new)
        if axis in TEMPLATES and isinstance(value, str):
            return self._translate_template(value, new)
        words = VALUES.get(axis, {})
        if not isinstance(value, str) or value not in words:
            return value
        self.warnings.append((new, f"{words[value]!r} is the new word for {value!r}"))
        return words[value]

    def _translate_template(self, text: str, path: KeyPath) -> str:
        def translate_name(found: "re.Match[str]") -> str:
            name = found.group()
            word = KEYS["axes"].get(name, name)
            if word != name:
                self.warnings.append(
                    (path, f"{{{{ {word} }}}} is the new word for {{{{ {name} }}}}")
                )
            return word

        return _EXPRESSION.sub(lambda part: _QUOTE_OR_NAME.sub(translate_name, part.group()), text)
