"""The command compare: its table, its exit codes, its JSON and its report for CI systems."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from builders import make_manifest, run_main
from history_runs import make_run
from outcome_builders import RATES, make_case_outcomes, scale
from support.problems import assert_problem

from dlperf_slurm.reports.ci_checks import serialize_junit
from dlperf_slurm.reports.regression_check import list_comparison_checks
from dlperf_slurm.results.compare import compare_runs
from dlperf_slurm.stats.fligner_policello import compute_ratio_interval

pytestmark = pytest.mark.integration

LIMIT = ["--fail-if-slower", "3%"]


@pytest.fixture
def run_a(staged, home):
    return make_run(staged, "a")


def run_compare(arguments, capsys):
    return run_main(["compare", *map(str, arguments)], capsys)


def list_rows(out):
    return [line.split() for line in out.splitlines() if "-resnet50-" in line]


def test_same_runs_are_equivalent_within_the_limit(run_a, capsys):
    code, out, _ = run_compare([run_a, run_a, *LIMIT], capsys)
    assert (code, [row[-4:] for row in list_rows(out)]) == (
        0, [["equivalent", "within", "3", "%"]] * 2,
    )  # fmt: skip
    _, out, _ = run_compare([run_a, run_a, *LIMIT, "--equivalent-within", "5%"], capsys)
    assert [row[-2:] for row in list_rows(out)] == [["5", "%"]] * 2
    _, out, _ = run_compare([run_a, run_a, "--equivalent-within", "0.1%"], capsys)
    assert ["undecided" in row for row in list_rows(out)] == [True] * 2


def test_slower_run_exits_with_6_and_its_row_has_medians_ratio_and_interval(run_a, staged, capsys):
    code, out, err = run_compare([run_a, make_run(staged, "b", 0.9), *LIMIT], capsys)
    # 8 samples x 10 steps at a rate of 100 windows per second; twice as many on two ranks.
    found = compute_ratio_interval(RATES, scale(RATES, 0.9))
    interval = [f"{found.low:.3f}", "to", f"{found.high:.3f}"]
    verdict = ["slower,", "beyond", "the", "limit"]
    assert [row[1:] for row in list_rows(out)] == [
        ["images/s", "8000", "7200", "0.900", *interval, *verdict],
        ["images/s", "16000", "14400", "0.900", *interval, *verdict],
    ]
    first, second, *_ = err.splitlines()
    assert code == 6
    assert_problem(first, says=("3 %", "2 of 2"))
    assert_problem(second.strip(), says=("pytorch-resnet50-1n1g-bs8-fp32", "throughput", "0.900"))


def test_comparison_over_other_cpus_says_so_first(staged, home, capsys):
    xeon, epyc = (make_run(staged, x, platform={"cpu_model": x}) for x in ("Xeon", "EPYC"))
    _, out, _ = run_compare([xeon, epyc], capsys)
    assert "cpu_model Xeon -> EPYC" in out.splitlines()[0]
    _, out, _ = run_compare([xeon, xeon], capsys)
    assert "cpu_model" not in out.splitlines()[0]


@pytest.mark.parametrize(
    ("factor", "options", "limit", "code"),
    [
        (0.9, {}, [], 0),
        *((factor, {}, LIMIT, 0) for factor in (0.98, 1.0, 1.1)),
        # neither shown to be slower nor not to be
        (0.97, {}, LIMIT, 7),
        (1.0, {"repeats": 2}, LIMIT, 7),
        # a case that is gone
        (1.0, {"topologies": ["1n1g"]}, LIMIT, 5),
    ],
)
def test_guard_passes_what_is_shown_to_be_within_the_limit(
    run_a, staged, capsys, factor, options, limit, code
):
    assert run_compare([run_a, make_run(staged, "b", factor, **options), *limit], capsys)[0] == code


def test_guard_passes_a_case_that_is_new_and_not_the_lack_of_all(run_a, staged, capsys):
    assert run_compare([make_run(staged, "b", topologies=["1n1g"]), run_a, *LIMIT], capsys)[0] == 0
    empty = make_run(staged, "empty", topologies=())
    assert run_compare([empty, empty, *LIMIT], capsys)[0] == 5


def test_verdicts_without_any_test_say_so(run_a, staged, capsys):
    _, out, _ = run_compare([run_a, make_run(staged, "b", repeats=2)], capsys)
    assert "7 and 2 repeats; at least 6 " in out
    assert "verdict: no case" in out
    assert "Holm" not in out


def test_other_versions_are_noted_once(run_a, staged, capsys):
    _, out, _ = run_compare([run_a, make_run(staged, "b", versions={"torch": "2.14.0"})], capsys)
    assert [line for line in out.splitlines() if "torch 2" in line] == [
        "[1] torch 2.13.0 -> 2.14.0"
    ]
    assert [row[-1] for row in list_rows(out)] == ["[1]", "[1]"]


@pytest.mark.parametrize("text", ["3", "-3%", "100%", "", "nan%", "٣%"])
def test_limit_is_a_percentage(run_a, capsys, text):
    assert run_compare([run_a, run_a, f"--fail-if-slower={text}"], capsys)[0] == 2
    assert run_compare([run_a, run_a, "--fail-if-slower=2.5 %"], capsys)[0] == 0


def test_json_is_all_that_is_printed(run_a, staged, capsys):
    _, out, _ = run_compare([run_a, make_run(staged, "b", 0.9), "--json", *LIMIT], capsys)
    data = json.loads(out)
    assert [(c["verdict"], c["is_beyond_limit"]) for c in data["comparisons"]] == [
        ("slower", True)
    ] * 2
    assert (data["schema_version"], data["limit"], data["test_count"]) == (1, 0.03, 2)


def test_junit_fails_the_slower_case(run_a, staged, capsys):
    other = make_run(staged, "b", 0.9)
    run_compare([run_a, other, "--junit", "junit.xml"], capsys)
    assert ElementTree.parse("junit.xml").getroot().get("failures") == "0"
    run_compare([run_a, other, *LIMIT, "--junit", "junit.xml"], capsys)
    suite = ElementTree.parse("junit.xml").getroot()
    messages = [failure.get("message") for failure in suite.iter("failure")]
    assert (suite.get("tests"), suite.get("failures"), len(messages)) == ("2", "2", 2)
    assert messages[0].startswith("slower: speed B / A 0.900, 95 % interval ")


def test_junit_skips_what_cannot_be_decided_with_the_reason(run_a, staged, capsys):
    run_compare([run_a, make_run(staged, "b", repeats=2), "--junit", "junit.xml"], capsys)
    suite = ElementTree.parse("junit.xml").getroot()
    assert suite.get("skipped") == "2"
    (message,) = {skipped.get("message") for skipped in suite.iter("skipped")}
    assert_problem(message, key="undecided", says=("B / A 1.005", "7 and 2 repeats", "at least 6"))


def test_plot_that_cannot_be_drawn_is_refused(run_a, capsys):
    code, _, err = run_compare([run_a, run_a, "--plot", "ratios.jpg"], capsys)
    assert code == 2
    assert_problem(err, key="--plot")


@pytest.mark.parametrize(
    "hostile", ["<x>&\"'", "]]>", "\x00\x1b[31m", "\ud800", "\ufffe", "é中😀", "x" * 10_000]
)
def test_hostile_texts_leave_junit_well_formed(hostile):
    a = make_case_outcomes(versions={"x": hostile})
    b = make_case_outcomes(scale(RATES, 0.5))
    manifest = make_manifest(run_id=hostile)
    compared = compare_runs(manifest, [a], manifest, [b], 0.03)
    text = serialize_junit(hostile, list_comparison_checks(compared), hostile)
    (failure,) = ElementTree.fromstring(text.encode()).iter("failure")
    shown = failure.get("message")
    assert hostile in shown or ascii(hostile)[1:-1] in shown


@pytest.mark.filterwarnings("error")
def test_figure_of_runs_without_a_common_case_says_so(staged, capsys):
    runs = [make_run(staged, name, topologies=[f"1n{name}g"]) for name in "12"]
    run_compare([*runs, "--plot", "ratios.svg"], capsys)
    assert "no case was measured in both runs" in Path("ratios.svg").read_text(encoding="utf-8")


def test_figure_has_a_line_for_each_case_and_the_limit(run_a, staged, capsys):
    other = make_run(staged, "b", 0.9)
    run_compare([run_a, other, *LIMIT, "--plot", "ratios.svg"], capsys)
    text = Path("ratios.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert all(f"pytorch-resnet50-{topology}-bs8-fp32" in text for topology in ("1n1g", "1n2g"))
    assert "speed of run B / speed of run A" in text
    run_compare([run_a, other, "--plot", "ratios.pdf"], capsys)
    assert Path("ratios.pdf").read_bytes().startswith(b"%PDF")
