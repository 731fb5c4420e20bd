"""Sticky sessions: a container opens a session, whose requests go to the copy that holds it."""

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
OWNER_BYTES = 4  # of a key: its endpoint. The endpoints share the room of a table fairly


class SessionTable(Protocol):
    """Numbers under keys, each until a time (seconds since the epoch)."""

    def get(self, key: bytes) -> tuple[int, float] | None:
        """Return the value under `key` and its expiry. None if it is missing or has expired."""
        ...

    def put(self, key: bytes, value: int, expires_at: float) -> object:
        """Keep `value` under `key` until `expires_at`."""
        ...

    def remove(self, key: bytes) -> object:
        """Remove `key`, if it is there."""
        ...


class SessionDict:
    """The table of a gateway with one process.

    Args:
        now: seconds since the epoch.
        capacity: maximum number of entries. Above it, the owner with the most entries loses those
            that expire first.
    """

    def __init__(self, now: Callable[[], float], capacity: int = MAX_SESSIONS) -> None:
        self._now = now
        self._capacity = capacity
        self._entries: dict[bytes, tuple[int, float]] = {}

    def get(self, key: bytes) -> tuple[int, float] | None:
        """Return the value under `key` and its expiry. None if it is missing or has expired."""
        entry = self._entries.get(key)
        if entry is None or entry[1] > self._now():
            return entry
        del self._entries[key]
        return None

    def put(self, key: bytes, value: int, expires_at: float) -> None:
        """Keep `value` under `key` until `expires_at`."""
        if len(self._entries) >= self._capacity and key not in self._entries:
            self._make_room()
        self._entries[key] = (value, expires_at)

    def remove(self, key: bytes) -> None:
        """Remove `key`, if it is there."""
        self._entries.pop(key, None)

    def _make_room(self) -> None:
        """Remove an eighth of the largest owner's entries, so that this is rare."""
        entries = self._entries
        (owner, most), *_ = Counter(key[:OWNER_BYTES] for key in entries).most_common(1)
        held = (key for key in entries if key.startswith(owner))
        for key in sorted(held, key=lambda key: entries[key][1])[: max(1, most // 8)]:
            del entries[key]


class Sessions:
    """The copy that holds each session. A session is valid on its account's endpoint only.

    Args:
        table: several processes may share one table.
        now: seconds since the epoch.
        fetch: puts the session under a key into `table` if another host knows it. None without
        other
            hosts.
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
        """Fetch the session of the invocation, if another host knows it."""
        session_id = invocation.session_id
        if self._fetch is not None and session_id is not None and session_id != NEW_SESSION:
            await self._fetch(_key(scope, invocation.endpoint_name, session_id))

    def holder(self, scope: Scope, invocation: InvokeRequest) -> int | None:
        """Find the mark of the copy that holds the session. None if the session is unknown."""
        session_id = invocation.session_id
        if session_id is None or session_id == NEW_SESSION:
            return None
        entry = self._table.get(_key(scope, invocation.endpoint_name, session_id))
        return entry[0] if entry is not None else None

    def note(
        self, scope: Scope, invocation: InvokeRequest, copy: CopyRoute, headers: Mapping[str, str]
    ) -> None:
        """Record the sessions that `copy` opens and closes by the headers of its answer.

        header           the request's session      the session's copy   recorded
        opens a session  NEW_SESSION, or the same   any                  the session is on `copy`
        opens a session  another                    any                  nothing
        closes one       any                        `copy`               the session is removed
        closes one       any                        another              nothing
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
    """Find the copy of `destination` that holds the session.

    Args:
        destination: the destination of the request.
        session_id: the client's name of the session, which exists.
        holder: the mark of the copy that holds the session. None if the session is unknown.

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
    """Find the session that a container opened, by the newer or the older header."""
    given = headers.get(NEW_SESSION_ID)
    if given is None and invocation.session_id == NEW_SESSION:
        return headers.get(OLDER_SESSION_ID)
    return given


def _key(scope: Scope, endpoint_name: str, session_id: str) -> bytes:
    """Build the session's key in the table. Names have no NUL, so keys are unique."""
    owner = "\0".join((scope.account, scope.region, endpoint_name))
    session = blake2b(f"{owner}\0{session_id}".encode(), digest_size=KEY_BYTES - OWNER_BYTES)
    return blake2b(owner.encode(), digest_size=OWNER_BYTES).digest() + session.digest()
