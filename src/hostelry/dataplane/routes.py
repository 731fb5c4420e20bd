"""Sources of the gateway's routes: control, with a file as fallback, or fixed."""

import asyncio
import contextlib
import gc
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from hostelry.base.clock import Clock, monotonic_s, thread_cpu_s
from hostelry.base.errors import HostelryError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.dataplane.route_table import EMPTY_SNAPSHOT, RouteTable
from hostelry.domain.route_delta import DELTA, ROUTES_HEADER, RouteDelta, encode_routes
from hostelry.domain.routes import RouteSnapshot
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream
from hostelry.routing.remote_copies import Published, through_proxy

LOG = logging.getLogger(__name__)

LARGE_BYTES = 1 << 20  # of routes as JSON. Less is not worth a freeze
MANY = 2_000  # components with about LARGE_BYTES
THOROUGH_EVERY = 16  # freezes


class RouteMemory:
    """Exempts the objects of many new routes from garbage collection.

    A component has about five objects, none of them in a cycle. To look at the objects of 10,000
    components took a worker 14 ms every second or two under load, and doubled the time of a
    decoding.

    All other objects that are alive at that time are exempt too. They are freed as before, once
    nothing refers to them. One freeze in `THOROUGH_EVERY` looks at all objects again, so that
    cycles are found.
    """

    def __init__(self) -> None:
        self._since_bytes = 0
        self._num_freezes = 0

    @contextlib.contextmanager
    def taking(self, num_bytes: int, num_kept: int = 0) -> Iterator[None]:
        """Decode and index routes within this context. They have `num_bytes` as JSON.

        `num_kept` components are changed, not replaced.
        """
        if num_bytes < LARGE_BYTES:
            yield
            self._since_bytes = self._since_bytes + num_bytes if num_kept >= MANY else 0
            if self._since_bytes >= LARGE_BYTES:
                self._collect()
                self._freeze()
            return
        self._collect()  # garbage must not become exempt
        gc.disable()
        try:
            yield
            self._freeze()
        finally:
            gc.enable()

    def _collect(self) -> None:
        if self._num_freezes % THOROUGH_EVERY == THOROUGH_EVERY - 1:
            gc.unfreeze()
        gc.collect()

    def _freeze(self) -> None:
        self._since_bytes = 0
        self._num_freezes += 1
        gc.freeze()


QUICK_S = 0.005
CPU_SHARE = 500.0
DISK_SHARE = 20.0
LONGEST_PAUSE_S = 60.0
KEEP_RETRY_S = 20.0  # after a failure


class KeptRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """The version of the routes in a file, and when they were written, in epoch seconds."""

    version: str
    written_at: float


class SnapshotFile(Protocol):
    """A file of routes, which several processes replace."""

    def get_version(self) -> KeptRoutes | None:
        """Return the version in the file. None if it is missing or unreadable."""
        ...

    def save(self, snapshot: RouteSnapshot) -> None:
        """Keep `snapshot` for the next start. Raises OSError."""
        ...


def pause_after(cpu_s: float, took_s: float) -> float:
    """Compute the seconds until newer routes are written, after a write of this duration."""
    if took_s < QUICK_S:
        return 0.0
    return min(max(CPU_SHARE * cpu_s, DISK_SHARE * took_s), LONGEST_PAUSE_S)


def compute_rest(pause_s: float, kept: KeptRoutes | None, now: float) -> float:
    """Compute the rest of a pause since the last write of any process. 0 if its time is unknown."""
    age_s = pause_s if kept is None else now - kept.written_at
    return pause_s - age_s if 0 <= age_s < pause_s else 0.0  # below 0: the clock was set back


class RouteKeeper:
    """Keeps the newest routes in `file`. `draw`, from 0 to 1, spreads the writes of processes.

    The processes of a host share one file, so that a write of one process counts for the others.

    duration of the last write   newer routes are written
    --------------------------   ----------------------------------------------------------------
    less than QUICK_S            at once
    longer                       after CPU_SHARE times its processor time, or DISK_SHARE times its
                                 duration, at most LONGEST_PAUSE_S. Up to twice that, so that
                                 processes take turns
    any, control is away         at once: this process may start again before control does
    any, the process stops       at once
    """

    def __init__(
        self, file: SnapshotFile, clock: Clock, draw: Callable[[], float] = random.random
    ) -> None:
        self._file = file
        self._clock = clock
        self._draw = draw
        self._newest: RouteTable | None = None
        self._newer = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._pause_s = 0.0
        self._writing = threading.Lock()

    def note(self, newest: RouteTable) -> None:
        """Note newer routes, which will be kept."""
        self._newest = newest
        self._newer.set()

    def set_urgent(self, is_urgent: bool) -> None:
        """Keep the newest routes at once, or with pauses."""
        if is_urgent:
            self._is_urgent.set()
        else:
            self._is_urgent.clear()

    async def run(self) -> None:
        """Keep noted routes, until cancelled."""
        try:
            while True:
                await self._newer.wait()
                await self._pause()
                self._newer.clear()
                snapshot = self._not_kept()
                if snapshot is not None and not await asyncio.to_thread(self._save, snapshot):
                    self._newer.set()
                    await self._clock.sleep(KEEP_RETRY_S)
        finally:
            snapshot = self._not_kept() if self._newer.is_set() else None
            if snapshot is not None:
                self._save(snapshot)

    async def _pause(self) -> None:
        """Return once no process has written for a pause."""
        pause_s = self._pause_s * (1 + self._draw())
        while not self._is_urgent.is_set():
            left_s = (
                compute_rest(pause_s, self._file.get_version(), self._clock.now())
                if pause_s
                else 0.0
            )
            if not left_s:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._is_urgent.wait()

    def _not_kept(self) -> RouteSnapshot | None:
        """Return the newest routes, unless the file has them."""
        kept = self._file.get_version()
        if self._newest is None or (kept is not None and kept.version == self._newest.version):
            return None
        return self._newest.snapshot()

    def _save(self, snapshot: RouteSnapshot) -> bool:
        """Write the routes. False if that failed."""
        with self._writing:
            started_s, cpu_s = monotonic_s(), thread_cpu_s()
            try:
                self._file.save(snapshot)
            except OSError as error:
                LOG.warning("the routes could not be kept on disk: %s", error)
                return False
            finally:
                self._pause_s = pause_after(thread_cpu_s() - cpu_s, monotonic_s() - started_s)
        return True


