"""The columns of the data frame of entries; an entry is one case of one run."""

from typing import Any

from dlperf_slurm.results.columns import COUNT, LISTS, TEXT
from dlperf_slurm.results.labels import IDENTITY

# The columns of the data frame of entries: one row per case of a run, as planned. `state` is the
# reason for a missing result (failed, OOM, invalid, missing), `problem` the problems of repeats.
# Without a valid record these are empty: `parameters` (sizes of the model), `work` and
# `provenance` (see `list_work`, `list_provenance`), and `versions` (software versions).
# `node_contests`: see `group_comparable_nodes`; `node_sound`: time of each node's last valid
# repeat; `node_failures`: node, time and reason of each node failure.
ENTRIES: dict[str, str] = {
    "run_dir": TEXT,
    "run_id": TEXT,
    "created_at": TEXT,
    "site_name": TEXT,
    "tool": TEXT,
    **IDENTITY,
    "planned_repeats": COUNT,
    "samples_per_s": LISTS,
    "state": TEXT,
    "problem": TEXT,
    "parameters": TEXT,
    "work": TEXT,
    "provenance": TEXT,
    "versions": TEXT,
    "node_contests": TEXT,
    "node_sound": TEXT,
    "node_failures": TEXT,
}
# the columns with JSON
FACTS = tuple(ENTRIES)[tuple(ENTRIES).index("work") :]
# the values of an entry, in the order of ENTRIES
EntryRow = tuple[Any, ...]
