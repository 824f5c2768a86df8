"""The GPUs and the driver of a machine -> whether an environment's build supports them."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Optional

from dlperf_slurm.config.folders import CUDA, find_managed_environment, get_environment_name
from dlperf_slurm.config.site import Site
from dlperf_slurm.provision.environments.pins import Pins, read_pins

# Framework -> glob patterns of the metadata folders of its CPU-only build, and of the package that
# adds GPU support. MXNet is not listed: PyPI's CPU build has the same name as one with CUDA.
_CPU_BUILDS = {
    "jax": ("jaxlib-*", "jax_*_plugin-*"),
    "paddle": ("paddlepaddle-*", ""),
    "pytorch": ("torch-*+cpu", ""),
    "tensorflow2": ("tensorflow_cpu-*", ""),
}

# run by the environment's own Python, which has nvidia-ml-py
LOOK_AT_GPUS = """\
import json
try:
    import pynvml
    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    found = {
        "cuda": pynvml.nvmlSystemGetCudaDriverVersion_v2(),
        "gpus": [
            [pynvml.nvmlDeviceGetName(gpu), *pynvml.nvmlDeviceGetCudaComputeCapability(gpu)]
            for gpu in gpus
        ],
    }
except Exception as error:
    found = {"problem": str(error)}
print("\\ngpus", json.dumps(found, separators=(",", ":"), default=str).replace(" ", "_"))
"""


@dataclass(frozen=True)
class MachineGpus:
    """The GPUs of a machine, as (name, compute capability), and its driver's CUDA version, "12.4".

    `problem` says why they are not known; "" if they are.
    """

    cuda: str
    gpus: tuple[tuple[str, str], ...]
    problem: str = ""


def parse_gpus(answer: str) -> MachineGpus:
    """Parse the output of `LOOK_AT_GPUS`; raises ValueError for anything else."""
    found = json.loads(answer)
    if "problem" in found:
        return MachineGpus("", (), found["problem"].replace("_", " "))
    gpus = tuple((name.replace("_", " "), f"{a}.{b}") for name, a, b in found["gpus"])
    return MachineGpus(format_cuda_version(found["cuda"]), gpus)


def format_cuda_version(number: int) -> str:
    """Format NVML's CUDA version: 12040 -> "12.4"."""
    return f"{number // 1000}.{number % 1000 // 10}"


def find_managed_pins(framework: str, job_site: Site) -> Optional[Pins]:
    """Return the pins of the managed GPU environment of a site's jobs, or None.

    None if the site computes on CPUs, or names its own environment. `job_site` is the site with the
    settings for jobs of this framework.
    """
    managed = find_managed_environment(get_environment_name(framework, job_site.device))
    if job_site.device != CUDA or job_site.find_environment(framework).venv != str(managed):
        return None
    return read_pins(framework, CUDA)


def is_amd(capability: str) -> bool:
    """Return whether a site's `compute_capability` is an AMD architecture, such as "gfx90a"."""
    return capability.startswith("gfx")


def has_code_for(capabilities: Sequence[str], capability: str) -> bool:
    """Return whether a build with code for `capabilities` runs on a GPU of `capability`, "9.0".

    Machine code runs on the same major version with the same or a later minor one; the driver
    compiles PTX, as in "9.0+ptx", for any GPU that is as new or newer (CUDA C++ Programming Guide,
    "Binary Compatibility" and "PTX Compatibility").
    """
    if is_amd(capability):
        return False
    wanted = _parse(capability)
    for text in capabilities:
        version, is_ptx = _parse(text.removesuffix("+ptx")), text.endswith("+ptx")
        if version <= wanted and (is_ptx or version[0] == wanted[0]):
            return True
    return False


def describe_code(pins: Pins) -> str:
    """Describe for which GPUs a build has code: "has code for compute capabilities 8.0, 8.6"."""
    machine_code = [text for text in pins.capabilities if not text.endswith("+ptx")]
    ptx = [text.removesuffix("+ptx") for text in pins.capabilities if text.endswith("+ptx")]
    newer = f", and PTX of {ptx[-1]} for newer GPUs" if ptx else ""
    return f"has code for compute capabilities {', '.join(machine_code)}{newer}"


def find_missing_code(pins: Pins, capability: str) -> str:
    """Return why a GPU cannot run an environment's build; "" if it can, or for a CPU build.

    `capability` is the GPU's compute capability, "9.0", or the AMD architecture.
    """
    if not pins.capabilities or has_code_for(pins.capabilities, capability):
        return ""
    requirement = pins.requirements[0].replace("==", " ")
    if is_amd(capability):
        return (
            f"`env create --cuda` installs {requirement}, which needs NVIDIA GPUs, but this site "
            f"has AMD GPUs ({capability}): create an environment with a ROCm build of "
            f"{pins.framework}, and name it in the site file under "
            f"[environments.{pins.framework}]"
        )
    return (
        f"{requirement} for CUDA {pins.cuda} {describe_code(pins)}, but the GPU has compute "
        f"capability {capability}"
    )


def list_gpu_problems(pins: Pins, found: MachineGpus) -> list[str]:
    """List why an environment's build cannot use a machine's driver or GPUs.

    [] if it can, if the GPUs are not known, and for a build for CPUs.
    """
    if found.problem or not pins.cuda:
        return []
    problems = [find_missing_code(pins, capability) for _, capability in sorted(set(found.gpus))]
    if _parse(found.cuda)[0] < _parse(pins.cuda)[0]:
        problems.append(
            f"{pins.framework} is built for CUDA {pins.cuda}, but the driver of this machine "
            f"supports CUDA {found.cuda} at most: a newer driver is needed"
        )
    return [problem for problem in problems if problem]


@lru_cache
def find_cpu_build(framework: str, venv: Path) -> str:
    """Return the CPU-only package of a framework in a virtual environment: "torch-2.13.0+cpu".

    "" if the package supports GPUs, and for frameworks whose packages do not tell. Cached, since a
    plan asks for each case.
    """
    pattern, for_gpus = _CPU_BUILDS.get(framework, ("", ""))
    # before JAX had plug-ins, jaxlib's version named the CUDA version of its GPU builds
    found = [name for name in _list_packages(venv, pattern) if "+cuda" not in name]
    return found[0] if found and not _list_packages(venv, for_gpus) else ""


def describe_cpu_build(framework: str, job_site: Site) -> str:
    """Return a warning if a site with GPUs uses an environment with a CPU-only build, or ""."""
    venv = job_site.find_environment(framework).venv
    build = find_cpu_build(framework, Path(venv)) if venv and job_site.device == CUDA else ""
    return build and (
        f"{build} at {venv} is a build for CPUs, but device of the site is 'cuda'; install a build "
        "for GPUs"
    )


def _list_packages(venv: Path, pattern: str) -> list[str]:
    """List the installed packages whose "name-version" matches a glob pattern; none for ""."""
    if not pattern:
        return []
    found = venv.glob(f"lib/python3*/site-packages/{pattern}.dist-info")
    return sorted(path.name.removesuffix(".dist-info") for path in found)


def _parse(version: str) -> tuple[int, int]:
    """Parse a version such as "9.0" to major and minor; a missing minor version is 0."""
    match = re.fullmatch(r"(\d+)(?:\.(\d+))?", version)
    if match is None:
        raise ValueError(f"{version!r} is not a version such as 9.0")
    return int(match[1]), int(match[2] or 0)
