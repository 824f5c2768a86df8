"""Vary the fields of a case, including those of its axes."""

import dataclasses

from dlperf_slurm.contract.topology import parse_topology

_PARTS = ("nodes", "devices_per_node")


def vary(case, **changes):
    """Return a copy of a case with these values of its axes and its other fields.

    `nodes` and `devices_per_node` change that part of the topology.
    """
    parts = {name: changes.pop(name) for name in _PARTS if name in changes}
    axes = changes.pop("axes", case.axes)
    if parts:
        changes["topology"] = str(parse_topology(axes.topology)._replace(**parts))
    names = [field.name for field in dataclasses.fields(axes) if field.name in changes]
    axes = dataclasses.replace(axes, **{name: changes.pop(name) for name in names})
    return dataclasses.replace(case, axes=axes, **changes)
