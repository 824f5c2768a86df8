"""Texts of tables and messages -> a terminal, with no commands but those of our own styles."""

from collections.abc import Iterable
from typing import Optional

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dlperf_slurm.plain_text import strip_controls


class PlainConsole(Console):
    """A console that strips control characters of what it is told to print."""

    def render(
        self, renderable: RenderableType, options: Optional[ConsoleOptions] = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else strip_controls(segment.text)
            yield segment._replace(text=text)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which the command line turns into an exit code of its own."""
        raise
