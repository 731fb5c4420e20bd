"""Parts of the processes that send requests to copies: gateway workers, the mirror, jobs."""

import asyncio
import logging
import resource
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from hostelry.base.clock import SystemClock
from hostelry.dataplane.balancing.sessions import SessionTable
from hostelry.dataplane.capture.capture import RequestCapture
from hostelry.dataplane.capture.report_sender import CaptureReportSender
from hostelry.dataplane.capture.spool import Spool, SpoolLimits, remove_unfinished
from hostelry.dataplane.metering.load_sender import LoadBacklog, LoadSender
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.shared.session_exchange import SharedSessions
from hostelry.gateway.mirror import MirrorLimits
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
LEAST_ROLL_S = 1.0
REPORTS_IDLE_S = 30.0  # for so long an idle connection for load reports is kept
OTHER_SPOOLS = 2  # the spools of the mirror process and of jobs


async def wait_for_end(
    tasks: Mapping[str, asyncio.Task[None]], stopping: asyncio.Event
) -> str | None:
    """Wait until `stopping` is set, or until one of `tasks` ends, which is a defect.

    Returns None if `stopping` is set, else the task's name and error. The caller then ends, because
    a new process is better than a process without one of its tasks.
    """
    asked_to_stop = asyncio.get_running_loop().create_task(stopping.wait())
    await asyncio.wait((*tasks.values(), asked_to_stop), return_when=asyncio.FIRST_COMPLETED)
    asked_to_stop.cancel()
    if stopping.is_set():
        return None
    name, task = next((name, task) for name, task in tasks.items() if task.done())
    defect = None if task.cancelled() else task.exception()
    LOG.error("%s ended", name, exc_info=defect)
    return f"{name} ended: {defect!r}"


def load_sender(
    config: UpConfig, credentials: Credentials, meter: Meter, process: str, pool: Upstream
) -> LoadSender:
    """The sender that reports the load measured by `meter` to control."""
    clock = SystemClock()
    backlog = LoadBacklog(get_reporter_name(config, process), clock.now())
    return LoadSender(meter, backlog, pool, config.control_url, credentials.internal_key, clock)


def build_session_exchange(
    config: UpConfig, credentials: Credentials, pool: Upstream, now: Callable[[], float]
) -> Callable[[SessionTable], SharedSessions] | None:
    """A function that shares a table of sessions with other hosts, or None without other hosts."""
    if not config.peer_port:
        return None
    key = credentials.internal_key
    return lambda table: SharedSessions(table, pool, config.peers_url, key, now)


def get_reporter_name(config: UpConfig, process: str) -> str:
    """The name of a process in its reports, unique among all hosts."""
    return f"{config.host_id}/{process}" if config.host_id else process


def capture_sender(
    config: UpConfig,
    credentials: Credentials,
    capture: RequestCapture,
    process: str,
    pool: Upstream,
) -> CaptureReportSender:
    """The sender that reports the counts of `capture` to control."""
    name, key = get_reporter_name(config, process), credentials.internal_key
    clock = SystemClock()
    return CaptureReportSender(name, capture.counts, pool, config.control_url, key, clock)


def mirror_limits(config: UpConfig) -> MirrorLimits:
    """The limits of one gateway worker's mirrored requests. Clients' limits hold for answers."""
    return MirrorLimits(
        max_answer_bytes=config.max_body_bytes,
        whole=Timeouts(total_s=config.invoke_timeout_s),
        stream=Timeouts(total_s=config.stream_timeout_s),
    )


def open_spool(home: Home, config: UpConfig, process: str) -> Spool:
    """Open a process's captured requests on disk. All processes together have 2 GiB."""
    folder = home.capture / process
    remove_unfinished(folder)
    limits = SpoolLimits()
    return Spool(
        folder,
        replace(
            limits,
            roll_s=max(limits.roll_s / config.pace, LEAST_ROLL_S),
            total_bytes=limits.total_bytes // (config.gateway_workers + OTHER_SPOOLS),
        ),
    )


def raise_file_limit() -> None:
    """Raise the limit of open files to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
