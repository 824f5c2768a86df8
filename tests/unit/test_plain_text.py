"""Text of untrusted users in a run neither controls a terminal nor becomes a formula."""

import csv
import dataclasses
import io
import re
from pathlib import Path

import pytest
from builders import find_task, make_failed_record, make_record, read_case, write_record

from dlperf_slurm.cli import main
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, format_manifest
from dlperf_slurm.plain_text import count_things, defuse_cell, make_one_line, strip_controls
from dlperf_slurm.reports.plain_console import PlainConsole, Text

# clears the screen, sets the window's title and the color, reverses the text direction
HOSTILE = "a\x1b[2J\x1b]0;pwned\x07\x9b31m\u200b\u202ec\x08\x7f"
PLAIN = "a[2J]0;pwned31mc"
# begins a line that seems to be one of the tool's own
FORGED = f"{HOSTILE}\r\n\u2028FORGED"


def test_controls_are_stripped_and_lines_stay():
    assert strip_controls(f"{HOSTILE}\n\té漢\ud800") == f"{PLAIN}\n\té漢"


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\x1b=", " ="])
def test_formula_is_text_in_a_cell(sign):
    assert defuse_cell(f"{sign}1+1") == f"'{strip_controls(sign)}1+1"
    assert defuse_cell(f"1{sign}1") == strip_controls(f"1{sign}1")


def test_console_keeps_its_own_styles_alone():
    file = io.StringIO()
    console = PlainConsole(file=file, width=80, is_terminal=True)
    console.print(Text(HOSTILE, style="bold"))
    assert file.getvalue() == f"\x1b[1m{PLAIN}\x1b[0m\n"


@pytest.mark.integration
def test_names_of_a_run_are_no_commands_of_github(staged_run, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    title = f"::Stop-Commands::x {'y' * 230} ::add-mask::z ##[error]"
    manifest = dataclasses.replace(staged_run.manifest, title=title)
    (staged_run.path / MANIFEST_FILE).write_text(format_manifest(manifest), encoding="utf-8")
    # its output is kept, and not for such a job
    main(["report", str(staged_run.path)])
    assert "\n::Stop-Commands::x" in f"\n{capsys.readouterr().out}"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    main(["report", str(staged_run.path)])
    assert ": :Stop-Commands::x" in capsys.readouterr().out
    main(["report", str(staged_run.path), "--github"])
    out, err = capsys.readouterr()
    lines = [line for line in (out + err).splitlines() if re.match(r"\s*::|.*##\[", line)]
    assert [line[:8] for line in lines] == ["::error "] * 3
    assert ": :Stop-Commands::x" in out


@pytest.fixture
def hostile_run(staged_run):
    """Write hostile text to the title, a note, a device, versions, a host and a reason."""
    cases = tuple(
        dataclasses.replace(case, notes=(f"=note {FORGED}",)) for case in staged_run.manifest.cases
    )
    manifest = dataclasses.replace(staged_run.manifest, title=FORGED, cases=cases)
    (staged_run.path / MANIFEST_FILE).write_text(format_manifest(manifest), encoding="utf-8")
    for repeat in (1, 2):
        task = find_task(staged_run, "1n1g", repeat)
        record = make_record(read_case(staged_run, task), versions={"torch": FORGED})
        (rank,) = record.ranks
        ranks = (dataclasses.replace(rank, host=f"@{FORGED}", device_name=FORGED),)
        write_record(staged_run, task, dataclasses.replace(record, ranks=ranks))
    task = find_task(staged_run, "1n2g")
    write_record(staged_run, task, make_failed_record(read_case(staged_run, task), reason=FORGED))
    return staged_run


@pytest.mark.not_in_check
@pytest.mark.parametrize(
    "arguments",
    [["report"], ["report", "--layout", "dlperf"], ["status"], ["history"], ["compare"]],
    ids=" ".join,
)
def test_commands_print_no_control_characters(hostile_run, capsys, arguments):
    path = str(hostile_run.path)
    places = {"history": ["--results", str(hostile_run.path.parent)], "compare": [path, path]}
    main([*arguments, *places.get(arguments[0], [path])])
    captured = capsys.readouterr()
    assert captured.out
    for text in captured:
        assert strip_controls(text) == text
        assert not re.search(r"^\s*FORGED", text, re.M)


@pytest.mark.not_in_check
@pytest.mark.parametrize("layout", [[], ["--layout", "dlperf"], ["--plots", "all"]])
def test_files_of_a_report_have_no_control_characters(hostile_run, layout):
    main(["report", str(hostile_run.path), *layout])
    endings = set()
    for path in (hostile_run.path / "report").iterdir():
        if path.suffix in (".csv", ".html", ".json", ".md", ".svg", ".tex"):
            endings.add(path.suffix)
            text = path.read_bytes().decode()
            assert strip_controls(text) == text, path.name
            assert not re.search(r"^\s*FORGED", text, re.M), path.name
    assert {".md", ".html"} <= endings


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain é漢 \N{NO-BREAK SPACE}x", "plain é漢 \N{NO-BREAK SPACE}x"),
        (FORGED, f"{PLAIN} FORGED"),
        ("\n a\t\x85 b \v", "a b"),
        # of what takes the square of the length in a regular expression
        (" " * 10**6 + "\n", ""),
    ],
)
def test_name_is_one_line(text, line):
    assert make_one_line(text) == line


def test_hostile_names_of_files_are_shown_in_one_line_without_controls(home, capsys):
    log = home / "a\nFORGED: done.log"
    log.write_text("no log\n")
    main(["import-logs", str(log), "--format", "horovod_synthetic", "--dry-run"])
    assert not re.search(r"^\s*FORGED", "".join(capsys.readouterr()), re.M)
    assert main(["report", f"nowhere{HOSTILE}"]) == 2
    assert f"nowhere{PLAIN}" in capsys.readouterr().err


def test_texts_of_csv_files_are_no_formulas_and_figures_are_numbers(hostile_run):
    main(["report", str(hostile_run.path)])
    main(["history", "--results", str(hostile_run.path.parent), "--csv", "out.csv"])
    report = hostile_run.path / "report" / "report.csv"
    for path in (report, Path("out.csv")):
        text = path.read_bytes().decode().replace("\r\n", "\n")
        assert strip_controls(text) == text
        cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
        assert cells
        assert not [cell for cell in cells if cell.startswith(tuple("=+-@"))]
    with report.open(encoding="utf-8", newline="") as file:
        (row,) = (row for row in csv.DictReader(file) if row["topology"] == "1n1g")
    assert row["notes"].startswith("'=note a[2J")
    assert float(row["samples_per_s"]) == 40.0


@pytest.mark.parametrize(("number", "text"), [(1, "1 case"), (2, "2 cases"), (1234, "1,234 cases")])
def test_things_are_counted_as_sentences_have_them(number, text):
    assert count_things(number, "case") == text
