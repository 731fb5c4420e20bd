"""State of one copy at its agent: the status that it reports, and the record for its successor.

The status is in memory and changes all the time; the record is on disk too, so that the next agent
finds the copy's process, or why there is none.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hostelry.domain.copy import CopyPhase, CopySpec, CopyStatus, LastEnd
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.lifecycle import recent_end, spec_digest
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.records import CopyFolder, CopyRecord

LOG = logging.getLogger(__name__)

LOG_TAIL_LINES = 20
LAST_END_LOG_BYTES = 4096
LAST_END_CAUSE_CHARS = 1024
ENDED = (CopyPhase.FAILED, CopyPhase.UNHEALTHY)


def with_members(status: CopyStatus, **members: Any) -> CopyStatus:
    """The status with `members`. It is the same object if nothing differs."""
    is_same = all(getattr(status, name) == value for name, value in members.items())
    return status if is_same else replace(status, **members)


def shown_status(status: CopyStatus, shown: Callable[[str], str]) -> CopyStatus:
    """The status as callers get it: `shown` gives each text without paths of this machine."""
    end = status.last_end
    return with_members(
        status,
        reason=status.reason and shown(status.reason),
        log_tail=shown(status.log_tail),
        last_end=end and replace(end, cause=shown(end.cause), log_tail=shown(end.log_tail)),
        adapters=tuple(
            replace(each, reason=shown(each.reason)) if each.reason else each
            for each in status.adapters
        ),
    )


class CopyState:
    """Status and record of one copy; `changed` is called for each change that is to be reported.

    `restart_reason` is how the last process ended, until the copy is READY again.
    """

    def __init__(
        self, spec: CopySpec, folder: CopyFolder, deps: CopyDeps, changed: Callable[[], None]
    ) -> None:
        self.record = CopyRecord(spec_digest=spec_digest(spec))
        self.restart_reason: str | None = None
        self.log = CopyLog(folder.log)
        self._folder = folder
        self._clock = deps.clock
        self._policy = deps.policy
        self._status = CopyStatus(id=spec.id, phase=CopyPhase.PENDING)
        self._changed = changed

    @property
    def status(self) -> CopyStatus:
        """The current status, with how a process ended lately; without adapters and models."""
        end = recent_end(self.record.last_end, self._clock.now(), self._policy)
        return with_members(self._status, last_end=end)

    @property
    def phase(self) -> CopyPhase:
        """The current phase."""
        return self._status.phase

    @property
    def address(self) -> str:
        """Where the copy's server listens."""
        return f"http://127.0.0.1:{self.record.port}"

    def report(self, phase: CopyPhase, reason: str | None = None, **members: Any) -> None:
        """Change the status; that of a copy in trouble includes the end of its log."""
        ended = phase in ENDED or self.restart_reason is not None
        tail = self.log.tail(LOG_TAIL_LINES) if ended else ""
        self.amend(phase=phase, reason=reason, log_tail=tail, **members)
        self._changed()

    def waits(self, cause: str) -> None:
        """Report what the copy waits for in its phase."""
        self.report(self.phase, cause)

    def amend(self, **members: Any) -> None:
        """Change members of the status, to be reported with the next change; wakes no caller."""
        self._status = replace(self._status, **members)

    def remember(self, **members: Any) -> None:
        """Change members of the record, also on disk.

        A full disk stops no copy: without its record it is found by its environment.
        """
        self.record = replace(self.record, **members)
        try:
            self._folder.save(self.record)
        except OSError as error:
            LOG.warning("copy %s: its record cannot be written: %s", self._status.id, error)

    def ended(self, cause: str) -> None:
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
