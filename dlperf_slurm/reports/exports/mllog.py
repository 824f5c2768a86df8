"""A run -> lines of MLPerf's logging, :::MLLOG, for tools that read throughput from them.

They make no valid submission: the rules want training to a quality target.
"""

import json
from collections.abc import Iterator
from datetime import datetime

from dlperf_slurm.contract.record import OK
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.compare import Row

_POINT, _START, _END = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"


def serialize(summary: Summary) -> str:
    """Serialize a run as MLPerf log lines: each valid repeat whose time is known, by start time."""
    repeats = summary.results.frames.repeats
    repeats = repeats[(repeats.status == OK) & repeats.started_at.notna()]
    cases = {case["case_id"]: case for case in list_records(summary.results.cases)}
    lines: list[str] = []
    for row in list_records(repeats.sort_values(["started_at", "case_id", "repeat"])):
        lines += _list_lines(summary, cases[row["case_id"]], row)
    return "".join(f"{line}\n" for line in lines)


def _list_lines(summary: Summary, case: Row, row: Row) -> Iterator[str]:
    """Yield the lines of a repeat: what ran where, and its throughput, from start to end."""
    start, end = row["started_at"], row["ended_at"]
    facts = {
        "submission_benchmark": case["model"],
        "submission_division": "open",
        "submission_platform": row["hardware"],
        "submission_org": summary.manifest.site_name,
        "global_batch_size": row["global_batch_size"],
        "gradient_accumulation_steps": case["gradient_accumulation"],
        "seed": case["seed"],
    }
    for key, value in facts.items():
        yield _write_line(start, _POINT, key, value)
    named = {"case_id": case["case_id"], "repeat": row["repeat"], "unit": case["unit"]}
    yield _write_line(start, _START, "run_start", None, **named)
    yield _write_line(end, _END, "run_stop", None, status="success", **named)
    # behind the stop, as NVIDIA's submissions have the throughput of a whole run
    stats = {"throughput": row["samples_per_s"], "epoch_num": row["epochs"] or 0}
    yield _write_line(end, _POINT, "tracked_stats", stats, step=row["steps"], **named)


def _write_line(time: datetime, kind: str, key: str, value: object, **metadata: object) -> str:
    """Return one line of MLPerf's log; `kind` is its event type, such as "POINT_IN_TIME"."""
    entry = {
        "namespace": "",
        "time_ms": round(time.timestamp() * 1000),
        "event_type": kind,
        "key": key,
        "value": value,
        "metadata": metadata,
    }
    return f":::MLLOG {json.dumps(entry, allow_nan=False)}"
