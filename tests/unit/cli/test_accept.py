"""The commands reference and accept: verdicts on a run, exit codes, and what they write."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from builders import run_main
from history_runs import CASE_1, CASE_2, RESULTS, add_run, make_run
from support.problems import assert_problem

pytestmark = pytest.mark.integration

REFERENCE = ["--reference", "reference.toml"]
ACCEPTED, INPUT_ERROR, MISSING, REJECTED, UNDECIDED = 0, 2, 5, 6, 7


@pytest.fixture
def reference(staged, home, capsys):
    """Make a reference of three runs, of which two are a bit faster and slower."""
    runs = [add_run(staged, day, factor) for day, factor in ((1, 1.0), (2, 1.004), (3, 0.996))]
    assert run_main(["reference", "make", *map(str, runs), "-o", "reference.toml"], capsys)[0] == 0
    return Path("reference.toml")


def accept(run, capsys, *options):
    code, out, err = run_main(["accept", str(run), *REFERENCE, *options, "--json"], capsys)
    rows = json.loads(out)["cases"] if out else []
    return code, {row["case_id"]: row for row in rows}, err


@pytest.mark.parametrize(
    ("factor", "options", "code"),
    [
        (1.0, {}, ACCEPTED),
        (1.2, {}, ACCEPTED),
        (0.9, {}, REJECTED),
        (1.0, {"repeats": 3}, UNDECIDED),
        # rejections go first
        (0.9, {"topologies": ["1n1g"]}, REJECTED),
        (1.0, {"topologies": ["1n1g"]}, MISSING),
        (1.0, {"topologies": ["1n1g"], "repeats": 3}, MISSING),
    ],
)
def test_run_is_accepted_if_each_case_is_shown_to_be_within_what_runs_vary_by(
    reference, staged, capsys, factor, options, code
):
    run = add_run(staged, 4, factor, **options)
    assert accept(run, capsys)[0] == code


def test_row_has_the_bound_and_the_interval_of_the_measured_ratio(reference, staged, capsys):
    row = accept(add_run(staged, 4, 0.9), capsys)[1][CASE_1]
    assert row["verdict"] == "rejected"
    assert row["expected"] == pytest.approx(8000, rel=1e-4)
    assert row["bound"] == pytest.approx((1 - row["tolerance"]) * row["expected"])
    assert 0.01 < row["tolerance"] < 0.03
    assert row["speed_ratio"] == pytest.approx(0.9, rel=1e-4)
    assert row["speed_ratio_low"] < 0.9 < row["speed_ratio_high"] < 1 - row["tolerance"]
    (own,) = RESULTS.glob("20240501*")
    changes = accept(own, capsys)[1][CASE_1]["changes"]
    assert "this run is one of those that the reference was made from" in changes


@pytest.mark.parametrize(("options", "code"), [([], UNDECIDED), (["--tolerance", "3%"], ACCEPTED)])
def test_one_run_does_not_show_what_runs_vary_by(staged, home, capsys, options, code):
    run = str(add_run(staged, 1))
    run_main(["reference", "make", run, "-o", "reference.toml"], capsys)
    found, rows, _ = accept(add_run(staged, 2), capsys, *options)
    assert found == code
    assert ("two" in rows[CASE_1]["reason"]) == (code == UNDECIDED)


def test_runs_that_differ_too_much_accept_nothing_and_reject_what_is_slower_still(
    staged, home, capsys
):
    runs = [str(add_run(staged, day, factor)) for day, factor in ((1, 1.0), (2, 1.05))]
    run_main(["reference", "make", *runs, "-o", "reference.toml"], capsys)
    code, rows, _ = accept(add_run(staged, 3), capsys)
    assert (code, rows[CASE_1]["tolerance"] > 0.1) == (UNDECIDED, True)
    assert accept(add_run(staged, 4, 0.3), capsys)[0] == REJECTED


def test_runs_of_a_reference_count_at_their_common_level(staged, home, capsys):
    runs = [str(add_run(staged, day, factor)) for day, factor in ((1, 0.9), (2, 1.1))]
    run_main(["reference", "make", *runs, "-o", "reference.toml"], capsys)
    # the bound is 0.95 of their geometric mean, 0.995
    run = add_run(staged, 3, 0.93)
    assert accept(run, capsys, "--tolerance", "5%")[0] == REJECTED


def test_other_model_sizes_are_refused_with_the_difference(reference, staged, capsys):
    text = reference.read_text("utf-8")
    other = text.replace('model_parameters" = "{}"', 'model_parameters" = "{\'width\': 24}"')
    assert other != text
    reference.write_text(other, encoding="utf-8")
    code, rows, err = accept(add_run(staged, 4), capsys)
    assert (code, rows[CASE_1]["verdict"]) == (MISSING, "not comparable")
    line = err.splitlines()[1].strip()
    assert_problem(line, says=(CASE_1, "model_parameters {'width': 24} -> {}"))


def test_other_versions_and_nodes_are_named(reference, staged, capsys):
    text = reference.read_text("utf-8").replace('"node1"', '"node8"')
    reference.write_text(text, encoding="utf-8")
    run = add_run(staged, 4, versions={"torch": "2.14.0"})
    changes = " ".join(accept(run, capsys)[1][CASE_1]["changes"])
    assert "torch 2.13.0 -> 2.14.0" in changes
    assert "used the same nodes" in changes
    # what one of the runs had is no change
    several = text.replace('torch = "2.13.0"', 'torch = ["2.13.0", "2.14.0"]')
    assert several != text
    reference.write_text(several, encoding="utf-8")
    assert "torch" not in " ".join(accept(run, capsys)[1][CASE_1]["changes"])


@pytest.mark.parametrize(
    ("case", "figure", "options", "code"),
    [
        (CASE_1, 7900, {}, ACCEPTED),
        # per device: two devices reach 16,000 images/s
        (CASE_2, 7900, {}, ACCEPTED),
        ("*-resnet50-1n?g-*", 7900, {}, ACCEPTED),
        (CASE_1, 8000, {}, UNDECIDED),
        (CASE_2, 8200, {}, REJECTED),
        (CASE_1, 8200, {"repeats": 6}, REJECTED),
        # two figures take seven repeats
        ("*-resnet50-1n?g-*", 8200, {}, REJECTED),
        ("*-resnet50-1n?g-*", 8200, {"repeats": 6}, UNDECIDED),
        (CASE_1, 8200, {"repeats": 5}, UNDECIDED),
        ("4n8g", 7900, {}, MISSING),
    ],
)
def test_figure_of_a_contract_is_compared_with_the_median(
    staged, home, capsys, case, figure, options, code
):
    Path("reference.toml").write_text(
        f"schema_version = 1\n[[cases]]\ncase = '{case}'\n"
        f"at_least_samples_per_s_per_device = {figure}\n"
        "work = { 'case.model' = 'resnet50' }\nprovenance = { torch = '2.13.1' }\n",
        encoding="utf-8",
    )
    found, rows, _ = accept(add_run(staged, 1, **options), capsys)
    assert found == code
    assert code == MISSING or rows[CASE_2 if case == CASE_2 else CASE_1]["changes"] == [
        "torch 2.13.1 -> 2.13.0"]  # fmt: skip


def test_texts_of_a_reference_forge_no_line(staged, home, capsys):
    case = f"schema_version = 1\n[[cases]]\ncase = '{CASE_1}'\n"
    figure = "at_least_samples_per_s_per_device = 8200\n"
    made = 'provenance = { "torch" = "\\u001b[2J\\nFORGED" }\n'
    Path("reference.toml").write_text(case + figure + made, encoding="utf-8")
    _, rows, _ = accept(add_run(staged, 1), capsys)
    assert rows[CASE_1]["changes"] == ["torch [2J FORGED -> 2.13.0"]


def test_tolerance_that_is_stated_holds_for_figures_too(staged, home, capsys):
    figure = f"schema_version = 1\n[[cases]]\ncase = '{CASE_1}'\n"
    Path("reference.toml").write_text(
        f"{figure}at_least_samples_per_s_per_device = 8200\n", encoding="utf-8"
    )
    code, rows, _ = accept(add_run(staged, 1), capsys, "--tolerance", "5%")
    assert (code, rows[CASE_1]["bound"]) == (ACCEPTED, pytest.approx(7790))
    assert rows[CASE_1]["speed_ratio"] == pytest.approx(8000 / 8200, rel=1e-3)


def test_published_figures_that_agree_with_no_case_are_no_reference(staged, home, capsys):
    run = str(add_run(staged, 1))
    code, _, err = run_main(["accept", run, "--reference", "dlperf"], capsys)
    assert code == INPUT_ERROR
    assert_problem(err, says=("--reference dlperf", "report --against dlperf"))


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("schema_version = 2\ncases = [{case='a', at_least_samples_per_s_per_device=1}]\n",
            1, "schema_version", ("1",)),
        ("schema_version = 1\ncases = [{case='a'}]\n", 2, "cases[0]", ("runs",)),
        ("schema_version = 1\ncases = []\n", 2, "cases", ()),
        ("schema_version = 1\ncases = [{case='a', at_least_samples_per_s_per_device=nan}]\n",
            2, "cases[0].at_least_samples_per_s_per_device", ()),
        ("schema_version = 1\n[[cases]]\ncase='a'\nruns=[{run_id='r',nodes='n',"
            "samples_per_s=[[]]}]\n", 4, "cases[0].runs[0].samples_per_s[0]", ()),
        ("schema_version = 1\nwork = {precision='fp32'}\n[[cases]]\ncase='a'\n"
            "at_least_samples_per_s_per_device=1\n", 2, "work.precision", ("case.axes.precision",)),
    ],
)  # fmt: skip
def test_mistake_in_a_reference_is_told_with_its_key(staged, home, capsys, text, line, key, says):
    Path("reference.toml").write_text(text, encoding="utf-8")
    code, _, err = run_main(["accept", str(add_run(staged, 1)), *REFERENCE], capsys)
    assert code == INPUT_ERROR
    assert_problem(err, file="reference.toml", line=line, key=key, says=says)


def test_run_named_twice_or_without_a_result_makes_no_reference(staged, home, capsys):
    run = str(add_run(staged, 1))
    code, _, err = run_main(["reference", "make", run, run, "-o", "r.toml"], capsys)
    assert (code, "named twice" in err) == (INPUT_ERROR, True)
    empty = str(make_run(staged, "empty", topologies=()))
    assert run_main(["reference", "make", run, empty, "-o", "r.toml"], capsys)[0] == INPUT_ERROR
    assert not Path("r.toml").exists()


def test_table_markdown_and_junit_have_each_case(reference, staged, capsys):
    run = add_run(staged, 4, 0.9, topologies=["1n1g"])
    files = ["--junit", "junit.xml", "--markdown", "accept.md"]
    code, out, err = run_main(["accept", str(run), *REFERENCE, *files], capsys)
    assert (code, "1 rejected, 1 missing" in err) == (REJECTED, True)
    for text in (out, Path("accept.md").read_text("utf-8")):
        assert all(word in text for word in (CASE_1, CASE_2, "rejected", "missing"))
    suite = ElementTree.parse("junit.xml").getroot()
    assert [suite.get(key) for key in ("tests", "failures", "errors")] == ["2", "1", "1"]
