"""Sessions, exchanged between hosts with gateways.

A gateway that does not know a session asks the other hosts. It also sends them the sessions that
its copies open and close. Both are needed: asking covers the time until a change has arrived, and
changes cover a host that is gone when it would be asked.
"""

import asyncio
import logging
import struct
from collections.abc import Callable

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.balancing.sessions import KEY_BYTES, SessionTable
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
FIND, CHANGE = "/internal/sessions/find", "/internal/sessions/change"
PEER_FIND, PEER_CHANGE = "/internal/peer/sessions/find", "/internal/peer/sessions/change"
ENTRY = struct.Struct(f"!{KEY_BYTES}sqd")
CLOSED = -1  # instead of the copy's mark
FIND_TIMEOUTS = Timeouts(total_s=1.0, connect_s=0.5)
MAX_UNDER_WAY = 256
MAX_ANSWER_BYTES = 4096


class SessionEntryError(HostelryError):
    """The bytes are not a session."""


class SessionEntry(msgspec.Struct, frozen=True):
    """The copy that holds a session, by its `mark`, until `expires_at`. `CLOSED`: no copy."""

    key: bytes
    mark: int
    expires_at: float

    def encode(self) -> bytes:
        """Encode the entry."""
        return ENTRY.pack(self.key, self.mark, self.expires_at)

    def keep(self, table: SessionTable) -> None:
        """Put the entry into `table`."""
        if self.mark == CLOSED:
            table.remove(self.key)
        else:
            table.put(self.key, self.mark, self.expires_at)


def decode_session(body: bytes) -> SessionEntry:
    """Decode an entry. Raises SessionEntryError."""
    if len(body) != ENTRY.size:
        raise SessionEntryError(f"{len(body)} bytes are no session of {ENTRY.size}")
    return SessionEntry(*ENTRY.unpack(body))


class SharedSessions:
    """The sessions of this host's table, and of other hosts through the process at `address`.

    Args:
        table: the table of this host.
        pool: connections.
        address: the process of this host that exchanges sessions with other hosts.
        internal_key: the key of calls between the platform's processes.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        table: SessionTable,
        pool: Upstream,
        address: str,
        internal_key: str,
        now: Callable[[], float],
    ) -> None:
        self._table = table
        self._pool = pool
        self._address = address
        self._internal_key = internal_key
        self._now = now
        self._sending: set[asyncio.Task[None]] = set()

    def get(self, key: bytes) -> tuple[int, float] | None:
        """Return the value under `key` on this host, and its expiry."""
        return self._table.get(key)

    def put(self, key: bytes, value: int, expires_at: float) -> None:
        """Keep `value` on all hosts."""
        self._table.put(key, value, expires_at)
        self._send(SessionEntry(key, value, expires_at))

    def remove(self, key: bytes) -> None:
        """Remove `key` on all hosts."""
        self._table.remove(key)
        self._send(SessionEntry(key, CLOSED, 0.0))

    async def fetch(self, key: bytes) -> None:
        """Fetch the session from another host, unless the table has it."""
        if self._table.get(key) is not None:
            return
        found = await ask_session(self._pool, self._address + FIND, self._internal_key, key)
        if found is not None and found.expires_at > self._now():
            found.keep(self._table)

    def _send(self, entry: SessionEntry) -> None:
        if len(self._sending) >= MAX_UNDER_WAY:  # other hosts will ask for the entry
            return
        change = send_session(self._pool, self._address + CHANGE, self._internal_key, entry)
        task = asyncio.get_running_loop().create_task(change)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)


async def ask_session(
    pool: Upstream, url: str, internal_key: str, key: bytes
) -> SessionEntry | None:
    """Ask the process at `url` for a session. None if it does not know it, or does not answer."""
    try:
        answer = await _post(pool, url, internal_key, key)
        return decode_session(answer.body) if answer.status == 200 else None
    except (UpstreamError, SessionEntryError) as error:
        LOG.info("sessions of other hosts cannot be asked for: %s", error)
        return None


async def send_session(pool: Upstream, url: str, internal_key: str, entry: SessionEntry) -> None:
    """Send the entry. If it is lost, the other host will ask for it."""
    try:
        await _post(pool, url, internal_key, entry.encode())
    except UpstreamError as error:
        LOG.info("a session was not sent to %s: %s", url, error)


async def _post(pool: Upstream, url: str, internal_key: str, body: bytes) -> HttpResponse:
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    request = HttpRequest("POST", f"/{path}", "", {INTERNAL_KEY_HEADER: internal_key}, body)
    return await call(pool, f"{scheme}://{host}", request, FIND_TIMEOUTS, MAX_ANSWER_BYTES)
