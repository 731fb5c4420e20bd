"""Progress of an application in a terminal: a line for each step, and what is waited for."""

import threading
from collections.abc import Callable

import typer

from hostelry.base.clock import monotonic_s
from hostelry.cli.declared.diff_text import size_text
from hostelry.cli.declared.execution import AppliedEnd, AppliedStep
from hostelry.cli.declared.resource import ResourceKey
from hostelry.cli.declared.step import ApplyStep, StepAct

QUIET_S = 10.0
PAST = {
    StepAct.UPLOAD: "uploaded",
    StepAct.CREATE: "created",
    StepAct.UPDATE: "updated",
    StepAct.TAG: "tagged",
    StepAct.DELETE: "deleted",
}


class TerminalProgress:
    """Prints to standard error; on a terminal one line shows what is waited for now."""

    def __init__(
        self,
        *,
        is_terminal: bool,
        write: Callable[[str], None] = lambda text: typer.echo(text, err=True, nl=False),
        now: Callable[[], float] = monotonic_s,
    ) -> None:
        self._is_terminal, self._write, self._now = is_terminal, write, now
        self._lock = threading.Lock()
        self._since: dict[ResourceKey, float] = {}
        self._statuses: dict[ResourceKey, tuple[str, float]] = {}
        self._sent: dict[ResourceKey, float] = {}
        self._width = 0

    def started(self, step: ApplyStep) -> None:
        """A step begins."""
        with self._lock:
            self._since[_key_of(step)] = self._now()

    def waiting(self, key: ResourceKey, status: str) -> None:
        """A line on a terminal; elsewhere one for each status, and every ten seconds."""
        with self._lock:
            self._show(key, status, is_new=status != self._statuses.get(key, ("", 0.0))[0])

    def sent(self, step: ApplyStep, num_bytes: float) -> None:
        """How far an upload is: on a terminal in its line; elsewhere one every ten seconds."""
        assert step.file is not None, "a step that sends has a file"
        key = _key_of(step)
        with self._lock:
            sent = self._sent[key] = self._sent.get(key, 0.0) + num_bytes
            total = step.file.order.num_bytes
            status = f"{100 * sent / max(1, total):.0f} % of {size_text(total)}"
            self._show(key, status, is_new=False)

    def _show(self, key: ResourceKey, status: str, *, is_new: bool) -> None:
        now = self._now()
        since = self._since.setdefault(key, now)
        written_at = self._statuses.get(key, ("", since))[1]
        if self._is_terminal:
            self._statuses[key] = (status, now)
            self._show_line()
        elif is_new or now - written_at >= QUIET_S:
            self._statuses[key] = (status, now)
            self._write(f"  {key} {status} ({now - since:.0f} s)\n")

    def ended(self, outcome: AppliedStep) -> None:
        """A line with the result and the time that it took."""
        with self._lock:
            step = outcome.step
            key = _key_of(step)
            for known in (self._statuses, self._since, self._sent):
                known.pop(key, None)
            self._clear_line()
            name = step.file.uri if step.file is not None else str(step.key)
            if outcome.end is AppliedEnd.DONE:
                self._write(f"{PAST[step.act]} {name} ({outcome.seconds:.1f} s)\n")
            elif outcome.end is not AppliedEnd.SKIPPED:
                reason = outcome.reason if outcome.end is AppliedEnd.FAILED else "changed meanwhile"
                self._write(f"{step.act.value} {name}: {reason}\n")
            if self._is_terminal and self._statuses:
                self._show_line()

    def _show_line(self) -> None:
        now = self._now()
        parts = [
            f"{key.name.rpartition('/')[2]} {status} {now - self._since.get(key, now):.0f} s"
            for key, (status, _) in self._statuses.items()
        ]
        more = f", and {len(parts) - 3} more" if len(parts) > 3 else ""
        self._clear_line()
        text = f"  {', '.join(parts[:3])}{more}"[:110]
        self._width = len(text)
        self._write(text)

    def _clear_line(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0


def _key_of(step: ApplyStep) -> ResourceKey:
    """What a step is about: one of an artifact's files by its own address."""
    return step.key if step.file is None else ResourceKey(step.key.kind, step.file.uri)
