"""Run directories -> pandas frames, tables, reports and comparisons: the tool's Python interface.

    import dlperf_slurm as dp

    run = dp.submit("matrices/quickstart.toml", "local").wait()
    cases = run.frame("cases")

docs/columns.md lists the columns of every frame. Mistakes of the user raise InputError with the
message that the command line prints.
"""

from argparse import Namespace
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Union

from dlperf_slurm.config.suggestions import describe_unknown
from dlperf_slurm.errors import InputError, SchedulerError
from dlperf_slurm.files.folders import run_permissions
from dlperf_slurm.jobs.archives import find_readable_run
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.program import find_results_dir
from dlperf_slurm.published.layouts import DEFAULT_LAYOUT, list_layouts
from dlperf_slurm.reports.plots import CHOICES, SOME

if TYPE_CHECKING:
    from pandas import DataFrame

    from dlperf_slurm.reports.notebook import ShownPlot, ShownTable, ShownTables
    from dlperf_slurm.reports.summarize import Summary
    from dlperf_slurm.results.cases import Results
    from dlperf_slurm.results.collect import CaseOutcomes
    from dlperf_slurm.results.compare import RunComparison
    from dlperf_slurm.results.history.timeline import SelectedHistory


def open_run(
    reference: Union[str, Path, None] = None, *, results: Union[str, Path, None] = None
) -> "RunResults":
    """Open a run by its directory, archive, or the start of its id; or "latest", "latest~1".

    None is the latest. `results` is the folder in which ids are searched, by default
    $DLPERF_SLURM_RESULTS or "results". Raises InputError, which lists known runs, if no run or
    several runs match.
    """
    try:
        name = None if reference is None else str(reference)
        return RunResults(find_readable_run(name, Path(results or find_results_dir())))
    except OSError as error:
        raise InputError(str(error)) from error


def plan(
    matrix: Union[str, Path], site: Optional[str] = None, **settings: object
) -> "dict[str, object]":
    """Return what a matrix would submit to a site, as `plan --json` prints it; write nothing.

    `site` is a name or file; None: $DLPERF_SLURM_SITE, else the file named after this cluster, else
    "slurm", or "local" without Slurm. `settings` are values as after `--set`: `partition="gpu"`, or
    a dictionary for a table, `protocol={"repeats": 3}`. Raises InputError for mistakes in them.
    """
    from dlperf_slurm.cli.staging import load_plan
    from dlperf_slurm.jobs.plan import describe_plan

    planned = load_plan(_parse("plan", matrix, site, settings), must_reach_cluster=False)
    return describe_plan(planned.plan, planned.loaded.name)


def submit(
    matrix: Union[str, Path],
    site: Optional[str] = None,
    *,
    results: Union[str, Path, None] = None,
    **settings: object,
) -> "RunResults":
    """Submit a matrix to a site, as the command `submit` does, and return its run.

    `results` is the folder of runs; the other arguments are as in `plan`. Raises SchedulerError if
    Slurm refuses or there is none and no site is named, EnvironmentMissingError if an environment
    is missing.
    """
    from dlperf_slurm.cli.runs import start_run

    options = _parse("submit", matrix, site, settings)
    options.results = Path(results or options.results)
    return RunResults(start_run(options))


def _parse(
    command: str, matrix: Union[str, Path], site: Optional[str], settings: Mapping[str, object]
) -> Namespace:
    """Parse a command line with these arguments, so that defaults are those of the command."""
    from dlperf_slurm.cli import make_parser

    words = [command, *([f"--site={site}"] if site else [])]
    words += [f"--set={assignment}" for assignment in _list_assignments(settings)]
    words += ["--", str(matrix)]
    options = make_parser(words).parse_args(words)
    options.words = words
    return options


