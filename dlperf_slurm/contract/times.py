"""A time <-> its text in the files of a run."""

from datetime import datetime, timezone


def format_now() -> str:
    """Format the current time for the files of a run, in UTC: "2024-05-01T12:00:00Z"."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Parse a time that `format_now` wrote; raises ValueError for any other text."""
    # not strptime, which takes milliseconds to import
    try:
        time = datetime.fromisoformat(text[:-1])
    except ValueError:
        time = None
    if time is None or f"{time.isoformat(timespec='seconds')}Z" != text:
        raise ValueError(f"{text!r} is not a time such as '2024-05-01T12:00:00Z'")
    return time.replace(tzinfo=timezone.utc)
