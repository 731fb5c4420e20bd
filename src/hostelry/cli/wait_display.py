"""Progress on standard error for commands that take seconds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hostelry.base.clock import monotonic_s
from hostelry.base.printable import printable, whole_stream

if TYPE_CHECKING:
    from rich.progress import Progress

    from hostelry.processes.background import StartupProgress


class WaitDisplay:
    """Shows the current phase and its time. Prints plain lines without a terminal."""

    def __init__(self) -> None:
        self._live: Progress | None = None
        self._on_terminal = sys.stderr.isatty()
        self._started = monotonic_s()

    def phase(self, text: str) -> None:
        """Show the current phase."""
        if not self._on_terminal:
            print(f"{monotonic_s() - self._started:5.1f} s  {text}", file=sys.stderr, flush=True)
            return
        if self._live is None:
            self._live = progress_line()
        self._live.update(self._live.task_ids[0], description=printable(text))
        self._live.start()

    def say(self, text: str) -> None:
        """Print a sentence above the display."""
        if self._live is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._live.console.print(printable(text), markup=False, highlight=False)

    def progress(self, progress: "StartupProgress") -> None:
        """Show the progress of a start in the background."""
        if progress.phase is not None:
            self.phase(progress.phase)
        if progress.note is not None:
            self.say(progress.note)

    def pause(self) -> None:
        """Show nothing until the next phase."""
        if self._live is not None:
            self._live.stop()


def progress_line() -> "Progress":
    """A line with a spinner, a text and the time, on the terminal of standard error."""
    # Imported here: only terminals need rich, and it takes as long to import as the rest.
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    line = Progress(*columns, console=Console(file=whole_stream(sys.stderr)), transient=True)
    line.add_task("starting", total=None)
    return line


@contextmanager
def waiting() -> Iterator[WaitDisplay]:
    """Show a display during the block, and clear it at the end."""
    display = WaitDisplay()
    try:
        yield display
    finally:
        display.pause()
