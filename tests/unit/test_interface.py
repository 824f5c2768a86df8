"""The Python interface: frames, tables, reports and verdicts of run directories."""

import csv
import subprocess
import sys
from pathlib import Path

import pandas
import pytest
from builders import (
    IMPORT_DIR,
    SMALL_MATRIX,
    make_record,
    read_case,
    show_queue,
    write_matrix,
    write_record,
)
from history_runs import CASE_1, CASE_2, RESULTS, add_run, fail_case, write_step_seconds
from report_values import list_dtypes, list_report_files
from slurm_clients import put_clients
from support.problems import assert_problem

import dlperf_slurm as dp
from dlperf_slurm.cli import main
from dlperf_slurm.results.cases import CASE_TABLE
from dlperf_slurm.results.compare import COMPARISON
from dlperf_slurm.results.detail_frames import RANKS, REPEATS, STEPS
from dlperf_slurm.results.history.timeline import HISTORY

pytestmark = pytest.mark.not_in_check

RUN_FRAMES = {"cases": CASE_TABLE, "repeats": REPEATS, "ranks": RANKS, "steps": STEPS}

DAY_1 = "20240501-120000-seven-tiny-abcd"
DAY_2 = "20240502-120000-seven-tiny-abcd"
# the median rate of the builders is 100 windows a second, of 8 samples x 10 steps on each rank
RATE_1 = 100 * 8 * 10


@pytest.fixture
def two_runs(staged, home):
    """Add a run, and a run a day later that is 10 % slower."""
    paths = add_run(staged, 1), add_run(staged, 2, 0.9)
    for path in paths:
        write_step_seconds(path)
    return paths


@pytest.fixture
def run(two_runs):
    return dp.open_run(two_runs[0])


def run_python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=IMPORT_DIR, capture_output=True, text=True, check=True
    ).stdout


# importing


def test_import_loads_nothing_but_itself():
    loaded = run_python(
        "import sys\nbefore = set(sys.modules)\nimport dlperf_slurm\n"
        "print(*sorted(set(sys.modules) - before))"
    ).split()
    # the interpreter may load modules of the standard library, such as typing, before
    standard = set(sys.stdlib_module_names) if sys.version_info >= (3, 10) else set()
    own = {name for name in loaded if name.startswith("dlperf_slurm")}
    assert own == {"dlperf_slurm", "dlperf_slurm.version"}
    if standard:
        assert {name.partition(".")[0] for name in loaded} - standard == {"dlperf_slurm"}


@pytest.mark.integration
def test_opening_a_run_loads_no_pandas(two_runs):
    code = (
        f"import sys, dlperf_slurm as dp\nrun = dp.open_run({str(two_runs[0].absolute())!r})\n"
        "print('pandas' in sys.modules)\nrun.frame()\nprint('pandas' in sys.modules)"
    )
    assert run_python(code).split() == ["False", "True"]


def test_every_public_name_is_listed_and_has_a_docstring():
    named = {name: getattr(dp, name) for name in dp.__all__}
    assert {one.__name__ for one in named.values()} == {*named}
    assert set(named) <= set(dir(dp))
    methods = [
        value
        for one in named.values()
        if isinstance(one, type)
        for name, value in vars(one).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    ]
    assert [one for one in [*named.values(), *methods] if not one.__doc__] == []
    with pytest.raises(AttributeError, match="open_runs"):
        _ = dp.open_runs


# opening


def test_run_is_opened_by_directory_id_or_its_beginning_else_the_newest(two_runs, home):
    references = [two_runs[0], str(two_runs[0]), DAY_1, "20240501"]
    assert [dp.open_run(reference).run_id for reference in references] == [DAY_1] * 4
    run = dp.open_run()
    assert (run.run_id, run.title, run.path) == (DAY_2, "Seven", two_runs[1].absolute())
    assert repr(run) == f"<run {DAY_2}: Seven>"
    RESULTS.rename("elsewhere")
    assert dp.open_run("20240501", results="elsewhere").path == home / "elsewhere" / DAY_1


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("2023", ("no such run", DAY_1, DAY_2)),
        ("2024", ("several", DAY_1, DAY_2)),
        *((hostile, ()) for hostile in ("", "x" * 5000, "\0", "../..", "$(x)", "é\n")),
    ],
)
def test_wrong_id_is_an_input_error_that_names_the_runs(reference, says, two_runs):
    with pytest.raises(dp.InputError) as caught:
        dp.open_run(reference)
    assert_problem(caught.value, key=reference if says else "", says=says)


