"""A point of time <-> its text in the files of a run."""

from datetime import datetime, timezone


def format_now() -> str:
    """The time in UTC, to the second, as it stands in every file of a run."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """The point of time that `format_now` wrote; raises ValueError for another text."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
