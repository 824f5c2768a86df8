"""A matrix file -> a validated Matrix, or all mistakes of the file in one error."""

import dataclasses
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from dlperf_slurm.config.site import DEFAULT_LAYER, Site, find_layer_problems
from dlperf_slurm.config.suggestions import MEANINGS, check_known, describe_unknown
from dlperf_slurm.config.toml_tables import (
    ProblemCollector,
    TomlFile,
    TomlTable,
    merge_layers,
    parse_assignment,
    read_toml,
    validate,
)
from dlperf_slurm.contract.axes import WORKER
from dlperf_slurm.errors import InputError, raise_problems
from dlperf_slurm.matrix.model_parameters import find_parameter_problems, find_preset
from dlperf_slurm.matrix.tables import TOPOLOGY_PARTS, AxisTable, Matrix, Selection
from dlperf_slurm.program import COMMAND
from dlperf_slurm.version import __version__
from dlperf_slurm.worker.models import list_models

# the keys of a [model] table that are not parameters of the model
OWN_MODEL_KEYS = ("name", "preset", "dataset")
# the matrix tables whose values `--set` can change; any other key is of the site
SETTABLE = ("axes", "protocol", "training")


@dataclass(frozen=True)
class MatrixFile:
    """A matrix and its file; the name is the file name without `.toml`."""

    name: str
    toml: TomlFile
    matrix: Matrix


