"""JSON schemas of the matrix and the site -> their references in docs/; run it after a change."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dlperf_slurm.config.site import Site
from dlperf_slurm.matrix.tables import Matrix

DOCS = Path(__file__).parent

HEAD = """\
# Every key of {what}

[{guide}]({guide_file}) says how these work together. A key without a default must be there; "-" is
none. A list may be a single value too.

Made by `python docs/make_references.py` from the schema that `dlperf-slurm config schema {word}`
prints.
"""
MATRIX = {"what": "a matrix", "guide": "The matrix", "guide_file": "matrix.md", "word": "matrix"}
SITE = {"what": "a site file", "guide": "The site guide", "guide_file": "site.md", "word": "site"}

# file -> what its first lines say, and its schema
REFERENCES = {
    "matrix-reference.md": (MATRIX, Matrix),
    "site-reference.md": (SITE, Site),
}

KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false"}

Schema = Mapping[str, Any]


def make_document(name: str) -> str:
    """The text of the reference with this file name."""
    words, tables = REFERENCES[name]
    return HEAD.format(**words) + "\n" + "\n".join(list_lines(tables.model_json_schema()))


def list_lines(schema: Schema) -> Iterator[str]:
    """The sections: keys outside tables, then each table once, where it first stands."""
    headings = find_headings(schema)
    plain = {k: v for k, v in schema["properties"].items() if find_table(v) not in headings}
    yield from list_keys("Keys outside tables", {**schema, "properties": plain}, headings)
    for table, heading in headings.items():
        yield from list_keys(heading, schema["$defs"][table], headings)


def find_headings(schema: Schema) -> dict[str, str]:
    """Definition -> how TOML writes that table, in the order of the file."""
    headings: dict[str, str] = {}
    for key, value in schema["properties"].items():
        table = find_table(value)
        if table:
            name = f"{key}.NAME" if "additionalProperties" in value else key
            headings[table] = f"[[{name}]]" if is_list(value) else f"[{name}]"
    for outer, heading in list(headings.items()):
        for key, value in schema["$defs"][outer].get("properties", {}).items():
            table = find_table(value)
            if table and table not in headings:
                headings[table] = f"{key} of {heading}"
    return headings


def find_table(value: Schema) -> str:
    """The definition that a key's value has to fit; empty for a value that is no table."""
    inner = value.get("additionalProperties")
    choices = [value, *value.get("anyOf", ()), inner]
    choices += inner.get("anyOf", ()) if isinstance(inner, dict) else ()
    choices += [
        choice["items"] for choice in choices if isinstance(choice, dict) and "items" in choice
    ]
    references = (
        choice["$ref"] for choice in choices if isinstance(choice, dict) and "$ref" in choice
    )
    return next((reference.rpartition("/")[2] for reference in references), "")


def is_list(value: Schema) -> bool:
    return any(choice.get("type") == "array" for choice in value.get("anyOf", ()))


def list_keys(heading: str, table: Schema, headings: Mapping[str, str]) -> Iterator[str]:
    """The section of a table."""
    yield f"## {heading}\n"
    if heading.startswith("[") and "description" in table:
        yield f"{write_cell(table['description'])}\n"
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    for key, value in table["properties"].items():
        default = write_default(value, key in table.get("required", ()))
        meaning = write_cell(value["description"])
        yield f"| `{key}` | {write_kind(value, headings)} | {default} | {meaning} |"
    yield ""


def write_kind(value: Schema, headings: Mapping[str, str]) -> str:
    """What a value may be: a table, words, or a kind of value, or a list of these."""
    table = find_table(value)
    if table:
        return f"table: {headings[table]}" if table in headings else "table"
    choices = [choice for choice in value.get("anyOf", (value,)) if choice.get("type") != "null"]
    kind = write_single(choices[0])
    return f"{kind}; list" if is_list(value) else kind


def write_single(choice: Schema) -> str:
    if "enum" in choice:
        return ", ".join(f"`{word}`" for word in choice["enum"])
    kind = choice.get("type")
    if kind == "object":
        return "table"
    if kind == "array":
        return "list"
    kinds = kind if isinstance(kind, list) else [kind]
    names = " or ".join(KINDS[name] for name in kinds)
    for limit, words in (("minimum", "at least"), ("exclusiveMinimum", "above")):
        if limit in choice:
            names += f", {words} {choice[limit]}"
    if "maximum" in choice:
        names += f", at most {choice['maximum']}"
    return names


def write_default(value: Schema, is_required: bool) -> str:
    if is_required or "default" not in value:
        return ""
    default = value["default"]
    if default in (None, "", [], {}) and default is not False:
        return "-"
    return (
        "see there"
        if isinstance(default, dict) and find_table(value)
        else f"`{json.dumps(default)}`"
    )


def write_cell(text: str) -> str:
    """One line without what ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    for file_name in REFERENCES:
        (DOCS / file_name).write_text(make_document(file_name), encoding="utf-8")
