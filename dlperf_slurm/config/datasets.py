"""The tables [datasets.NAME] of a site file: the paths of data sets, and of copies on nodes."""

import re
from typing import Annotated, Any, Optional

from pydantic import AfterValidator, BeforeValidator, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from dlperf_slurm.config.job_settings import make_absolute
from dlperf_slurm.config.toml_tables import TomlModel, TomlTable

# an absolute path, or a path below a folder named by an environment variable
_NODE_PATH = re.compile(r"/.+|\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*)/.+", re.ASCII)


def _check_node_path(path: str) -> str:
    if _NODE_PATH.fullmatch(path) is None:
        raise ValueError(
            f"{path!r} is not an absolute path; allowed: a path that begins with '/' or a "
            "variable, as '$SLURM_TMPDIR/x' does"
        )
    if ".." in path.split("/"):
        raise ValueError(f"{path!r}: '..' is not allowed; write the path without it")
    return path


class DatasetLocation(TomlModel):
    """Location of a data set's files."""

    path: Optional[Annotated[str, AfterValidator(make_absolute)]] = None
    """Folder of the files, or with `stage_to` a tar archive of them; default: data/NAME."""
    stage_to: Optional[Annotated[str, AfterValidator(_check_node_path)]] = None
    """Folder on each node to copy the files to and read them from: "$SLURM_TMPDIR/imagenet"."""
    on_login_node: bool = True
    """Whether the login node can see `path`; if not, `path` is not checked before the job runs."""


def spell_out_paths(settings: TomlTable) -> None:
    """Replace each data set given as a path by a table with the path, in place.

    A later layer of settings can then add keys to it.
    """
    datasets = settings.get("datasets")
    if isinstance(datasets, dict):
        datasets.update({name: _read_plain_path(value) for name, value in datasets.items()})


def _read_plain_path(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class _AllowsPath:
    """Metadata for the JSON Schema: a path is allowed in place of the table."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(core_schema)]}


# a table, or the path alone
DatasetOrPath = Annotated[DatasetLocation, BeforeValidator(_read_plain_path), _AllowsPath()]
