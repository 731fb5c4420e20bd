"""Progress of a running command on standard error: a live line and a bar, or plain lines."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.status import Status

from hostelry.base.clock import monotonic_s
from hostelry.base.printable import printable, whole_stream
from hostelry.cli.artifacts.files import Advance

QUIET_S = 1.0  # shorter work gets no plain line
LINE_EACH_S = 5.0


class WorkReporter:
    """Prints progress lines with the time since the start, to stdout or stderr.

    As a context manager it removes the live line at the end.
    """

    def __init__(self, *, to_stderr: bool, usual_s: float | None = None) -> None:
        self._console = Console(
            file=whole_stream(sys.stderr if to_stderr else sys.stdout), highlight=False
        )
        self._to_stderr = to_stderr
        self._started_s = monotonic_s()
        self._usual_s = usual_s
        self._status: Status | None = None
        self._waiting = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.still()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return monotonic_s() - self._started_s

    def line(self, text: str) -> None:
        """Report a finished step."""
        self.still()
        self._say(text)

    def waits(self, text: str) -> None:
        """Show the reason for waiting. A terminal also shows the elapsed time."""
        changed, self._waiting = text != self._waiting, text
        if not self._console.is_terminal:
            if changed:
                self._say(text)
            return
        usual = "" if self._usual_s is None else f", usually {self._usual_s:.0f} s"
        shown = f"{printable(text)}  ({self.elapsed_s:.0f} s{usual})"
        if self._status is None:
            self._status = self._console.status(shown)
            self._status.start()
        else:
            self._status.update(shown)

    def _say(self, text: str) -> None:
        typer.echo(f"{self.elapsed_s:6.1f} s  {text}", err=self._to_stderr)

    def still(self) -> None:
        """Remove the live line."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._waiting = ""

    @contextmanager
    def count_bytes(self, text: str, total_bytes: int) -> Iterator[Advance]:
        """Show progress in bytes as a bar or plain lines. Yields a function that counts bytes."""
        self.still()
        if self._console.is_terminal:
            columns = (
                TextColumn("{task.description}"), BarColumn(), DownloadColumn(),
                TransferSpeedColumn(),
            )  # fmt: skip
            with Progress(*columns, console=self._console, transient=True) as bar:
                task = bar.add_task(printable(text), total=total_bytes)
                yield lambda count: bar.advance(task, count)
            return
        yield _PlainCount(self, text, total_bytes).add


class _PlainCount:
    """Counts the bytes of several threads, and prints progress every few seconds."""

    def __init__(self, reporter: WorkReporter, text: str, total_bytes: int) -> None:
        self._reporter, self._text, self._total = reporter, text, total_bytes
        self._lock = threading.Lock()
        self._done = 0.0
        self._reported_s = monotonic_s() + QUIET_S - LINE_EACH_S

    def add(self, count: float) -> None:
        """Count `count` more bytes."""
        with self._lock:
            self._done += count
            if monotonic_s() - self._reported_s < LINE_EACH_S or self._done >= self._total:
                return
            self._reported_s = monotonic_s()
            percent = 100 * self._done / self._total
            self._reporter.line(f"{self._text}: {percent:.0f} % of {self._total / 1e6:.1f} MB")
