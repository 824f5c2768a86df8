"""A folder that is being filled -> progress messages with files and MB, every few seconds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NEWS_SECONDS = 5.0


@contextmanager
def report_progress(
    folder: Path, report: Callable[[str], None], news_seconds: float = NEWS_SECONDS
) -> Iterator[None]:
    """Pass the size of a folder to `report` every `news_seconds` during the `with` block."""
    is_done = threading.Event()
    start = time.monotonic()

    def tell() -> None:
        while not is_done.wait(news_seconds):
            files, size_bytes = measure(folder)
            seconds = time.monotonic() - start
            report(f"{files} files, {size_bytes / 1e6:.1f} MB so far, {seconds:.0f} s")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def measure(folder: Path) -> tuple[int, int]:
    """Return the number of files below a folder, and the sum of their sizes in bytes."""
    sizes = []
    for path in folder.rglob("*"):
        # a temporary file may be renamed meanwhile
        with suppress(OSError):
            if path.is_file():
                sizes.append(path.stat().st_size)
    return len(sizes), sum(sizes)
