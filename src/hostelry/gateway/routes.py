"""Sources of the gateway's routes: control, with a file as fallback, or a fixed set."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.domain.routes import RouteSnapshot
from hostelry.gateway.http.reply import UpstreamError
from hostelry.gateway.http.upstream import Timeouts, UpstreamPool
from hostelry.gateway.route_table import EMPTY_SNAPSHOT, RouteTable
from hostelry.routing.remote_copies import through_proxy

log = logging.getLogger(__name__)
MAX_SNAPSHOT_BYTES = 256 * 1024 * 1024
# Control answers within 20 s when nothing changes.
POLL_TIMEOUTS = Timeouts(total_s=30.0, connect_s=2.0)
RETRY_S = 0.25


class RouteSource(Protocol):
    """The gateway's view of routes: the newest snapshot, and newer ones as they come."""

    @property
    def table(self) -> RouteTable:
        """The newest routes; a request reads it once and keeps what it read."""
        ...

    def listen(self, changed: Callable[[], None]) -> None:
        """Have `changed` called at once whenever there are newer routes."""
        ...


class FixedRoutes:
    """Routes that change only when `replace` is called."""

    def __init__(self, snapshot: RouteSnapshot = EMPTY_SNAPSHOT) -> None:
        self._table = RouteTable(snapshot)
        self._listeners: list[Callable[[], None]] = []

    @property
    def table(self) -> RouteTable:
        """The routes."""
        return self._table

    def listen(self, changed: Callable[[], None]) -> None:
        """Have `changed` called by `replace`."""
        self._listeners.append(changed)

    def replace(self, snapshot: RouteSnapshot) -> None:
        """Replace the routes."""
        self._table = RouteTable(snapshot)
        for changed in self._listeners:
            changed()


class RouteFile:
    """The last snapshot, on disk.

    `write` replaces a file whole or not at all, private to its owner.
    """

    def __init__(self, path: Path, write: Callable[[Path, bytes], None]) -> None:
        self._path = path
        self._write = write

    def load(self) -> RouteSnapshot:
        """The stored snapshot; empty where there is none. A broken file is set aside."""
        try:
            return decode_snapshot(self._path.read_bytes())
        except FileNotFoundError:
            return EMPTY_SNAPSHOT
        except SnapshotError as error:
            aside = self._path.with_name(self._path.name + ".broken")
            self._path.replace(aside)
            log.warning("%s cannot be read (%s); it is now %s", self._path, error, aside.name)
            return EMPTY_SNAPSHOT
        except OSError as error:
            log.warning("%s cannot be read (%s); waiting for control's routes", self._path, error)
            return EMPTY_SNAPSHOT

    def save(self, snapshot: RouteSnapshot) -> None:
        """Keep `snapshot` for the next start."""
        self._write(self._path, msgspec.json.encode(snapshot))


class SnapshotError(HostelryError):
    """The bytes are no route snapshot."""


def decode_snapshot(body: bytes) -> RouteSnapshot:
    """The snapshot in `body`; raises SnapshotError."""
    try:
        return decode(body, RouteSnapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotError(f"no route snapshot: {error}") from error


class PublishedRoutes:
    """Routes as control publishes them; those on disk until it answers, the last ones after.

    On another host than the copies', `proxy` is an address there (`routing.remote_copies`).
    """

    def __init__(
        self,
        pool: UpstreamPool,
        address: str,
        internal_key: str,
        file: RouteFile,
        clock: Clock,
        proxy: str | None = None,
    ) -> None:
        self._pool = pool
        self._address = address
        self._internal_key = internal_key
        self._file = file
        self._clock = clock
        self._proxy = proxy
        self._table = self._table_of(file.load())
        self._connected = True
        self._listeners: list[Callable[[], None]] = []

    @property
    def table(self) -> RouteTable:
        """The newest routes."""
        return self._table

    def listen(self, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever newer routes came, before they are kept on disk."""
        self._listeners.append(changed)

    async def follow(self) -> None:
        """Poll control until cancelled."""
        while True:
            try:
                snapshot = await self._poll()
            except (UpstreamError, SnapshotError) as error:
                self._note_connection(connected=False, reason=str(error))
                await self._clock.sleep(RETRY_S)
                continue
            self._note_connection(connected=True, reason="")
            if snapshot is not None:
                await self._take(snapshot)

    async def _take(self, snapshot: RouteSnapshot) -> None:
        self._table = self._table_of(snapshot)
        for changed in self._listeners:
            changed()
        try:
            await asyncio.to_thread(self._file.save, snapshot)
        except OSError as error:
            log.warning("the routes could not be kept on disk: %s", error)

    def _table_of(self, snapshot: RouteSnapshot) -> RouteTable:
        remote = snapshot if self._proxy is None else through_proxy(snapshot, self._proxy)
        return RouteTable(remote)

    async def _poll(self) -> RouteSnapshot | None:
        reply = await self._pool.send(
            self._address, (self._request(), b""), POLL_TIMEOUTS, MAX_SNAPSHOT_BYTES
        )
        try:
            body = await reply.body(MAX_SNAPSHOT_BYTES)
        finally:
            reply.close()
        if reply.status == 304:
            return None
        if reply.status != 200:
            raise SnapshotError(f"control answered {reply.status}: {body[:200]!r}")
        return decode_snapshot(body)

    def _request(self) -> bytes:
        host = self._address.removeprefix("http://")
        return (
            f"GET /internal/routes?have={quote(self._table.version, safe='')} HTTP/1.1\r\n"
            f"Host: {host}\r\nX-Hostelry-Key: {self._internal_key}\r\n\r\n"
        ).encode("latin-1")

    def _note_connection(self, *, connected: bool, reason: str) -> None:
        if connected != self._connected:
            self._connected = connected
            if connected:
                log.info("routes follow control again")
            else:
                log.warning("control does not answer; the last routes stay in use (%s)", reason)