def split_assignments(assignments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words after `--set` (KEY=VALUE) into those for the matrix and those for the site.

    All keys that are not in the matrix's tables are the site's, unknown ones too. Raises InputError
    for a matrix key without its table, such as `repeats`, and for other tools' names of keys.
    """
    for text in assignments:
        key = text.partition("=")[0].strip()
        if key not in Site.model_fields and (meant := find_setting(key)):
            raise InputError(f"--set {text}: {key}: unknown key. Did you mean {meant!r}?")
    of_matrix = [text for text in assignments if text.partition(".")[0].strip() in SETTABLE]
    return of_matrix, [text for text in assignments if text not in of_matrix]


def find_setting(name: str) -> str:
    """Return the key for `--set` that a user means by a name, such as "partition"; "" for none.

    Names in other tools are known: "walltime" is "time_limit_minutes.default".
    """
    meant = name if name in Site.model_fields else MEANINGS.get(name, "")
    if meant in Site.model_fields:
        # values of a table by topology have the key "default"
        default = Site.model_fields[meant].default
        is_by_topology = isinstance(default, dict) and "default" in default
        return f"{meant}.default" if is_by_topology else meant
    for table in SETTABLE:
        kind = Matrix.model_fields[table].annotation
        if name in getattr(kind, "model_fields", ()):
            return f"{table}.{name}"
    return ""


def read_matrix(path: Path, assignments: Sequence[str] = ()) -> MatrixFile:
    """Read a matrix file, with assignments applied; raise InputError with all its mistakes."""
    toml = read_toml(path)
    if not toml.data.keys() & {"model", "axes"} and toml.data.keys() & Site.model_fields.keys():
        raise InputError(f"{path}: is a site file, not a matrix; to use it: --site {path}")
    if assignments:
        # mistakes in these values are reported without line numbers
        merged, _ = merge_layers([toml, *map(parse_assignment, assignments)])
        options = " ".join(f"--set {shlex.quote(text)}" for text in assignments)
        toml = TomlFile(f"{toml.label} {options}", "", merged)
    reporter = ProblemCollector(toml)
    matrix = validate(Matrix, toml.data, reporter)
    _check_models(toml.data, reporter)
    if isinstance(toml.data.get("slurm"), dict):
        reporter.problems += find_layer_problems(dataclasses.replace(toml, prefix=("slurm",)))
    if matrix is not None:
        _check_included_models(matrix, reporter)
        _check_overrides(matrix, reporter)
        _check_scripts(matrix, reporter)
    raise_problems(reporter.problems)
    assert matrix is not None, "the validation of the matrix failed without an error message"
    if assignments:
        # the run keeps the merged values, and the first line names the `--set` options
        text = f"# {toml.label!a}\n{tomli_w.dumps(toml.data)}"
        toml = dataclasses.replace(toml, text=text)
    return MatrixFile(path.stem, toml, matrix)


def list_values(file: MatrixFile, assignments: Sequence[str]) -> list[tuple[str, Any, str]]:
    """List the values of [axes] and [protocol] as (key, value, source), defaults included.

    A source is "NAME.toml", "--set KEY=VALUE" or DEFAULT_LAYER; `assignments` only name sources.
    """
    layers = {text.partition("=")[0].strip(): f"--set {text}" for text in assignments}
    rows = []
    for table in SETTABLE[:2]:
        named = file.toml.data.get(table, {})
        for name, value in getattr(file.matrix, table).model_dump(mode="json").items():
            source = f"{file.name}.toml" if name in named else DEFAULT_LAYER
            rows.append((f"{table}.{name}", value, layers.get(f"{table}.{name}", source)))
    return rows


def _check_models(data: TomlTable, reporter: ProblemCollector) -> None:
    """Report mistakes in model parameters, in the [model] and [[override]] tables of a file."""
    # the raw tables are checked, so that a mistake elsewhere in the file cannot hide one here
    tables = data.get("model")
    is_list = isinstance(tables, list)
    # a second table of the same model is reported by the model's own validation
    remaining = set(list_models())
    for index, model in enumerate(tables if isinstance(tables, list) else [tables]):
        name = model.get("name") if isinstance(model, dict) else None
        if not isinstance(name, str) or name not in remaining:
            continue
        remaining.remove(name)
        own = {key: value for key, value in model.items() if key not in OWN_MODEL_KEYS}
        preset, problems = find_preset(name, model.get("preset", ""))
        base = {**preset, **own}
        problems += find_parameter_problems(name, base)
        for key, message in problems:
            reporter.add(("model", index, key) if is_list else ("model", key), message)
        if not problems:
            _check_model_overrides(name, base, data.get("override"), reporter)


def _check_model_overrides(
    name: str, base: TomlTable, overrides: Any, reporter: ProblemCollector
) -> None:
    for index, override in enumerate(overrides if isinstance(overrides, list) else ()):
        changes = override.get("model") if isinstance(override, dict) else None
        when = override.get("when") if isinstance(override, dict) else None
        named = when.get("model", name) if isinstance(when, dict) else name
        if isinstance(changes, dict) and name in (named if isinstance(named, list) else [named]):
            for key, message in find_parameter_problems(name, {**base, **changes}):
                reporter.add(("override", index, "model", key), message)


def _check_included_models(matrix: Matrix, reporter: ProblemCollector) -> None:
    declared = [model.name for model in matrix.model]
    for index, selection in enumerate(matrix.include):
        for name in selection.model:
            if name not in declared:
                what = "the name of a model in [model] of this matrix"
                text = describe_unknown(name, declared, what)
                reporter.add(("include", index, "model"), text)


def _check_overrides(matrix: Matrix, reporter: ProblemCollector) -> None:
    overridden = {axis for override in matrix.override for axis in override.named_axes()}
    if "topology" in overridden:
        overridden |= set(TOPOLOGY_PARTS)
    own = [script.model for script in matrix.scripts.values() if script.model]
    if "script" in overridden and own:
        overridden.add("model")
    for index, override in enumerate(matrix.override):
        if override.model and (named := sorted({*own} & {*override.when.get_values("model")})):
            text = (
                f"{named[0]!r} is a model of a script; its parameters are in the command of the "
                "script, so an [[override]] cannot set them"
            )
            reporter.add(("override", index, "model"), text)
        if not override.named_axes():
            continue
        for axis in sorted(overridden & override.when.model_fields_set):
            reporter.add(
                ("override", index, "when", axis),
                f"{axis} is set by an [[override]], so it cannot be in `when` of an [[override]]; "
                "use include or exclude for these cases",
            )


def _check_log_formats(matrix: Matrix, reporter: ProblemCollector) -> None:
    """Report invalid log formats, and scripts with an unknown format or rule."""
    # only scripts have logs to read
    from dlperf_slurm.logs import FormatError, list_formats, load_format

    valid: dict[str, dict[str, Any]] = {}
    for name, table in matrix.formats.items():
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or name in list_formats():
            reporter.add(
                ("formats", name),
                f"{name!r} is used as a file name; allowed: letters, digits, _ and -, but not the "
                "name of one of this tool's formats",
            )
            continue
        try:
            load_format(name, matrix.formats)
        except FormatError as error:
            reporter.add(("formats", name), str(error).removeprefix(f"formats.{name}: "))
            continue
        valid[name] = table
    for name, script in matrix.scripts.items():
        try:
            check_known(script.format, [*list_formats(), *matrix.formats], "a log format")
            if script.format in matrix.formats and script.format not in valid:
                continue
            rules = [rule.name for rule in load_format(script.format, valid).RULES]
        except ValueError as error:
            text = f"{error}; to add a format: {COMMAND} docs logs"
            reporter.add(("scripts", name, "format"), text)
            continue
        if script.rule and script.rule not in rules:
            reporter.add(
                ("scripts", name, "rule"),
                f"log format {script.format!r} has no rule {script.rule!r} to compute a "
                f"throughput; known: {'; '.join(rules)}",
            )


def _check_scripts(matrix: Matrix, reporter: ProblemCollector) -> None:
    """Report mistakes in [scripts] and [formats], and unknown scripts and models in other tables.

    A missing [model] is one too, if a script has no model of its own.
    """
    known = {"script": [WORKER, *matrix.scripts]}
    own_models = [script.model for script in matrix.scripts.values() if script.model]
    known["model"] = [*list_models(), *own_models]
    for name, script in matrix.scripts.items():
        if name == WORKER:
            text = f"{name!r} is the name of this tool's own script; choose another name"
            reporter.add(("scripts", name), text)
        elif not re.fullmatch(r"[A-Za-z0-9_.+-]+", name):
            reporter.add(
                ("scripts", name),
                f"{name!r} is used in file names; allowed: letters, digits and _ . + -",
            )
        if script.model in list_models():
            text = f"{script.model!r} is a model of this tool; name it in [model] instead"
            reporter.add(("scripts", name, "model"), text)
        for key in () if script.model else ("unit", "tokens_per_sample", "flops_per_sample"):
            if getattr(script, key):
                text = (
                    f"is only for a script with a model of its own; set scripts.{name}.model to "
                    "the name of that model"
                )
                reporter.add(("scripts", name, key), text)
    places: list[tuple[tuple[Any, ...], AxisTable]] = [(("axes",), matrix.axes)]
    for key in ("include", "override"):
        selections: Sequence[Selection] = getattr(matrix, key)
        places += [((key, index), table) for index, table in enumerate(selections)]
    for key in ("exclude", "override", "note"):
        rules = getattr(matrix, key)
        places += [((key, index, "when"), rule.when) for index, rule in enumerate(rules)]
    for path, table in places:
        keys = ("script", "model") if "when" in path else ("script",)
        for key, name in ((k, name) for k in keys for name in table.get_values(k)):
            if name not in known[key]:
                reporter.add((*path, key), describe_unknown(name, known[key], f"a {key}"))
    used = {
        name for path, table in places if "when" not in path for name in table.get_values("script")
    }
    lacking = sorted(used - {name for name, script in matrix.scripts.items() if script.model})
    if lacking and "model" not in reporter.toml.data:
        models = ", ".join(list_models())
        text = f"is required, as script {lacking[0]!r} has no model of its own; known: {models}"
        reporter.add(("model",), text)
    if matrix.scripts or matrix.formats:
        _check_log_formats(matrix, reporter)


def make_schema(kind: str) -> dict[str, Any]:
    """Make the JSON Schema of a "matrix" or "site" file; [slurm] of a matrix has a site's keys."""
    schema = (Matrix if kind == "matrix" else Site).model_json_schema()
    if kind == "matrix":
        site = Site.model_json_schema()
        slurm = schema["properties"]["slurm"]
        schema["properties"]["slurm"] = {
            "$ref": "#/$defs/Site",
            "description": slurm["description"],
        }
        # a definition with the same name has the same content in both
        schema["$defs"] = {**site.pop("$defs"), **schema["$defs"], "Site": site}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:dlperf-slurm:{__version__}:{kind}",
        **schema,
    }
