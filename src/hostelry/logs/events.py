"""Log groups, streams, events and errors as values. Instants are milliseconds since the epoch."""

import msgspec

from hostelry.base.errors import RetryableError

# The errors of the store of log events.
#
# RetryableError
# └── LogsUnavailable   the file cannot be read or written now, for example on a full disk


class LogsUnavailable(RetryableError):  # noqa: N818 - named like StoreUnavailable
    """Log events cannot be read or written now. Nothing was changed."""


EVENT_OVERHEAD_BYTES = 26  # CloudWatch Logs adds these to the size of each event
MAX_EVENT_BYTES = 256 * 1024 - EVENT_OVERHEAD_BYTES  # longer lines are divided

Position = tuple[int, int]
"""A place between events: before all events whose (instant, id) is not less."""


class LogGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A log group. `retention_days` None means the default. `kms_key_id` has no effect."""

    id: int
    name: str
    created_ms: int
    retention_days: int | None
    kms_key_id: str | None
    stored_bytes: int


class LogStream(msgspec.Struct, frozen=True, kw_only=True):
    """A log stream. It has no instants (None) before the first event."""

    id: int
    name: str
    created_ms: int
    first_ms: int | None
    last_ms: int | None
    ingested_ms: int | None
    stored_bytes: int


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event."""

    id: int
    stream_name: str
    at_ms: int
    ingested_ms: int
    message: str

    @property
    def position(self) -> Position:
        """The place just before this event."""
        return self.at_ms, self.id


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be stored."""

    at_ms: int
    message: str


def get_size(message: str) -> int:
    """Return an event's size as CloudWatch Logs counts it, in bytes."""
    return len(message.encode("utf-8", "surrogatepass")) + EVENT_OVERHEAD_BYTES


def get_messages(written: bytes, *, is_final: bool) -> tuple[list[str], int]:
    """The messages in `written`, and the number of bytes that they take.

    An incomplete last line is left for later, unless `is_final`, or the line is too long for an
    event. Empty lines are not events.
    """
    used = written.rfind(b"\n") + 1
    if is_final or len(written) - used >= MAX_EVENT_BYTES:
        used = len(written)
    messages: list[str] = []
    for line in written[:used].split(b"\n"):
        text = line.rstrip(b"\r")
        parts = (text[at : at + MAX_EVENT_BYTES] for at in range(0, len(text), MAX_EVENT_BYTES))
        messages.extend(part.decode("utf-8", "replace") for part in parts)
    return messages, used
