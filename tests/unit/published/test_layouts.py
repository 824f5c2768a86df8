"""`report --layout`: what it prints and writes of a run, and of published figures."""

import pytest
from builders import find_task, make_failed_record, make_record, read_case, run_main, write_record
from report_values import list_report_files

from dlperf_slurm.cli import main
from dlperf_slurm.contract.record import OUT_OF_MEMORY
from dlperf_slurm.published.layouts import list_layouts


def fill_run(run):
    """Write a valid record on 1n1g and one out of memory on 1n2g; the others are missing."""
    task = find_task(run, "1n1g")
    write_record(run, task, make_record(read_case(run, task)))
    task = find_task(run, "1n2g")
    write_record(run, task, make_failed_record(read_case(run, task), OUT_OF_MEMORY, "rank 1: | x"))


@pytest.mark.parametrize("layout", list_layouts())
def test_report_writes_the_layout_beside_the_usual_files(staged_run, layout, capsys):
    for task in staged_run.read_all_tasks():
        write_record(staged_run, task, make_record(read_case(staged_run, task)))
    code, out, _ = run_main(["report", "--plots", "none", "--layout", layout], capsys)
    assert (code, sorted(path.name for path in (staged_run.path / "report").iterdir())) == (
        0,
        sorted(
            [
                *list_report_files("report-plots-none.html"),
                f"report-{layout}.md",
                f"report-{layout}.tex",
            ]
        ),
    )
    assert "160.00" in out


@pytest.mark.parametrize("layout", list_layouts())
def test_report_of_a_run_with_holes_has_no_blank_cell(staged_run, layout):
    fill_run(staged_run)
    assert main(["report", "--plots", "none", "--layout", layout]) == 5
    text = (staged_run.path / f"report/report-{layout}.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("|")]
    cells = [cell for row in rows for cell in row]
    bad = [cell for cell in cells if not cell.strip() or "nan" in cell or "None" in cell]
    assert (len(cells) >= 10, bad) == (True, [])


def test_default_layout_is_what_report_prints_without_one(staged_run, capsys):
    fill_run(staged_run)
    plain = run_main(["report", "--plots", "none"], capsys)
    assert run_main(["report", "--plots", "none", "--layout", "default"], capsys) == plain


def test_published_source_beside_the_run_ends_the_layout_too(staged_run, capsys):
    fill_run(staged_run)
    source = "nvidia_mxnet_resnet50_training"
    options = ["--plots", "none", "--layout", "nvidia", "--against", source]
    _, out, _ = run_main(["report", *options], capsys)
    text = (staged_run.path / f"report/report-nvidia-against-{source}.md").read_text(
        encoding="utf-8"
    )
    assert f"against {source}" in out
    assert f"## against {source}" in text


def test_published_figures_are_laid_out_without_a_run(home, capsys):
    code, out, _ = run_main(
        ["report", "--plots", "none", "--layout", "tensorpack", "--published", "tensorpack"], capsys
    )
    rows = [line.split() for line in out.splitlines()]
    assert (code, list(home.iterdir())) == (0, [])
    assert ["8", "1612/1579/1551", "1580.58"] in rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layout", "nvidia", "--published", "nvidea"], "known: dlperf, "),
        (["--published", "dlperf"], f"needs --layout {' or '.join(list_layouts())}"),
        (["run", "--layout", "nvidia", "--published", "dlperf"], "RUN and --published exclude"),
        (
            ["--layout", "nvidia", "--published", "dlperf", "--against", "dlperf"],
            "--against needs a RUN",
        ),
    ],
)
def test_wrong_options_exit_with_2_and_say_what_is_allowed(arguments, message, capsys):
    code, _, err = run_main(["report", "--plots", "none", *arguments], capsys)
    assert (code, message in err) == (2, True)
