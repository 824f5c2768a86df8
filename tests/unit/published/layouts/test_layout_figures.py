"""Outcomes and published figures -> the figures that layouts are made of."""

import dataclasses

import pytest
from builders import make_outcomes, make_planned_case
from published_documents import make_training

from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.published.figures import PublishedFigure, read_source
from dlperf_slurm.published.layouts.parts.document import Draft, find_decimals
from dlperf_slurm.published.layouts.parts.figures import make_published_figures, make_run_figures
from dlperf_slurm.results.cases import analyze


def make_published(**changes: object) -> PublishedFigure:
    return dataclasses.replace(read_source("tensorpack")[0], **changes)


def make_figure(**changes: object):
    (figure,) = make_published_figures([make_published(**changes)])
    return figure


def test_throughput_is_the_median_over_sound_repeats():
    outcomes = make_outcomes(make_planned_case(), [10.0, 30.0, 11.0], ["failed: x"])
    (figure,) = make_run_figures(analyze([outcomes]))
    assert figure.samples_per_s == pytest.approx(11.0)


def test_case_that_was_left_out_has_its_reason_as_a_footnote():
    outcomes = make_outcomes(make_planned_case("4n8g", reason="the site has 2 nodes"))
    (figure,) = make_run_figures(analyze([outcomes]))
    assert (figure.samples_per_s, figure.problem) == (None, "not run")
    assert figure.footnotes == ("the site has 2 nodes",)


def test_few_repeats_are_no_footnote_where_no_interval_is_printed():
    (figure,) = make_run_figures(analyze([make_outcomes(make_planned_case(), [10.0])]))
    assert figure.footnotes == ()


def test_latencies_are_in_milliseconds_the_mean_first():
    planned = make_planned_case(mode="infer", repeats=1)
    batches = [*([1.0] * 499), 2.0, 2.0, *([3.0] * 499)]
    few, many = (
        figure
        for seconds in ([1.0, 3.0], batches)
        for figure in make_run_figures(
            analyze([make_outcomes(planned, [8.0], batch_seconds=seconds)])
        )
    )
    assert many.latency_ms == pytest.approx((2000, 2000, 3000, 3000, 3000, 3000))
    # percentiles take more batches
    assert few.latency_ms == (2000, 2000, None, None, None, 3000)


def test_published_repeats_are_one_figure_with_their_median():
    rates = (10.0, 30.0, 11.0)
    repeats = [
        make_published(repeat=repeat, samples_per_s=rate, where=f"README.md:{repeat}")
        for repeat, rate in enumerate(rates, start=1)
    ]
    assert [figure.samples_per_s for figure in make_published_figures(repeats)] == [11.0]


def test_figures_of_one_case_that_are_no_repeats_stay_apart():
    figures = [
        make_published(samples_per_s=rate, where=f"README.md:{line}")
        for line, rate in enumerate((10.0, 12.0))
    ]
    assert [figure.samples_per_s for figure in make_published_figures(figures)] == [10.0, 12.0]


@pytest.mark.parametrize(
    ("software", "expected"),
    [
        ("NGC MXNet", ("NGC MXNet", "-")),
        ("PyTorch (pytorch/examples)", ("PyTorch", "pytorch/examples")),
        ("tensorpack; TF v1.3.0; tensorpack 0.5 (Sep 2017)", ("tensorpack", "-")),
    ],
)
def test_software_is_read_as_framework_and_source(software, expected):
    figure = make_figure(software=software)
    assert (figure.framework, figure.source) == expected


def test_notes_of_with_and_without_are_told_apart_from_others():
    assert make_figure(note="w/DALI").data_location == "DALI"
    assert make_figure(software="OneFlow", note="W/O clip").framework == "OneFlow W/O clip"
    assert make_figure(note="first epoch is warm-up").footnotes == ("first epoch is warm-up",)


@pytest.mark.parametrize(
    ("table", "size", "expected"),
    [
        ("report.md AMP, batch size = 256", 224, ("256", (224,))),
        ("report.md AMP, batch size = max", 96, ("max", (96,))),
        ("README.md:70", 64, ("64", (64,))),
        ("README.md:70", 0, ("unknown", ())),
    ],
)
def test_batch_size_that_was_asked_for_is_that_of_the_table(table, size, expected):
    figure = make_figure(table=table, batch_size_per_device=size)
    assert (figure.batch_group, figure.batch_sizes) == expected


def test_topology_is_read():
    assert make_figure(nodes=2, devices_per_node=8).topology == Topology(2, 8)


def test_whole_published_numbers_stay_whole_and_measured_ones_have_two_decimals():
    published = [make_figure(samples_per_s=rate) for rate in (228.0, 1612.0)]
    exact = [*published, make_figure(samples_per_s=225.7)]
    measured = make_run_figures(analyze([make_training(rate=100.0)]))
    decimals = [find_decimals(f, lambda f: f.samples_per_s) for f in (published, exact, measured)]
    assert decimals == [0, 1, 2]


def test_of_two_figures_of_one_cell_the_first_measured_is_shown_and_the_other_named():
    failed, *measured = (
        figure
        for rate in (0.0, 10.0, 12.0)
        for figure in make_run_figures(analyze([make_training(rate=rate)]))
    )
    draft = Draft()
    assert draft.index([failed, *measured], lambda figure: figure.topology) == {
        Topology(1, 1): measured[0]
    }
    assert draft.notes == ["pytorch resnet50 1n1g fp32 bsz=8: 10.0 is shown, not 12.0"]
