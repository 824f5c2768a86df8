"""This process -> its system, container, code, libraries and limits."""

import hashlib
import os
import platform
import re
import resource
from pathlib import Path
from typing import Dict, Iterator, List, Mapping

from dlperf_slurm.worker.host import ROOT, read_text
from dlperf_slurm.worker.provenance.machine import drop_empty
from dlperf_slurm.worker.provenance.variables import cut_credentials

# kernel boot parameters that change how fast programs run
_KERNEL_OPTIONS = """
amd_iommu amd_pstate default_hugepagesz hugepages idle intel_idle.max_cstate intel_iommu
intel_pstate iommu isolcpus mitigations nohz_full nosmt numa_balancing processor.max_cstate
rcu_nocbs transparent_hugepage
"""
_LIBRARIES = re.compile(
    r"lib(nccl|cudart|cublas|cudnn|mpi|ucp|fabric|mkl_rt|mkl_core|dnnl|openblas|blis|gomp|iomp5|omp"
    # suffixes such as libcudnn_ops, and the digests that wheels add to names
    r"|jemalloc|tcmalloc)(Lt|_\w+)?(-[-.\w]+)?\.so[.\d]*"
)
DIGEST_CHARACTERS = 16

MIB = 2**20
NONE = "none"

# cgroup v1 writes "no limit" as the largest number of pages
_UNLIMITED_BYTES = 2**60


def describe_system(root: Path = ROOT) -> Dict[str, str]:
    """Describe kernel and distribution (which may be a container's), name -> text, if known."""
    release = re.search(r'^PRETTY_NAME="?([^"\n]*)', read_text(root / "etc/os-release"), re.M)
    huge_pages = read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    options = read_text(root / "proc/cmdline").split()
    return drop_empty(
        {
            "machine": platform.machine(),
            "kernel": platform.release(),
            "kernel_options": " ".join(
                option for option in options if option.partition("=")[0] in _KERNEL_OPTIONS.split()
            ),
            "os": release.group(1) if release else "",
            "glibc": platform.libc_ver()[1],
            # "[always] madvise never"
            "transparent_huge_pages": huge_pages.partition("[")[2].partition("]")[0],
            "numa_balancing": read_text(root / "proc/sys/kernel/numa_balancing"),
        }
    )


def describe_container(
    root: Path = ROOT, environ: Mapping[str, str] = os.environ
) -> Dict[str, str]:
    """Describe the container of this process, as name -> text; {} outside a container.

    "container" is the runtime; image and digest are given if known. The job script's variables come
    first, since Podman reports its image to privileged containers only.
    """
    runtime = environ.get("DLPERF_SLURM_CONTAINER")
    if runtime:
        told = {
            "container": runtime,
            "container_image": cut_credentials(environ.get("DLPERF_SLURM_CONTAINER_IMAGE", "")),
            "container_digest": environ.get("DLPERF_SLURM_CONTAINER_DIGEST", ""),
        }
        return drop_empty(told)
    image = environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER")
    if image:
        return {"container": "apptainer", "container_image": cut_credentials(image)}
    # pyxis passes its options to job steps in Slurm's environment variables for plug-ins
    pyxis = [value for name, value in environ.items() if name.endswith("pyxis_container_image")]
    if pyxis:
        return {"container": "enroot", "container_image": cut_credentials(pyxis[0])}
    podman = root / "run/.containerenv"
    if podman.exists():
        told = dict(re.findall(r'^(\w+)="(.*)"$', read_text(podman), re.M))
        facts = {
            "container": "podman",
            "container_image": cut_credentials(told.get("image", "")),
            "container_digest": told.get("imageid", ""),
        }
        return drop_empty(facts)
    return {"container": "docker"} if (root / ".dockerenv").exists() else {}


def describe_code(package: Path = Path(__file__).parents[2]) -> Dict[str, str]:
    """Return {"code_digest": ...}, a digest of all Python files of the package that is running."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(package)} {content}\n".encode())
    return {"code_digest": digest.hexdigest()[:DIGEST_CHARACTERS]}


def describe_libraries(root: Path = ROOT) -> Dict[str, str]:
    """Return {"libraries": files} loaded for communication, BLAS, threading and memory; or {}."""
    paths = {
        Path(line.split(None, 5)[5]).name
        for line in read_text(root / "proc/self/maps").splitlines()
        if len(line.split(None, 5)) == 6
    }
    return drop_empty({"libraries": ", ".join(sorted(filter(_LIBRARIES.fullmatch, paths)))})


def describe_limits(root: Path = ROOT) -> Dict[str, str]:
    """Describe the limits of getrlimit(2), soft of hard, and the tightest ones of cgroups(7)."""
    limits = {
        f"limit_{name.lower()}": _format_limit(getattr(resource, f"RLIMIT_{name}"))
        for name in ("MEMLOCK", "NOFILE", "STACK")
    }
    memory = [*_list_memory_limits(root)]
    cpus = [*_list_cpu_limits(root)]
    return {
        **limits,
        "cgroup_memory_mib": f"{min(memory) // MIB}" if memory else NONE,
        "cgroup_cpus": f"{min(cpus):.2f}" if cpus else NONE,
    }


def _format_limit(kind: int) -> str:
    soft, hard = (
        "unlimited" if value == resource.RLIM_INFINITY else str(value)
        for value in resource.getrlimit(kind)
    )
    return soft if soft == hard else f"{soft} of {hard}"


def _list_memory_limits(root: Path) -> Iterator[int]:
    for folder in _list_cgroups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = read_text(folder / name)
            if limit.isdigit() and int(limit) < _UNLIMITED_BYTES:
                yield int(limit)


def _list_cpu_limits(root: Path) -> Iterator[float]:
    """Yield the limits of this process's cgroups in CPUs: quota / period, both in microseconds."""
    for folder in _list_cgroups(root, "cpu"):
        quota, _, period = read_text(folder / "cpu.max").partition(" ")
        quota = quota or read_text(folder / "cpu.cfs_quota_us")
        period = period or read_text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period)


def _list_cgroups(root: Path, controller: str) -> List[Path]:
    """List folders of this process's cgroup and its ancestors, v2 and v1; some may not exist."""
    mount = root / "sys/fs/cgroup"
    folders = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, relative = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = mount / controller if controllers else mount
        path = top / relative.lstrip("/")
        folders += [path, *(above for above in path.parents if top in (above, *above.parents))]
    return folders
