"""This host and process -> kernel, system, container, our code, libraries that were loaded."""

import hashlib
import os
import platform
import re
from pathlib import Path
from typing import Dict, Mapping

import dlperf_slurm
from dlperf_slurm.worker.provenance.files import ROOT, drop_empty, read_text

# what may be told the kernel at its start and changes how fast programs run
_KERNEL_OPTIONS = (
    "amd_iommu",
    "amd_pstate",
    "default_hugepagesz",
    "hugepages",
    "idle",
    "intel_idle.max_cstate",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "isolcpus",
    "mitigations",
    "nohz_full",
    "nosmt",
    "numa_balancing",
    "processor.max_cstate",
    "rcu_nocbs",
    "transparent_hugepage",
)
_LIBRARIES = re.compile(
    r"lib(nccl|cudart|cublas|cudnn|mpi|ucp|fabric|mkl_rt|mkl_core|dnnl|openblas|blis|gomp|iomp5|omp"
    # parts as in libcudnn_ops, and the digests that wheels put into names
    r"|jemalloc|tcmalloc)(Lt|_\w+)?(-[-.\w]+)?\.so[.\d]*"
)
DIGEST_CHARACTERS = 16


def describe_system(root: Path = ROOT) -> Dict[str, str]:
    """Kernel and the distribution that this process sees, which may be a container's."""
    release = re.search(r'^PRETTY_NAME="?([^"\n]*)', read_text(root / "etc/os-release"), re.M)
    huge_pages = read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    options = read_text(root / "proc/cmdline").split()
    return drop_empty(
        {
            "machine": platform.machine(),
            "kernel": platform.release(),
            "kernel_options": " ".join(
                option for option in options if option.partition("=")[0] in _KERNEL_OPTIONS
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
    """Which container this process runs in, with its image where it tells; {} outside of one."""
    image = environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER")
    if image:
        return {"container": "apptainer", "container_image": image}
    # pyxis hands its options on to the job's steps in Slurm's variables for plug-ins
    pyxis = [value for name, value in environ.items() if name.endswith("pyxis_container_image")]
    if pyxis:
        return {"container": "enroot", "container_image": pyxis[0]}
    podman = root / "run/.containerenv"
    if podman.exists():
        told = dict(re.findall(r'^(\w+)="(.*)"$', read_text(podman), re.M))
        facts = {
            "container": "podman",
            "container_image": told.get("image", ""),
            "container_digest": told.get("imageid", ""),
        }
        return drop_empty(facts)
    return {"container": "docker"} if (root / ".dockerenv").exists() else {}


def describe_code(package: Path = Path(dlperf_slurm.__file__).parent) -> Dict[str, str]:
    """A digest over all modules of our code as it runs, whatever commit it was staged from."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(package)} {content}\n".encode())
    return {"code_digest": digest.hexdigest()[:DIGEST_CHARACTERS]}


def describe_libraries(root: Path = ROOT) -> Dict[str, str]:
    """File names of communication, BLAS, threading and memory libraries in this process."""
    paths = {
        Path(line.split(None, 5)[5]).name
        for line in read_text(root / "proc/self/maps").splitlines()
        if len(line.split(None, 5)) == 6
    }
    return drop_empty({"libraries": ", ".join(sorted(filter(_LIBRARIES.fullmatch, paths)))})
