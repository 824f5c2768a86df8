"""A time <-> its text in the files of a run."""

from datetime import datetime, timezone


def format_now() -> str:
    """Format the current time in UTC, to the second, for the files of a run."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Parse a time that `format_now` wrote; raises ValueError for any other text."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
