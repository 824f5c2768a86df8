"""Texts of files -> the same without the names of hosts and users."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from dlperf_slurm.jobs.journal import read_journal
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.reports.formats.markdown import escape_markdown
from dlperf_slurm.results.history.nodes import get_node_name

if TYPE_CHECKING:
    from pandas import DataFrame

# names that tell nothing of a cluster
_COMMON = frozenset(("", "root", "localhost", "localhost.localdomain"))
# the target of a link in Markdown, which names a file of the site
_TARGET = re.compile(r"((?<!\\)\]\([^)\s]*\))")
# parts of a page that are not cleaned: style, script, and tags except for texts in attributes
_MARKUP = re.compile(r"(<style>.*?</style>|<script>.*?</script>|<[^>]*>)", re.DOTALL)
_TEXTS = re.compile(r'(?<= )(title|data-text|aria-label)="[^"]*"')


class Redaction:
    """Replacements for the names of hosts ("host-1", in the order of names) and of users."""

    def __init__(self, hosts: Iterable[str], users: Iterable[str]) -> None:
        names = {get_node_name(host) for host in hosts} - _COMMON
        self._words = {name: f"host-{n}" for n, name in enumerate(sorted(names), start=1)}
        own = {*users} - _COMMON - names
        self._words |= dict.fromkeys({*own, *map(escape_markdown, own)}, "user")
        stems = {name.rstrip("0123456789") for name in names if name[-1].isdigit()} - _COMMON
        longest = sorted(map(re.escape, self._words), key=len, reverse=True)
        # a host with its domain; a list of hosts as Slurm writes it, "node[01-04,07]"
        parts = [*(f"({name})(?:\\.[a-z][\\w-]*)*" for name in longest)]
        parts += [f"{re.escape(stem)}\\[[0-9,-]+\\]" for stem in sorted(stems)]
        self._pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(parts)})(?![\w-])") if parts else None

    def clean(self, text: str) -> str:
        """Replace the names of hosts and users in a plain text."""
        if self._pattern is None:
            return text
        return self._pattern.sub(
            lambda found: self._words[found[found.lastindex]] if found.lastindex else "hosts", text
        )

    def clean_page(self, page: str) -> str:
        """Replace the names of hosts and users in the texts of an HTML page."""
        return "".join(
            self.clean(part)
            if not part.startswith("<")
            else part
            if part.startswith(("<style>", "<script>"))
            else _TEXTS.sub(lambda found: self.clean(found[0]), part)
            for part in _MARKUP.split(page)
        )

    def clean_markdown(self, text: str) -> str:
        """Replace the names of hosts and users in Markdown, but not in the targets of its links."""
        parts = _TARGET.split(text)
        return "".join(part if n % 2 else self.clean(part) for n, part in enumerate(parts))

    def clean_files(self, files: Mapping[str, str]) -> dict[str, str]:
        """Replace host and user names in texts by file name: HTML, Markdown or plain, by suffix."""
        cleaners = {".html": self.clean_page, ".md": self.clean_markdown}
        return {
            name: cleaners.get(PurePath(name).suffix, self.clean)(text)
            for name, text in files.items()
        }


def find_names(runs: Iterable[Run], entries: "DataFrame") -> Redaction:
    """Find the names of hosts and users in manifests, journals and history entries of runs."""
    hosts: set[str] = set()
    users: set[str] = set()
    for run in runs:
        hosts.add(run.manifest.created_on)
        users.add(run.manifest.created_by)
        hosts.update(event.host for event in read_journal(run.path))
    for sound, failures in zip(entries.node_sound, entries.node_failures):
        hosts.update(json.loads(sound) if sound else ())
        hosts.update(node for node, *_ in json.loads(failures or "[]"))
    return Redaction(hosts, users)
