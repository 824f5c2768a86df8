"""Site values that were refused, mended in a run that is not submitted to the last."""

import pytest
import tomli_w
from builders import submit_run, write_program
from report_values import summarize
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.config.site import read_frozen_site
from dlperf_slurm.config.toml_tables import parse_toml
from dlperf_slurm.errors import InputError, SchedulerError
from dlperf_slurm.jobs.journal import AMENDED, SUBMITTED, read_journal
from dlperf_slurm.jobs.run_directory import HARNESS_FILE, open_run
from dlperf_slurm.results.collect import collect_outcomes
from dlperf_slurm.scheduler.amend import amend_site


@pytest.fixture
def cluster(cluster, home):
    """Write a fake sbatch that accepts the first group, and later only account "good"."""
    script = f"""\
for script; do :; done
while read -r line; do
  case $line in "#SBATCH --account=good") account=good ;; esac
done < "$script"
case $*$account in
  *--test-only*|*1n1g*|*good) echo 7 ;;
  *) echo "Batch job submission failed: Unknown account" >&2; exit 1 ;;
esac
echo "$script" >> {home}/calls
"""
    write_program(cluster, "sbatch", script)
    return cluster


@pytest.fixture
def refused_run(cluster, staged_run):
    """Its first array job runs, the others were refused."""
    with pytest.raises(SchedulerError, match="Unknown account"):
        submit_run(staged_run, print)
    return staged_run


def test_value_that_was_refused_is_mended_and_the_rest_submitted(refused_run, capsys):
    first = refused_run.get_script_path("1n1g").read_text(encoding="utf-8")
    assert main(["resume", str(refused_run.path), "--set", "account=good"]) == 0
    assert "site setting: account: None -> 'good'\n" in capsys.readouterr().out
    assert main(["resume", str(refused_run.path)]) == 0
    printed = capsys.readouterr().out
    assert "are already submitted" in printed
    assert f"dlperf-slurm retry {refused_run.path}" in printed
    events = read_journal(refused_run.path)
    assert [e.group_id for e in events if e.event == SUBMITTED] == ["1n1g", "1n2g", "2n2g"]
    assert [e.detail for e in events if e.event == AMENDED] == ["account: None -> 'good'"]
    assert refused_run.get_script_path("1n1g").read_text(encoding="utf-8") == first
    with pytest.raises(InputError, match="all array jobs"):
        amend_site(open_run(refused_run.path), ["account=other"])


def test_manifest_report_and_further_attempts_have_the_mended_value(refused_run):
    amend_site(refused_run, ["account=good"])
    run = open_run(refused_run.path)
    assert run.manifest.amended == ("account: None -> 'good'",)
    description = summarize(run.manifest, collect_outcomes(run)).description
    assert description.endswith(": account: None -> 'good'")
    assert read_frozen_site(run.path / "site.toml").account == "good"


def test_nothing_but_the_mended_line_of_a_script_changes(refused_run, small_run):
    # of another version: a job that is pending would run it
    harness = refused_run.path / HARNESS_FILE
    harness.write_text("# of another version\n", encoding="utf-8")
    text = refused_run.get_script_path("2n2g").read_text(encoding="utf-8")
    # the run is a copy of that one
    before = text.replace(str(small_run), str(refused_run.path)).splitlines()
    amend_site(refused_run, ["account=good"])
    after = refused_run.get_script_path("2n2g").read_text(encoding="utf-8").splitlines()
    after.remove("#SBATCH --account=good")
    assert after == before
    assert harness.read_text(encoding="utf-8") == "# of another version\n"


def test_mending_that_was_killed_before_the_scripts_is_done_by_the_next(refused_run):
    script = refused_run.get_script_path("1n2g")
    before = script.read_text(encoding="utf-8")
    run, _ = amend_site(refused_run, ["account=good"])
    script.write_text(before, encoding="utf-8")
    run, changes = amend_site(run, ["account=good"])
    assert (changes, run.manifest.amended) == ([], ("account: None -> 'good'",))
    assert "#SBATCH --account=good\n" in script.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("device=cuda", "^.*device .*: account, "),
        ("time_limit_minutes.default=0", "time_limit_minutes"),
    ],
)
def test_what_a_run_was_made_with_stays(refused_run, text, words):
    site = (refused_run.path / "site.toml").read_bytes()
    with pytest.raises(InputError, match=words):
        amend_site(refused_run, [text])
    assert (refused_run.path / "site.toml").read_bytes() == site


def test_mended_value_wins_over_an_override_of_the_site(refused_run):
    path = refused_run.path / "site.toml"
    data = parse_toml(path.read_text(encoding="utf-8"))
    data["override"] = [{"when": {"nodes": 2}, "account": "bad"}]
    path.write_text(tomli_w.dumps(data), encoding="utf-8")
    _, changes = amend_site(refused_run, ["account=good"])
    assert_problem(changes[-1], key="account", says=("all jobs", "[[override]]"))
    script = refused_run.get_script_path("2n2g").read_text(encoding="utf-8")
    assert "#SBATCH --account=good\n" in script
