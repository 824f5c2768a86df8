"""Others on a case's machines become footnotes and a banner; a quiet machine has neither."""

import dataclasses

import pytest
from builders import make_manifest, make_outcomes, make_planned_case
from outcome_builders import change_outcomes, make_telemetry
from report_values import find_tables, read_marks, summarize
from support.problems import assert_problem

from dlperf_slurm.contract.host_noise import CpuUse, GpuState, HostNoise, NoiseReport, OtherProcess
from dlperf_slurm.contract.record import HOST
from dlperf_slurm.jobs.attempts import Sidecars
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.interference import (
    describe_interference,
    list_disturbed_repeats,
    make_banner,
)

QUIET = CpuUse(2.0, 4, 0.5, 0.01, 0.0)
BUSY = CpuUse(2.0, 4, 0.4, 0.3, 0.05, (OtherProcess("miner", 0.25),))


def make_case(*windows, stolen=0.0, gpus=()) -> CaseOutcomes:
    """Make a case with one repeat for each of these CPU uses; None is not recorded."""

    def list_changes(outcome):
        window = windows[outcome.repeat - 1]
        hosts = () if window is None else (HostNoise("n1", 1.0, (), gpus, (window,)),)
        noise = NoiseReport("run", outcome.case_id, outcome.repeat, 1, hosts)
        telemetry = (make_telemetry(HOST, stolen_share=stolen),)
        return {"sidecars": Sidecars(noise), "record": {"telemetry": telemetry}}

    planned = make_planned_case(repeats=len(windows))
    return change_outcomes(make_outcomes(planned, [100.0] * len(windows)), list_changes)


def describe(case):
    return [str(note) for note in describe_interference(case)]


def test_neighbour_has_its_share_and_the_run_s_own():
    (text,) = describe(make_case(QUIET, BUSY))
    assert_problem(text, says=("1 of 2 repeats", "30 %", "run used 40 %"))


def test_processes_of_others_are_named_on_request_alone():
    case = make_case(QUIET, BUSY, gpus=(GpuState(0, ("python",)),))
    repeats = analyze([case]).frames.repeats
    assert list_disturbed_repeats(repeats)[1].endswith(" repeat 2: miner 25 %; on GPUs: python")
    for text in (*describe(case), make_banner(repeats)):
        assert {"miner", "python"}.isdisjoint(text.split())


SHARED = "virtual machine on a shared host"


@pytest.mark.parametrize(
    ("window", "key", "says", "is_silent"),
    [
        # beside other processes the hypervisor alone is not blamed; without a report nobody else is
        (BUSY, "", ("1 of 1 repeats", "hypervisor", "20 %", "other processes"), False),
        (QUIET, SHARED, ("20 %", "used little"), False),
        (None, SHARED, ("1 of 1 repeats", "20 %"), True),
    ],
)
def test_steal_is_blamed_on_who_was_seen(window, key, says, is_silent):
    text = describe(make_case(window, stolen=0.2))[-1]
    assert_problem(text, key=key, says=says)
    assert ("process" not in text) == is_silent


def test_gpu_that_others_used_is_named_once():
    gpus = (GpuState(1, ("python",), ("power cap",)),)
    used, capped = describe(make_case(QUIET, QUIET, gpus=gpus))
    assert_problem(used, says=("GPU 1 of n1", "was used by"))
    assert_problem(capped, says=("clocks", "GPU 1 of n1", "power cap"))


@pytest.mark.parametrize(
    ("case", "banner"),
    [
        (make_case(QUIET, stolen=0.019), ""),
        (make_case(None), ""),
        # the worst of them
        (
            make_case(dataclasses.replace(BUSY, other_share=0.2, other_processes=()), BUSY, QUIET),
            "2 of 3 repeats: other processes on the same machine used up to 30 % of its CPUs",
        ),
        (
            make_case(QUIET, stolen=0.5),
            "1 of 1 repeats: a hypervisor withheld up to 50 % of the CPU time that was needed "
            "(steal)",
        ),
        (
            make_case(QUIET, gpus=(GpuState(0, ("python",)),)),
            "1 of 1 repeats: GPUs were used by other processes",
        ),
    ],
)
def test_banner_says_what_disturbed(case, banner):
    found = make_banner(analyze([case]).frames.repeats)
    assert found == (banner and f"NOISY in {banner}")
    assert bool(describe(case)) == bool(banner)


def test_figure_has_the_footnote_and_the_report_the_banner():
    summary = summarize(make_manifest(), [make_case(BUSY, BUSY)])
    (table,) = find_tables(summary, "throughput")
    texts = read_marks(summary, table.rows[0])
    assert any("other processes used" in text for text in texts)
    assert summary.banner.startswith("NOISY in 2 of 2 repeats")


def test_shares_are_columns():
    row = analyze([make_case(QUIET, BUSY)]).case_columns.iloc[0]
    assert (row.run_cpu_share, row.other_cpu_share) == (0.4, 0.3)
