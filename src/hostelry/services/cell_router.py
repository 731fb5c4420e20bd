"""A cell router's process, which `hostelry cells router` runs in the foreground.

It keeps no state. Any number may run behind any load balancer.
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from hostelry.base.clock import SystemClock
from hostelry.base.concurrency import run_periodically, stop_event
from hostelry.base.errors import TerminalError
from hostelry.base.files import Stamp, get_stamp
from hostelry.cells.assignment import Assignment
from hostelry.cells.assignment_file import build_assignment, read_document
from hostelry.cells.router import CellRouter
from hostelry.dataplane.http.reader import HttpLimits
from hostelry.dataplane.http.server import HttpServer
from hostelry.home.ports import bind, url_host
from hostelry.http1.upstream import UpstreamPool
from hostelry.services.worker_parts import raise_file_limit, wait_for_end

LOG = logging.getLogger(__name__)
LOOK_EVERY_S = 0.5  # at the file
STOP_GRACE_S = 60.0  # for requests under way
RESERVED_FILES = 64


class CellRouterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell router is started with."""

    file: Path
    host: str
    port: int
    max_body_bytes: int


class AssignmentFile:
    """The assignment in the file. If the file cannot be read any more, the last good one.

    Raises TerminalError if it cannot be read at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: Stamp | None = get_stamp(path)
        self._assignment = build_assignment(read_document(path))

    def current(self) -> Assignment:
        """The newest good assignment."""
        return self._assignment

    async def look(self) -> None:
        """Read the file again if it has changed."""
        stamp = get_stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._assignment = build_assignment(await asyncio.to_thread(read_document, self._path))
        except TerminalError as error:
            LOG.warning("the last good assignment stays in use: %s", error)
            return
        LOG.info("a new assignment of %d cells", len(self._assignment.cells))


async def serve(config: CellRouterConfig, ready: Callable[[str], None]) -> None:
    """Route until SIGTERM or SIGINT, then finish the requests under way. `ready` gets the URL."""
    file = AssignmentFile(config.file)
    pool = UpstreamPool()
    router = CellRouter(file.current, pool)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limits = HttpLimits(
        max_body_bytes=config.max_body_bytes,
        max_connections=max((files - RESERVED_FILES) // 2, 1),
        max_unverified_bytes=max(HttpLimits().max_unverified_bytes, 4 * config.max_body_bytes),
    )
    server = HttpServer(router.handle, router.refusal_answer, limits, SystemClock())
    listening = bind(config.host, config.port)
    port = listening.getsockname()[1]
    loop, stopping = asyncio.get_running_loop(), stop_event()
    await server.start(listening)
    ready(f"http://{url_host(config.host)}:{port}")
    tasks = {
        "looking at the assignment": loop.create_task(
            run_periodically("looking at the assignment", file.look, LOOK_EVERY_S)
        ),
        "looking at time limits": loop.create_task(server.sweep_forever()),
    }
    cause = await wait_for_end(tasks, stopping)
    LOG.info("closing: %d connections", server.num_connections)
    await server.stop(STOP_GRACE_S)
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    pool.close()
    if cause is not None:
        raise TerminalError(cause)


def run_cell_router(config: CellRouterConfig, ready: Callable[[str], None]) -> None:
    """Run until a signal. Raises TerminalError or OSError if it cannot."""
    raise_file_limit()
    uvloop.run(serve(config, ready))
