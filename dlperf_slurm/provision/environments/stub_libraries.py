"""CUDA libraries that a wheel is linked with -> stub libraries, where the real ones are missing.

A framework without a CPU build can then be imported, and computes on the CPU. The stubs are in the
folder `<module>.libs`, which is on the wheel's RPATH, so that only this environment uses them. In
an environment for GPUs that folder has links to the real libraries of NVIDIA's packages.
"""

import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.provision.environments.install_steps import Installation
from dlperf_slurm.provision.environments.system import find_missing_programs

# Bodies of functions that programs call even without a GPU; all other functions return an error.
VERSION = "unsigned long {}(void) {{ return 8500; }}"
PROPERTY = "int {}(int type, int *value) {{ *value = 8; return 0; }}"
TEXT = 'const char *{}(int status) {{ return "no CUDA on this machine"; }}'
FAILURE = "int {}(void) {{ return 1; }}"

# prints the libraries that the dynamic loader of a Python does not find
TRY_TO_LOAD = """\
import ctypes, sys
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
    except OSError:
        print(name)
"""


def link_libraries(installation: Installation, folder: str, libraries: Sequence[str]) -> None:
    """Link libraries of NVIDIA's packages into a folder that the framework's module searches.

    `folder` is below site-packages, on the module's RPATH; `libraries` are file names. Raises
    EnvironmentMissingError for a library that none of the packages contains.
    """
    packages = installation.site_packages
    for library in libraries:
        found = next(packages.glob(f"nvidia/*/lib/{library}"), None)
        if found is None:
            raise EnvironmentMissingError(
                f"environment {installation.name}: none of its NVIDIA packages contains {library}"
            )
        link = packages / folder / library
        if not link.exists():
            link.symlink_to(found)


def make_stubs(installation: Installation, module: str, libraries: Sequence[str]) -> None:
    """Make stub libraries for those of `libraries` that the dynamic loader does not find.

    `module` is the framework's module, which is linked with them. Raises EnvironmentMissingError if
    the stubs cannot be compiled.
    """
    load = [str(installation.python), "-I", "-c", TRY_TO_LOAD, *libraries]
    missing = subprocess.run(load, capture_output=True, text=True).stdout.split()
    if not missing:
        return
    lack = find_missing_programs("gcc", "nm")
    if lack:
        raise EnvironmentMissingError(
            f"{installation.framework}: {missing[0]} is not on this machine, and a stub library "
            f"for it cannot be built: {lack}"
        )
    folder = installation.site_packages / f"{module}.libs"
    users = [*installation.site_packages.glob(f"{module}/*.so"), *folder.glob("*.so*")]
    symbols = [symbol for path in users for symbol in list_undefined_symbols(path)]
    for library in missing:
        # "name@version"
        pairs = (symbol.partition("@") for symbol in symbols)
        names = sorted({name for name, _, version in pairs if version == library})
        build_stub(library, names, folder / library)
    installation.report_progress(
        f"no {', '.join(missing)} on this machine: the environment contains empty stub libraries, "
        "for CPUs only; to use GPUs, create the environment again where the dynamic loader finds "
        "CUDA's libraries"
    )


def list_undefined_symbols(library: Path) -> list[str]:
    """List a library's undefined symbols, as "name@version" if they are versioned (nm(1))."""
    command = ["nm", "--dynamic", "--undefined-only", str(library)]
    output = subprocess.run(command, capture_output=True, text=True).stdout
    return [line.split()[-1] for line in output.splitlines()]


def build_stub(library: str, names: Iterable[str], path: Path) -> None:
    """Compile a stub of `library` at `path`: a shared library with functions of these names.

    All functions have `library` as symbol version. Raises EnvironmentMissingError if the compiler
    fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, versions = Path(folder, "source.c"), Path(folder, "versions.map")
        source.write_text("".join(f"{define(name)}\n" for name in names), encoding="ascii")
        versions.write_text(f"{library} {{ global: *; }};\n", encoding="ascii")
        options = [f"-Wl,-soname,{library}", f"-Wl,--version-script={versions}"]
        command = ["gcc", "-shared", "-fPIC", *options, "-o", str(path), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise EnvironmentMissingError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


def define(name: str) -> str:
    """Return the C source of a stub function, which returns a version, a text or an error code.

    What it returns follows from its `name`.
    """
    if name.endswith(("GetVersion", "GetCudartVersion")):
        return VERSION.format(name)
    if name.endswith("GetProperty"):
        return PROPERTY.format(name)
    if name.endswith(("String", "StatusName")):
        return TEXT.format(name)
    return FAILURE.format(name)
