"""The mirror process: ``python -m hostelry.services.mirror --home DIR``.

It has the connections to shadow variants' copies, so that a gateway worker only hands requests
over. It runs at a lower priority than the processes that serve clients. It may be killed or hang at
any moment: the requests that it had under way are lost, and no client notices.
"""

import argparse
import asyncio
import gc
import logging
import random
import resource
import socket
import sys
from pathlib import Path

import uvloop
from msgspec.structs import replace

from hostelry.base import tls
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.concurrency import run_periodically, stop_event
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.logging import configure_logging
from hostelry.cluster.control_access import control_access
from hostelry.dataplane.capture.capture import RequestCapture
from hostelry.dataplane.capture.report_sender import REPORT_S
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.routes import PublishedRoutes, RouteFile
from hostelry.gateway.answer_pairs import AnswerPairs, PairLimits
from hostelry.gateway.mirror import MirrorLimits, ShadowMirror
from hostelry.gateway.mirroring.line import MirrorEnd, MirrorIntake, MirrorLine
from hostelry.gateway.mirroring.port import TapDefects
from hostelry.home.heartbeat import (
    SupervisorLines,
    answer_heartbeats,
    listen,
    wait_for_client,
)
from hostelry.home.home import Home, UpConfig, load_config, load_credentials, log_format
from hostelry.http1.upstream import UpstreamPool
from hostelry.services.priority import lower_priority
from hostelry.services.worker_parts import (
    REPORTS_IDLE_S,
    capture_sender,
    load_sender,
    mirror_limits,
    open_spool,
    raise_file_limit,
    wait_for_end,
)

LOG = logging.getLogger("hostelry.services.mirror")  # it runs as __main__
NAME = "mirror"
NICENESS = 5  # of 19: a third of the processor time of a process that serves clients
OWN_FILES = 256  # descriptors other than connections to copies


async def serve(home: Home, listener: socket.socket, lines: SupervisorLines | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    config, credentials = load_config(home), load_credentials(home)
    tls.use(home.tls)
    loop, clock, draw = asyncio.get_running_loop(), SystemClock(), random.Random().random
    polls, copies, reports = UpstreamPool(), UpstreamPool(), UpstreamPool(REPORTS_IDLE_S)
    key = credentials.internal_key
    to_control = control_access(home, config, credentials, reports)
    routes = PublishedRoutes(
        to_control(polls),
        config.control_url,
        key,
        RouteFile(home.routes, write_whole),
        clock,
        config.copies_proxy,
    )
    meter = Meter(clock.now)
    capture = RequestCapture(open_spool(home, config, NAME), draw, clock)
    mirror = ShadowMirror(copies, meter, all_limits(config), draw, monotonic_s)
    intake = MirrorIntake(mirror, capture, AnswerPairs(meter, monotonic_s, pair_limits(config)))
    end = MirrorEnd(
        routes=routes,
        intake=intake,
        dropped=meter.count_dropped,
        defects=TapDefects(monotonic_s),
        now_s=monotonic_s,
        call_later=loop.call_later,
        max_body_bytes=max(config.max_body_bytes, PairLimits().max_bytes),
    )
    stopping = stop_event()
    server = await loop.create_unix_server(lambda: MirrorLine(end), sock=listener)
    gc.collect()
    gc.freeze()  # imported objects are not collected again
    heartbeats = loop.create_task(answer_heartbeats(lines=lines))
    sender = load_sender(config, credentials, meter, NAME, to_control(reports))
    captured = capture_sender(config, credentials, capture, NAME, to_control(reports))
    tasks = {
        "following routes": loop.create_task(routes.follow()),
        "reporting load": loop.create_task(sender.run()),
        "writing captured requests": loop.create_task(capture.run()),
        "reporting data capture": loop.create_task(
            run_periodically("reporting data capture", captured.send, REPORT_S)
        ),
    }
    cause = await wait_for_end(tasks, stopping)
    server.close()
    await intake.close()
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    await capture.finish()
    await sender.finish()
    await captured.send()
    for pool in (polls, copies, reports):
        pool.close()
    heartbeats.cancel()
    if cause is not None:
        raise TerminalError(cause)


def all_limits(config: UpConfig) -> MirrorLimits:
    """The limits of all gateway workers' mirrored requests, as far as descriptors allow.

    They come once production's are sent, and are not delayed again.
    """
    one, num = mirror_limits(config), config.gateway_workers
    most = max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OWN_FILES)
    return replace(
        one,
        delay_s=0.0,
        max_in_flight=one.max_in_flight * num,
        max_in_flight_all=min(one.max_in_flight_all * num, most),
        max_bytes=one.max_bytes * num,
        read_bytes_per_s=one.read_bytes_per_s * num,
    )


def pair_limits(config: UpConfig) -> PairLimits:
    """The limits of comparisons, of all gateway workers' requests."""
    one, num = PairLimits(), config.gateway_workers
    return PairLimits(pairs_per_s=one.pairs_per_s * num, max_waiting=one.max_waiting * num)


def main() -> None:
    """Parse the arguments and run. Exit with code 1 and a line on standard error if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m hostelry.services.mirror", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    home = Home(parser.parse_args().home)
    try:
        listener = listen(home.mirror)
        lines = wait_for_client(listener)
        configure_logging(NAME, log_format=log_format(home))
        raise_file_limit()
        lower_priority(NICENESS)
        uvloop.run(serve(home, listener, lines))
    except (TerminalError, OSError) as error:
        sys.exit(f"the mirror process cannot run: {error}")


if __name__ == "__main__":
    main()
