"""A table's class -> the descriptions of its keys in JSON Schemas, from the fields' docstrings.

Pydantic's `use_attribute_docstrings` would read them whenever a class is defined, which takes a
third of the time of most commands, although these print no schema.
"""

import ast
import inspect
import sys
from functools import lru_cache
from typing import Any

from pydantic import BaseModel


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
