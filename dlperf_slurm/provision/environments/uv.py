"""uv, which installs what pip does, faster: where it is, and pip's settings in its words."""

import ast
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# settings of pip, and the environment variables that tell uv the same
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "no-index": "UV_NO_INDEX",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "trusted-host": "UV_INSECURE_HOST",
}


def find_uv() -> str:
    """Return the path of uv, or "" where none is on PATH."""
    path = shutil.which("uv") or ""
    # a pyenv shim is on PATH for versions that are not switched on, and fails when called
    runs = path and subprocess.run([path, "--version"], capture_output=True).returncode == 0
    return path if runs else ""


def translate_pip_settings(lines: Iterable[str]) -> dict[str, str]:
    """Return uv's environment variables for what `pip config list` prints ("global.cert='/a'").

    What the user has set for uv itself stays as it is.
    """
    settings = dict(line.split("=", 1) for line in lines if "=" in line)
    # as pip does, uv then compares the versions of all indexes; hashes make that safe
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    # later sections override earlier ones
    for section in ("global", "install", ":env:"):
        for name, variable in VARIABLES.items():
            value = settings.get(f"{section}.{name}")
            if value is not None and variable not in os.environ:
                separator = "," if variable == "UV_FIND_LINKS" else " "
                words = map(_make_absolute, ast.literal_eval(value).split())
                variables[variable] = separator.join(words)
    return variables


def _make_absolute(word: str) -> str:
    """Return the path of a file or folder that is there; anything else as it is."""
    with suppress(RuntimeError):
        path = Path(word).expanduser()
        return str(path.absolute()) if path.exists() else word
    return word
