"""Batches of OpenAI's API: files of requests, each sent to the model that it names.

Source: OpenAI API reference, Batch and Files.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace

from hostelry.domain.scope import Scope


class BatchStatus(Enum):
    """`status` of a batch."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether no other status follows."""
        return not NEXT[self]


_S = BatchStatus
NEXT: Mapping[BatchStatus, frozenset[BatchStatus]] = {
    _S.VALIDATING: frozenset({_S.IN_PROGRESS, _S.FAILED, _S.CANCELLING, _S.EXPIRED}),
    _S.IN_PROGRESS: frozenset({_S.FINALIZING, _S.FAILED, _S.CANCELLING, _S.EXPIRED}),
    _S.FINALIZING: frozenset({_S.COMPLETED, _S.FAILED}),
    _S.CANCELLING: frozenset({_S.CANCELLED}),
    _S.FAILED: frozenset(),
    _S.COMPLETED: frozenset(),
    _S.EXPIRED: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""Every status that may follow another."""


class StatusOrderError(ValueError):
    """A batch cannot change from its status to the requested status."""


class LineFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault in an input file: at `line`, from 1, or in the whole file."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of a batch: `completed` were answered with 2xx, `failed` were not."""

    total: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def ended(self) -> int:
        """The requests that need no further attempt."""
        return self.completed + self.failed


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that answers report. `cached` counts input tokens, `reasoning` output tokens."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    def plus(self, other: "TokenUsage") -> "TokenUsage":
        """The sum of both."""
        return TokenUsage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            reasoning=self.reasoning + other.reasoning,
        )


class LlmBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch. Times are seconds since the epoch. `since` has the time when each status began.

    `output_file_id` and `error_file_id` are set even before the files exist. `has_output` and
    `has_errors` are set once the files can be read. Without `output_expires_after_s` files are kept
    until they are deleted. `trouble` is what delayed the batch when its host last saved its
    progress.
    """

    id: str
    scope: Scope
    input_file_id: str
    endpoint: str
    completion_window: str
    created_at: float
    expires_at: float
    output_file_id: str
    error_file_id: str
    metadata: dict[str, str] | None = None
    output_expires_after_s: int | None = None
    status: BatchStatus = BatchStatus.VALIDATING
    since: dict[str, float] = msgspec.field(default_factory=dict)
    counts: RequestCounts = RequestCounts()
    usage: TokenUsage = TokenUsage()
    faults: tuple[LineFault, ...] = ()
    has_output: bool = False
    has_errors: bool = False
    trouble: str | None = None

    @property
    def ended_at(self) -> float | None:
        """When the final status began, or None before that."""
        return self.since[self.status.value] if self.status.is_final else None

    def went(self, status: BatchStatus, now: float) -> "LlmBatch":
        """Set the status from `now`. Raises StatusOrderError if it cannot follow."""
        if status not in NEXT[self.status]:
            raise StatusOrderError(f"batch {self.id} is {self.status.value}, not {status.value}")
        return replace(self, status=status, since={**self.since, status.value: now})


def kept_over(stored: LlmBatch, changed: LlmBatch) -> LlmBatch:
    """Apply a run's change to the stored batch, but keep a cancellation made meanwhile. Pure."""
    is_cancelled = stored.status is BatchStatus.CANCELLING
    if not is_cancelled or changed.status in (BatchStatus.CANCELLING, BatchStatus.CANCELLED):
        return changed
    return replace(stored, counts=changed.counts, usage=changed.usage, trouble=changed.trouble)


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that clients can see. Without `expires_at` it is kept until it is deleted."""

    id: str
    scope: Scope
    filename: str
    purpose: str
    num_bytes: int
    created_at: float
    expires_at: float | None = None
