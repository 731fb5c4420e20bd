"""The peers process: ``python -m hostelry.services.peers --home DIR``.

It exchanges two things between the gateways of all hosts: sessions, and requests in flight on each
copy. It puts the latter into the table of counts that this host's gateway workers read. It may be
killed at any moment: its counts are valid for two more seconds, and then each gateway balances by
its own.
"""

import argparse
import asyncio
import contextlib
import logging
import random
import sys
from collections.abc import Collection, Coroutine
from pathlib import Path

import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hostelry import __version__
from hostelry.base import tls
from hostelry.base.asgi_server import asgi_server, listening
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.concurrency import run_periodically, stop_event
from hostelry.base.errors import TerminalError
from hostelry.base.guards import INTERNAL_KEY_HEADER, KeyGuard, OwnHostsOnly
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.base.logging import configure_logging
from hostelry.cluster.control_access import control_access
from hostelry.cluster.gateway_hosts import REPORT_S, GatewayHost, GatewayHostList, KnownHosts
from hostelry.dataplane.balancing.sessions import SessionDict, SessionTable
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.host_counts import (
    INTERVAL_S,
    HostCounts,
    HostCountsError,
    OtherHosts,
    SentCounts,
    compute_share,
    decode_host_counts,
)
from hostelry.dataplane.shared.map import SharedMap
from hostelry.dataplane.shared.mapped_file import LockedError
from hostelry.dataplane.shared.session_exchange import (
    CHANGE,
    FIND,
    PEER_CHANGE,
    PEER_FIND,
    SessionEntry,
    SessionEntryError,
    ask_session,
    decode_session,
    send_session,
)
from hostelry.home.heartbeat import answer_heartbeats
from hostelry.home.home import Home, UpConfig, load_config, load_credentials, log_format
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream, UpstreamPool
from hostelry.processes.gateway_workers import open_table
from hostelry.services.worker_parts import wait_for_end

LOG = logging.getLogger("hostelry.services.peers")  # it runs as __main__
NAME = "peers"
COUNTS = "/internal/peer/counts"
TIMEOUTS = Timeouts(total_s=1.0, connect_s=0.5)
MAX_ANSWER_BYTES = 1024 * 1024
IDLE_S = 30.0  # an idle connection to a peer is kept so long


class SharedColumn:
    """The column for other hosts in the table of this host's workers, whichever file that is."""

    def __init__(self, home: Home, config: UpConfig) -> None:
        self._home = home
        self._config = config
        self._table: CountTable | None = None
        self._inode = 0
        self._rows: dict[bytes, int] = {}
        self._is_empty = True

    def table(self) -> CountTable | None:
        """The table. None if it cannot be opened. A start of the gateway may replace it."""
        inode = 0
        with contextlib.suppress(FileNotFoundError):
            inode = self._home.counts.stat().st_ino
        if self._table is None or inode != self._inode:
            if self._table is not None:
                self._table.close()
            self._rows.clear()
            self._is_empty = True
            self._table = open_table(self._home, self._config)
            if self._table is not None:
                self._table.clear(self._table.num_workers)
                self._inode = self._home.counts.stat().st_ino
        return self._table

    def write_counts(self, keys: Collection[bytes], other: OtherHosts) -> None:
        """Write the counts of other hosts into the rows of `keys`. A new table gets all counts."""
        table = self.table()
        if table is None:
            return
        column, sums = table.num_workers, other.sums
        shown, self._is_empty = sums.keys() if self._is_empty else keys, False
        for key in shown:
            total, row = sums.get(key, 0), self._rows.get(key)
            if row is None and total:
                try:
                    row = table.find_row(key, column)
                except LockedError:
                    row = None  # with its next change
                if row is not None:
                    self._rows[key] = row
            if row is not None:
                table.set_others(row, total)
                if not total:
                    table.release(self._rows.pop(key), column)


