"""A run's own report.csv is audited as anybody's tables are."""

from builders import make_manifest, make_outcomes, make_planned_case
from outcome_builders import RATES, scale
from report_values import summarize
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.cli.report import list_remarks


def make_summary(factor):
    """Two devices that are so many times as fast as one."""
    cases = [
        make_outcomes(make_planned_case(name, repeats=len(RATES)), scale(RATES, by))
        for name, by in (("1n1g", 1.0), ("1n2g", factor))
    ]
    return summarize(make_manifest(), cases)


def test_sound_tables_have_no_remark():
    assert list_remarks(make_summary(1.9)) == []


def test_speedup_that_devices_do_not_explain_is_remarked():
    speedup, efficiency = list_remarks(make_summary(2.5))
    assert_problem(speedup, says=("above the device count", "report.csv:3 speedup", "at most 2"))
    assert "report.csv:3 weak_scaling_efficiency: " in efficiency


def test_run_is_named_by_the_beginning_of_its_id(staged_run, home, capsys):
    code = main(["audit", staged_run.run_id[:15]])
    assert code == 2
    assert_problem(capsys.readouterr().err, says=(staged_run.run_id[:15], "recomputed"))
    assert main(["audit", "19990101"]) == 2
    assert "recomputed" not in capsys.readouterr().err
