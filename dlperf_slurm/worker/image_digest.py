"""python -m dlperf_slurm.worker.image_digest FOLDER IMAGE [COMMAND...] -> the digest of an image.

Runs on the batch host. It never fails an attempt: without a digest, an empty line is printed.
"""

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import List

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import make_folder
from dlperf_slurm.files.reading import read_text
from dlperf_slurm.files.writing import write_file

COMMAND_SECONDS = 60
BLOCK_BYTES = 2**20


def main(arguments: List[str]) -> int:
    """Print the digest of a container image: what COMMAND prints, else that of the file IMAGE.

    Arguments are FOLDER IMAGE [COMMAND...]. IMAGE may be a folder too. FOLDER is a cache, so that a
    file is read once per run. Always returns 0.
    """
    folder, image, *command = arguments
    with suppress(OSError, FileProblem, subprocess.SubprocessError):
        print(ask_runtime(command) or recall_digest(Path(folder), Path(image)))
    return 0


def ask_runtime(command: List[str]) -> str:
    """Run a container runtime's command that prints an image's digest; return its first word.

    Returns "" if the command is empty, fails, prints nothing or takes over COMMAND_SECONDS.
    """
    if not command:
        return ""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = done.stdout.decode(errors="replace").split()
    return words[0] if words and done.returncode == 0 else ""


def recall_digest(folder: Path, image: Path) -> str:
    """Return the digest of an image that is a file or folder; "" for other images.

    Digests are cached in `folder`, by the image's path, size and time. Raises OSError and
    FileProblem.
    """
    if not image.is_absolute() or not image.exists():
        return ""
    status = image.stat()
    version = f"{image} {status.st_size} {status.st_mtime_ns}"
    known = folder / hashlib.sha256(os.fsencode(version)).hexdigest()
    if not known.exists():
        digest = digest_folder(image) if image.is_dir() else digest_file(image)
        make_folder(folder, folder.parent)
        write_file(known, digest.encode("ascii"))
    return read_text(known)


def digest_file(path: Path) -> str:
    """Return the digest of a file's content, "sha256:HEX". Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(BLOCK_BYTES), b""):
            digest.update(block)
    return f"sha256:{digest.hexdigest()}"


def digest_folder(root: Path) -> str:
    """Return "listing-sha256:HEX" of a folder's names, modes, sizes, times and link targets.

    Reading the contents of tens of thousands of files would take longer than the measurement.
    """
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(str(root)):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = os.path.join(folder, name)
            status = os.lstat(path)
            link = os.readlink(path) if os.path.islink(path) else ""
            # no time of a folder: a mount below it changes the time
            facts = [] if os.path.isdir(path) else [status.st_size, status.st_mtime_ns]
            line = [os.path.relpath(path, str(root)), status.st_mode, *facts, link]
            digest.update("\0".join(map(str, line)).encode(errors="surrogateescape") + b"\n")
    return f"listing-sha256:{digest.hexdigest()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
