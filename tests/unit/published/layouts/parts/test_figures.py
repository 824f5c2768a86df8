"""Outcomes and published figures -> the frame of figures that layouts are made of."""

import pandas
import pytest
from builders import make_outcomes, make_planned_case
from published_documents import make_training

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.published.figures import read_source
from dlperf_slurm.published.layouts.parts.document import Document, make_column_cells
from dlperf_slurm.published.layouts.parts.figures import (
    list_figures,
    make_published_figures,
    make_run_figures,
)
from dlperf_slurm.results.cases import analyze


def list_published(*changes: dict[str, object]):
    """Figures as the first of tensorpack's, each with its changes."""
    first = read_source("tensorpack").iloc[:1]
    published = pandas.concat([first.assign(**change) for change in changes], ignore_index=True)
    return list_figures(make_published_figures(published), TRAIN)


def make_published(**changes: object):
    (figure,) = list_published(changes)
    return figure


def list_run(*outcomes, mode=TRAIN):
    return list_figures(make_run_figures(analyze(outcomes)), mode)


def test_throughput_is_the_median_over_sound_repeats():
    (figure,) = list_run(make_outcomes(make_planned_case(), [10.0, 30.0, 11.0], ["failed: x"]))
    assert figure.samples_per_s == pytest.approx(11.0)
    # few repeats are no footnote where no interval is printed
    (figure,) = list_run(make_outcomes(make_planned_case(), [10.0]))
    assert figure.footnotes == ()


def test_case_that_was_left_out_has_its_reason_as_a_footnote():
    (figure,) = list_run(make_outcomes(make_planned_case("4n8g", reason="too many nodes")))
    assert (figure.samples_per_s, figure.problem) == (None, "not run")
    assert figure.footnotes == ("too many nodes",)


def test_published_repeats_are_one_figure_with_their_median_and_others_stay_apart():
    figures = [
        {"repeat": repeat, "samples_per_s": rate, "where": f"README.md:{repeat}"}
        for repeat, rate in enumerate((10.0, 30.0, 11.0), start=1)
    ]
    repeats = list_published(*figures)
    others = list_published(*({**figure, "repeat": 0} for figure in figures))
    assert [figure.samples_per_s for figure in repeats] == [11.0]
    assert [figure.samples_per_s for figure in others] == [10.0, 30.0, 11.0]


@pytest.mark.parametrize(
    ("software", "expected"),
    [
        ("NGC MXNet", ("NGC MXNet", "-")),
        ("PyTorch (pytorch/examples)", ("PyTorch", "pytorch/examples")),
        ("tensorpack; TF v1.3.0; tensorpack 0.5 (Sep 2017)", ("tensorpack", "-")),
    ],
)
def test_software_is_read_as_framework_and_source(software, expected):
    figure = make_published(software=software)
    assert (figure.framework, figure.source) == expected


def test_notes_of_with_and_without_are_told_apart_from_others():
    assert make_published(note="w/DALI").data_location == "DALI"
    assert make_published(software="OneFlow", note="W/O clip").framework == "OneFlow W/O clip"
    assert make_published(note="first epoch is warm-up").footnotes == ("first epoch is warm-up",)


@pytest.mark.parametrize(
    ("table", "size", "expected"),
    [
        ("report.md AMP, batch size = 256", 224, ("256", "224")),
        ("report.md AMP, batch size = max", 96, ("max", "96")),
        ("README.md:70", 64, ("64", "64")),
        ("README.md:70", 0, ("unknown", "")),
    ],
)
def test_batch_size_that_was_asked_for_is_that_of_the_table(table, size, expected):
    figure = make_published(table=table, batch_size_per_device=size, nodes=2, devices_per_node=8)
    assert (figure.batch_group, figure.batch_sizes) == expected
    assert figure.topology == Topology(2, 8)


def test_whole_published_numbers_stay_whole_and_measured_ones_have_two_decimals():
    published = [make_published(samples_per_s=rate) for rate in (228.0, 1612.0)]
    exact = [*published, make_published(samples_per_s=225.7)]
    cells = [
        make_column_cells(figures, "samples_per_s")[0].text
        for figures in (published, exact, list_run(make_training(rate=100.0)))
    ]
    assert cells == ["228", "228.0", "100.00"]


def test_of_two_figures_of_one_cell_the_first_measured_is_shown_and_the_other_named():
    failed, *measured = (
        figure for rate in (0.0, 10.0, 12.0) for figure in list_run(make_training(rate=rate))
    )
    draft = Document()
    chosen = draft.index([failed, *measured], lambda figure: figure.topology)
    assert chosen == {Topology(1, 1): measured[0]}
    assert draft.notes == [
        "pytorch resnet50 1n1g fp32 bsz=8: there are several values for one cell; 10.0 is shown, "
        "not 12.0"
    ]
