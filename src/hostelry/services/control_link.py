"""The control link: ``python -m hostelry.services.control_link --home DIR``.

On a host without control it listens where control and the process for jobs would, and forwards
every request to the leader, and to the process for jobs on its host (`leader_proxy`). It keeps
nothing but the addresses of the controls, and may be killed at any moment. It uploads the requests
that were captured on this host.
"""

import argparse
import asyncio
import logging
import sys
from pathlib import Path

import msgspec
import uvloop
from starlette.responses import Response
from starlette.types import ASGIApp

from hostelry.base import tls
from hostelry.base.address import on_host
from hostelry.base.asgi_server import asgi_server, listening
from hostelry.base.clock import SystemClock
from hostelry.base.concurrency import stop_event
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.guards import INTERNAL_KEY_HEADER, KeyGuard, OwnHostsOnly
from hostelry.base.logging import configure_logging
from hostelry.cluster.known_controls import list_known_controls
from hostelry.cluster.leader_proxy import LeaderProxy
from hostelry.cluster.leader_view import AskedControls
from hostelry.home.heartbeat import answer_heartbeats
from hostelry.home.home import Home, load_config, load_credentials, log_format
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.records.batch_lines import MAX_FILE_BYTES
from hostelry.services.host_capture import HostCapture
from hostelry.services.worker_parts import wait_for_end

LOG = logging.getLogger("hostelry.services.control_link")  # it runs as __main__
NAME = "link"
BODY_SLACK_BYTES = 1024 * 1024  # of reports and forms around the largest body of a client
IDLE_S = 30.0  # an idle connection to a control is kept so long


async def serve(home: Home) -> None:
    """Serve until SIGTERM or SIGINT."""
    config, credentials = load_config(home), load_credentials(home)
    tls.use(home.tls)
    pool = UpstreamPool(IDLE_S)

    async def keep(controls: tuple[str, ...]) -> None:
        try:
            body = msgspec.json.encode(controls)
            await asyncio.to_thread(write_whole, home.known_controls, body)
        except OSError as error:
            LOG.warning("the addresses of the controls are not kept: %s", error)

    key = credentials.internal_key
    controls = AskedControls(pool, key, list_known_controls(home, config), SystemClock(), keep)
    control = LeaderProxy(controls, pool, config.max_body_bytes + BODY_SLACK_BYTES)
    jobs = LeaderProxy(controls, pool, MAX_FILE_BYTES + BODY_SLACK_BYTES, jobs_beside)
    with listening(config.control_port) as listener, listening(config.jobs_port) as jobs_listener:
        loop, stopping = asyncio.get_running_loop(), stop_event()
        servers = asgi_server(guard_app(control, key)), asgi_server(guard_app(jobs, key))
        tasks: dict[str, asyncio.Task[None]] = {
            "serving": loop.create_task(servers[0].serve(sockets=[listener])),
            "serving jobs": loop.create_task(servers[1].serve(sockets=[jobs_listener])),
            "following the leader": loop.create_task(controls.follow()),
        }
        if not config.has_own_s3:
            captured = HostCapture(home, config, credentials, pool, SystemClock())
            tasks |= {name: loop.create_task(step) for name, step in captured.tasks().items()}
        heartbeats = loop.create_task(answer_heartbeats())
        cause = await wait_for_end(tasks, stopping)
        for server in servers:
            server.end()
        for name, task in (*tasks.items(), ("", heartbeats)):
            if not name.startswith("serving"):
                task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        pool.close()
    if cause is not None:
        raise TerminalError(cause)


def jobs_beside(leader: str) -> str:
    """The process for jobs on the host of the leader at that address."""
    return on_host(leader, "jobs")


def guard_app(app: ASGIApp, key: str) -> ASGIApp:
    """`app`, for holders of the internal key."""
    refusal = Response("The internal key is missing or wrong.", 403)
    return OwnHostsOnly(KeyGuard(app, INTERNAL_KEY_HEADER, key, refusal))


def main() -> None:
    """Parse the arguments and run. Exit with code 1 and a line on standard error if it cannot."""
    parser = argparse.ArgumentParser(
        prog="python -m hostelry.services.control_link", description=__doc__
    )
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    home = Home(parser.parse_args().home)
    configure_logging(NAME, log_format=log_format(home))
    try:
        uvloop.run(serve(home))
    except (TerminalError, OSError) as error:
        sys.exit(f"the control link cannot run: {error}")


if __name__ == "__main__":
    main()
