"""Numbered footnotes of table cells; those that differ only in figures or subject share one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Union


@dataclass(frozen=True)
class FootnoteTemplate:
    """A footnote with numbers, which footnotes of other cells can share as a range.

    `form` has a `str.format` field for each of `figures`. `subject` names what the footnote is
    about, such as a case; it is printed before the text.
    """

    form: str
    figures: tuple[float, ...] = ()
    subject: str = ""

    def __str__(self) -> str:
        return _merge(self.form, [self])


Note = Union[str, FootnoteTemplate]


@dataclass
class Footnotes:
    """Footnotes in the order in which tables first refer to them, numbered from 1."""

    _notes: dict[str, list[Note]] = field(default_factory=dict)

    def number(self, note: Note) -> int:
        """Add a footnote and return its number; templates with the same `form` share a number."""
        form = note if isinstance(note, str) else note.form
        self._notes.setdefault(form, []).append(note)
        return list(self._notes).index(form) + 1

    @property
    def texts(self) -> list[str]:
        """The texts in order of number, with ranges of figures; final once all tables are made."""
        return [_merge(form, notes) for form, notes in self._notes.items()]


def _merge(form: str, notes: Sequence[Note]) -> str:
    """Return the text of notes that share a number: all subjects, and each figure or its range."""
    templates = [note for note in notes if isinstance(note, FootnoteTemplate)]
    if not templates:
        return form
    subjects = "; ".join(dict.fromkeys(note.subject for note in templates if note.subject))
    text = f"{subjects}: " if subjects else ""
    columns = iter(zip(*(note.figures for note in templates)))
    for literal, _, spec, _ in Formatter().parse(form):
        text += literal
        if spec is not None:
            column = next(columns)
            low, high = (format(figure, spec) for figure in (min(column), max(column)))
            text += low if low == high else f"{low} to {high}"
    return text
