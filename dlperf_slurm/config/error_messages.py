"""An error of pydantic or of the TOML parser -> a message that says what to write instead."""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import date, time
from typing import Any, Optional, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dlperf_slurm.config.key_paths import KeyPath
from dlperf_slurm.config.suggestions import suggest

# pydantic's error type -> message
_KINDS = {
    "bool_type": "is not true or false",
    "dict_type": "is not a table",
    "float_type": "is not a number",
    "int_from_float": "is not an integer",
    "int_type": "is not an integer",
    "model_type": "is not a table",
    "string_type": "is not a string",
}
# pydantic's error type -> message, and the name of the limit in the error's context
_BOUNDS = {
    "greater_than": ("allowed: above", "gt"),
    "greater_than_equal": ("allowed: at least", "ge"),
    "less_than": ("allowed: below", "lt"),
    "less_than_equal": ("allowed: at most", "le"),
}
# pattern of a line that is not TOML -> hint
_SYNTAX_HINTS = (
    (re.compile(r"=\s*(True|False)\b"), "write true or false, in lower case"),
    (re.compile(r"=\s*0\d"), 'to write a number with a leading zero, put it in quotes: "022"'),
    (re.compile(r"=\s*\d[\d.]*\s*[A-Za-z:]"), "put text in quotes"),
    (re.compile(r"=\s*[A-Za-z_/~$.]"), "put text in quotes"),
    (re.compile(r"^\s*[\w.-]+\s*:"), "write KEY = VALUE"),
)


def describe_mistake(kind: type[BaseModel], mistake: Mapping[str, Any]) -> str:
    """Describe an error that pydantic found in a TOML table, with the allowed values.

    `mistake` is an item of pydantic's `errors()`; `kind` is the model of the validated table.
    """
    value, error_type = mistake["input"], mistake["type"]
    if error_type == "extra_forbidden":
        return _describe_unknown_key(mistake["loc"][-1], _find_fields(kind, mistake["loc"][:-1]))
    if error_type == "missing":
        return "is required, but missing"
    if error_type == "value_error":
        return str(mistake["ctx"]["error"])
    if error_type == "literal_error":
        expected = mistake["ctx"]["expected"]
        known = [name.strip("' ") for name in expected.replace(" or ", ", ").split(",")]
        return f"{value!r} is not allowed; allowed: {', '.join(known)}{suggest(value, known)}"
    shown = _show(value)
    if error_type in _BOUNDS:
        words, name = _BOUNDS[error_type]
        return f"{shown} is not allowed; {words} {mistake['ctx'][name]}"
    if error_type in _KINDS:
        field = _find_fields(kind, mistake["loc"][:-1]).get(str(mistake["loc"][-1]))
        return f"{shown} {_KINDS[error_type]}{_suggest_correction(error_type, value, shown, field)}"
    message = mistake["msg"]
    return f"{shown}: {message[0].lower()}{message[1:]}"


def _show(value: object) -> str:
    """Format a value as in a TOML file, where this differs from Python: `true`, dates."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (date, time)) else repr(value)


def _describe_unknown_key(key: object, known: Iterable[str]) -> str:
    """Describe an unknown key: the nearest key first, as the list of known keys may be long."""
    names = sorted(known)
    near = suggest(key, names)
    return f"unknown key{near}{' Known' if near else '; known'}: {', '.join(names)}"


def _suggest_correction(
    error_type: str, value: object, shown: str, field: Optional[FieldInfo]
) -> str:
    """Return what to write instead of a wrong value, such as its allowed values; "" if unknown."""
    if error_type == "string_type" and isinstance(value, (int, float)):
        # a shell removes the quotes of --set account="123"
        return f'; to make it a string, put it in quotes: "{shown}" (in a shell: \'"{shown}"\')'
    if error_type == "dict_type" and field is not None and isinstance(field.default, dict):
        keys = ", ".join(f"{key} = {json.dumps(item)}" for key, item in field.default.items())
        return f"; write {{ {keys} }}, with your values" if keys else ""
    if isinstance(value, str) and (
        (error_type == "bool_type" and value in ("true", "false"))
        or (error_type in ("int_type", "float_type") and value.isdecimal())
    ):
        return f"; write it without quotes: {value}"
    return ""


def describe_syntax_error(text: str, error: Exception) -> str:
    """Describe a TOML syntax error: the parser's message, the line, and a hint if there is one."""
    found = re.search(r"\(at line (\d+), ", str(error))
    lines = text.splitlines()
    if not found or int(found.group(1)) > len(lines):
        return str(error)
    line = lines[int(found.group(1)) - 1].strip()
    if "overwrite" in str(error):
        hint: Optional[str] = "this key or table occurs twice"
    else:
        hint = next((words for pattern, words in _SYNTAX_HINTS if pattern.search(line)), None)
    return f"{error}: {line[:80]}" + (f"; {hint}" if hint else "")


def _find_fields(kind: type[BaseModel], location: KeyPath) -> dict[str, FieldInfo]:
    for part in location:
        if isinstance(part, str) and part in kind.model_fields:
            inner = _find_model(kind.model_fields[part].annotation)
            if inner is not None:
                kind = inner
    return kind.model_fields


def _find_model(annotation: Any) -> Optional[type[BaseModel]]:
    if get_origin(annotation) is None:
        is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        return annotation if is_model else None
    found = (_find_model(argument) for argument in get_args(annotation))
    return next((model for model in found if model is not None), None)
