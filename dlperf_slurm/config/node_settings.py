"""The table [node] of a site file: setup and checks on each node before the ranks start."""

from typing import Annotated

from pydantic import Field

from dlperf_slurm.config.toml_tables import OneOrMore, TomlModel


class NodeCheck(TomlModel):
    """Checks that a node must pass before ranks start on it; none by default.

    If one fails, the array task ends as UNHEALTHY before anything is measured.
    """

    devices: bool = False
    """Check that as many GPUs respond as the job has on the node."""
    ecc: bool = False
    """Check that no GPU has uncorrectable ECC errors or pending row remaps, or needs a reset."""
    xid_hours: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """Past hours in which the kernel log must have no hardware Xid error; 0 skips the check."""
    clocks: bool = False
    """Check that no GPU is throttled by heat or power, or has its clocks set below the default."""
    links: bool = False
    """Check that GPUs have PCIe links of full width, and that NVLinks and NVSwitches work."""
    ports: bool = False
    """Check network ports (NCCL_IB_HCA or all): all active, of equal rate and MTU, with a GID."""
    stale_processes: bool = False
    """Check that no process uses the GPUs, and none of yours is left from another job."""
    free_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Free memory that a node must have, at least."""
    free_device_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Free memory that each GPU must have, at least."""
    open_files: Annotated[int, Field(ge=0)] = 0
    """Limit of open files (`ulimit -n`) that a node must have, at least, outside containers."""
    locked_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Limit of locked memory (`ulimit -l`) that a node must have, at least, outside containers."""
    shared_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Size that /dev/shm of a node must have, at least, outside containers."""
    commands: OneOrMore[str] = ()
    """More checks: lines of bash, such as "nhc"; if one fails, its last output is the reason."""


class NodeSettings(TomlModel):
    """Setup and checks that run once on each node of an array task, before the ranks start."""

    setup: OneOrMore[str] = ()
    """Bash lines to prepare a node, each in its own shell; the node is UNHEALTHY if one fails."""
    check: NodeCheck = NodeCheck()
    """Checks that a node must pass."""
    energy_command: str = ""
    """Bash that prints the node's power or energy, such as "350 W" or "5120 J".

    It runs on each node every 5 s during the measured steps. Default: Cray's counters.
    """
    timeout_seconds: Annotated[float, Field(gt=0, strict=False)] = 300.0
    """Time limit of each check, and of each line of `setup`, on a node."""