# frames


@pytest.mark.parametrize(
    ("name", "rows"),
    # 2 cases; x 7 repeats; 7 x (1 + 2) ranks; x 10 steps
    [("cases", 2), ("repeats", 14), ("ranks", 21), ("steps", 210)],
)
def test_frame_has_the_declared_columns_and_a_row_for_each(name, rows, run):
    frame = run.frame(name)
    assert {column: str(kind) for column, kind in frame.dtypes.items()} == list_dtypes(
        RUN_FRAMES[name]
    )
    assert len(frame) == rows


def test_frame_of_cases_has_the_medians_and_is_the_callers_own(run):
    cases = run.frame().set_index("case_id")
    assert cases.samples_per_s.tolist() == pytest.approx([RATE_1, 2 * RATE_1])
    assert cases.speedup.tolist() == pytest.approx([1, 2])
    cases.loc[:, "samples_per_s"] = 0.0
    assert run.frame().samples_per_s[0] > 0


def test_figures_of_a_failed_case_are_missing(two_runs):
    fail_case(two_runs[0], CASE_2)
    run = dp.open_run(two_runs[0])
    assert [run.is_complete, dp.open_run(two_runs[1]).is_complete] == [False, True]
    cases = run.frame()
    assert cases.samples_per_s.isna().tolist() == [False, True]
    assert cases.batch_size_measured.tolist() == [8, pandas.NA]
    assert cases.set_index("case_id").problem[CASE_2] == "failed"
    repeats = run.frame("repeats")
    assert repeats[repeats.case_id == CASE_2].status.tolist() == ["failed"] * 7
    assert str(repeats.started_at[0]) == "2024-05-01 12:00:00+00:00"
    assert CASE_2 not in set(run.frame("steps").case_id)


def test_every_column_is_described():
    frames = [*RUN_FRAMES.values(), COMPARISON, HISTORY]
    columns = [column for frame in frames for column in frame if column.published]
    assert [column.name for column in columns if not column.meaning] == []
    numbers = ("Int64", "int32", "float64")
    assert ({column.name for column in columns if column.dtype in numbers and not column.unit}) == {
        *("repeat", "attempt", "rank", "local_rank", "step", "loss_scale", "final_loss", "p_value"),
        *("shuffle_seed", "seed"),
    }


# tables


def test_tables_are_those_of_the_report_and_html_in_a_notebook(run):
    tables = run.tables()
    assert tables[0].title == "ResNet-50: fp32, batch size 8 per device"
    assert str(tables).startswith(str(tables[0]))
    assert "8000 (7920 to 8080)" in str(tables[0])
    html = tables[0]._repr_html_()
    assert html.count("<tr>") == 3
    assert '<td style="text-align: right">8000 (7920&nbsp;to&nbsp;8080)' in html
    assert tables._repr_html_().startswith(html)
    assert tables.find("batch size 8").title == tables[0].title
    with pytest.raises(dp.InputError) as caught:
        tables.find("rnaks")
    assert_problem(caught.value, says=("'rnaks'", tables[0].title))


