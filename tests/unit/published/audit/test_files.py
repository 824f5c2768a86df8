"""Files of all kinds: what is read, what is named as not audited, and what is an error."""

import csv
import io
import json
from pathlib import Path

import pytest
from builders import (
    find_task,
    make_manifest,
    make_outcomes,
    make_planned_case,
    make_record,
    read_case,
    write_record,
)
from report_values import summarize, write_report
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.errors import InputError
from dlperf_slurm.published.audit import audit_paths
from dlperf_slurm.published.audit.rounding import DUPLICATE, STALE, WRONG
from dlperf_slurm.published.audit.tables import find_tables

WRONG_TABLE = "GPUs | img/s | speedup\n--- | --- | ---\n1 | 100.0 | 1.0\n4 | 380.0 | 3.9\n"


def audit_text(text: str, name: str = "x.md"):
    Path(name).write_text(text, encoding="utf-8")
    return audit_paths([Path(name)])


def measure(run, window_seconds: float = 2.0) -> Path:
    """Write a valid record for each array task and the run's report; return the CSV's path."""
    for topology in ("1n1g", "1n2g", "2n2g"):
        for repeat in (1, 2):
            task = find_task(run, topology, repeat)
            write_record(run, task, make_record(read_case(run, task), window_seconds))
    main(["report"])
    return run.path / "report" / "report.csv"


def edit_csv(path: Path, topology: str, **changes: str) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["topology"] == topology:
            row.update(changes)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0].keys())
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(text.getvalue().encode())


def test_rows_that_are_broken_over_lines_are_joined():
    (table,) = find_tables("a | b |\nc |\n---|---|---|\n1 | 2 |\n3 |\n4 | 5 | 6 |\n")
    assert table.header == ("a", "b", "c")
    assert table.rows == ((4, ("1", "2", "3")), (6, ("4", "5", "6")))


def test_bars_that_are_escaped_stay_in_their_cell():
    (table,) = find_tables("| a | b |\n| --- | ---: |\n| x\\|y | 1 |")
    assert table.rows == ((3, ("x|y", "1")),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a | b\n---|---|---\n1 | 2 | 3\n", ("header", "2 cells", "3")),
        ("GPUs | img/s | speedup\n---|---|---\n1 | 2\n\ntext", ("line 3", "2 cells", "3")),
    ],
)
def test_header_or_row_of_another_width_is_named(text, says):
    (gap,) = audit_text(text).not_audited
    assert all(word in gap.reason for word in says)


def test_column_without_a_rule_is_named():
    found = audit_text("GPUs | img/s | speedup | mood\n---|---|---|---\n1 | 100 | 1.0 | 5\n")
    (gap,) = found.not_audited
    assert_problem(gap.what, says=("line 1", "'mood'"))


def test_cell_that_is_no_number_is_named_unless_it_says_why():
    text = "GPUs | img/s | speedup\n---|---|---\n1 | 1O0 | 1.0\n2 | OOM | -\n"
    gaps = audit_text(text).not_audited
    assert (gaps[0].line, gaps[0].what) == (3, "img/s: '1O0'")
    assert not any(gap.line == 4 for gap in gaps)


@pytest.mark.parametrize("text", ["-1.5", "1.2.3", "1e5", "1O0", "0", "1 2", "1h02min", "03:19:59"])
def test_number_is_not_guessed_from_part_of_a_text(text):
    (gap, *_) = audit_text(f"GPUs | img/s | speedup\n---|---|---\n1 | 10 | {text}\n").not_audited
    assert gap.what == f"speedup: {text!r}"


@pytest.mark.parametrize("text", ["x3.9", "3.9x", "[2] 3.9", "3.9 (n=7)", "390 %"])
def test_number_is_found_beside_what_tables_print_with_it(text):
    (finding,) = audit_text(WRONG_TABLE.replace("3.9", text)).findings
    assert finding.follows.startswith("3.80")


OF_WORDS = "framework,gpus,img/s,speedup,data,seconds\ntf,1,228.0,,gpu,1.5\ntf,1,223.0,,{},1.6\n"
OF_PRECISIONS = (
    "precision,gpus,batch_size,img/s,published_speedup,latency_avg_ms,speedup_latency_avg\n"
    "fp32,1,8,1000.0,1.0,8.00,1.0\namp,1,8,2000.0,2.1,4.00,2.0\n"
)
OF_DEVICES = "GPUs,img/s,weak scaling,latency_avg_ms\n1,100.0,1.0,10.0\n4,380.0,3.9,10.5\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # words behind the figures tell rows apart, numbers do not
        (OF_WORDS.format("python-queue"), []),
        (OF_WORDS.format("gpu"), [("img/s", "223.0", "228.0", DUPLICATE)]),
        # a speedup in a CSV of latencies is that of a precision, weak scaling is over devices
        (OF_PRECISIONS, [("published_speedup", "2.1", "2.000", WRONG)]),
        (OF_DEVICES, [("weak scaling", "3.9", "3.800", WRONG)]),
    ],
)
def test_any_csv_with_headers_of_tables_is_audited(text, found):
    findings = audit_text(text, "x.csv").findings
    assert [(f.cell.partition(":")[0], f.published, f.follows, f.kind) for f in findings] == found


