"""Paths of package resources, managed environments, and the user's config, cache and state.

The user's folders follow the XDG Base Directory Specification. Folders in the cache and the state
folder are private (mode 0700).
"""

import os
import pwd
import sys
from contextlib import suppress
from pathlib import Path
from typing import Optional

from dlperf_slurm.errors import InputError
from dlperf_slurm.files.folders import PRIVATE_MASK, file_permissions
from dlperf_slurm.program import COMMAND

# files of virtual environments made by `uv tool` or pipx, which are recreated at each installation
TOOL_FILES = ("uv-receipt.toml", "pipx_metadata.json")

CUDA = "cuda"
# suffix of the name of an environment for GPUs
CUDA_SUFFIX = "-cuda"
PACKAGE = Path(__file__).parents[1]
SYSTEM_DIR = Path("/etc/dlperf-slurm")


def find_resource_dir(name: str) -> Path:
    """Return the folder `name` ("templates", "site_configs", ...) of the package or checkout."""
    installed = PACKAGE / name
    return installed if installed.is_dir() else PACKAGE.parent / name


def expand_home(path: str) -> Path:
    """Expand `~` in a path; raises ValueError if the home folder is unknown."""
    try:
        found = Path(path).expanduser()
    except RuntimeError:
        found = Path(path)
    # Python 3.9 may leave the path unchanged instead of raising
    if found.parts[:1] and found.parts[0].startswith("~"):
        raise ValueError(f"{path!r}: the home folder is unknown; set HOME")
    return found


def find_user_name(uid: Optional[int] = None) -> str:
    """Return the name of a user, or the uid as text if the password database has no name.

    The default is the user of this process: LOGNAME and USER may name another one, and Slurm goes
    by the uid.
    """
    uid = os.geteuid() if uid is None else uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def get_host_name() -> str:
    """Return the name of this host; not from `socket`, which takes milliseconds to import."""
    return os.uname().nodename


def make_absolute_path(path: Path) -> Path:
    """Return an absolute path, below the working directory as the user's shell names it ($PWD).

    The real path of an automounted or linked home may not exist on the nodes.
    """
    shown = Path(os.environ.get("PWD", ""))
    with suppress(OSError):
        if shown.is_absolute() and ".." not in shown.parts and shown.samefile("."):
            return shown / path
    return path.absolute()


def find_user_dir(variable: str, default: str) -> Path:
    """Return the folder that an environment variable names, else `default`, such as "~/.cache".

    A relative path in the variable is ignored. Raises InputError if the default is below an unknown
    home folder.
    """
    chosen = Path(os.environ.get(variable, ""))
    try:
        return chosen if chosen.is_absolute() else expand_home(default)
    except ValueError as error:
        raise InputError(str(error)) from error


def find_stranger(*paths: Path) -> str:
    """Return an owner of these paths who is neither this user nor root, the first found; else "".

    Links and their targets are both checked, as git's safe.directory does; missing paths are
    skipped.
    """
    for path in paths:
        for look in (Path.lstat, Path.stat):
            with suppress(OSError):
                uid = look(path).st_uid
                if uid not in (0, os.geteuid()):
                    return find_user_name(uid)
    return ""


def describe_denied(path: Path) -> str:
    """Return who owns a path that this user may not use, or a folder above it, and the remedy."""
    while not os.path.lexists(path):
        path = path.parent
    is_write = os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK)
    word, right = ("write to", "w") if is_write else ("read", "r")
    return (
        f"{path}: belongs to user {find_user_name(path.lstat().st_uid)}, and you may not {word} "
        f"it; the owner can allow that with `chmod -R g+{right}X {path}`"
    )


def find_cache_dir() -> Path:
    """Return ~/.cache/dlperf-slurm, or that below XDG_CACHE_HOME; see `_find_private_dir`."""
    return _find_private_dir("XDG_CACHE_HOME", "~/.cache")


def find_state_dir() -> Path:
    """Return ~/.local/state/dlperf-slurm, or that below XDG_STATE_HOME; see `_find_private_dir`."""
    return _find_private_dir("XDG_STATE_HOME", "~/.local/state")


