"""The table [node] of a site file: setup and checks on each node before the ranks start."""

from typing import Annotated

from pydantic import Field

from dlperf_slurm.config.toml_tables import OneOrMore, TomlModel


class NodeCheck(TomlModel):
    """Checks that a node must pass before ranks start on it; none by default.

    If one fails, the array task ends as UNHEALTHY before anything is measured.
    """

    devices: bool = False
    """As many GPUs respond as the job has on the node."""
    ecc: bool = False
    """No GPU has uncorrectable ECC errors, pending row remaps, or requires a reset."""
    xid_hours: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """No hardware Xid error in the kernel log in the last hours; 0 skips the check."""
    clocks: bool = False
    """No GPU is throttled by temperature or power, or has clocks set below its default."""
    links: bool = False
    """PCIe links of GPUs have their full width, all NVLinks and the NVSwitch fabric work."""
    ports: bool = False
    """Network ports (NCCL_IB_HCA, or all) are active, of equal rate and MTU, and have a GID."""
    stale_processes: bool = False
    """No process uses the GPUs, and no process of yours from another job is left."""
    free_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Lowest accepted free memory of the node."""
    free_device_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Lowest accepted free memory of each GPU."""
    open_files: Annotated[int, Field(ge=0)] = 0
    """Lowest accepted limit of open files of a process (`ulimit -n`), outside containers."""
    locked_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Lowest accepted limit of locked memory of a process (`ulimit -l`), outside containers."""
    shared_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Lowest accepted size of /dev/shm, outside containers."""
    commands: OneOrMore[str] = ()
    """Lines of bash that must succeed, such as "nhc"; the last line printed is the reason."""


class NodeSettings(TomlModel):
    """Setup and checks that run once on each node of an array task, before the ranks start."""

    setup: OneOrMore[str] = ()
    """Lines of bash, each in a shell of its own; the node is UNHEALTHY if one fails."""
    check: NodeCheck = NodeCheck()
    """Checks that a node must pass."""
    energy_command: str = ""
    """Bash that prints the node's power or energy, such as "350 W" or "5120 J".

    It runs on each node every 5 s during the measured steps. Default: Cray's counters.
    """
    timeout_seconds: Annotated[float, Field(gt=0, strict=False)] = 300.0
    """Time limit of each check, and of each line of `setup`, on a node."""