def test_table_has_the_notes_that_it_refers_to(two_runs):
    fail_case(two_runs[0], CASE_2, "rank 1: <b>5 %</b>")
    table = dp.open_run(two_runs[0]).tables()[0]
    (number,) = [n for n, text in table.notes.items() if "failed: " in text]
    assert f"failed [{number}]" in str(table)
    assert table.notes[number].endswith("failed: rank 1: <b>5 %</b>")
    assert f"[{number}] {CASE_2}" in str(table)
    assert "&lt;b&gt;5 %&lt;/b&gt;" in table._repr_html_()
    assert "<b>5" not in table._repr_html_()
    latex = table.latex("tab:mine")
    assert latex.startswith("\\begin{table}[htbp]\n")
    assert latex.endswith("\\end{table}")
    assert "\\label{tab:mine}" in latex
    assert latex.count(r"5 \%") == 1


# reports


@pytest.mark.integration
def test_report_is_written_with_the_figures_of_the_frame_and_nothing_printed(run, capsys):
    folder = run.report(layout="dlperf", plots="none", steps=True)
    assert folder == run.path / "report"
    names = {path.name for path in folder.iterdir()}
    layout = {"report-dlperf.md", "report-dlperf.tex"}
    assert names == {*list_report_files("report-plots-none.html"), *layout, "steps"}
    assert capsys.readouterr() == ("", "")
    with (folder / "report.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["samples_per_s"]) for line in lines] == run.frame().samples_per_s.tolist()


@pytest.mark.integration
def test_report_sets_published_figures_beside(run):
    for wrong in (["dlpref"], "dlperf"):
        with pytest.raises(dp.InputError, match=r"dlpref|is a string"):
            run.tables(against=wrong)
    (added,) = {t.title for t in run.tables(against=["dlperf"])} - {t.title for t in run.tables()}
    folder = run.report(against=["dlperf"], plots="none")
    assert added in (folder / "report-against-dlperf.md").read_text(encoding="utf-8")
    assert not (folder / "report.md").exists()


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda run: run.frame("case"), ("'case'", *RUN_FRAMES)),
        (lambda run: run.report(layout="dlpref"), ("'dlpref'", "default", "dlperf", "nvidia")),
        (lambda run: run.report(plots="few"), ("'few'", "some", "files", "all", "none")),
    ],
)
def test_unknown_name_is_an_input_error_that_lists_the_known_ones(ask, says, run):
    with pytest.raises(dp.InputError) as caught:
        ask(run)
    assert_problem(caught.value, says=says)
    assert not (run.path / "report").exists()


# comparing


def test_comparison_is_a_frame_of_verdicts(two_runs):
    compared = dp.compare(*map(dp.open_run, two_runs))
    assert "speed B / A" in str(compared)
    assert "<th" in compared._repr_html_()
    frame = compared.frame()
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == list_dtypes(COMPARISON)
    assert frame.verdict.tolist() == ["slower", "slower"]
    assert frame.median_a.tolist() == pytest.approx([RATE_1, 2 * RATE_1])
    assert frame.speed_ratio.tolist() == pytest.approx([0.9, 0.9])
    assert (frame.speed_ratio_low < 0.9).all()
    assert (frame.speed_ratio_high > 0.9).all()


def test_slower_or_undecided_case_raises_when_asked(two_runs, staged):
    assert len(dp.compare(DAY_1, DAY_2, fail_if_slower="15%").frame()) == 2
    with pytest.raises(dp.SlowerError, match=CASE_1):
        dp.compare(DAY_1, DAY_2, fail_if_slower="3%")
    for wrong in ("3", "x%", "100%"):
        with pytest.raises(dp.InputError, match="percentage"):
            dp.compare(DAY_1, DAY_2, fail_if_slower=wrong)
    add_run(staged, 3, repeats=2)
    with pytest.raises(dp.InconclusiveError, match="6 in each run"):
        dp.compare(DAY_1, "20240503", fail_if_slower="3%")


# history


def test_history_is_a_frame_of_runs(two_runs):
    frame = dp.open_history("results").frame()
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == list_dtypes(HISTORY)
    assert frame.run_id.tolist() == [DAY_1, DAY_2] * 2
    assert frame.verdict.tolist() == ["", "slower"] * 2
    assert frame.samples_per_s[0] == pytest.approx(RATE_1)
    assert frame.created_at[2] - frame.created_at[1] == -pandas.Timedelta(days=1)
    assert main(["history", "--csv", "history.csv"]) == 0
    with Path("history.csv").open(newline="", encoding="utf-8") as file:
        assert next(csv.reader(file)) == frame.columns.tolist()