def test_lines_of_a_document_that_follow_each_other_are_a_table_of_their_own():
    text = (
        "model,nodes,gpus_per_node,img/s,speedup,path,line\n"
        "rn50,1,1,100.0,1.00,README.md,10\n"
        "rn50,1,8,780.0,7.80,README.md,11\n"
        # of several nodes, relative to one of them
        "rn50,1,8,800.0,1.00,README.md,20\n"
        "rn50,4,8,3000.0,3.75,README.md,21\n"
        "rn50,8,8,6000.0,7.60,README.md,22\n"
    )
    found = audit_text(text, "x.csv")
    assert [(f.where, f.published, f.follows) for f in found.findings] == [
        ("README.md:22", "7.60", "7.5000")
    ]
    assert found.checked.derived_cells == 5


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.md", b"\xff\xfe\x00", "not UTF-8: byte offset 0"),
        ("x.md", b"no table | here", "contains no table"),
        ("x.md", b"", "contains no table"),
        ("x.csv", b"", "is empty"),
        ("x.csv", b"a,b\n1\n", "x.csv:2: .*2 cells"),
        ("x.csv", b'a,b\n"1,2\n', "is not a valid CSV"),
        ("x.csv", b"case_id,topology,weak_scaling_efficiency\nx,1n1g,y\n", "x.csv: 'model'"),
    ],
)
def test_file_that_cannot_be_read_is_an_error_that_names_it(name, data, message):
    Path(name).write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        audit_paths([Path(name)])
    assert str(caught.value).startswith(name)


def test_missing_file_lists_what_may_be_named():
    with pytest.raises(InputError, match=r"^nope.md: .*No such file .* dlperf, "):
        audit_paths([Path("nope.md")])


def test_directory_without_a_manifest_is_an_error(home):
    with pytest.raises(InputError, match="not a run directory"):
        audit_paths([home])


def test_report_of_a_run_follows_from_its_records(staged_run):
    path = measure(staged_run)
    assert audit_paths([staged_run.path]).findings == ()
    # two speedups and two efficiencies with a baseline, and that of the baseline
    assert audit_paths([path]).checked.derived_cells == 6


def test_speedup_in_our_csv_is_checked_to_its_last_digit(staged_run):
    path = measure(staged_run)
    edit_csv(path, "1n2g", speedup="2.00001")
    assert [(f.published, f.kind) for f in audit_paths([path]).findings] == [("2.00001", WRONG)]


def test_cell_that_the_records_do_not_give_is_stale(staged_run):
    path = measure(staged_run)
    edit_csv(path, "1n1g", samples_per_s="41.0", repeats_measured="3")
    stale = [f for f in audit_paths([staged_run.path]).findings if f.kind == STALE]
    assert [(f.published, f.follows) for f in stale] == [("41.0", "40.0"), ("3", "2")]
    assert stale[0].cell == "samples_per_s: pytorch-resnet50-1n1g-bs8-fp32"
    assert (stale[0].file, stale[0].line) == (str(path), 2)


def test_stale_cell_is_named_with_the_line_on_which_its_case_begins(staged_run):
    path = measure(staged_run)
    header, first, *others = path.read_text(encoding="utf-8").splitlines(keepends=True)
    first = first.replace(",images/s,", ',"images\n/s",')
    # as of a point that is not in the matrix
    nameless = first.replace("pytorch-resnet50-1n1g-bs8-fp32", "", 1)
    path.write_text("".join([header, nameless, first, *others]), encoding="utf-8")
    (finding,) = audit_paths([staged_run.path]).findings
    assert (finding.published, finding.line) == ("images\n/s", 4)


def test_case_that_the_report_has_not_is_named(staged_run):
    path = measure(staged_run)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "-1n2g-" not in line), encoding="utf-8")
    (finding,) = audit_paths([staged_run.path]).findings
    assert finding.follows == "pytorch-resnet50-1n2g-bs8-fp32"