MAX_SNAPSHOT_BYTES = 256 * 1024 * 1024
# Control answers within 20 s when nothing changes.
POLL_TIMEOUTS = Timeouts(total_s=30.0, connect_s=2.0)
RETRY_S = 0.25
HEAD = b'{"version":"'  # the beginning of a file of routes
HEAD_BYTES = 256


class RouteSource(Protocol):
    """The newest routes of the gateway. Newer routes follow as control publishes them."""

    @property
    def table(self) -> RouteTable:
        """The newest routes. A request reads the table once, and keeps it."""
        ...

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` at once whenever there are newer routes."""
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
        """Let `replace` call `changed`."""
        self._listeners.append(changed)

    def replace(self, snapshot: RouteSnapshot) -> None:
        """Replace the routes."""
        self._table = RouteTable(snapshot)
        for changed in self._listeners:
            changed()


class SnapshotError(HostelryError):
    """The bytes are not a route snapshot."""


class RouteFile:
    """The last snapshot, on disk.

    `write` replaces a file whole or not at all, private to its owner.
    """

    def __init__(self, path: Path, write: Callable[[Path, bytes], None]) -> None:
        self._path = path
        self._write = write

    def load(self) -> RouteSnapshot:
        """Load the stored snapshot. Empty if there is none. A broken file is set aside."""
        try:
            return decode_snapshot(self._path.read_bytes())
        except FileNotFoundError:
            return EMPTY_SNAPSHOT
        except SnapshotError as error:
            self._set_aside(error)
            return EMPTY_SNAPSHOT
        except OSError as error:
            LOG.warning("%s cannot be read (%s); waiting for control's routes", self._path, error)
            return EMPTY_SNAPSHOT

    def _set_aside(self, error: SnapshotError) -> None:
        aside = self._path.with_name(self._path.name + ".broken")
        try:
            self._path.replace(aside)
        except OSError as refusal:
            LOG.warning("%s cannot be read (%s) or renamed (%s)", self._path, error, refusal)
        else:
            LOG.warning("%s cannot be read (%s); it is now %s", self._path, error, aside.name)

    @property
    def num_bytes(self) -> int:
        """The size of the file. 0 if there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def get_version(self) -> KeptRoutes | None:
        """Return the version in the file, and its time. None if they cannot be read."""
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
        self._write(self._path, encode_routes(snapshot))


def decode_snapshot(body: bytes) -> RouteSnapshot:
    """Decode a snapshot. Raises SnapshotError."""
    try:
        return decode(body, RouteSnapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotError(f"no route snapshot: {error}") from error


def decode_delta(body: bytes) -> RouteDelta:
    """Decode changes. Raises SnapshotError."""
    try:
        return decode(body, RouteDelta)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotError(f"no changes of routes: {error}") from error


class PublishedRoutes:
    """Routes as control publishes them. Until control answers, the routes on disk are used.

    Control answers with changes. If they do not lead to the version that they name, all routes are
    asked for. The file is always whole. If a write takes long, the file follows later.

    On another host than the host of the copies, `proxy` is an address there
    (`routing.remote_copies`).
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
            self._table = RouteTable(self._localize(file.load()))
        self._connected = True
        self._asks_for_delta = True
        self._listeners: list[Callable[[], None]] = []

    @property
    def table(self) -> RouteTable:
        """The newest routes."""
        return self._table

    def listen(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever newer routes have come, before they are on disk."""
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
        """Ask control for newer routes. None if there are none."""
        reply = await call(
            self._pool, self._address, self._request(), POLL_TIMEOUTS, MAX_SNAPSHOT_BYTES
        )
        body = reply.body
        if reply.status == 304:
            return None
        if reply.status != 200:
            raise SnapshotError(f"control answered {reply.status}: {body[:200]!r}")
        if reply.headers.get(ROUTES_HEADER) != DELTA:
            self._asks_for_delta = True
            with self._memory.taking(len(body)):
                return RouteTable(self._localize(decode_snapshot(body)))
        try:
            with self._memory.taking(len(body), self._table.num_components):
                return self._table.apply(self._localize(decode_delta(body)))
        except (ValueError, SnapshotError) as error:
            self._asks_for_delta = False
            LOG.warning("changed routes do not fit, so all are asked for: %s", error)
            return None

    def _localize(self, published: Published) -> Published:
        """Replace addresses by addresses that this host can reach."""
        return published if self._proxy is None else through_proxy(published, self._proxy)

    def _request(self) -> HttpRequest:
        asked = f"have={quote(self._table.version, safe='')}&delta=1"
        query = asked if self._asks_for_delta else "have="
        headers = {INTERNAL_KEY_HEADER: self._internal_key}
        return HttpRequest("GET", "/internal/routes", query, headers)

    def _note_connection(self, *, connected: bool, reason: str) -> None:
        if connected != self._connected:
            self._connected = connected
            self._keeper.set_urgent(not connected)
            if connected:
                LOG.info("routes follow control again")
            else:
                LOG.warning("control does not answer; the last routes stay in use (%s)", reason)
