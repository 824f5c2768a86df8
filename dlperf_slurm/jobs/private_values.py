"""Private environment variables of a job -> a file that only its owner can read.

Private are the variables named by `env_from`, and those set by `--set` unless they are known to be
harmless. Values in a site or matrix file are not private.
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
from dlperf_slurm.jobs.quoting import quote_expanding
from dlperf_slurm.jobs.run_directory import PRIVATE_FILE
from dlperf_slurm.worker.provenance.variables import HARMLESS, cut_credentials

RANK_ENV = "rank_env"
_SET = "--set"
_OPTION = re.compile("--[a-z]+=")


def take_private_values(loaded: LoadedSite) -> tuple[Site, dict[str, str]]:
    """Move private values of environment variables, of `env_from` and `--set`, out of a site.

    Returns the site, in which `env_from` names the private variables, and their values by name,
    quoted for bash. The job expands `${NAME}` in values of `env`, but not in those of `env_from`.
    Raises InputError if a variable of `env_from` is not set, or if `rank_env` has a private value.
    """
    site, private = loaded.site, {}
    for name in site.env_from:
        if name not in os.environ:
            raise InputError(
                f"env_from: {name} is not set in this shell; export it, or remove it from env_from"
            )
        private[name] = shlex.quote(os.environ[name])
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
    """Raise InputError for values of `--set` in `rank_env`, which would be on a command line.

    Such values are private, and all users of the machine can read command lines.
    """
    site = loaded.site
    tables: dict[KeyPath, Mapping[str, str]] = {(RANK_ENV,): site.rank_env}
    for framework, environment in site.environments.items():
        tables["environments", framework, RANK_ENV] = environment.rank_env
    for table, values in tables.items():
        _, hidden = _split(values, table, loaded.sources)
        if hidden:
            raise InputError(
                f"--set {'.'.join(map(str, table))}: {', '.join(hidden)} would be visible to "
                "other users on the command line; set the variable under `env` in a site, user or "
                "matrix file, or list its name in env_from"
            )


def _split(
    values: Mapping[str, str], table: KeyPath, sources: Mapping[KeyPath, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Split the variables of a table into public values, and private values quoted for bash.

    `sources` has the layer that each value is from: values of `--set` are private.
    """
    hidden = {
        name: value
        for name, value in values.items()
        if name not in HARMLESS and sources.get((*table, name), "").startswith(_SET)
    }
    public = {name: value for name, value in values.items() if name not in hidden}
    return public, {name: quote_expanding(value) for name, value in hidden.items()}


def hide_private_values(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command line with "..." for credentials and for environment values in `--set`."""
    return tuple(_hide(word) for word in command)


def _hide(word: str) -> str:
    """Return a word of a command line with "..." in place of a private value or credential."""
    # "--set=KEY=VALUE", and abbreviated options such as "--se=..."
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


def write_private_values(folder: Path, words: Mapping[str, str]) -> None:
    """Write lines `export NAME=WORD` to a file that only its owner can read; words are quoted."""
    exports = [f"export {name}={word}\n" for name, word in sorted(words.items())]
    write_file(folder / PRIVATE_FILE, os.fsencode("".join(exports)), root=folder, mode=0o600)


def share_with_group(folder: Path, site: Site) -> None:
    """Give a run's folder to the site's group, if any; setgid passes the group on to new files.

    Raises InputError if the group does not exist, or if the user is not a member.
    """
    if site.group is None:
        return
    try:
        shutil.chown(folder, group=site.group)
    except (LookupError, OSError) as error:
        raise InputError(f"group: cannot give {folder} to group {site.group!r}: {error}") from error
    folder.chmod(folder.stat().st_mode | 0o2000)
