"""A results folder -> a static website of its runs, as HTML and as Markdown.

Only changed pages are written again.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dlperf_slurm.errors import InputError
from dlperf_slurm.files import FileProblem, folders
from dlperf_slurm.files.owned import is_own
from dlperf_slurm.files.reading import MIB, read_json
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.archives import list_readable_runs
from dlperf_slurm.jobs.run_directory import Run, list_denied, open_run
from dlperf_slurm.jobs.run_files import find_files
from dlperf_slurm.plain_text import count_things, make_one_line
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.reports.comparison_text import list_hardware_changes, tabulate_comparison
from dlperf_slurm.reports.formats import csv, markdown
from dlperf_slurm.reports.formats.html import Section, make_page, render
from dlperf_slurm.reports.formats.markdown import write_document
from dlperf_slurm.reports.formats.page.tables import make_html_tables
from dlperf_slurm.reports.history_text import METHOD, tabulate_history
from dlperf_slurm.reports.leaderboard import (
    list_bests,
    list_headlines,
    tabulate_leaderboards,
    tabulate_runs,
)
from dlperf_slurm.reports.plots import SOME, Plot, draw_for_page
from dlperf_slurm.reports.plots.between_runs import MAX_PANELS, plot_comparison, plot_history
from dlperf_slurm.reports.redaction import Redaction, find_names
from dlperf_slurm.reports.report_files import draw_plots, make_report
from dlperf_slurm.reports.run_list import list_rows
from dlperf_slurm.results.cache import fingerprint_code
from dlperf_slurm.results.collect import collect_outcomes
from dlperf_slurm.results.compare import compare_runs
from dlperf_slurm.results.history.run_cache import read_run_cache
from dlperf_slurm.results.history.timeline import drop_copies, make_history

if TYPE_CHECKING:
    from pandas import DataFrame

# in the site's folder: the digests of its files, and of what each was made from
STATE_FILE = ".published.json"
INDEX, HISTORY = "index.html", "history.html"
# what a repository on GitHub or GitLab shows of the site
README = "README.md"
_STATE_BYTES = 16 * MIB
# timelines per figure of the history
_PANELS = 8
# function that makes files: returns their texts by file name
Maker = Callable[[], Mapping[str, str]]


@dataclass(frozen=True)
class Published:
    """The result of `publish_site`: names of written and removed files, the count of other files.

    `problems` has a line per run that was left out, or cannot be compared.
    """

    written: tuple[str, ...]
    removed: tuple[str, ...]
    kept: int
    problems: tuple[str, ...]


class _Site:
    """The folder of a published site; only files whose input has another digest are made again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.before = _read_state(folder)
        self.digests: dict[str, str] = {}
        self.inputs: dict[str, str] = {}
        self.written: list[str] = []
        self.problems: list[str] = []

    def add(self, names: Sequence[str], digest: str, make: Maker) -> None:
        """Call `make` and write the files that it returns, unless all are up to date.

        `names` are the names of the files, `digest` is that of their input.
        """
        old = self.before["digests"]
        if all(
            self.before["inputs"].get(name) == digest
            and is_own(self.folder / name, self.folder, old.get(name))
            for name in names
        ):
            texts: Mapping[str, str] = {}
            self.digests.update((name, old[name]) for name in names)
        else:
            texts = make()
        self.inputs.update(dict.fromkeys(names, digest))
        for name, text in texts.items():
            content = text.encode()
            self.digests[name] = hashlib.sha256(content).hexdigest()
            if is_own(self.folder / name, self.folder, self.digests[name]):
                continue
            folders.make_folder((self.folder / name).parent, self.folder)
            write_file(self.folder / name, content, self.folder)
            self.written.append(name)

    def finish(self) -> list[str]:
        """Remove files of the previous call that this one did not make; return their names.

        Files that somebody has changed stay. Also stores the digests for the next call.
        """
        removed = []
        for name in sorted(self.before["digests"].keys() - self.digests.keys()):
            if is_own(self.folder / name, self.folder, self.before["digests"][name]):
                (self.folder / name).unlink()
                removed.append(name)
        state = {"digests": self.digests, "inputs": self.inputs}
        text = json.dumps(state, indent=1, sort_keys=True)
        write_file(self.folder / STATE_FILE, text.encode(), self.folder)
        return removed


