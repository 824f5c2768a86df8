"""What a GPU did, by intervals or by NCCL's log -> its gaps, and how ranks reach each other."""

import re

# of NCCL_DEBUG=INFO: "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"
_CHANNEL = re.compile(r"Channel \S+(?: ?: ?| )\S+ -> \S+(?: \[\w+\])? via (\w+)")


def find_gaps(intervals):
    """Lengths of the times in which none of these (start, end) was going on, the longest first."""
    gaps, latest = [], None
    for start, end in sorted(intervals):
        if latest is not None and start > latest:
            gaps.append(start - latest)
        latest = end if latest is None else max(latest, end)
    return sorted(gaps, reverse=True)


def find_gap_between_steps(intervals, steps):
    """The mean of the longest gaps, as many as there are between `steps` steps; 0 without any."""
    longest = find_gaps(intervals)[: steps - 1]
    return sum(longest) / (steps - 1)


def list_transports(log):
    """What NCCL sends its channels over: "P2P", "SHM" or "NET", sorted."""
    return sorted(set(_CHANNEL.findall(log)))
