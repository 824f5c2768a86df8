"""Footnotes are numbered in the order of their cells, and each says what all its cells have."""

from dlperf_slurm.results.footnotes import Footnotes, FootnoteTemplate

VARIES = "the repeats vary by {:.0f} %"
SLOWED = "in {} of {} repeats steps took longer, in the worst by {:.1f} %"


def test_texts_are_numbered_in_the_order_of_their_cells():
    footnotes = Footnotes()
    notes = ["needs a GPU", FootnoteTemplate(VARIES, (5.0,)), "needs a GPU", "excluded"]
    assert [footnotes.number(note) for note in notes] == [1, 2, 1, 3]
    assert footnotes.texts == ["needs a GPU", "the repeats vary by 5 %", "excluded"]


def test_remarks_of_one_form_have_one_number_and_a_range_of_figures():
    footnotes = Footnotes()
    remarks = [FootnoteTemplate(VARIES, (percent,)) for percent in (7.0, 15.2, 5.1)]
    assert [footnotes.number(remark) for remark in remarks] == [1, 1, 1]
    assert footnotes.texts == ["the repeats vary by 5 to 15 %"]


def test_each_figure_has_a_range_of_its_own_unless_it_is_written_alike():
    footnotes = Footnotes()
    for figures in ((5, 7, 2.04), (7, 7, 1.96)):
        footnotes.number(FootnoteTemplate(SLOWED, figures))
    assert footnotes.texts == ["in 5 to 7 of 7 repeats steps took longer, in the worst by 2.0 %"]


def test_equal_problems_of_several_cases_are_one_footnote_that_names_them():
    footnotes = Footnotes()
    for subject in ("a repeat 1", "b repeat 1, 2", "a repeat 1"):
        footnotes.number(FootnoteTemplate("failed: exit 1", subject=subject))
    assert footnotes.texts == ["a repeat 1; b repeat 1, 2: failed: exit 1"]


def test_braces_of_a_plain_text_are_left_alone():
    footnotes = Footnotes()
    footnotes.number("OMP_PLACES '{0}'")
    assert footnotes.texts == ["OMP_PLACES '{0}'"]
