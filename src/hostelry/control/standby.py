"""A control among several: on standby until it is elected, then the leader until it ends.

On standby it has everything imported, its connections open and the records read, so that a leader's
end costs little more than the lease.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from hostelry import __version__
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.epoch_header import LeaderEpoch
from hostelry.base.errors import HostelryError, RetryableError
from hostelry.base.json_response import JsonResponse
from hostelry.base.key_guard import INTERNAL_KEY_HEADER, KeyGuard
from hostelry.base.rebinding import OwnHostsOnly
from hostelry.cluster.join_token import control_id
from hostelry.cluster.known_controls import keeping_controls
from hostelry.cluster.leader_proxy import LeaderProxy
from hostelry.cluster.leader_view import AskedControls
from hostelry.control.election import LeaderElection, LeaderRoutes, Term, own_address, read_document
from hostelry.control.front import ControlFront
from hostelry.dataplane.http.upstream import UpstreamPool
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.platform_store import claimed_store, platform_database
from hostelry.store.fence import Fence, FencedDatabase
from hostelry.store.leaders import METADATA
from hostelry.store.lease_rows import LeaseRows
from hostelry.store.records import State, open_state

T = TypeVar("T")
LOG = logging.getLogger(__name__)
RETRY_S = 0.5
IDLE_S = 30.0  # an idle connection to the leader is kept so long
BODY_SLACK_BYTES = 1024 * 1024  # of reports and forms around the largest body of a client
WARM_S = 2.0  # from one reading of the records to the next
STEPPED_DOWN = 3  # the exit code
# A call that is refused so was not carried out: the forwarder may send it to the next leader.
REFUSED = PlainTextResponse(
    "this control does not lead",
    status_code=503,
    headers={"X-Hostelry-Not-Leader": "1", "Retry-After": "1"},
)


@contextlib.asynccontextmanager
async def elected(
    front: ControlFront, home: Home, config: UpConfig, credentials: Credentials
) -> AsyncIterator[Term | None]:
    """Stand by until this control leads; None where the process is to end before that.

    The lease is released after the block. A term that is over ends the process at once
    (`step_down`). Raises StoreRefused where the database cannot be used at all.
    """
    host_id = config.host_id if config.host_name else ""
    me = control_id(config.host_name or socket.gethostname(), host_id, os.getpid())
    fence = Fence(step_down)
    asked = platform_database(home, config)  # answers who leads, whatever the records' does
    document = partial(read_document, asked, me)
    epoch, records = None, None
    try:
        async with (
            keeping_controls(home, config, document),
            forwarding(config, credentials) as (forward, following),
        ):
            front.show(standby_app(credentials, document, forward))
            opened = partial(open_records, home, config, credentials, fence)
            records = await until(front, prepared(opened))
            if records is not None:
                rows = LeaseRows(config.store_url or "", me, own_address(config), __version__)
                async with campaign(rows, me, fence) as (won, election):
                    epoch = await until(front, while_warm(records.state, won))
                    if epoch is not None:
                        following.cancel()
                        front.show(standby_app(credentials, document, REFUSED))
                        own = LeaderEpoch(epoch, election.refused)
                        yield replace(records, epoch=own, leader=document)
        if epoch is None:
            yield None
    finally:
        asked.close()
        if records is not None:
            records.database.close()


@contextlib.asynccontextmanager
async def forwarding(
    config: UpConfig, credentials: Credentials
) -> AsyncIterator[tuple[ASGIApp, asyncio.Task[None]]]:
    """What answers this host's processes by the leader, and the task that follows who leads."""
    pool = UpstreamPool(IDLE_S)
    own = (config.control_url,)  # it reads the leader's address from the database
    controls = AskedControls(pool, credentials.internal_key, own, SystemClock(), forgotten)
    following = asyncio.create_task(controls.follow())
    try:
        yield LeaderProxy(controls, pool, config.max_body_bytes + BODY_SLACK_BYTES), following
    finally:
        following.cancel()
        pool.close()


async def forgotten(_controls: tuple[str, ...]) -> None:
    """The addresses of other controls are in the database."""


def standby_app(
    credentials: Credentials, document: Callable[[], dict[str, Any]], forward: ASGIApp
) -> ASGIApp:
    """The application of a control that does not lead: its health, who leads, and `forward`."""
    app = Starlette(
        routes=[
            Route("/internal/health", health, methods=["GET"]),
            *LeaderRoutes(document).routes(),
            Mount("/", forward),
        ]
    )
    refusal = Response("The internal key is missing or wrong.", 403)
    return OwnHostsOnly(KeyGuard(app, INTERNAL_KEY_HEADER, credentials.internal_key, refusal))


async def health(_request: Request) -> Response:
    """200 while the process answers; it is `ready` for nothing but to take over."""
    shown = {"status": "ok", "ready": False, "role": "standby", "version": __version__}
    return JsonResponse(shown)


async def prepared(opened: Callable[[], T]) -> T:
    """What `opened` returns, called in a thread until the database does it."""
    is_reported = False
    while True:
        try:
            return await asyncio.to_thread(opened)
        except RetryableError as error:
            if not is_reported:
                LOG.warning("%s; will be tried again", error)
            is_reported = True
            await asyncio.sleep(RETRY_S)


def open_records(home: Home, config: UpConfig, credentials: Credentials, fence: Fence) -> Term:
    """The records behind `fence`, which is closed, and their tables up to date; blocks."""
    database = FencedDatabase(platform_database(home, config), fence)
    try:
        state = open_state(claimed_store(database, home, config, credentials))
        database.create(METADATA)
    except HostelryError:  # tried again, with connections of its own
        database.close()
        raise
    fence.stand_by()
    return Term(state=state, database=database, leader=dict, check=database.check)


@contextlib.asynccontextmanager
async def campaign(
    rows: LeaseRows, me: str, fence: Fence
) -> AsyncIterator[tuple["asyncio.Future[int]", LeaderElection]]:
    """Take part in the election for the block: done with the epoch that this process leads with."""
    loop = asyncio.get_running_loop()
    won: asyncio.Future[int] = loop.create_future()

    def lead(epoch: int, reason: str) -> None:
        fence.lead(epoch)
        LOG.warning("this control, %s, leads with epoch %d: %s", me, epoch, reason)
        loop.call_soon_threadsafe(won.set_result, epoch)

    election = LeaderElection(rows, me, monotonic_s, elected=lead, superseded=step_down)
    election.start()
    try:
        yield won, election
    finally:
        await asyncio.to_thread(election.stop)


async def while_warm(state: State, won: "asyncio.Future[int]") -> int:
    """What `won` is done with; until then the records are read again and again."""
    while not won.done():
        with contextlib.suppress(RetryableError):  # the election reports it
            await asyncio.to_thread(read_records, state)
        await asyncio.wait({won}, timeout=WARM_S)
    return won.result()


def read_records(state: State) -> None:
    """Read what a leader reads first, as far as it has changed; blocks."""
    for records in (state.endpoints, state.components, state.instances, state.copies):
        records.list()


async def until(front: ControlFront, awaited: Coroutine[Any, Any, T]) -> T | None:
    """The result of `awaited`; None, and it is cancelled, where the process is to end first."""
    task = asyncio.ensure_future(awaited)
    try:
        await asyncio.wait({task, front.ended}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()


def step_down(reason: str) -> None:
    """End this process at once: another control leads, and this one acts no more.

    Its supervisor starts it again, as a standby.
    """
    LOG.error("this control steps down: %s", reason)
    sys.stderr.flush()
    os._exit(STEPPED_DOWN)
