"""A Python that is too old, or a missing library -> one line that says how to install the tool.

The module is valid in Python 2.7.
"""

import os
import re
import sys

NOT_INSTALLED_EXIT_CODE = 9

# module -> distribution, for the requirements in setup.cfg
LIBRARIES = {
    "PIL": "pillow",
    "duckdb": "duckdb",
    "jinja2": "jinja2",
    "matplotlib": "matplotlib",
    "msgspec": "msgspec",
    "numpy": "numpy",
    "pandas": "pandas",
    "pydantic": "pydantic",
    "rich": "rich",
    "shtab": "shtab",
    "submitit": "submitit",
    "tomli": "tomli",
    "tomli_w": "tomli-w",
}

_PACKAGE = __name__.partition(".")[0]
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_NEWER_PYTHONS = ["python3." + str(minor) for minor in range(14, 8, -1)]


def describe_old_python():  # type: () -> str
    """Return which Python the tool needs, and the command that installs the tool with it."""
    found = [name for name in _NEWER_PYTHONS if _is_on_path(name)]
    needs = "dlperf-slurm requires Python 3.9 or newer, and %s is Python %s" % (
        sys.executable,
        sys.version.split()[0],
    )
    if not _is_checkout():
        return "%s; install it with %s" % (needs, found[0] if found else "a newer Python")
    if not found and not _is_installed_in_checkout():
        return "%s; install a newer Python, or load a module that has one" % needs
    return "%s; %s" % (needs, _describe_checkout_command(found[0] if found else ""))


def describe_import_error(error):  # type: (ImportError) -> str
    """Return which library cannot be imported, and the command that installs it.

    Return '' if the library that failed is not one that the tool requires.
    """
    library = find_library(error)
    if library not in LIBRARIES:
        return ""
    while isinstance(error.__cause__, ImportError):
        error = error.__cause__
    what = "%s cannot be imported (%s)" % (library, " ".join(str(error).split()))
    if _is_checkout() and sys.prefix == sys.base_prefix:
        return "%s; %s" % (what, _describe_checkout_command(""))
    return "%s; install it: %s" % (what, _write_pip_command(library, error))


def find_library(error):  # type: (ImportError) -> str
    """Return the top-level module that our own code was importing or calling when it failed."""
    outside = ""
    traceback = error.__traceback__
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if module in (_PACKAGE, "__main__"):
            outside = ""
        elif not outside and module != "importlib":
            outside = module
        traceback = traceback.tb_next
    return outside or (error.name or "").partition(".")[0]


def _describe_checkout_command(newer_python):  # type: (str) -> str
    """Return how to install the tool in the checkout's .venv, or how to run it from there.

    `newer_python` is the program to install it with, such as "python3.12"; "" is the default one.
    """
    python = _write_place(".venv", "bin", "python")
    if _is_installed_in_checkout():
        return "dlperf-slurm is installed in another Python; run: %s -m %s" % (python, _PACKAGE)
    if _is_on_path("make"):
        install = (
            "make .venv/installed" if _is_here() else "make -C %s .venv/installed" % _quote(_HOME)
        )
        install += " PYTHON=" + newer_python if newer_python else ""
    else:
        install = "%s -m venv %s && %s -m pip install --editable %s" % (
            newer_python or "python3",
            _write_place(".venv"),
            python,
            _write_place(),
        )
    return "install it: %s (then run: %s -m %s)" % (install, python, _PACKAGE)


def _write_pip_command(library, error):  # type: (str, ImportError) -> str
    """Return the pip command that installs the missing libraries, or reinstalls a broken one."""
    from importlib.util import find_spec

    words = [sys.executable, "-m", "pip", "install"]
    if find_spec((error.name or library).partition(".")[0]) is not None:
        words.append("--force-reinstall")
    if _is_checkout():
        if sys.prefix == os.path.join(_HOME, ".venv"):
            words.append("--editable")
        words.append("." if _is_here() else _HOME)
    else:
        missing = [name for name in LIBRARIES if name != "tomli" and find_spec(name) is None]
        words += _list_requirements(missing or [library])
    return " ".join(map(_quote, words))


def _list_requirements(libraries):  # type: (list[str]) -> list[str]
    """Return pip requirements for the libraries, with the versions that the package requires."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = [line.partition(";")[0].strip() for line in requires("dlperf-slurm") or ()]
    except PackageNotFoundError:
        lines = []
    by_name = {re.split(r"[^\w-]", line)[0].lower(): line for line in reversed(lines)}
    return [by_name.get(LIBRARIES[name], LIBRARIES[name]) for name in libraries]


def _is_checkout():  # type: () -> bool
    return all(os.path.isfile(os.path.join(_HOME, name)) for name in ("setup.cfg", "Makefile"))


def _is_installed_in_checkout():  # type: () -> bool
    stamp = os.path.join(_HOME, ".venv", "installed")
    return os.path.isfile(stamp) and sys.prefix != os.path.join(_HOME, ".venv")


def _is_on_path(program):  # type: (str) -> bool
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return any(os.access(os.path.join(folder, program), os.X_OK) for folder in folders)


def _is_here():  # type: () -> bool
    return os.getcwd() == _HOME


def _write_place(*names):  # type: (*str) -> str
    """Return a path in the checkout, quoted for the shell; relative if it is the working directory.

    `names` are the parts of the path below it.
    """
    return _quote(os.path.join("" if _is_here() else _HOME, *names) or ".")


def _quote(word):  # type: (str) -> str
    # Python 2.7 has no shlex.quote
    is_plain = re.match(r"[\w./+-]+$", word)
    return word if is_plain else "'%s'" % word.replace("'", "'\"'\"'")
