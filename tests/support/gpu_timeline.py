"""Intervals of GPU work -> its gaps; NCCL's log -> the transports between ranks."""

import re

# logged with NCCL_DEBUG=INFO: "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"
_CHANNEL = re.compile(r"Channel \S+(?: ?: ?| )\S+ -> \S+(?: \[\w+\])? via (\w+)")


def find_gaps(intervals):
    """Return the lengths of the gaps between (start, end) intervals, the longest first."""
    gaps, latest = [], None
    for start, end in sorted(intervals):
        if latest is not None and start > latest:
            gaps.append(start - latest)
        latest = end if latest is None else max(latest, end)
    return sorted(gaps, reverse=True)


def find_gap_between_steps(intervals, steps):
    """Return the mean of the `steps - 1` longest gaps, one between each pair of steps."""
    longest = find_gaps(intervals)[: steps - 1]
    return sum(longest) / (steps - 1)


def list_transports(log):
    """Return the transports of NCCL's channels, "P2P", "SHM" or "NET", sorted."""
    return sorted(set(_CHANNEL.findall(log)))
