"""State of one copy at its agent: the reported status, and the record for the next agent.

The status is in memory and changes all the time. The record is also on disk, so that the next agent
finds the copy's process, or the reason why it has none.
"""

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from hostelry.domain.copy import CopyPhase, CopySpec, CopyStatus, LastEnd
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.lifecycle import get_recent_end, spec_digest
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.records import CopyFolder, CopyRecord
from hostelry.fleet.rules.given_variables import left_out_note

LOG = logging.getLogger(__name__)

LOG_TAIL_LINES = 20
LAST_END_LOG_BYTES = 4096
LAST_END_CAUSE_CHARS = 1024
ENDED = (CopyPhase.FAILED, CopyPhase.UNHEALTHY)


def replace_members(status: CopyStatus, **members: Any) -> CopyStatus:
    """The status with `members`. It is the same object if nothing differs."""
    is_same = all(getattr(status, name) == value for name, value in members.items())
    return status if is_same else dataclasses.replace(status, **members)


def hide_status_paths(status: CopyStatus, hide_paths: Callable[[str], str]) -> CopyStatus:
    """The status for callers. `hide_paths` removes paths of this machine from each text."""
    end = status.last_end
    return replace_members(
        status,
        reason=status.reason and hide_paths(status.reason),
        log_tail=hide_paths(status.log_tail),
        last_end=end
        and replace(end, cause=hide_paths(end.cause), log_tail=hide_paths(end.log_tail)),
        adapters=tuple(
            replace(each, reason=hide_paths(each.reason)) if each.reason else each
            for each in status.adapters
        ),
    )


class CopyState:
    """Status and record of one copy. `on_change` is called for each change to report.

    `restart_reason` says how the last process ended, until the copy is READY again.
    """

    def __init__(
        self, spec: CopySpec, folder: CopyFolder, deps: CopyDeps, on_change: Callable[[], None]
    ) -> None:
        self.record = CopyRecord(spec_digest=spec_digest(spec))
        self.restart_reason: str | None = None
        self.log = CopyLog(folder.log)
        self._folder = folder
        self._clock = deps.clock
        self._policy = deps.policy
        self._status = CopyStatus(id=spec.id, phase=CopyPhase.PENDING)
        self._on_change = on_change

    @property
    def status(self) -> CopyStatus:
        """The current status with the recent end of a process, without adapters and models."""
        end = get_recent_end(self.record.last_end, self._clock.now(), self._policy)
        return replace_members(self._status, last_end=end)

    @property
    def phase(self) -> CopyPhase:
        """The current phase."""
        return self._status.phase

    @property
    def address(self) -> str:
        """The URL of the copy's server."""
        return f"http://127.0.0.1:{self.record.port}"

    def report(self, phase: CopyPhase, reason: str | None = None, **members: Any) -> None:
        """Change and report the status. The status of a copy in trouble has the end of its log."""
        ended = phase in ENDED or self.restart_reason is not None
        tail = self.log.tail(LOG_TAIL_LINES) if ended else ""
        self.amend(phase=phase, reason=reason, log_tail=tail, **members)
        self._on_change()

    def report_wait(self, cause: str) -> None:
        """Report the cause for which the copy waits in its phase."""
        self.report(self.phase, cause)

    def report_left_out(self, names: tuple[str, ...]) -> None:
        """Report the variables that the server does not get, in the log and the next status."""
        if names and names != self._status.left_out:
            self.log.note(left_out_note(names))
        self.amend(left_out=names)

    def amend(self, **members: Any) -> None:
        """Change members of the status without waking callers. The next report has them."""
        self._status = dataclasses.replace(self._status, **members)

    def remember(self, **members: Any) -> None:
        """Change members of the record, also on disk.

        A full disk does not stop the copy. Without a record it is found by its environment.
        """
        self.record = dataclasses.replace(self.record, **members)
        try:
            self._folder.save(self.record)
        except OSError as error:
            LOG.warning("copy %s: its record cannot be written: %s", self._status.id, error)

    def record_end(self, cause: str) -> None:
        """Record how the process ended."""
        end = LastEnd(
            at=self._clock.now(),
            cause=cause[:LAST_END_CAUSE_CHARS],
            log_tail=self.log.tail(LOG_TAIL_LINES, LAST_END_LOG_BYTES),
        )
        self.remember(last_end=end)

    def fail(self, reason: str) -> None:
        """Record and report that the copy has failed for good."""
        self.log.note(f"failed: {reason}")
        self.remember(failure=reason)
        self.report(CopyPhase.FAILED, reason, pid=None, address=None, memory_bytes=0)
