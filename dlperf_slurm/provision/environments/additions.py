"""Packages that a user adds to an environment, and their record, from which they are added again.

The record is beside the environment, so that it outlives it.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dlperf_slurm.errors import EnvironmentMissingError, InputError
from dlperf_slurm.files.reading import MIB, read_json
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.provision.environments.cpu_index import LOCAL_LABEL
from dlperf_slurm.provision.environments.install_steps import Installation
from dlperf_slurm.provision.environments.pins import Pins, normalize_name

# a name with extras and versions (PEP 508), neither an option of pip nor a path
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(\[[\w., -]+\])?\s*([<>=!~][\w.,<>=!~* +-]*)?")


@dataclass(frozen=True)
class Additions:
    """The requirements that were asked for, and the exact versions installed beside the pins.

    `pins` is the stamp of the pins that these versions fit.
    """

    asked: tuple[str, ...] = ()
    pins: str = ""
    installed: tuple[str, ...] = ()


def find_record(environment: Path) -> Path:
    """Return the path of the record of the packages added to an environment."""
    return environment.with_name(f"{environment.name}.with.json")


def read_additions(environment: Path) -> Additions:
    """Read the packages added to an environment, empty if none; raises InputError if invalid."""
    path = find_record(environment)
    try:
        values = read_json(path, MIB)
        return Additions(
            check_requirements(values["asked"]), values["pins"], tuple(values["installed"])
        )
    except (FileNotFoundError, NotADirectoryError):
        return Additions()
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise InputError(
            f"{path} is not a valid record of added packages: {error}; remove the file, and name "
            "the packages again with --with"
        ) from error


def check_requirements(requirements: Sequence[str]) -> tuple[str, ...]:
    """Return requirements such as "torchvision"; raises InputError for options, paths and URLs."""
    for text in requirements:
        if not _REQUIREMENT.fullmatch(text):
            raise InputError(
                f"--with {text}: is not a package; write a name such as 'transformers', or a name "
                "and a version such as 'transformers==4.44'"
            )
    return tuple(requirements)


def merge_requirements(*lists: Sequence[str]) -> tuple[str, ...]:
    """Merge lists of requirements; of a package in several lists, the last one counts."""
    return tuple({_name(text): text for one in lists for text in one}.values())


def has_additions(environment: Path, pins: Pins, asked: Sequence[str]) -> bool:
    """Return whether an environment of these pins has all requirements `asked` (as of `--with`)."""
    if not asked:
        return True
    record = read_additions(environment)
    is_same = record.pins == pins.stamp and {*asked} <= {*record.asked}
    return is_same and {*record.installed} <= {*list_installed(environment)}


def list_installed(environment: Path) -> list[str]:
    """List the installed packages with their full versions: "torch==2.13.0+cpu"."""
    stems = (path.stem for path in environment.glob("lib/python3.*/site-packages/*.dist-info"))
    return sorted("==".join(stem.partition("-")[::2]) for stem in stems)


def add_packages(
    installation: Installation, pins: Pins, asked: Sequence[str], options: Sequence[str]
) -> None:
    """Add packages to an environment without changing its pinned ones, and record their versions.

    If its record has the same pins and all of `asked`, those versions are installed again.
    `options` are pip's. Raises EnvironmentMissingError, with a remedy, if packages do not fit.
    """
    environment, record = installation.environment, read_additions(installation.environment)
    own = {_name(line) for line in record.installed} - {_name(line) for line in pins.requirements}
    pinned = [line for line in list_installed(environment) if _name(line) not in own]
    is_same = record.pins == pins.stamp and {*asked} <= {*record.asked}
    constraints = environment / "constraints.txt"
    write_file(constraints, "".join(f"{line}\n" for line in pinned).encode())
    options = [*(o for o in pins.pip_options if o != "--no-deps"), *options, "-c", str(constraints)]
    try:
        installation.install(
            f"adding {', '.join(asked)}", record.installed if is_same else asked, options
        )
    except EnvironmentMissingError as error:
        raise EnvironmentMissingError(
            f"{error}\n  the environment itself is complete; added packages must fit its pinned "
            "versions: name another version, such as --with 'NAME==VERSION'"
            + (
                f"; to drop the packages added earlier, remove {find_record(environment)}"
                if record.asked
                else ""
            )
        ) from error
    # record requested packages even if they were there before, pinned or installed by hand
    names = {_name(line) for line in asked}
    installed = tuple(
        line for line in list_installed(environment) if line not in pinned or _name(line) in names
    )
    done = Additions(tuple(asked), pins.stamp, installed)
    text = json.dumps(asdict(done), indent=1)
    write_file(find_record(environment), f"{text}\n".encode(), root=environment.parent)
    installation.report_progress(f"added {', '.join(installed)}")
    framework = next((line for line in pinned if _name(line) == _name(pins.package)), "")
    other = [line for line in installed if _is_linked(environment, line, pins.package)]
    if framework.endswith(LOCAL_LABEL) and (wrong := [o for o in other if LOCAL_LABEL not in o]):
        installation.report_progress(
            f"{', '.join(wrong)} may not work with {framework}, as no index offered a "
            f"{LOCAL_LABEL} version; name an index that offers one with --cpu-index URL"
        )


def _is_linked(environment: Path, line: str, framework: str) -> bool:
    """Return whether an installed package needs one version of the framework, as linked ones do."""
    folder = f"{line.replace('==', '-')}.dist-info"
    files = environment.glob(f"lib/python3.*/site-packages/{folder}/METADATA")
    exact = re.compile(rf"^Requires-Dist: {re.escape(framework)} ?\(?==", re.M)
    return any(exact.search(file.read_text(encoding="utf-8", errors="replace")) for file in files)


def _name(requirement: str) -> str:
    match = _REQUIREMENT.match(requirement)
    return normalize_name(match[1] if match else requirement)
