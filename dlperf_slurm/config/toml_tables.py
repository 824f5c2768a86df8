"""TOML files -> validated tables, or all their mistakes with line numbers; layers -> one table."""

import ast
import copy
import inspect
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from dlperf_slurm.config.error_messages import describe_mistake, describe_syntax_error
from dlperf_slurm.config.key_paths import KeyPath, drop_indices, format_key, locate_keys
from dlperf_slurm.errors import InputError, Problem, raise_problems
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import read_text


# pydantic's `use_attribute_docstrings` would read them whenever a class is defined, which takes a
# third of the time of most commands, although these print no schema
def describe_keys(schema: dict[str, Any], kind: type[BaseModel]) -> None:
    """Add docstrings of a class's fields, also inherited, to its JSON Schema as descriptions."""
    for name, text in list_docstrings(kind).items():
        if name in schema.get("properties", {}):
            schema["properties"][name].setdefault("description", text)


def list_docstrings(kind: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a class, by field name, with inherited fields."""
    found: dict[str, str] = {}
    for base in kind.__mro__[: kind.__mro__.index(BaseModel)]:
        found = {**_list_docstrings(base.__module__).get(base.__name__, {}), **found}
    return found


@lru_cache
def _list_docstrings(module: str) -> dict[str, dict[str, str]]:
    """Parse the docstrings of all fields in a module, given by name: class -> field -> text."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        definition.name: {
            field.target.id: inspect.cleandoc(docstring.value.value)
            for field, docstring in zip(definition.body, definition.body[1:])
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(docstring, ast.Expr)
            and isinstance(docstring.value, ast.Constant)
            and isinstance(docstring.value.value, str)
        }
        for definition in tree.body
        if isinstance(definition, ast.ClassDef)
    }


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# enough for a matrix of thousands of lines
TOML_LIMIT_BYTES = 2**20
MAX_DEPTH = 32
# mistakes of one file that are listed one by one
MAX_MISTAKES = 100

_LONG_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*)"""
    rf"{{{MAX_DEPTH}}}"
)

TomlTable = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)
Item = TypeVar("Item")


class UnsupportedTomlError(ValueError):
    """Valid TOML beyond our limits: nested too deeply, an integer too large, or a NUL."""


class TomlModel(BaseModel):
    """A TOML table: unknown keys are errors, values are not converted between types."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        # most tables are parts of another one, whose validator includes theirs
        defer_build=True,
        json_schema_extra=describe_keys,
    )


def _as_tuple(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, (tuple, dict)) else (value,)


def _as_tables(value: Any) -> Any:
    return (value,) if isinstance(value, dict) else _as_tuple(value)