def test_run_without_a_report_is_audited_from_its_records(staged_run):
    measure(staged_run).unlink()
    found = audit_paths([staged_run.path])
    assert (found.findings, found.checked.derived_cells) == ((), 6)
    assert_problem(found.not_audited[0].reason, says=("does not exist", "records"))


def report_scaling(name: str, path: str) -> Path:
    """Write a report with different rates for 1n8g and 2n4g, which have as many devices."""
    samples_per_s = {"1n1g": 100.0, "1n8g": 760.0, "2n4g": 720.0}
    cases = [
        make_outcomes(
            make_planned_case(topology, case_id=f"{topology}-{factor}", **changes),
            [factor * samples] * 3,
        )
        for changes, factor in (
            ({}, 1.0),
            ({"precision": "amp-fp16"}, 2.0),
            ({"memory_format": "channels_last"}, 1.3),
        )
        for topology, samples in samples_per_s.items()
    ]
    text = write_report(name, summarize(make_manifest(), cases))
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


# speedup, efficiency and precision speedup of each case; Markdown has weak scaling twice, and no
# precision speedup of the full precision over itself
@pytest.mark.parametrize(("name", "recomputed"), [("csv", 24), ("markdown", 27)])
def test_topologies_of_as_many_devices_are_told_apart(name, recomputed):
    found = audit_paths([report_scaling(name, "x.csv" if name == "csv" else "x.md")])
    assert (found.findings, found.checked.derived_cells) == ((), recomputed)


def test_speedup_of_a_topology_that_shares_its_device_count_is_checked():
    path = report_scaling("csv", "x.csv")
    edit_csv(path, "2n4g", speedup="7.6")
    findings = audit_paths([path]).findings
    assert findings[0].cell == "speedup: pytorch, resnet50, 2n4g, batch size 8, fp32"
    assert [finding.follows for finding in findings] == ["7.200"] * 3


def write_scaling(*rows: str) -> None:
    Path("x.md").write_text("\n".join(["GPUs | img/s | speedup", "---|---|---", *rows]))


SMALL_AND_LARGE = (
    "1 | 100.000 | 1.000",
    "2 | 190.000 | 1.908",
    "4 | 380.0 | 4.0",
    "8 | 700.0 | 5.0",
)


def test_command_prints_the_findings_of_what_does_not_follow(capsys):
    write_scaling("1 | 100.0 | 1.0", "4 | 380.0 | 3.9")
    assert main(["audit", "x.md"]) == 5
    printed = capsys.readouterr()
    assert_problem(printed.out, says=("x.md:4", "wrong", "2 speedups recomputed, 1 finding"))
    assert_problem(printed.err, says=("1 inconsistent cell",))
    write_scaling("1 | 100.0 | 1.0", "4 | 380.0 | 3.8")
    assert main(["audit", "x.md"]) == 0
    assert "2 speedups recomputed, 0 findings" in capsys.readouterr().out


def test_command_says_that_it_held_figures_against_each_other(capsys):
    assert main(["audit", "tensorpack"]) == 0
    assert "40 values" in capsys.readouterr().out


def test_command_lists_the_worst_first_and_counts_those_below_the_threshold(capsys):
    write_scaling(*SMALL_AND_LARGE)
    assert main(["audit", "--json", "x.md"]) == 5
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"findings", "not_audited", "checked", "recomputed", "kinds"}
    assert [finding["published"] for finding in printed["findings"]] == ["5.0", "4.0"]
    (kind,) = printed["kinds"]
    assert kind.pop("largest") == pytest.approx(0.386, abs=0.01)
    assert kind == {"kind": WRONG, "findings": 2, "below_threshold": 1}


def test_command_passes_what_is_below_the_threshold(capsys):
    write_scaling(*SMALL_AND_LARGE[:2])
    assert main(["audit", "x.md"]) == 0
    assert (
        "2 speedups recomputed, 0 findings, 1 smaller differences (below 1 %)"
        in capsys.readouterr().out
    )
    assert main(["audit", "--threshold", "0.1%", "x.md"]) == 5
    assert main(["audit", "--threshold", "1", "x.md"]) == 2


def test_command_that_could_check_nothing_exits_with_2_and_says_what_there_was(capsys):
    Path("x.md").write_text("GPUs | speedup\n---|---\n1 | 1.0\n2 | 1.9\n", encoding="utf-8")
    assert main(["audit", "x.md"]) == 2
    printed = capsys.readouterr()
    assert "2 speedups" in printed.out
    assert "x.md" in printed.err
    assert main(["audit", "nope"]) == 2
    assert "nope: cannot be read" in capsys.readouterr().err
