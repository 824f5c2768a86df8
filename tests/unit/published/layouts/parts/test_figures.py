"""Outcomes and published figures -> the frame of figures that layouts are made of."""

import pandas
import pytest
from builders import make_outcomes, make_planned_case
from published_documents import make_training

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.published.figures import read_source
from dlperf_slurm.published.layouts.parts.document import Document
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


def test_of_two_figures_of_one_cell_the_first_measured_is_shown():
    failed, measured = (f for rate in (0.0, 10.0) for f in list_run(make_training(rate=rate)))
    chosen = Document().index([failed, measured], lambda figure: figure.topology)
    assert chosen == {Topology(1, 1): measured}
