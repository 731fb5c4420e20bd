"""Sticky sessions: a container opens one, and its requests go to the copy that holds it."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Protocol

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.dataplane.route_table import Destination
from hostelry.domain.routes import CopyRoute
from hostelry.domain.scope import Scope
from hostelry.routing.session import NEW_SESSION, copy_mark, marked_copy, opened_session

NEW_SESSION_ID = "x-amzn-sagemaker-new-session-id"
OLDER_SESSION_ID = "x-amzn-sagemaker-session-id"  # older LMI containers open with this name
CLOSED_SESSION_ID = "x-amzn-sagemaker-closed-session-id"
MAX_SESSIONS = 16384
KEY_BYTES = 16
OWNER_BYTES = 4  # of a key: its endpoint, with which tables share their room fairly


class SessionTable(Protocol):
    """Numbers under keys, each until an instant (seconds since the epoch)."""

    def get(self, key: bytes) -> tuple[int, float] | None:
        """The value under `key` and when it expires; None where there is none, or it has."""
        ...

    def put(self, key: bytes, value: int, expires_at: float) -> object:
        """Keep `value` until `expires_at`, in place of what was there."""
        ...

    def remove(self, key: bytes) -> object:
        """Forget `key`; one that is not there is no error."""
        ...


class SessionDict:
    """The table of a gateway with one process.

    Args:
        now: seconds since the epoch.
        capacity: most entries; beyond it those of the owner of most are removed that expire first.
    """

    def __init__(self, now: Callable[[], float], capacity: int = MAX_SESSIONS) -> None:
        self._now = now
        self._capacity = capacity
        self._entries: dict[bytes, tuple[int, float]] = {}

    def get(self, key: bytes) -> tuple[int, float] | None:
        """The value under `key` and when it expires; None where there is none, or it has."""
        entry = self._entries.get(key)
        if entry is None or entry[1] > self._now():
            return entry
        del self._entries[key]
        return None

    def put(self, key: bytes, value: int, expires_at: float) -> None:
        """Keep `value` until `expires_at`, in place of what was there."""
        if len(self._entries) >= self._capacity and key not in self._entries:
            self._make_room()
        self._entries[key] = (value, expires_at)

    def remove(self, key: bytes) -> None:
        """Forget `key`; one that is not there is no error."""
        self._entries.pop(key, None)

    def _make_room(self) -> None:
        """Remove the eighth of the largest owner's that expires first, so that this is rare."""
        entries = self._entries
        (owner, most), *_ = Counter(key[:OWNER_BYTES] for key in entries).most_common(1)
        held = (key for key in entries if key.startswith(owner))
        for key in sorted(held, key=lambda key: entries[key][1])[: max(1, most // 8)]:
            del entries[key]


class Sessions:
    """The copy that holds each session; a session is known on its account's endpoint only.

    Args:
        table: one table may serve several processes.
        now: seconds since the epoch.
        fetch: has the session under a key in `table` where another host knows it; None where there
            is no other.
    """

    def __init__(
        self,
        table: SessionTable,
        now: Callable[[], float],
        fetch: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        self._table = table
        self._now = now
        self._fetch = fetch

    async def fetch(self, scope: Scope, invocation: InvokeRequest) -> None:
        """Have the invocation's session known here where another host knows it."""
        session_id = invocation.session_id
        if self._fetch is not None and session_id is not None and session_id != NEW_SESSION:
            await self._fetch(_key(scope, invocation.endpoint_name, session_id))

    def holder(self, scope: Scope, invocation: InvokeRequest) -> int | None:
        """The mark of the copy that holds the invocation's session; None where none is known."""
        session_id = invocation.session_id
        if session_id is None or session_id == NEW_SESSION:
            return None
        entry = self._table.get(_key(scope, invocation.endpoint_name, session_id))
        return entry[0] if entry is not None else None

    def note(
        self, scope: Scope, invocation: InvokeRequest, copy: CopyRoute, headers: Mapping[str, str]
    ) -> None:
        """Record what `copy` states about sessions in the headers of its answer.

        header           the request's session     the session's copy   recorded
        opens a session  NEW_SESSION, or that one  any                  it is on `copy`
        opens a session  any other                 any                  nothing
        closes one       any                       `copy`               removed
        closes one       any                       any other            nothing
        """
        header = new_session_id(invocation, headers)
        opened = None if header is None else opened_session(header, self._now())
        if opened is not None and invocation.session_id in (NEW_SESSION, opened.id):
            key = _key(scope, invocation.endpoint_name, opened.id)
            self._table.put(key, copy_mark(copy.id), opened.expires_at)
        closed_id = headers.get(CLOSED_SESSION_ID)
        if closed_id is not None:
            key = _key(scope, invocation.endpoint_name, closed_id.partition(";")[0].strip())
            entry = self._table.get(key)
            if entry is not None and entry[0] == copy_mark(copy.id):
                self._table.remove(key)


def pinned_copy(destination: Destination, session_id: str, holder: int | None) -> CopyRoute:
    """The copy of `destination` that holds the session.

    Args:
        destination: where the request goes.
        session_id: as the client named it, an existing one.
        holder: the mark of the copy that holds it; None where the session is not known.

    Raises ServiceError ValidationError (400).
    """
    begin = "Open a new session with SessionId NEW_SESSION."
    where = f"endpoint {destination.endpoint_name}"
    if holder is None:
        raise ServiceError(
            "ValidationError",
            f"Session {session_id} is not known on {where}: it was not opened there, was closed or "
            f"has expired. {begin}",
        )
    copy = marked_copy(destination.copies, holder)
    if copy is None:
        served = destination.component_name or destination.variant_name
        raise ServiceError(
            "ValidationError",
            f"Session {session_id} on {where} has ended: the copy that held it does not serve "
            f"{served} any more. {begin}",
        )
    return copy


def new_session_id(invocation: InvokeRequest, headers: Mapping[str, str]) -> str | None:
    """The header of a session that a container opened, under its newer or its older name."""
    given = headers.get(NEW_SESSION_ID)
    if given is None and invocation.session_id == NEW_SESSION:
        return headers.get(OLDER_SESSION_ID)
    return given


def _key(scope: Scope, endpoint_name: str, session_id: str) -> bytes:
    """The session's key in the table; names have no NUL, so that keys are unique."""
    owner = "\0".join((scope.account, scope.region, endpoint_name))
    session = blake2b(f"{owner}\0{session_id}".encode(), digest_size=KEY_BYTES - OWNER_BYTES)
    return blake2b(owner.encode(), digest_size=OWNER_BYTES).digest() + session.digest()
