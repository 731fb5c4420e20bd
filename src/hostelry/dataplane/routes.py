"""Sources of the gateway's routes: control, with a file as fallback, or a fixed set."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.dataplane.http.reply import UpstreamError
from hostelry.dataplane.http.upstream import Timeouts, Upstream
from hostelry.dataplane.route_keeper import KeptRoutes, RouteKeeper
from hostelry.dataplane.route_memory import RouteMemory
from hostelry.dataplane.route_table import EMPTY_SNAPSHOT, RouteTable
from hostelry.domain.route_delta import DELTA, ROUTES_HEADER, RouteDelta, encoded
from hostelry.domain.routes import RouteSnapshot
from hostelry.routing.remote_copies import Published, through_proxy

log = logging.getLogger(__name__)
MAX_SNAPSHOT_BYTES = 256 * 1024 * 1024
# Control answers within 20 s when nothing changes.
POLL_TIMEOUTS = Timeouts(total_s=30.0, connect_s=2.0)
RETRY_S = 0.25
HEAD = b'{"version":"'  # what a file of routes begins with
HEAD_BYTES = 256


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

    @property
    def num_bytes(self) -> int:
        """Its size; 0 where there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def kept(self) -> KeptRoutes | None:
        """The version in the file, and when it was written; None where that cannot be read."""
        try:
            with self._path.open("rb") as file:
                head, written_at = file.read(HEAD_BYTES), os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        version, found, _ = head.removeprefix(HEAD).partition(b'"')
        if not (head.startswith(HEAD) and found):
            return None
        return KeptRoutes(version=version.decode("latin-1"), written_at=written_at)

    def save(self, snapshot: RouteSnapshot) -> None:
        """Keep `snapshot` for the next start."""
        self._write(self._path, encoded(snapshot))


class SnapshotError(HostelryError):
    """The bytes are no route snapshot."""


def decode_snapshot(body: bytes) -> RouteSnapshot:
    """The snapshot in `body`; raises SnapshotError."""
    try:
        return decode(body, RouteSnapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotError(f"no route snapshot: {error}") from error


def decode_delta(body: bytes) -> RouteDelta:
    """The changes in `body`; raises SnapshotError."""
    try:
        return decode(body, RouteDelta)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotError(f"no changes of routes: {error}") from error


class PublishedRoutes:
    """Routes as control publishes them; those on disk until it answers, the last ones after.

    Control answers with what changed. Where that does not lead to the version that it names, the
    whole is asked for. The file is always whole; where it takes long to write, it follows later
    (`gateway.route_keeper`).

    On another host than the copies', `proxy` is an address there (`routing.remote_copies`).
    """

    def __init__(
        self,
        pool: Upstream,
        address: str,
        internal_key: str,
        file: RouteFile,
        clock: Clock,
        proxy: str | None = None,
    ) -> None:
        self._pool = pool
        self._address = address
        self._internal_key = internal_key
        self._keeper = RouteKeeper(file, clock)
        self._clock = clock
        self._proxy = proxy
        self._memory = RouteMemory()
        with self._memory.taking(file.num_bytes):
            self._table = RouteTable(self._seen(file.load()))
        self._connected = True
        self._asks_for_delta = True
        self._listeners: list[Callable[[], None]] = []

    @property
    def table(self) -> RouteTable:
        """The newest routes."""
        return self._table

    def listen(self, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever newer routes came, before they are kept on disk."""
        self._listeners.append(changed)

    async def follow(self) -> None:
        """Poll control, and keep the routes on disk, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keeper.run())
            await self._follow()

    async def _follow(self) -> None:
        while True:
            try:
                table = await self._poll()
            except (UpstreamError, SnapshotError) as error:
                self._note_connection(connected=False, reason=str(error))
                await self._clock.sleep(RETRY_S)
                continue
            self._note_connection(connected=True, reason="")
            if table is not None:
                self._table = table
                for changed in self._listeners:
                    changed()
                self._keeper.note(table)

    async def _poll(self) -> RouteTable | None:
        """The table of newer routes; None where control has none."""
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
        if reply.headers.get(ROUTES_HEADER) != DELTA:
            self._asks_for_delta = True
            with self._memory.taking(len(body)):
                return RouteTable(self._seen(decode_snapshot(body)))
        try:
            with self._memory.taking(len(body), self._table.num_components):
                return self._table.changed(self._seen(decode_delta(body)))
        except (ValueError, SnapshotError) as error:
            self._asks_for_delta = False
            log.warning("changed routes do not fit, so all are asked for: %s", error)
            return None

    def _seen(self, published: Published) -> Published:
        """`published` as this host reaches the copies."""
        return published if self._proxy is None else through_proxy(published, self._proxy)

    def _request(self) -> bytes:
        host = self._address.removeprefix("http://")
        asked = f"have={quote(self._table.version, safe='')}&delta=1"
        return (
            f"GET /internal/routes?{asked if self._asks_for_delta else 'have='} HTTP/1.1\r\n"
            f"Host: {host}\r\nX-Hostelry-Key: {self._internal_key}\r\n\r\n"
        ).encode("latin-1")

    def _note_connection(self, *, connected: bool, reason: str) -> None:
        if connected != self._connected:
            self._connected = connected
            self._keeper.set_urgent(not connected)
            if connected:
                log.info("routes follow control again")
            else:
                log.warning("control does not answer; the last routes stay in use (%s)", reason)
