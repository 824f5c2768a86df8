"""Files of runs -> bytes, text and JSON, and back: the one reader with limits, the one writer.

A run directory may come from anybody. Whoever names a file may name a link; below a folder that
was named, no link is followed. Loads on Python 3.7 with nothing but the standard library, because
the worker reads and writes its files by the same rules.
"""


class FileProblem(OSError):
    """A file that is not to be read, or cannot be written; the message names it and says why."""
