"""A case with other values, whether they are axes or not."""

import dataclasses

from dlperf_slurm.contract.topology import parse_topology

_PARTS = ("nodes", "devices_per_node")


def vary(case, **changes):
    """A copy with these values of its axes and of its other fields.

    `nodes` and `devices_per_node` change that part of the topology.
    """
    parts = {name: changes.pop(name) for name in _PARTS if name in changes}
    axes = changes.pop("axes", case.axes)
    if parts:
        changes["topology"] = str(dataclasses.replace(parse_topology(axes.topology), **parts))
    names = [field.name for field in dataclasses.fields(axes) if field.name in changes]
    axes = dataclasses.replace(axes, **{name: changes.pop(name) for name in names})
    return dataclasses.replace(case, axes=axes, **changes)