def _list_assignments(settings: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    """Yield KEY=VALUE, with the value as TOML, for each value of nested settings."""
    import tomli_w

    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _list_assignments(value, f"{prefix}{key}.")
            continue
        try:
            table = {"value": [*value] if isinstance(value, (tuple, range)) else value}
            # an array has a line for each item
            text = tomli_w.dumps(table).partition("=")[2].strip().replace("\n", " ")
        except TypeError as error:
            raise InputError(f"{prefix}{key}: {value!r} is not a TOML value") from error
        yield f"{prefix}{key}={text}"


class RunResults:
    """A run; its results are read once, when they are first needed.

    To update the results of a run in progress, open it again, or `wait` for its end.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def run_id(self) -> str:
        """The run id, which is also the name of the run directory."""
        return self._run.run_id

    @property
    def path(self) -> Path:
        """The run directory or archive."""
        return self._run.path

    @property
    def title(self) -> str:
        """The title of the matrix."""
        return self._run.manifest.title

    @property
    def is_complete(self) -> bool:
        """Whether each planned repeat has a valid record, or `submit --within` skipped it."""
        return self._summary.is_complete

    def status(self) -> "dict[str, int]":
        """Return the number of array tasks in each state, such as {"COMPLETED": 4, "RUNNING": 1}.

        Raises SchedulerError if the scheduler does not answer.
        """
        from dlperf_slurm.scheduler.state import count_states
        from dlperf_slurm.scheduler.track import Tracker

        tracker = Tracker(self._run, trusts_journal=True)
        states = tracker.refresh(ask_scheduler=True)
        if tracker.scheduler_error:
            raise SchedulerError(tracker.scheduler_error)
        return count_states(states)

    def wait(self) -> "RunResults":
        """Follow the run to its end, retry failures as the command `wait` does, and return it.

        Prints the progress. Failed repeats are no error: see `is_complete`.
        """
        from dlperf_slurm.cli.follow import follow_to_end
        from dlperf_slurm.jobs.run_ownership import is_own
        from dlperf_slurm.scheduler.submitter import Submitter

        follow_to_end(self._run, Submitter(self._run, print), is_own=is_own(self._run))
        for name in ("_outcomes", "_results", "_summary"):
            self.__dict__.pop(name, None)
        return self

    def frame(self, name: str = "cases", *, only_varied: bool = False) -> "DataFrame":
        """Return the results as a frame with one row per case, repeat, rank or step.

        "cases": [planned cases, columns] has medians with 95 % intervals, ratios and problems, and
        the cases that were left out. "repeats": [planned repeats, columns] has a `problem` for each
        repeat without a valid record. "ranks": [valid repeats x ranks, columns]. "steps":
        [valid repeats x ranks x measured steps, columns]. Missing values are NaN in columns of
        numbers, NA in others. Frames join by `case_id`, `repeat` and `rank`. Each call returns a
        new frame.

        With `only_varied`, columns that have the same value in each row are left out, but for
        `case_id`. Raises InputError for another name.
        """
        from dlperf_slurm.results import detail_frames

        makers = {
            "cases": lambda: self._results.case_columns.copy(),
            "repeats": lambda: self._results.repeat_columns,
            "ranks": lambda: detail_frames.make_rank_frame(self._outcomes),
            "steps": lambda: detail_frames.make_step_frame(self._outcomes),
        }
        _check_name("frame", name, makers)
        frame = makers[name]()
        if only_varied and len(frame) > 1:
            kept = [
                column
                for column in frame
                if column == "case_id" or frame[column].astype(str).nunique() > 1
            ]
            return frame[kept]
        return frame

    def plot(self, words: str = "") -> "ShownPlot":
        """Draw the first figure of the report whose name or title contains `words`.

        A notebook displays it; `save` writes it as .svg, .pdf or .png. Raises InputError, which
        lists the figures, if there is none.
        """
        from dlperf_slurm.reports.notebook import find_plot
        from dlperf_slurm.reports.plots.run_plots import draw_one_by_one
        from dlperf_slurm.results.collect import find_attempts

        attempts = find_attempts(self._run)
        cases = {case.case_id: case for case in self._run.manifest.cases}
        plots = draw_one_by_one(
            self._summary, lambda case_id, repeat: attempts.read(cases[case_id], repeat)
        )
        return find_plot(plots, words)

    def tables(self, *, against: Sequence[str] = ()) -> "ShownTables":
        """Return the tables of the report, in its order, for a notebook or `print`.

        `find("ranks")` returns the table with this word in its title, and its `latex()` the LaTeX
        code. `against` names published sources to compare the run with. Raises InputError for an
        unknown source.
        """
        from dlperf_slurm.reports.notebook import ShownTables, add_notes

        summary = self._summarize(against) if against else self._summary
        return ShownTables(add_notes(table, summary.footnotes) for table in summary.tables)

    def report(
        self,
        *,
        layout: str = DEFAULT_LAYOUT,
        against: Sequence[str] = (),
        plots: str = SOME,
        steps: bool = False,
    ) -> Path:
        """Write the files of the report, as the command `report` does, and return their folder.

        `layout` is "default", or the layout of a published document, written in addition to the
        default. `plots` is "some", "files", "all" or "none"; `steps` writes all step times too. An
        incomplete run is not an error. Reports with `against`, or with a different choice of plots,
        have different file names.

        Raises InputError for an unknown layout, source or choice of plots, OSError if a file cannot
        be written.
        """
        from dlperf_slurm.published.against import choose_sources
        from dlperf_slurm.published.layouts.parts.output import write_layout
        from dlperf_slurm.reports import report_files

        _check_name("layout", layout, (DEFAULT_LAYOUT, *list_layouts()))
        _check_name("choice of plots", plots, CHOICES)
        _check_list("against", against)
        with run_permissions(self.path):
            has_steps = steps or report_files.has_step_files(self._run)
            report = report_files.make_report(self._run, choose_sources(against), has_steps)
            folder = report_files.make_folder(self._run)
            report_files.write_files(report, folder)
            if layout != DEFAULT_LAYOUT:
                write_layout(report, layout, folder)
            report_files.write_plots(report, folder, plots)
        return folder

    def __repr__(self) -> str:
        return f"<run {self.run_id}: {self.title}>"

    @cached_property
    def _outcomes(self) -> "list[CaseOutcomes]":
        from dlperf_slurm.results.collect import collect_outcomes

        return collect_outcomes(self._run)

    @cached_property
    def _results(self) -> "Results":
        from dlperf_slurm.results.cases import analyze
        from dlperf_slurm.results.proofs import load_proofs, name_proofs

        return name_proofs(analyze(self._outcomes), load_proofs(self.path.parent))

    @cached_property
    def _summary(self) -> "Summary":
        return self._summarize(())

    def _summarize(self, against: Sequence[str]) -> "Summary":
        from dlperf_slurm.published.against import choose_sources
        from dlperf_slurm.reports.summarize import summarize

        _check_list("against", against)
        return summarize(self._run.manifest, self._results, [*choose_sources(against).values()])


def compare(
    a: Union[RunResults, str, Path],
    b: Union[RunResults, str, Path],
    *,
    fail_if_slower: Optional[str] = None,
    results: Union[str, Path, None] = None,
) -> "ComparedRuns":
    """Compare run B with run A, case by case; each is a RunResults, or a reference for `open_run`.

    `results` is the folder in which references are searched. With `fail_if_slower`, such as "3%",
    raises SlowerError if a case of B is significantly slower by more than that, CasesFailedError if
    a case of A cannot be compared, and InconclusiveError if more repeats are needed to decide.
    Raises InputError for an unknown run or an invalid percentage.
    """
    from dlperf_slurm.reports.regression_check import guard_comparison, parse_percent
    from dlperf_slurm.results.compare import compare_runs

    limit = parse_percent(fail_if_slower)
    run_a, run_b = (
        run if isinstance(run, RunResults) else open_run(run, results=results) for run in (a, b)
    )
    compared = compare_runs(
        run_a._run.manifest, run_a._outcomes, run_b._run.manifest, run_b._outcomes, limit
    )
    if limit is not None:
        guard_comparison(compared)
    return ComparedRuns(compared)


class ComparedRuns:
    """The comparison of run A with run B; a notebook shows it as the table of `compare`."""

    def __init__(self, compared: "RunComparison") -> None:
        self._compared = compared

    def frame(self) -> "DataFrame":
        """Return a frame with a row for each measured quantity of each case: [rows, columns].

        The quantities are throughput and mean inference latency; a column has the verdict.
        """
        from dlperf_slurm.results.columns import compute_columns
        from dlperf_slurm.results.compare import COMPARISON

        return compute_columns(COMPARISON, self._compared.pairs)

    def table(self) -> "ShownTable":
        """Return the table that the command `compare` prints, with its notes."""
        from dlperf_slurm.reports.comparison_text import tabulate_comparison
        from dlperf_slurm.reports.notebook import add_notes

        return add_notes(*tabulate_comparison(self._compared))

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def open_history(
    *folders: Union[str, Path], case: Sequence[str] = (), framework: Sequence[str] = ()
) -> "History":
    """Open all runs of these results folders; without any, those of the default folder.

    `case` selects case ids that match one of the patterns: the whole id for a pattern with * or ?,
    else a part of the id. `framework` selects frameworks by name. Both select all if empty. Raises
    InputError if nothing is selected.
    """
    from dlperf_slurm.results.history.timeline import read_history

    _check_list("case", case)
    _check_list("framework", framework)
    return History(read_history([*map(Path, folders or (find_results_dir(),))], case, framework))


class History:
    """The results of each case over several runs; `problems` lists skipped results with reasons."""

    def __init__(self, history: "SelectedHistory") -> None:
        self._history = history.rows
        self.problems = tuple(history.problems)

    def frame(self) -> "DataFrame":
        """Return one row per case and run, case by case, oldest run first: [rows, columns]."""
        from dlperf_slurm.results.history.timeline import make_history_frame

        return make_history_frame(self._history)

    def tables(self) -> "ShownTables":
        """Return the tables that the command `history --all` prints, one per case."""
        from dlperf_slurm.reports.history_text import tabulate_history
        from dlperf_slurm.reports.notebook import ShownTables, add_notes

        tables, notes = tabulate_history(self._history)
        return ShownTables(add_notes(table, notes) for table in tables)

    def __repr__(self) -> str:
        return repr(self.tables())

    def _repr_html_(self) -> str:
        return self.tables()._repr_html_()


def _check_name(kind: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise InputError(describe_unknown(name, list(known), f"a known {kind}"))


def _check_list(kind: str, values: Sequence[str]) -> None:
    """Raise InputError if `values` is a single string, which Python also accepts as a sequence.

    `kind` names the argument in the message.
    """
    if isinstance(values, str):
        raise InputError(f"{kind}: {values!r} is a string; give a list of strings")
