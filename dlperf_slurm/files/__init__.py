"""Files of runs <-> bytes, text and JSON, read with size limits and written atomically.

A run directory may come from anyone. A path that the user names may be a link, but below the
named folder no link is followed. Loads on Python 3.7 with only the standard library, as the worker
uses this package too.
"""


class FileProblem(OSError):
    """A file that cannot be read or written, or is refused; the message names it and the reason."""