def test_history_is_of_the_selected_cases(two_runs):
    history = dp.open_history(case=["1n2g"], framework=["pytorch"])
    assert set(history.frame().case_id) == {CASE_2}
    assert [table.title for table in history.tables()] == [CASE_2]
    assert CASE_2 in str(history)
    assert CASE_2 in history._repr_html_()
    for options in ({"case": ["mxnet"]}, {"case": "1n2g"}):
        with pytest.raises(dp.InputError, match=r"no case matches|'1n2g' is a string"):
            dp.open_history(**options)
    with pytest.raises(dp.InputError, match=r"^nowhere: cannot be read"):
        dp.open_history("nowhere")


def test_history_names_what_it_left_out(two_runs):
    (two_runs[0] / "manifest.json").unlink()
    (problem,) = dp.open_history().problems
    assert_problem(problem, file=two_runs[0], says=("manifest.json",))


def test_frozen_code_of_a_run_can_be_imported_without_the_interface(small_run):
    """Import the copy in a run, as the Pythons of the frameworks do."""
    code = "import dlperf_slurm\nprint(dlperf_slurm.__version__, hasattr(dlperf_slurm, 'x'))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=Path(small_run) / "code", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [dp.__version__, "False"]


# submitting


def test_run_is_planned_submitted_followed_and_read(home, bin_dir, capsys):
    write_matrix(SMALL_MATRIX)
    (home / "site.toml").write_text(
        'device = "cpu"\ngpu_request = "none"\nenvironments.pytorch.modules = "x"\n', "utf-8"
    )
    put_clients(bin_dir, "22.05", sbatch="echo 17")
    settings = {"partition": "a b", "protocol": {"repeats": 1}, "axes": {"topology": ["1n1g"]}}
    planned = dp.plan("matrix.toml", "site.toml", **settings)
    assert planned["array_tasks"] == 1
    settings.pop("partition")
    run = dp.submit("matrix.toml", "site.toml", results="elsewhere", **settings)
    assert (run.path.parent, capsys.readouterr().out) == (home / "elsewhere", "")
    name = f"{run.run_id}.1n1g"
    show_queue(bin_dir, "17_0|PENDING||Priority", name=name)
    assert run.status() == {"PENDING": 1}
    (task,) = run._run.read_all_tasks()
    write_record(run._run, task, make_record(read_case(run._run, task)))
    show_queue(bin_dir, "17_0|COMPLETED||None", name=name)
    assert run.wait().is_complete


def test_wrong_settings_are_input_errors(home):
    write_matrix(SMALL_MATRIX)
    for wrong in ({"partitoin": "x"}, {"partition": None}, {"protocol": {"repeats": "x"}}):
        with pytest.raises(dp.InputError, match=next(iter(wrong))):
            dp.plan("matrix.toml", "local", **wrong)
    with pytest.raises(dp.InputError, match=r"nowhere\.toml"):
        dp.plan("nowhere.toml", "local")


def test_figure_is_found_by_its_name_shown_and_saved(run, home):
    found = run.plot("throughput")
    assert found._repr_svg_().lstrip().startswith(("<?xml", "<svg"))
    assert found.save("a.png").read_bytes().startswith(b"\x89PNG")
    for wrong in (lambda: found.save("a.gif"), lambda: run.plot("xyzzy")):
        with pytest.raises(dp.InputError, match=r"a\.gif|xyzzy.*throughput"):
            wrong()


def test_frame_of_what_varied_has_no_constant_columns(run):
    frame = run.frame("cases", only_varied=True)
    assert {"case_id", "topology", "samples_per_s"} <= {*frame}
    assert not {"model", "framework", "site"} & {*frame}
    assert len(frame) == len(run.frame("cases"))
