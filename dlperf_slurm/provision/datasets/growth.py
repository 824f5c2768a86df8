"""A folder that is being filled -> news of how many files and MB are there, every few seconds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NEWS_SECONDS = 5.0


@contextmanager
def tell_growth(
    folder: Path, report: Callable[[str], None], news_seconds: float = NEWS_SECONDS
) -> Iterator[None]:
    """Report on a folder from time to time while what is within runs; never after it."""
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
    """The number of files below a folder, and their bytes."""
    sizes = []
    for path in folder.rglob("*"):
        # one that is written beside its place is renamed meanwhile
        with suppress(OSError):
            if path.is_file():
                sizes.append(path.stat().st_size)
    return len(sizes), sum(sizes)