def _read_state(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the digests that the previous `publish` into this folder stored; empty for a new folder.

    Raises InputError if the folder has other files than a published site.
    """
    nothing: dict[str, dict[str, Any]] = {"digests": {}, "inputs": {}}
    if not folder.exists() or not any(folder.iterdir()):
        return nothing
    try:
        state = read_json(folder / STATE_FILE, _STATE_BYTES, folder)
    except FileNotFoundError:
        raise InputError(
            f"{folder}: is not empty, and not a published site (it has no {STATE_FILE}); name a "
            "new folder"
        ) from None
    except FileProblem:
        return nothing
    if not isinstance(state, dict) or not all(isinstance(state.get(key), dict) for key in nothing):
        return nothing
    for key in nothing:
        state[key] = {
            n: v for n, v in state[key].items() if ".." not in n and not n.startswith("/")
        }
    return state


def publish_site(results_dir: Path, folder: Path, title: str, shows_names: bool) -> Published:
    """Write a site of all runs of a results folder; return what was written, removed and left out.

    Names of hosts and users are replaced unless `shows_names`. Raises InputError if there is no
    run, or if `folder` contains other files than a site, or a README.md of somebody else.
    """
    title = make_one_line(title)
    cache = read_run_cache(results_dir)
    entries, copies = drop_copies(cache.entries)
    site = _Site(folder)
    problems = dict.fromkeys((*cache.problems, *copies, *list_denied(results_dir)))
    found = list_readable_runs(results_dir)
    copied = {*cache.entries.run_dir} - {*entries.run_dir}
    chosen = [(name, path) for name, path in found.items() if str(path) not in copied]
    rows, more = list_rows(results_dir, chosen[::-1])
    problems.update(dict.fromkeys(more))
    opened = [open_run(Path(row["path"])) for row in rows]
    # a folder may have another name than its run
    rows = [{**row, "run_id": run.run_id} for row, run in zip(rows, opened)]
    runs = {run.run_id: run for run in opened}
    if not runs:
        raise InputError("\n".join([f"{results_dir}: contains no runs to publish", *problems]))
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / README).exists() and not is_own(
        folder / README, folder, site.before["digests"].get(README)
    ):
        raise InputError(
            f"{folder / README}: differs from the file that `publish` wrote, and would be "
            "replaced; move it"
        )
    digests = {run_id: _digest(run.path.name, find_files(run.path)) for run_id, run in runs.items()}
    shared = (fingerprint_code(), shows_names)

    def find(chosen: Sequence[Run]) -> Redaction:
        if shows_names:
            return Redaction((), ())
        return find_names(chosen, entries[entries.run_id.isin([run.run_id for run in chosen])])

    links: dict[str, str] = {}
    for run_id, run in runs.items():
        names = [f"runs/{run_id}.{suffix}" for suffix in ("html", "csv", "md")]
        try:
            site.add(
                names,
                _digest(*shared, digests[run_id]),
                lambda names=names, run=run: _make_run_files(run, names, find([run])),  # type: ignore[misc]
            )
            links[run_id] = quote(names[0])
        except (OSError, RecursionError, ValueError, LookupError, InputError) as error:
            # a damaged run must not hide the others
            problems[f"{run.path}: cannot be read as a run: {error}"] = None
    comparisons: dict[str, str] = {}
    for b, a in _pair_runs([*runs.values()]):
        name = f"compare/{b.run_id}.html"
        try:
            site.add(
                [name, _name_markdown(name)],
                _digest(*shared, digests[a.run_id], digests[b.run_id]),
                lambda a=a, b=b, name=name: find([a, b]).clean_files(  # type: ignore[misc]
                    _make_comparison(a, b, name)
                ),
            )
            comparisons[b.run_id] = quote(name)
        except (OSError, RecursionError, ValueError, LookupError, InputError) as error:
            problems[f"{a.run_id} and {b.run_id}: cannot be compared: {error}"] = None
    told = [line.replace(f"{results_dir}/", "") for line in problems]
    everything = _digest(*shared, title, told, digests, links, comparisons)
    entries = entries[entries.run_id.isin([*runs])]
    site.add(
        [INDEX, README, HISTORY, _name_markdown(HISTORY)],
        everything,
        lambda: find([*runs.values()]).clean_files(
            _make_common_pages(title, rows, entries, links, comparisons, told)
        ),
    )
    removed = site.finish()
    kept = len(site.digests) - len(site.written)
    return Published(tuple(site.written), tuple(removed), kept, tuple(problems))


def _digest(*values: object) -> str:
    """Return the SHA-256 of values, by their `ascii` texts."""
    return hashlib.sha256(ascii(values).encode()).hexdigest()


def _pair_runs(runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Return pairs (run, last earlier run of the same matrix and site), for runs that have one.

    `runs` are sorted from the newest to the oldest.
    """
    pairs = []
    for i, run in enumerate(runs):
        key = (run.manifest.matrix_name, run.manifest.site_name)
        for other in runs[i + 1 :]:
            if (other.manifest.matrix_name, other.manifest.site_name) == key:
                pairs.append((run, other))
                break
    return pairs


def _name_markdown(page: str) -> str:
    """Return the file name of an HTML page's Markdown; names of other files are unchanged."""
    folder, slash, name = page.rpartition("/")
    if name == INDEX:
        return f"{folder}{slash}{README}"
    return f"{page.removesuffix('.html')}.md" if page.endswith(".html") else page


def _make_pages(
    name: str,
    title: str,
    lead: str,
    findings: Sequence[str],
    links: Sequence[tuple[str, str]],
    tables: Iterable[Table],
    notes: Sequence[str] = (),
    figures: Sequence[Plot] = (),
    problems: Sequence[str] = (),
) -> dict[str, str]:
    """Make a page as HTML and as Markdown, by file name; the figures are below the first table.

    `name` is the HTML file. `lead` is the paragraph below the title, `findings` the sentences after
    it; `links` are (address, text), those within the page ("#...") in HTML only. `problems` has a
    line per run that was left out.
    """
    tables = [*tables]
    sections = [
        Section(table, tuple(figures) if number == 0 else ())
        for number, table in enumerate(make_html_tables(tables, "table", notes))
    ]
    page = render(
        "site.html.j2",
        **{"title": title, "lead": lead, "findings": findings, "links": links},
        **{"sections": sections, "problems": problems},
    )
    leads = [(label, _name_markdown(link)) for link, label in links if not link.startswith("#")]
    plain = [
        replace(
            table,
            rows=tuple(
                tuple(replace(cell, link=_name_markdown(cell.link)) for cell in row)
                for row in table.rows
            ),
        )
        for table in tables
    ]
    texts = [lead, *findings, *problems]
    return {name: page, _name_markdown(name): write_document(title, plain, notes, texts, leads)}


def _make_run_files(run: Run, names: Sequence[str], redaction: Redaction) -> dict[str, str]:
    """Return the page, CSV and Markdown of a run, by file name, with `redaction` applied.

    `names` are the three file names, in this order.
    """
    report = make_report(run, {})
    report = replace(report, plots=draw_plots(report, SOME))
    page = make_page(report, home=f"../{INDEX}")
    texts = [form.serialize(report)[form.FILE_NAME].decode() for form in (csv, markdown)]
    return redaction.clean_files(dict(zip(names, (page, *texts))))


def _make_comparison(a: Run, b: Run, name: str) -> dict[str, str]:
    """Make the page `name`, which compares run B with the earlier run A, as texts by file name."""
    compared = compare_runs(a.manifest, collect_outcomes(a), b.manifest, collect_outcomes(b))
    table, notes = tabulate_comparison(compared)
    table = replace(table, caption=table.caption.replace("\n", "; "))
    changes = list_hardware_changes(compared)
    has_ratio = bool(compared.pairs.speed_ratio.notna().any())
    return _make_pages(
        name,
        f"{b.manifest.title or b.run_id}: compared with the previous run",
        f"A: run {a.run_id}, {compared.hardware_a}. B: run {b.run_id}, {compared.hardware_b}.",
        # a warning
        [f"The runs were measured on different hardware: {'; '.join(changes)}"] * bool(changes),
        [(f"../{INDEX}", "All runs"), (f"../{HISTORY}", "History")]
        + [(quote(f"../runs/{run.run_id}.html"), f"Run {n}") for n, run in (("A", a), ("B", b))],
        [table],
        notes,
        [_draw(lambda: plot_comparison(compared))] if has_ratio else [],
    )


def _draw(draw: Callable[[], Plot]) -> Plot:
    with draw_for_page():
        return draw()


def _make_common_pages(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    entries: "DataFrame",
    links: Mapping[str, str],
    comparisons: Mapping[str, str],
    problems: Sequence[str],
) -> dict[str, str]:
    """Return the first page, with leaderboards and runs, and the page of the history, by file name.

    `rows` describe the runs; `links` and `comparisons` have the pages of each run by id.
    """
    history = make_history(entries)
    bests = list_bests(history)
    days = sorted(row["created_at"][:10] for row in rows)
    ends = dict.fromkeys((days[0], days[-1]))
    sites = ", ".join(sorted({row["site"] for row in rows}))
    index = _make_pages(
        INDEX,
        title,
        f"{count_things(len(rows), 'run')} on {sites}; {' to '.join(ends)}.",
        list_headlines(bests),
        [(HISTORY, "History from run to run"), ("#runs", "Runs")],
        [*tabulate_leaderboards(bests, links), tabulate_runs(rows, history, links, comparisons)],
        problems=problems,
    )
    counts = history.groupby("timeline").run_id.transform("nunique")
    # footnotes refer to rows by number
    repeated = history[counts > 1].reset_index(drop=True)
    tables, notes = tabulate_history(repeated) if len(repeated) else ([], ())
    numbers = [*repeated.timeline.unique()][:MAX_PANELS]
    figures = [
        _draw(lambda own=own: plot_history(own))  # type: ignore[misc]
        for start in range(0, len(numbers), _PANELS)
        for own in [repeated[repeated.timeline.isin(numbers[start : start + _PANELS])]]
    ]
    single = history.timeline.nunique() - repeated.timeline.nunique()
    page = _make_pages(
        HISTORY,
        f"{title}: history",
        f"{METHOD[0].upper()}{METHOD[1:]}.",
        [f"Not shown: {count_things(single, 'case')} that only one run measured."] * bool(single),
        [(INDEX, "All runs")],
        tables,
        notes,
        figures,
    )
    return {**index, **page}
