"""What CI systems are told agrees with the exit code of report, compare, history and accept."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from builders import make_outcomes, make_planned_case, run_main
from history_runs import CASE_1, CASE_2, add_run, fail_case
from report_values import summarize_cases

from dlperf_slurm.reports.ci_checks import (
    ERROR,
    FAILURE,
    PASSED,
    SKIPPED,
    Check,
    list_annotations,
    list_run_checks,
)

REFERENCE = """\
schema_version = 1
[[cases]]
case = "{}"
at_least_samples_per_s_per_device = {}
"""


@pytest.fixture
def run_a(staged, home):
    return str(add_run(staged, 1))


def list_commands(run_a, staged, day, factor, **options):
    """List the commands with an exit code of their own, for a run A and a run B."""
    run_b = str(add_run(staged, day, factor, **options))
    for name, case, figure in (("low", CASE_1, 7000), ("high", CASE_1, 9000), ("none", "x", 1)):
        Path(f"{name}.toml").write_text(REFERENCE.format(case, figure), encoding="utf-8")
        yield ["accept", run_b, "--reference", f"{name}.toml"]
    yield ["report", run_b, "--plots", "none"]
    yield ["compare", run_a, run_b]
    yield ["compare", run_a, run_b, "--fail-if-slower", "3%"]
    yield ["compare", run_b, run_a, "--fail-if-slower", "3%"]
    yield ["history"]
    yield ["history", "--fail-if-slower", "3%"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("factor", "options"),
    [
        (0.9, {}),
        (1.0, {"topologies": []}),
        pytest.param(0.97, {}, marks=pytest.mark.slow),
        pytest.param(1.0, {"repeats": 3}, marks=pytest.mark.slow),
        pytest.param(1.0, {"topologies": ["1n1g"]}, marks=pytest.mark.slow),
    ],
)
def test_junit_fails_if_and_only_if_the_command_does(run_a, staged, capsys, factor, options):
    for command in list_commands(run_a, staged, 2, factor, **options):
        code, _, _ = run_main([*command, "--junit", "junit.xml", "--github"], capsys)
        suite = ElementTree.parse("junit.xml").getroot()
        bad = int(suite.get("failures")) + int(suite.get("errors"))
        assert (bad > 0) == (code != 0), (command, code)
        assert len(suite.findall("testcase")) == int(suite.get("tests")) > 0


def test_case_that_was_left_out_is_skipped():
    case = make_outcomes(make_planned_case(reason="too slow"))
    (check,) = list_run_checks(summarize_cases([case]))
    assert (check.outcome, check.text) == (SKIPPED, "left out: too slow")


@pytest.mark.integration
def test_github_has_an_annotation_per_case_and_the_tables(run_a, capsys, monkeypatch):
    fail_case(Path(run_a), CASE_2)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("before\n", encoding="utf-8")
    code, out, err = run_main(["report", run_a, "--json", "--github"], capsys)
    assert (code, out[0]) == (5, "{")
    (line,) = [line for line in err.splitlines() if line.startswith("::")]
    assert line.startswith(f"::error title={CASE_2}::7 repeats")
    summary = Path("summary.md").read_text(encoding="utf-8")
    assert summary.startswith("before\n# ")
    assert "8000" in summary


@pytest.mark.integration
def test_first_run_of_a_history_fails_if_guarded_and_tells_github(run_a, capsys, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    for options, level, expected in ((["--fail-if-slower", "3%"], "error", 5), ([], "warning", 0)):
        code, _, err = run_main(["history", "--github", *options], capsys)
        (line,) = [line for line in err.splitlines() if line.startswith("::")]
        assert (code, line.split()[0]) == (expected, f"::{level}")
    summary = Path("summary.md").read_text(encoding="utf-8")
    assert all(summary.count(f"## {case}\n") == 2 for case in (CASE_1, CASE_2))


def test_annotations_are_escaped_and_the_worst_come_first():
    checks = [
        Check("x", "a:b,c", SKIPPED, "50 %"),
        Check("x", "passed", PASSED, ""),
        Check("x", "d", ERROR, "one\ntwo::error::"),
        Check("x", "e", FAILURE, ""),
    ]
    assert list_annotations(checks) == [
        "::error title=d::one%0Atwo::error::",
        "::error title=e::",
        "::warning title=a%3Ab%2Cc::50 %25",
    ]
