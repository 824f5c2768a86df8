"""Build the wheel, with the manual page, and the source archive (PEP 517).

Setuptools' build backend, with reproducible archives if SOURCE_DATE_EPOCH is set. It is not part of
the installed package.
"""

import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Optional

from man_page import make_man_page
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

EPOCH = "SOURCE_DATE_EPOCH"
# permissions of a file in a wheel, independent of the builder's umask
_FILE_ATTRIBUTES = (stat.S_IFREG | 0o644) << 16
# one of the data files in setup.cfg
MAN_PAGE = Path("build/man/dlperf-slurm.1")


def build_wheel(
    wheel_directory: str,
    config_settings: Optional[dict[str, Any]] = None,
    metadata_directory: Optional[str] = None,
) -> str:
    """Build the wheel of the working directory, with the manual page; return its file name."""
    MAN_PAGE.parent.mkdir(parents=True, exist_ok=True)
    MAN_PAGE.write_text(make_man_page(), encoding="utf-8")
    name = str(build_meta.build_wheel(wheel_directory, config_settings, metadata_directory))
    if EPOCH in os.environ:
        write_plain_wheel(Path(wheel_directory, name))
    return name


def build_sdist(sdist_directory: str, config_settings: Optional[dict[str, Any]] = None) -> str:
    """Build the source archive of the working directory; return its file name."""
    name = str(build_meta.build_sdist(sdist_directory, config_settings))
    if EPOCH in os.environ:
        write_plain_archive(Path(sdist_directory, name), int(os.environ[EPOCH]))
    return name


def write_plain_wheel(path: Path) -> None:
    """Rewrite a wheel with the same permissions on every member."""
    with zipfile.ZipFile(path) as old:
        members = [(member, old.read(member)) for member in old.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for member, content in members:
            plain = zipfile.ZipInfo(member.filename, member.date_time)
            plain.external_attr = _FILE_ATTRIBUTES
            plain.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(plain, content)


def write_plain_archive(path: Path, seconds: int) -> None:
    """Rewrite a tar.gz with sorted members, without owners, and with one modification time."""
    packed = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            content = old.extractfile(member) if member.isfile() else None
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = seconds
            # permissions do not depend on the builder's umask
            is_executable = member.isdir() or bool(member.mode & 0o100)
            member.mode = 0o755 if is_executable else 0o644
            member.pax_headers = {}
            new.addfile(member, content)
    with path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=seconds) as archive:
        archive.write(packed.getvalue())
