"""The table [node] of a site file: what happens on each node before the ranks start."""

from typing import Annotated

from pydantic import Field

from dlperf_slurm.config.toml_tables import OneOrMore, Table


class NodeCheck(Table):
    """What a node must be for ranks to start on it; nothing is asked by default.

    A node that is not ends its array task as UNHEALTHY, before anything is measured.
    """

    devices: bool = False
    """As many GPUs answer as the job has on each node."""
    ecc: bool = False
    """No GPU has uncorrectable ECC errors, rows to remap, or asks to be reset."""
    xid_hours: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """The kernel logged no Xid error of the hardware for so many hours; 0 does not ask."""
    clocks: bool = False
    """No GPU's clocks are held down by heat or power, or set below their default."""
    stale_processes: bool = False
    """Nothing uses the GPUs yet, and no process of yours is left over from another job."""
    free_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Memory that is free on the node."""
    free_device_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Memory that is free on each GPU."""
    commands: OneOrMore[str] = ()
    """Lines of bash that succeed, such as "nhc"; the last line that one prints is the reason."""


class NodeSettings(Table):
    """What is done once on each node of an array task, before the ranks start."""

    setup: OneOrMore[str] = ()
    """Lines of bash, each in a shell of its own; a node where one fails is UNHEALTHY."""
    check: NodeCheck = NodeCheck()
    """What a node must be for ranks to start on it."""
    timeout_seconds: Annotated[float, Field(gt=0, strict=False)] = 300.0
    """Time that a line of `setup`, or a check, may take on a node."""
