"""Texts of tables and messages -> a terminal, without control characters from the texts."""

from collections.abc import Iterable
from typing import Optional

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dlperf_slurm.plain_text import strip_controls


class PlainConsole(Console):
    """A rich console that strips control characters from the text that it prints."""

    def render(
        self, renderable: RenderableType, options: Optional[ConsoleOptions] = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else strip_controls(segment.text)
            yield segment._replace(text=text)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, which the command line turns into an exit code of its own."""
        raise
