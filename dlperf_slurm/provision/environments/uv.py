"""pip's settings -> environment variables for uv, which installs faster than pip."""

import ast
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# setting of pip -> uv's environment variable for the same
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
    """Return the path of uv, or "" if there is no working uv on PATH."""
    path = shutil.which("uv") or ""
    # pyenv puts shims of inactive versions on PATH too, which fail when called
    runs = path and subprocess.run([path, "--version"], capture_output=True).returncode == 0
    return path if runs else ""


def translate_pip_settings(lines: Iterable[str]) -> dict[str, str]:
    """Translate lines of `pip config list`, such as "global.cert='/a'", to variables of uv.

    Variables that are set in this process's environment are left out.
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
    """Make the path of an existing file or folder absolute; return anything else unchanged."""
    with suppress(RuntimeError):
        path = Path(word).expanduser()
        return str(path.absolute()) if path.exists() else word
    return word