class PeerExchange:
    """What this process sends to other hosts, and takes from them.

    Args:
        config: this host's.
        internal_key: of calls between the platform's own processes.
        pool: connections.
        column: where other hosts' requests are shown.
        sessions: this host's.
    """

    def __init__(
        self,
        config: UpConfig,
        internal_key: str,
        pool: Upstream,
        column: SharedColumn,
        sessions: SessionTable,
    ) -> None:
        self._config = config
        self._key = internal_key
        self._pool = pool
        self._column = column
        self._sessions = sessions
        self._other = OtherHosts()
        self._sent = SentCounts(config.host_id, random.getrandbits(63))
        self._known = KnownHosts(monotonic_s)
        self._peers: dict[str, str] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def app(self) -> ASGIApp:
        """The HTTP application. It refuses every request without the internal key."""
        app = Starlette(
            routes=[
                Route(COUNTS, self._take_counts, methods=["POST"]),
                Route(FIND, self._find_elsewhere, methods=["POST"]),
                Route(CHANGE, self._change_elsewhere, methods=["POST"]),
                Route(PEER_FIND, self._find_here, methods=["POST"]),
                Route(PEER_CHANGE, self._change_here, methods=["POST"]),
            ]
        )
        refusal = Response("The internal key is missing or wrong.", 403)
        return OwnHostsOnly(KeyGuard(app, INTERNAL_KEY_HEADER, self._key, refusal))

    async def report(self) -> None:
        """Report this host to control, and follow its list of hosts."""
        own = GatewayHost(
            host_id=self._config.host_id,
            address=self._config.peer_address or self._config.peers_url,
            version=__version__,
        )
        try:
            status, body = await self._post(
                self._config.control_url, "/internal/gateway-hosts", msgspec.json.encode(own)
            )
            if status != 200:
                return
            listed = decode(body, GatewayHostList)
        except (UpstreamError, msgspec.MsgspecError) as error:
            LOG.debug("the hosts stay as they are: %s", error)
            return
        self._known.add(listed.hosts)
        self._follow(dict(self._known.hosts()))

    def _follow(self, hosts: dict[str, str]) -> None:
        share = compute_share(self._config.host_id, set(hosts))
        hosts.pop(self._config.host_id, None)
        if hosts != self._peers:
            LOG.info("gateways on %d other hosts: %s", len(hosts), ", ".join(sorted(hosts)))
            self._peers = hosts
            self._sent.set_peers(set(hosts.values()))
        table = self._column.table()
        if table is not None:
            table.set_share(share)

    async def exchange(self) -> None:
        """Send due counts and sessions to each peer, and drop the counts of hosts that are gone."""
        now = monotonic_s()
        self._column.write_counts(self._other.expire(now), self._other)
        table = self._column.table()
        if table is None or not self._peers:
            return
        self._sent.count(table.own_totals())
        for address, message in self._sent.due(now):
            self._start(self._send(address, message))

    async def _send(self, address: str, message: HostCounts) -> None:
        try:
            status, _ = await self._post(address, COUNTS, message.encode())
            is_taken = status == 204
        except UpstreamError as error:
            LOG.debug("counts were not sent to %s: %s", address, error)
            is_taken = False
        self._sent.note_result(address, is_taken=is_taken)

    async def _take_counts(self, request: Request) -> Response:
        """204 once they count. 409 if the sender must send all. 400 if the body is invalid."""
        try:
            message = decode_host_counts(await request.body())
        except HostCountsError as error:
            return Response(str(error), 400)
        changed = self._other.take(message, monotonic_s())
        if changed is None:
            return Response("send all counts", 409)
        self._column.write_counts(changed, self._other)
        return Response(status_code=204)

    async def _find_here(self, request: Request) -> Response:
        """The session that this host knows, or 404."""
        key = await request.body()
        entry = self._sessions.get(key)
        if entry is None:
            return Response("no such session", 404)
        return Response(SessionEntry(key, *entry).encode())

    async def _find_elsewhere(self, request: Request) -> Response:
        """The session that any other host knows, or 404."""
        key = await request.body()
        asked = [
            asyncio.ensure_future(ask_session(self._pool, address + PEER_FIND, self._key, key))
            for address in self._peers.values()
        ]
        try:
            for answer in asyncio.as_completed(asked):
                found = await answer
                if found is not None:
                    return Response(found.encode())
        finally:
            for question in asked:
                question.cancel()
        return Response("no such session", 404)

    async def _change_here(self, request: Request) -> Response:
        """204 once the session is kept here. 400 if the body is invalid."""
        try:
            decode_session(await request.body()).keep(self._sessions)
        except SessionEntryError as error:
            return Response(str(error), 400)
        return Response(status_code=204)

    async def _change_elsewhere(self, request: Request) -> Response:
        """204 once the session was sent to every other host. 400 if the body is invalid."""
        try:
            entry = decode_session(await request.body())
        except SessionEntryError as error:
            return Response(str(error), 400)
        await asyncio.gather(
            *[
                send_session(self._pool, address + PEER_CHANGE, self._key, entry)
                for address in self._peers.values()
            ]
        )
        return Response(status_code=204)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _post(self, address: str, path: str, body: bytes) -> tuple[int, bytes]:
        request = HttpRequest("POST", path, "", {INTERNAL_KEY_HEADER: self._key}, body)
        answer = await call(self._pool, address, request, TIMEOUTS, MAX_ANSWER_BYTES)
        return answer.status, answer.body


async def serve(home: Home) -> None:
    """Serve until SIGTERM or SIGINT."""
    config, credentials = load_config(home), load_credentials(home)
    tls.use(home.tls)
    pool, now = UpstreamPool(IDLE_S), SystemClock().now
    try:
        sessions: SessionTable = SharedMap(home.sessions, now)
    except (OSError, LockedError) as error:
        LOG.warning("%s cannot be opened (%s): sessions are not shared", home.sessions, error)
        sessions = SessionDict(now)
    to_control = control_access(home, config, credentials, pool)
    exchange = PeerExchange(
        config, credentials.internal_key, to_control(pool), SharedColumn(home, config), sessions
    )
    with listening(config.peer_port) as listener:
        loop, stopping = asyncio.get_running_loop(), stop_event()
        server = asgi_server(exchange.app())
        tasks: dict[str, asyncio.Task[None]] = {
            "serving": loop.create_task(server.serve(sockets=[listener])),
            "reporting this host": loop.create_task(
                run_periodically("reporting this host", exchange.report, REPORT_S)
            ),
            "exchanging counts": loop.create_task(
                run_periodically("exchanging counts", exchange.exchange, INTERVAL_S)
            ),
        }
        heartbeats = loop.create_task(answer_heartbeats())
        cause = await wait_for_end(tasks, stopping)
        server.end()
        for task in (*list(tasks.values())[1:], heartbeats):
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        pool.close()
    if cause is not None:
        raise TerminalError(cause)


def main() -> None:
    """Parse the arguments and run. Exit with code 1 and a line on standard error if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m hostelry.services.peers", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    home = Home(parser.parse_args().home)
    configure_logging(NAME, log_format=log_format(home))
    try:
        uvloop.run(serve(home))
    except (TerminalError, OSError) as error:
        sys.exit(f"the peers process cannot run: {error}")


if __name__ == "__main__":
    main()
