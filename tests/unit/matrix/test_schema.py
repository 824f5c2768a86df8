"""The JSON Schemas for editors: they accept what the tool accepts, and refuse common mistakes."""

import json
import shutil
import subprocess
from functools import cache

import pytest
from builders import SMALL_MATRIX
from jsonschema import Draft202012Validator

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.toml_tables import parse_toml
from dlperf_slurm.matrix.schema import make_schema
from dlperf_slurm.provision import copy_examples


@cache
def make_validator(kind):
    schema = make_schema(kind)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def is_valid(kind, text):
    return make_validator(kind).is_valid(parse_toml(text))


@pytest.mark.parametrize(("kind", "folder"), [("matrix", "matrices"), ("site", "site_configs")])
def test_schema_accepts_each_shipped_file(kind, folder):
    files = sorted(find_resource_dir(folder).rglob("*.toml"))
    assert files
    assert [path for path in files if not is_valid(kind, path.read_text("utf-8"))] == []


MISTAKES = [
    ("matrix", SMALL_MATRIX + "[slurm]\ntime_limit_minutes = '10min'\n"),
    ("matrix", SMALL_MATRIX + "[slurm]\npartitoin = 'gpu'\n"),
    ("matrix", SMALL_MATRIX.replace("2n2g", "2x8")),
    ("site", "[time_limit_minutes]\n2x8 = 10\n"),
    ("site", "[[override]]\npartition = 'x'\nwhen.topology = '2x8'\n"),
]


@pytest.mark.parametrize(("kind", "text"), MISTAKES)
def test_schema_refuses_what_the_tool_refuses(kind, text):
    assert not is_valid(kind, text)
    right = text.replace("'10min'", "{ default = 10 }").replace("partitoin", "partition")
    assert is_valid(kind, right.replace("2x8", "2n8g"))


@pytest.mark.skipif(shutil.which("taplo") is None, reason="taplo is not here: pip install taplo")
def test_taplo_checks_the_files_of_init_by_their_first_line(home):
    schemas = {"matrices": make_schema("matrix"), "site_configs": make_schema("site")}
    paths = [path for path in copy_examples(home, schemas) if path.suffix == ".toml"]
    codes = []
    for text in ("", "nonsense = 1\n"):
        paths[0].write_text(paths[0].read_text("utf-8") + text, encoding="utf-8")
        done = subprocess.run(["taplo", "check", *paths], capture_output=True, text=True)
        codes.append(done.returncode)
    assert (codes[0], codes[1] != 0, "nonsense" in done.stderr) == (0, True, True), done.stderr
    assert json.loads((home / "matrices/schema.json").read_text("utf-8"))["$id"]
