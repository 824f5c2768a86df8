"""The JSON Schemas of matrix and site files, for editors."""

from typing import Any

from dlperf_slurm.config.site import Site
from dlperf_slurm.matrix.tables import Matrix
from dlperf_slurm.version import __version__


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
