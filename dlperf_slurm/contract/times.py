"""Points of time in the files of a run."""

from datetime import datetime, timezone


def format_now() -> str:
    """The time in UTC, to the second, as it stands in every file of a run."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """What `format_now` wrote."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
