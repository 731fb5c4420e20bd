"""Stateful sessions: parses the session headers of containers, and finds the copy of a session.

Source: the session headers of SageMaker's LMI containers with stateful sessions.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b

import msgspec

from hostelry.domain.routes import CopyRoute, VariantRoute

NEW_SESSION = "NEW_SESSION"
DEFAULT_LIFETIME_S = 1200.0  # as SAGEMAKER_SESSIONS_EXPIRATION, if the header states no end
MAX_LIFETIME_S = 30 * 86_400.0  # even if the header states a later end
MAX_ID_CHARACTERS = 256
MARK_BYTES = 8
MARK_MASK = (1 << 63) - 1


class OpenedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that a container opened, until `expires_at` (seconds since the epoch)."""

    id: str
    expires_at: float


def opened_session(header: str, now: float) -> OpenedSession | None:
    """Parse ``ID; Expires=YYYY-MM-DDThh:mm:ssZ``. None if it has no valid session id.

    Args:
        header: X-Amzn-SageMaker-New-Session-Id of a container's answer.
        now: seconds since the epoch, when the default lifetime begins.
    """
    session_id, *fields = (part.strip() for part in header.split(";"))
    if not 0 < len(session_id) <= MAX_ID_CHARACTERS or session_id == NEW_SESSION:
        return None
    named = dict(field.partition("=")[::2] for field in fields)
    given = next((value for name, value in named.items() if name.strip().lower() == "expires"), "")
    until = _instant(given)
    expires_at = now + DEFAULT_LIFETIME_S if until is None else min(until, now + MAX_LIFETIME_S)
    return OpenedSession(id=session_id, expires_at=expires_at)


def copy_mark(copy_id: str) -> int:
    """Compute the mark of a copy: 63 bits that identify it in tables that processes share."""
    digest = blake2b(copy_id.encode(), digest_size=MARK_BYTES).digest()
    return int.from_bytes(digest, "big") & MARK_MASK


def marked_copy(copies: Sequence[CopyRoute], mark: int) -> CopyRoute | None:
    """Find the copy with this mark. None if it is not among `copies`."""
    return next((copy for copy in copies if copy_mark(copy.id) == mark), None)


def marked_variant(variants: Sequence[VariantRoute], mark: int) -> VariantRoute | None:
    """Find the variant that has the copy with this mark. None if no variant has it."""
    return next((it for it in variants if marked_copy(it.copies, mark) is not None), None)


def _instant(text: str) -> float | None:
    """Parse `text` to seconds since the epoch. None if it is invalid. UTC if it has no zone."""
    try:
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
