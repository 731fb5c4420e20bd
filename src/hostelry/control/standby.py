"""A control of several: on standby until it is elected, then the leader until its term is over.

A standby has already imported all modules, opened its connections and read the records. So a
takeover takes little longer than the lease.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from hostelry import __version__
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import HostelryError, RetryableError
from hostelry.base.guards import INTERNAL_KEY_HEADER, KeyGuard, OwnHostsOnly
from hostelry.base.json_response import JsonResponse
from hostelry.base.peers import LeaderEpoch
from hostelry.cluster.join_token import build_control_id
from hostelry.cluster.known_controls import keep_controls
from hostelry.cluster.leader_proxy import LeaderProxy
from hostelry.cluster.leader_view import AskedControls
from hostelry.control.election import LeaderElection, LeaderRoutes, Term, read_document
from hostelry.control.front import ControlFront
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.platform_store import open_claimed_store, platform_database
from hostelry.http1.upstream import UpstreamPool
from hostelry.store.fence import Fence, FencedDatabase
from hostelry.store.leaders import METADATA
from hostelry.store.lease_rows import LeaseRows
from hostelry.store.records import State, open_state

T = TypeVar("T")
LOG = logging.getLogger(__name__)
RETRY_S = 0.5
IDLE_S = 30.0  # how long an idle connection to the leader is kept
BODY_SLACK_BYTES = 1024 * 1024  # reports and forms may exceed a client's largest body by this
WARM_S = 2.0  # between two readings of the records
STEPPED_DOWN = 3  # exit code
# A call with this answer was not carried out, so the forwarder may send it to the next leader.
REFUSED = PlainTextResponse(
    "this control does not lead",
    status_code=503,
    headers={"X-Hostelry-Not-Leader": "1", "Retry-After": "1"},
)


@contextlib.asynccontextmanager
async def stand_by(
    front: ControlFront, home: Home, config: UpConfig, credentials: Credentials
) -> AsyncIterator[Term | None]:
    """Stand by until this control leads. Yields its term, or None if the process must end before.

    The lease is released after the block. When its term is over, the process ends at once
    (`step_down`). Raises StoreRefused if the database cannot be used at all.
    """
    host_id = config.host_id if config.host_name else ""
    me = build_control_id(config.host_name or socket.gethostname(), host_id, os.getpid())
    fence = Fence(step_down)
    # A second database object, which still answers who leads while the other one hangs.
    asked = platform_database(home, config)
    document = partial(read_document, asked, me)
    epoch, records = None, None
    try:
        async with (
            keep_controls(home, config, document),
            forward_to_leader(config, credentials) as (forward, following),
        ):
            front.show(build_standby_app(credentials, document, forward))
            open_term = partial(open_records, home, config, credentials, fence)
            records = await run_until_end(front, retry_in_thread(open_term))
            if records is not None:
                address = config.control_address
                rows = LeaseRows(config.store_url or "", me, address, __version__)
                async with campaign(rows, me, fence) as (won, election):
                    epoch = await run_until_end(front, keep_warm(records.state, won))
                    if epoch is not None:
                        following.cancel()
                        front.show(build_standby_app(credentials, document, REFUSED))
                        own = LeaderEpoch(epoch, election.raise_floor)
                        yield replace(records, epoch=own, leader=document)
        if epoch is None:
            yield None
    finally:
        asked.close()
        if records is not None:
            records.database.close()


@contextlib.asynccontextmanager
async def forward_to_leader(
    config: UpConfig, credentials: Credentials
) -> AsyncIterator[tuple[ASGIApp, asyncio.Task[None]]]:
    """Yield the application that forwards to the leader, and the task that follows who leads."""

    async def forget(_controls: tuple[str, ...]) -> None:
        """Do nothing, because the database has the addresses of other controls."""

    pool = UpstreamPool(IDLE_S)
    own = (config.control_url,)  # only this control, which reads the leader's address
    controls = AskedControls(pool, credentials.internal_key, own, SystemClock(), forget)
    following = asyncio.create_task(controls.follow())
    try:
        yield LeaderProxy(controls, pool, config.max_body_bytes + BODY_SLACK_BYTES), following
    finally:
        following.cancel()
        pool.close()


def build_standby_app(
    credentials: Credentials, document: Callable[[], dict[str, Any]], forward: ASGIApp
) -> ASGIApp:
    """Build the application of a control on standby. `forward` answers all other requests."""
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
    """Answer 200 while the process answers. A standby is never `ready`."""
    shown = {"status": "ok", "ready": False, "role": "standby", "version": __version__}
    return JsonResponse(shown)


async def retry_in_thread(act: Callable[[], T]) -> T:
    """Call `act` in a thread until it raises no RetryableError, and return its result."""
    is_reported = False
    while True:
        try:
            return await asyncio.to_thread(act)
        except RetryableError as error:
            if not is_reported:
                LOG.warning("%s; will be tried again", error)
            is_reported = True
            await asyncio.sleep(RETRY_S)


def open_records(home: Home, config: UpConfig, credentials: Credentials, fence: Fence) -> Term:
    """Open the records behind the closed `fence`, and migrate their tables. Blocks."""
    database = FencedDatabase(platform_database(home, config), fence)
    try:
        state = open_state(open_claimed_store(database, home, config, credentials))
        database.create(METADATA)
    except HostelryError:  # the next attempt opens new connections
        database.close()
        raise
    fence.stand_by()
    return Term(state=state, database=database, leader=dict, check=database.check)


@contextlib.asynccontextmanager
async def campaign(
    rows: LeaseRows, me: str, fence: Fence
) -> AsyncIterator[tuple["asyncio.Future[int]", LeaderElection]]:
    """Take part in the election during the block. The future gets the epoch when it is won."""
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


async def keep_warm(state: State, won: "asyncio.Future[int]") -> int:
    """Read the records again and again until `won` is done. Returns its epoch."""
    while not won.done():
        with contextlib.suppress(RetryableError):  # the election reports the cause
            await asyncio.to_thread(read_records, state)
        await asyncio.wait({won}, timeout=WARM_S)
    return won.result()


def read_records(state: State) -> None:
    """Read the records that a leader reads first. Later reads only need the changes. Blocks."""
    for records in (state.endpoints, state.components, state.instances, state.copies):
        records.list()


async def run_until_end(front: ControlFront, awaited: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `awaited`. If the process must end first, cancel it and return None."""
    task = asyncio.ensure_future(awaited)
    try:
        await asyncio.wait({task, front.ended}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()


def step_down(reason: str) -> None:
    """End this process at once, because another control leads.

    The supervisor starts it again as a standby.
    """
    LOG.error("this control steps down: %s", reason)
    sys.stderr.flush()
    os._exit(STEPPED_DOWN)
