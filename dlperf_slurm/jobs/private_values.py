"""Values that a job needs and nobody else may read -> a file of their own, for its script alone.

Private is what `env_from` names, and what `--set` gives an environment variable that is not known
to be a setting. What a site or matrix file says is no secret: it stands in a file.
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlperf_slurm.config.job_settings import Environment
from dlperf_slurm.config.key_paths import KeyPath
from dlperf_slurm.config.site import LoadedSite, Site
from dlperf_slurm.config.toml_tables import parse_assignment
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.worker.provenance.variables import HARMLESS, cut_credentials

PRIVATE_FILE = "private.env"
RANK_ENV = "rank_env"
_SET = "--set"
_OPTION = re.compile("--[a-z]+=")


def take_private_values(loaded: LoadedSite) -> tuple[Site, dict[str, str]]:
    """The site without its private values, which it has the names of, and these values.

    Raises InputError for a name of `env_from` that is not set here, and for a private value of
    `rank_env`.
    """
    site, private = loaded.site, {}
    for name in site.env_from:
        if name not in os.environ:
            raise InputError(
                f"env_from: {name} is not in the environment of this command; export it, or leave "
                "it out"
            )
        private[name] = os.environ[name]
    public, hidden = _split(site.env, ("env",), loaded.sources)
    private.update(hidden)
    environments: dict[str, Environment] = {}
    for framework, environment in site.environments.items():
        kept, hidden = _split(environment.env, ("environments", framework, "env"), loaded.sources)
        private.update(hidden)
        environments[framework] = environment.model_copy(update={"env": kept})
    _refuse_private_rank_env(loaded)
    names = tuple(sorted({*site.env_from, *private}))
    changes = {"env": public, "environments": environments, "env_from": names}
    return site.model_copy(update=changes), private


def _refuse_private_rank_env(loaded: LoadedSite) -> None:
    """Values for the ranks alone stand on the launcher's command line, which all can read."""
    site = loaded.site
    tables: dict[KeyPath, Mapping[str, str]] = {(RANK_ENV,): site.rank_env}
    for framework, environment in site.environments.items():
        tables["environments", framework, RANK_ENV] = environment.rank_env
    for table, values in tables.items():
        _, hidden = _split(values, table, loaded.sources)
        if hidden:
            raise InputError(
                f"--set {'.'.join(map(str, table))}: {', '.join(hidden)} would stand on a command "
                "line, which all can read; give it in env, or by its name in env_from"
            )


def _split(
    values: Mapping[str, str], table: KeyPath, sources: Mapping[KeyPath, str]
) -> tuple[dict[str, str], dict[str, str]]:
    hidden = {
        name: value
        for name, value in values.items()
        if name not in HARMLESS and sources.get((*table, name), "").startswith(_SET)
    }
    return {name: value for name, value in values.items() if name not in hidden}, hidden


def hide_private_values(command: Sequence[str]) -> tuple[str, ...]:
    """A command line without the private values and credentials in it."""
    return tuple(_hide(word) for word in command)


def _hide(word: str) -> str:
    # an option may be written with its value, and cut short
    option = _OPTION.match(word)
    start = option.group() if option else ""
    assignment = word[len(start) :]
    try:
        data = parse_assignment(assignment).data
    except InputError:
        return cut_credentials(word)
    if any(name not in HARMLESS for name in _list_variables(data)):
        return f"{start}{assignment.partition('=')[0]}=..."
    return cut_credentials(word)


def _list_variables(data: Mapping[str, Any]) -> Iterator[str]:
    for key, value in data.items():
        if isinstance(value, dict):
            if key in ("env", RANK_ENV):
                yield from value
            yield from _list_variables(value)


def write_private_values(folder: Path, values: Mapping[str, str]) -> None:
    """Lines of bash that export the values, in a file for its owner alone."""
    exports = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items())]
    write_file(folder / PRIVATE_FILE, os.fsencode("".join(exports)), root=folder, mode=0o600)


def share_with_group(folder: Path, site: Site) -> None:
    """Give a run's folder to the site's group, and all that will be in it.

    Raises InputError when there is no such group, or one that the user is not in.
    """
    if site.group is None:
        return
    try:
        shutil.chown(folder, group=site.group)
    except (LookupError, OSError) as error:
        raise InputError(f"group: {site.group!r} cannot be given {folder}: {error}") from error
    folder.chmod(folder.stat().st_mode | 0o2000)