def _find_private_dir(variable: str, default: str) -> Path:
    """Return the path of the tool's own folder in the user's folder, as `find_user_dir` finds that.

    Raises InputError as that function does, and if the tool's folder belongs to another user, who
    could change what is read from it.
    """
    own = find_user_dir(variable, default) / "dlperf-slurm"
    owner = find_stranger(own)
    if owner:
        raise InputError(f"{own}: belongs to user {owner}; set {variable} to a folder of your own")
    return own


def make_private_dir(own: Path, name: str) -> Path:
    """Make a folder `name` in the tool's cache or state folder `own`, and return its path.

    New folders and `own` get the mode 0700. Raises OSError.
    """
    folder = own / name
    with file_permissions(PRIVATE_MASK):
        folder.mkdir(parents=True, exist_ok=True)
    if own.stat().st_uid == os.geteuid():
        own.chmod(0o700)
    return folder


def hash_path(path: Path) -> str:
    """Return a hash of a path's real path, to name the file of what is cached about the path."""
    import hashlib

    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]


def evict_oldest(folder: Path, most_entries: int) -> None:
    """Remove all files and folders in `folder` but the `most_entries` that were modified last."""
    import shutil

    # another process may remove them at the same time
    with suppress(OSError):
        kept = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for old in kept[:-most_entries]:
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.unlink()


def find_user_config_dir() -> Path:
    """Return ~/.config/dlperf-slurm, or that below XDG_CONFIG_HOME; raises as `find_user_dir`."""
    return find_user_dir("XDG_CONFIG_HOME", "~/.config") / "dlperf-slurm"


def list_system_config_dirs() -> list[Path]:
    """Return the tool's folders for all users: those below XDG_CONFIG_DIRS, then that in /etc."""
    folders = (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":")
    return [*(Path(one) / "dlperf-slurm" for one in folders if one.startswith("/")), SYSTEM_DIR]


def find_environments_dir() -> Path:
    """Return the folder of managed environments.

    It is `$DLPERF_SLURM_ENVIRONMENTS`, else a folder inside the virtual environment that runs this
    tool, else a folder in the user's data folder (outside of a virtual environment, and in one made
    by `uv tool` or pipx). Raises InputError if `$DLPERF_SLURM_ENVIRONMENTS` contains a `:`, or is
    below an unknown home folder.
    """
    chosen = os.environ.get("DLPERF_SLURM_ENVIRONMENTS")
    if chosen:
        try:
            return Path(check_search_folder(str(expand_home(chosen).absolute())))
        except ValueError as error:
            raise InputError(f"DLPERF_SLURM_ENVIRONMENTS: {error}") from error
    own = Path(sys.prefix)
    if sys.prefix != sys.base_prefix and not any((own / name).exists() for name in TOOL_FILES):
        return own / "environments"
    return find_user_dir("XDG_DATA_HOME", "~/.local/share") / "dlperf-slurm" / "environments"


def check_search_folder(folder: str) -> str:
    """Return `folder` unchanged; raise ValueError for a colon, which separates folders in PATH."""
    if ":" in folder:
        raise ValueError(
            f"{folder!r}: ':' is not allowed in the path, as it separates folders in PATH and "
            "PYTHONPATH; choose another folder"
        )
    return folder


def get_environment_name(framework: str, device: str) -> str:
    """Return the name of an environment of `env create`: "jax", or "jax-cuda" for "cuda"."""
    return f"{framework}{CUDA_SUFFIX}" if device == CUDA else framework


def get_creation_command(framework: str, device: str) -> str:
    """Return the command that creates a framework's environment: "... env create jax --cuda"."""
    option = " --cuda" if device == CUDA else ""
    return f"{COMMAND} env create {framework}{option}"


def find_managed_environment(name: str) -> Path:
    """Return the folder of an environment of `env create`, such as "jax-cuda"; it may not exist."""
    return find_environments_dir() / name
