"""The steps that create one environment: each runs a program with a log and progress messages.

A requirement without a wheel is built in the environment; its wheel is cached beside it.
"""

import ast
import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.config.folders import get_environment_name
from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.files.folders import make_folder
from dlperf_slurm.files.reading import MIB, read_bytes
from dlperf_slurm.files.writing import open_to_append, write_file
from dlperf_slurm.provision.environments.pins import add_hashes
from dlperf_slurm.slurm_client import clean_environment

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


NEWS_SECONDS = 15.0
SHOWN_LINES = 12
# a build of Horovod prints a few MB
LOG_LIMIT_BYTES = 128 * MIB

# Override a user's settings of pip, in variables or pip.conf, that would install outside of the
# environment.
PIP_SETTINGS = {"PIP_USER": "0", "PIP_TARGET": "", "PIP_PREFIX": "", "PIP_ROOT": ""}


@dataclass(frozen=True)
class Installation:
    """The environment to create; its methods run the steps, and pass their progress to `report`."""

    framework: str
    environment: Path
    report: Callable[[str], None]
    device: str = "cpu"

    @property
    def name(self) -> str:
        """The name of the environment: "jax", "jax-cuda"."""
        return get_environment_name(self.framework, self.device)

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def pip(self) -> list[str]:
        options = ["--disable-pip-version-check", "--no-input"]
        # -I: ignore the working directory and PYTHONPATH
        return [str(self.python), "-I", "-m", "pip", *options]

    @property
    def site_packages(self) -> Path:
        """The folder of installed packages; raises StopIteration before the venv is created."""
        return next(self.environment.glob("lib/python3.*/site-packages"))

    @property
    def log(self) -> Path:
        """The file with the output of the latest step, outside of the environment."""
        return self.environment.parent / "logs" / f"{self.name}.log"

    def find_package(self, name: str) -> str:
        """Return an installed package with its full version: "torch-2.13.0+cpu".

        Raises StopIteration if the package is not installed.
        """
        return next(self.site_packages.glob(f"{name}-*.dist-info")).stem

    def report_progress(self, news: str) -> None:
        """Report a progress message `news`, preceded by the name of the environment."""
        self.report(f"{self.name}: {news}")

    def run_step(
        self, title: str, command: Sequence[str], variables: Mapping[str, str] = {}
    ) -> None:
        """Run a program, and report its last line of output every few seconds.

        `title` says what the step does; `variables` are added to its environment. Raises
        EnvironmentMissingError, with the errors in its output, if the program fails.
        """
        self.report_progress(title)
        folder = self.environment.parent
        folder.mkdir(parents=True, exist_ok=True)
        make_folder(self.log.parent, root=folder)
        write_file(self.log, f"{' '.join(command)}\n".encode(), root=folder)
        start = time.monotonic()
        with open_to_append(self.log, root=folder) as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**make_variables(self.environment), **variables},
                # the program inherits the lock of hold_environment: it may outlive this process
                close_fds=False,
            )
            try:
                while True:
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(timeout=NEWS_SECONDS)
                        break
                    seconds = time.monotonic() - start
                    # the first line is the command
                    printed = self._read_log()[1:]
                    news = "".join(printed[-1:]).strip()[:60]
                    self.report_progress(f"{title}, {seconds:.0f} s{news and f': {news}'}")
            except BaseException:
                process.terminate()
                process.wait()
                raise
        if process.returncode:
            lines = "\n  ".join(choose_lines(self._read_log()))
            raise EnvironmentMissingError(
                f"{self.framework}: {title} failed; all of its output is in {self.log}\n  {lines}"
            )

    def install(self, title: str, requirements: Sequence[str], options: Sequence[str] = ()) -> None:
        """Install requirements with uv if it is on PATH, else with pip; hashes are checked.

        If no requirement has a hash, files with any hash are accepted. `options` are options of
        pip that uv has too. Raises EnvironmentMissingError if the installation fails.
        """
        file = self.environment / "requirements.txt"
        write_file(file, "".join(f"{line}\n" for line in requirements).encode())
        hashes = ["--require-hashes"] if any("--hash=" in line for line in requirements) else []
        arguments = [*hashes, *options, "-r", str(file)]
        uv = find_uv()
        if uv:
            # in the root directory, to ignore uv's settings of a project in the working directory
            command = [uv, "--directory", "/", "--no-progress", "pip", "install"]
            command += ["--python", str(self.python), "--compile-bytecode"]
            self.run_step(f"{title} with uv", [*command, *arguments], self._make_uv_variables())
        else:
            command = [*self.pip, "install", "--progress-bar", "off"]
            self.run_step(title, [*command, *arguments])

    def _make_uv_variables(self) -> dict[str, str]:
        """Return the user's settings of pip as environment variables of uv."""
        done = subprocess.run(
            [*self.pip, "config", "list"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=make_variables(self.environment),
        )
        return translate_pip_settings(done.stdout.splitlines())

    def _read_log(self) -> list[str]:
        content = read_bytes(self.log, LOG_LIMIT_BYTES, root=self.environment.parent)
        return content.decode(errors="replace").strip().splitlines()


def make_variables(environment: Path) -> dict[str, str]:
    """Return this process's environment variables, with only the given environment activated."""
    variables = {**clean_environment(os.environ), **PIP_SETTINGS}
    variables["PATH"] = os.pathsep.join([str(environment / "bin"), variables.get("PATH", "")])
    return variables


def choose_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines of an installer's output to show: those with errors, else the last ones."""
    # "cause: ..." or, of uv before 0.13, "Caused by: ..."
    pattern = r"\berror\b[: ]|no module named|^\s*caused?( by)?: "
    errors = [line for line in lines if re.search(pattern, line, re.I)]
    return errors[:SHOWN_LINES] or list(lines[-SHOWN_LINES:])


@contextmanager
def hold_environment(installation: Installation) -> Iterator[None]:
    """Lock an environment in this context, so that no other process creates it at the same time.

    Waits for the lock. Raises EnvironmentMissingError if the environment's folder cannot be
    written.
    """
    folder = installation.environment.parent
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = open_to_append(folder / f".{installation.name}.lock", root=folder)
            descriptor = stack.enter_context(lock)
        except OSError as error:
            raise EnvironmentMissingError(
                f"{installation.name}: cannot write to {folder} ({error}); set "
                "DLPERF_SLURM_ENVIRONMENTS to a folder of your own"
            ) from error
        os.set_inheritable(descriptor, True)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            installation.report_progress(
                "another process is creating the environment; waiting for it"
            )
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def find_wheel(installation: Installation, key: str) -> Optional[Path]:
    """Return the wheel cached under this key, or None.

    The key names the package and all that its build depends on.
    """
    return next(_find_wheel_folder(installation, key).glob("*.whl"), None)


def build_wheel(
    installation: Installation, requirement: str, key: str, variables: Mapping[str, str]
) -> Path:
    """Build a wheel of a requirement with the environment's packages, and cache it under `key`.

    Downloads only the sources of the requirement, with their hash checked if known; `variables` are
    added to the build's environment. Raises EnvironmentMissingError if the build fails.
    """
    folder = _find_wheel_folder(installation, key)
    partial = folder.with_name(f"{key}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    # pip's own cache may contain a wheel that was built with another MPI
    options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--verbose"]
    # pip reads hashes only from files
    file = installation.environment / "built.txt"
    write_file(file, "".join(add_hashes(installation.framework, [requirement])).encode())
    command = [*installation.pip, "wheel", *options, "--wheel-dir", str(partial), "-r", str(file)]
    installation.run_step(f"building {requirement} (some minutes)", command, variables)
    partial.replace(folder)
    return next(folder.glob("*.whl"))


def install_wheel(installation: Installation, wheel: Path) -> None:
    """Install a wheel in the environment, replacing an installed version.

    Raises EnvironmentMissingError if pip fails.
    """
    options = ["--no-deps", "--no-index", "--force-reinstall"]
    installation.run_step(
        f"installing {wheel.name}", [*installation.pip, "install", *options, str(wheel)]
    )


def _find_wheel_folder(installation: Installation, key: str) -> Path:
    return installation.environment.parent / "wheels" / key