class _AllowsOne:
    """Metadata for the JSON Schema: one item is allowed in place of a list."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core_schema)
        return {"anyOf": [schema["items"], schema]}


# a TOML list, or a single value in place of a list of one
OneOrMore = Annotated[tuple[Item, ...], BeforeValidator(_as_tuple), _AllowsOne()]
# [[name]] tables, or one [name]
OneOrMoreTables = Annotated[tuple[Item, ...], BeforeValidator(_as_tables), _AllowsOne()]


@dataclass(frozen=True)
class TomlFile:
    """A parsed TOML file, or the table `prefix` of it, and the file's text, which has the lines.

    `label` is its name in messages: its path, or the option `--set`.
    """

    label: str
    text: str
    data: TomlTable
    prefix: KeyPath = ()

    @property
    def table(self) -> TomlTable:
        """The table at `prefix`, or an empty table."""
        value = self.data
        for part in self.prefix:
            value = value.get(str(part), {})
        return value

    @property
    def name(self) -> str:
        """The name in messages and listings, with the table, such as `matrix.toml [slurm]`."""
        return self.label + (f" [{format_key(self.prefix)}]" if self.prefix else "")


def read_toml(path: Path) -> TomlFile:
    """Read a TOML file; raises InputError if it is missing, unreadable or not TOML."""
    try:
        # some editors write a byte order mark
        text = read_text(path, TOML_LIMIT_BYTES).lstrip("\ufeff")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except FileProblem as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return TomlFile(str(path), text, parse_toml(text))
    except (tomllib.TOMLDecodeError, UnsupportedTomlError) as error:
        raise InputError(f"{path}: not valid TOML: {describe_syntax_error(text, error)}") from error


def parse_toml(text: str) -> TomlTable:
    """Parse a TOML text.

    Raises TOMLDecodeError if it is not TOML; UnsupportedTomlError if it is nested deeper than
    MAX_DEPTH, has integers of more than 64 bits, or a NUL, which no path, argument or variable can
    contain.
    """
    # the parser's time is quadratic in the number of parts of a key
    if _LONG_KEY.search(text):
        raise UnsupportedTomlError(f"a key has more than {MAX_DEPTH} parts")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise UnsupportedTomlError(
            f"tables or lists are nested more than {MAX_DEPTH} levels deep"
        ) from None
    except ValueError:
        raise UnsupportedTomlError("an integer does not fit into 64 bits") from None
    remaining: list[tuple[Any, KeyPath]] = [(data, ())]
    while remaining:
        value, path = remaining.pop()
        if len(path) > MAX_DEPTH:
            raise UnsupportedTomlError(
                f"{format_key(path[:4])}...: is nested more than {MAX_DEPTH} levels deep"
            )
        if type(value) is int and not -(2**63) <= value < 2**63:
            raise UnsupportedTomlError(f"{format_key(path)}: the integer does not fit into 64 bits")
        if isinstance(value, str) and "\0" in value:
            raise UnsupportedTomlError(
                f"{format_key(path)}: {value!r:.80} contains a NUL character, which is not allowed"
            )
        if isinstance(value, dict):
            remaining += [(item, (*path, key)) for key, item in value.items()]
        elif isinstance(value, list):
            remaining += [(item, (*path, index)) for index, item in enumerate(value)]
    return data


def parse_assignment(text: str) -> TomlFile:
    """Parse `--set key=value` as a file of one line.

    A value that is not TOML is taken as a string. Raises InputError if there is no `=`, or the key
    is not a TOML key.
    """
    key, equals, value = text.partition("=")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError(f"--set {text!a}: not valid UTF-8")
    if not equals or not key.strip():
        raise InputError(f"--set {text}: write KEY=VALUE, as in --set launcher.name=mpirun")
    # parsed as TOML, a value of several lines could set further keys
    literals = [_quote_toml(value)] if "\n" in value else [value, _quote_toml(value)]
    for line in (f"{key} = {literal}" for literal in literals):
        try:
            return TomlFile(f"--set {text}", "", parse_toml(line))
        except tomllib.TOMLDecodeError:
            continue
        except UnsupportedTomlError as error:
            raise InputError(f"--set {text[:80]}: {error}") from error
    raise InputError(f"--set {text}: {key!r} is not a valid TOML key")


def _quote_toml(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " else f"\\u{ord(c):04x}" for c in escaped) + '"'


@dataclass
class ProblemCollector:
    """A collector of the mistakes in one TOML file, or a table of it; finds the line of each."""

    toml: TomlFile
    problems: list[Problem] = field(default_factory=list)
    _lines: Optional[dict[KeyPath, int]] = None

    def add(self, path: KeyPath, message: str) -> None:
        """Add a mistake at a key path; a missing key gets the line of its nearest parent table."""
        if self._lines is None:
            self._lines = locate_keys(self.toml.text)
        full = drop_indices(self.toml.prefix + path, self.toml.data)
        line = next(
            (self._lines[full[:n]] for n in range(len(full), 0, -1) if full[:n] in self._lines),
            None,
        )
        self.problems.append(Problem(self.toml.label, line, format_key(full), message))


def validate(kind: type[Model], data: TomlTable, reporter: ProblemCollector) -> Optional[Model]:
    """Validate `data` as the pydantic model `kind`; add each mistake to the reporter.

    Returns the validated model. If there are mistakes, it is validated again without the wrong
    keys, so that checks across keys can run and all mistakes are reported together; None if that
    fails too.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
    for mistake in mistakes[:MAX_MISTAKES]:
        reporter.add(_clean(mistake["loc"]), describe_mistake(kind, mistake))
    if len(mistakes) > MAX_MISTAKES:
        reporter.add((), f"{len(mistakes) - MAX_MISTAKES} more errors are not shown")
        return None
    sound = copy.deepcopy(data)
    # from last to first, so that removing items does not shift the indices of earlier ones
    for mistake in sorted(
        mistakes, key=lambda m: [str(p).zfill(9) for p in m["loc"]], reverse=True
    ):
        _prune(sound, drop_indices(_clean(mistake["loc"]), data))
    try:
        return kind.model_validate(sound)
    except ValidationError:
        return None


def validate_file(kind: type[Model], toml: TomlFile) -> Model:
    """Validate the data of a file as a pydantic model; raise InputError with all mistakes."""
    reporter = ProblemCollector(toml)
    found = validate(kind, toml.data, reporter)
    raise_problems(reporter.problems)
    assert found is not None, "invalid data have at least one problem"
    return found


def _clean(location: KeyPath) -> KeyPath:
    return tuple(part for part in location if part != "[key]")


def _prune(data: Any, location: KeyPath) -> None:
    """Remove the value at a key path from nested tables and lists, in place."""
    *parents, last = location
    for part in parents:
        if isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif isinstance(data, dict) and part in data:
            if not isinstance(data[part], (dict, list)):
                del data[part]
                return
            data = data[part]
        else:
            return
    if isinstance(data, dict):
        data.pop(last, None)
    elif isinstance(data, list) and isinstance(last, int) and last < len(data):
        del data[last]


def merge_layers(layers: Sequence[TomlFile]) -> tuple[TomlTable, dict[KeyPath, str]]:
    """Merge layers of settings key by key; a later layer wins.

    Returns the merged table, and the name of the layer that each value came from, by key path.
    """
    merged: TomlTable = {}
    sources: dict[KeyPath, str] = {}
    for layer in layers:
        _merge(merged, layer.table, layer.name, (), sources)
    return merged, sources


def _merge(
    into: TomlTable, data: TomlTable, name: str, path: KeyPath, sources: dict[KeyPath, str]
) -> None:
    """Merge `data` into the table `into`, in place, and add its layer's `name` to `sources`."""
    for key, value in data.items():
        here = (*path, key)
        if isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            _merge(into[key], value, name, here, sources)
        else:
            into[key] = value
            sources[here] = name
