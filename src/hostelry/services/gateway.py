"""The gateway process: wires a worker, and serves until a signal ends it.

``python -m hostelry.services.gateway --home DIR [--worker N --listen-fd FD]``
"""

import argparse
import asyncio
import gc
import logging
import os
import random
import resource
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import uvloop
from msgspec.structs import replace

from hostelry.aws.access_keys import STORE_KEY_ID, AccessKeySecrets
from hostelry.aws.models import CONTROL_SERVICES, service_model
from hostelry.aws.runtime import parse_async_invocation, parse_invocation
from hostelry.aws.sigv4 import Secret, Verifier
from hostelry.aws.temporary_keys import TokenSeal
from hostelry.base import tls
from hostelry.base.clock import Clock, SystemClock, monotonic_ns, monotonic_s
from hostelry.base.concurrency import run_periodically, stop_event
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.http import HttpRequest
from hostelry.base.logging import configure_logging
from hostelry.cluster.control_access import control_access, published_principals
from hostelry.dataplane.balancing.load_balancer import LoadBalancer
from hostelry.dataplane.balancing.model_balancer import Balancers, ModelBalancer
from hostelry.dataplane.balancing.model_homes import ModelHomes
from hostelry.dataplane.balancing.outstanding import InFlightCounts, Outstanding
from hostelry.dataplane.capture.capture import RequestCapture
from hostelry.dataplane.capture.report_sender import REPORT_S, CaptureReportSender
from hostelry.dataplane.control_client import ControlClient, HttpControlClient, NoControl
from hostelry.dataplane.http.acceptor import NoPeers, Peers
from hostelry.dataplane.http.server import HttpServer
from hostelry.dataplane.invocation_audit import InvocationAudit, InvocationBacklog
from hostelry.dataplane.metering.load_sender import LoadSender
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.routes import PublishedRoutes, RouteFile, RouteSource
from hostelry.dataplane.shared.counts import PeerWorkers, SharedCounts
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.domain.scope import Scope
from hostelry.gateway.answer_pairs import AnswerPairs
from hostelry.gateway.dispatcher import Dispatcher
from hostelry.gateway.handlers.admission import CallAdmission
from hostelry.gateway.handlers.async_runtime import AsyncRuntimeHandler, HttpJobsClient
from hostelry.gateway.handlers.callers import Callers
from hostelry.gateway.handlers.completions import Completions
from hostelry.gateway.handlers.console import ConsoleHandler
from hostelry.gateway.handlers.control import ControlHandler
from hostelry.gateway.handlers.invocation_call import RequestTaps
from hostelry.gateway.handlers.metrics import MetricsHandler
from hostelry.gateway.handlers.openai import OpenAiHandler
from hostelry.gateway.handlers.openai_batches import OpenAiBatchHandler
from hostelry.gateway.handlers.runtime import RuntimeHandler
from hostelry.gateway.handlers.traces import TracesHandler
from hostelry.gateway.mirror import ShadowMirror
from hostelry.gateway.mirroring.handover import MirrorHandover
from hostelry.gateway.mirroring.line import MirrorIntake, OwnMirror
from hostelry.gateway.mirroring.port import MirrorPort, ShadowTurns, TapDefects
from hostelry.gateway.queueing.pending_queue import PendingQueue
from hostelry.gateway.queueing.turns import TurnQueue
from hostelry.home.heartbeat import answer_heartbeats, connect
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
    log_format,
)
from hostelry.home.https_option import find_certificate
from hostelry.home.ports import bind, is_loopback
from hostelry.home.run_file import gateway_name
from hostelry.http1.upstream import Upstream, UpstreamPool
from hostelry.principals.source import (
    PrincipalSource,
    build_key_lookup,
    no_principals,
)
from hostelry.processes.gateway_workers import open_table
from hostelry.routing.copy_choice import EvenDraws
from hostelry.services.gateway_limits import http_limits, invocation_limits, queue_limits
from hostelry.services.gateway_memory import GatewayMemory, open_own_memory, open_shared_memory
from hostelry.services.gateway_quotas import GatewayQuotas, count_hosts
from hostelry.services.otel_traces import TraceExport, build_trace_export
from hostelry.services.worker_parts import (
    REPORTS_IDLE_S,
    build_session_exchange,
    capture_sender,
    get_reporter_name,
    load_sender,
    mirror_limits,
    open_spool,
    raise_file_limit,
    wait_for_end,
)
from hostelry.services.worker_traces import AllWorkers, OneWorker

LOG = logging.getLogger("hostelry.services.gateway")  # it runs as __main__
STOP_GRACE_S = 10.0
TIDY_PAUSE_S = 1.0


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """A wired gateway: dispatcher, queue of waiting requests, meter of load, and taps.

    `calls` are the noted calls.
    """

    dispatcher: Dispatcher
    pending_queue: PendingQueue
    meter: Meter
    capture: RequestCapture
    mirror: MirrorPort
    calls: CallRing


def build_gateway(
    config: UpConfig,
    credentials: Credentials,
    routes: RouteSource,
    pool: UpstreamPool,
    counts: InFlightCounts | None = None,
    memory: GatewayMemory | None = None,
    control: ControlClient | None = None,
) -> Gateway:
    """Build a gateway over `routes`.

    Without `counts` and `memory` nothing is shared. Without `control` no wake is sent.
    """
    clock = SystemClock()
    memory, control = memory or open_own_memory(clock.now), control or NoControl()
    to_control = memory.to_control(pool)
    callers = build_callers(config, credentials, memory.principals, clock)
    draw = random.Random().random
    outstanding = counts or Outstanding()
    copies = LoadBalancer(pool, outstanding, draw, monotonic_s, memory.places)
    models = ModelBalancer(copies, pool, outstanding, ModelHomes(monotonic_s), monotonic_s)
    balancers = Balancers(
        counts=outstanding, copies=copies, models=models, sessions=memory.sessions
    )
    capture = RequestCapture(memory.spool, draw, clock)
    meter = Meter(clock.now)
    pending_queue = PendingQueue(
        routes, control, outstanding, queue_limits(config), clock, monotonic_s, meter
    )
    turns = TurnQueue(
        outstanding, memory.tags, config.gateway_workers, queue_limits(config), monotonic_s
    )
    admission = CallAdmission(pending_queue=pending_queue, quotas=memory.quotas, turns=turns)
    limits = invocation_limits(config)
    mirror = build_mirror(config, memory, pool, meter, capture, draw)
    calls = memory.calls
    taps = build_taps(capture, mirror, meter, calls)
    dispatcher = Dispatcher(
        runtime=RuntimeHandler(
            callers, routes, balancers, admission, limits, EvenDraws(draw()), taps
        ),
        openai=OpenAiHandler(
            callers,
            routes,
            Completions(routes, copies, pending_queue, config.stream_timeout_s),
            config.max_body_bytes,
            calls,
            memory.quotas,
        ),
        openai_batches=OpenAiBatchHandler(
            callers, routes, pool, config.jobs_url, credentials.internal_key
        ),
        control=ControlHandler(callers, to_control, config.control_url, credentials.internal_key),
        async_runtime=AsyncRuntimeHandler(
            callers=callers,
            routes=routes,
            control=control,
            jobs=HttpJobsClient(pool, config.jobs_url, credentials.internal_key),
            clock=clock,
            quotas=memory.quotas,
        ),
        metrics=MetricsHandler(callers, to_control, config.control_url, credentials.internal_key),
        traces=TracesHandler(callers, credentials.internal_key, memory.workers or OneWorker(calls)),
        console=build_console_handler(config, credentials, pool),
        calls=calls,
        why_unhealthy=lambda: why_unhealthy(routes, memory.is_draining()),
        own_names=frozenset({config.host}) if config.insecure_no_auth else None,
        note_invocation=memory.note_invocation,
    )
    return Gateway(
        dispatcher=dispatcher,
        pending_queue=pending_queue,
        meter=meter,
        capture=capture,
        mirror=mirror,
        calls=calls,
    )


def build_taps(
    capture: RequestCapture, mirror: MirrorPort, meter: Meter, calls: CallRing
) -> RequestTaps:
    """Data capture and shadow variants, which get requests too."""
    return RequestTaps(
        capture=capture,
        mirror=mirror,
        not_mirrored=meter.count_dropped,
        defects=TapDefects(monotonic_s),
        calls=calls,
    )


def why_unhealthy(routes: RouteSource, is_draining: bool) -> str | None:
    """The reason why a load balancer should not send requests here, or None if it may."""
    if is_draining:
        return "draining: requests are served until this gateway stops"
    if not routes.table.version:
        return "no routes yet: control has not published any"
    return None


def build_console_handler(
    config: UpConfig, credentials: Credentials, pool: UpstreamPool
) -> ConsoleHandler | None:
    """The handler that forwards to the console, or None if the platform has no console."""
    if not config.has_console:
        return None
    return ConsoleHandler(
        pool=pool,
        address=config.console_address,
        internal_key=credentials.internal_key,
        is_secure=config.https_cert is not None,
    )


def build_mirror(
    config: UpConfig,
    memory: GatewayMemory,
    pool: UpstreamPool,
    meter: Meter,
    capture: RequestCapture,
    draw: Callable[[], float],
) -> MirrorPort:
    """The connection to the mirror process. Without that process, this worker mirrors requests."""
    turns = ShadowTurns(draw)
    if memory.mirror is not None:
        return MirrorHandover(memory.mirror, turns, meter.count_dropped, monotonic_s)
    mirror = ShadowMirror(pool, meter, mirror_limits(config), draw, monotonic_s)
    return OwnMirror(MirrorIntake(mirror, capture, AnswerPairs(meter, monotonic_s)), turns)


def build_callers(
    config: UpConfig, credentials: Credentials, known: PrincipalSource | None, clock: Clock
) -> Callers:
    """The verifier of callers, who hold permanent keys or temporary keys."""
    principals = known or no_principals(credentials.account_id)
    secrets = AccessKeySecrets(credentials.internal_key)
    own = {
        credentials.access_key_id: Secret(
            secret_access_key=credentials.secret_access_key, account_id=credentials.account_id
        ),
        STORE_KEY_ID: Secret(
            secret_access_key=secrets.derive(STORE_KEY_ID), account_id=credentials.account_id
        ),
    }
    return Callers(
        Verifier(
            build_key_lookup(principals, own, secrets),
            seal=TokenSeal(credentials.internal_key),
            is_private=bool(config.https_cert) or is_loopback(config.host),
        ),
        Scope(credentials.account_id, credentials.region),
        credentials.openai_api_key,
        config.insecure_no_auth,
        clock.now,
        principals,
        is_secure=bool(config.https_cert),
    )


def open_counts(home: Home, config: UpConfig, worker: int) -> tuple[InFlightCounts, Peers]:
    """The counts that this worker shares, and its peer workers. Workers count from 1."""
    table = open_table(home, config)
    if table is None:
        return Outstanding(), NoPeers()
    counts = SharedCounts(table, worker - 1)
    return counts, PeerWorkers(table, worker - 1, monotonic_ns)


def warm_up() -> None:
    """Load the service models and exempt them from garbage collection.

    Loading takes 0.15 s. In a serving worker it would stall every stream.
    """
    for service in CONTROL_SERVICES:
        service_model(service)
    for action in ("invocations", "invocations-response-stream"):
        parse_invocation(HttpRequest("POST", f"/endpoints/any/{action}"))
    parse_async_invocation(HttpRequest("POST", "/endpoints/any/async-invocations", body=b"{}"))
    gc.collect()
    gc.freeze()


def invocation_audit(
    config: UpConfig, credentials: Credentials, process: str, pool: Upstream
) -> InvocationAudit | None:
    """The reports of invocations to control's audit trail. None unless the operator wants them."""
    if not config.audit_invocations:
        return None
    clock = SystemClock()
    backlog = InvocationBacklog(get_reporter_name(config, process), clock.now())
    key = credentials.internal_key
    return InvocationAudit(backlog, pool, config.control_url, key, clock)


def build_routes(
    home: Home, config: UpConfig, credentials: Credentials, to_control: Upstream, clock: Clock
) -> PublishedRoutes:
    """The routes that control publishes, and this host keeps in a file."""
    return PublishedRoutes(
        to_control,
        config.control_url,
        credentials.internal_key,
        RouteFile(home.routes, write_whole),
        clock,
        config.copies_proxy,
    )


async def serve(home: Home, worker: int, listening: socket.socket | None) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests under way.

    `listening` is the socket that workers share. Without it this worker binds its own.
    """
    config, credentials = load_config(home), load_credentials(home)
    tls.use(home.tls)
    warm_up()
    clock = SystemClock()
    pool = UpstreamPool()
    to_control = control_access(home, config, credentials, pool)
    name, key = gateway_name(worker), credentials.internal_key
    routes = build_routes(home, config, credentials, to_control(pool), clock)
    counts, peers = open_counts(home, config, worker)
    spans = build_trace_export(name, clock, os.environ)
    exchanged = build_session_exchange(config, credentials, pool, clock.now)
    principals = published_principals(home, config, credentials, to_control(pool), clock)
    memory = open_shared_memory(
        home, config, worker, clock.now, spans, exchanged, partial(count_hosts, config, counts)
    )
    workers = AllWorkers(home, config.gateway_workers, worker, memory.calls)
    reports = UpstreamPool(REPORTS_IDLE_S)
    audit = invocation_audit(config, credentials, name, to_control(reports))
    memory = replace(
        memory,
        note_invocation=None if audit is None else audit.note,
        spool=open_spool(home, config, name),
        mirror=partial(connect, home.mirror) if config.mirror_process else None,
        workers=workers,
        is_draining=home.draining.exists,
        to_control=to_control,
        principals=principals,
    )
    quotas = GatewayQuotas(home, config, key, to_control(pool), memory.quotas)
    control = HttpControlClient(to_control(pool), config.control_url, key, monotonic_s)
    gateway = build_gateway(config, credentials, routes, pool, counts, memory, control)
    server = HttpServer(
        gateway.dispatcher.handle,
        gateway.dispatcher.refusal_answer,
        http_limits(config, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        clock,
        peers,
        gateway.dispatcher.admit,
    )
    loop, stopping = asyncio.get_running_loop(), stop_event()
    listener = listening or bind(config.host, config.gateway_port)
    await server.start(listener, find_certificate(config))
    log_start(config)
    heartbeats = loop.create_task(answer_heartbeats(listener, workers.answer_line))
    sender = load_sender(config, credentials, gateway.meter, name, to_control(reports))
    captured = capture_sender(config, credentials, gateway.capture, name, to_control(reports))
    tasks = {
        "following routes": loop.create_task(routes.follow()),
        "following principals": loop.create_task(principals.follow()),
        "dropping old counts": loop.create_task(tidy(routes, counts)),
        "keeping time for held requests": loop.create_task(gateway.pending_queue.run()),
        "reporting load": loop.create_task(sender.run()),
        "looking at time limits": loop.create_task(server.sweep_forever()),
        "writing captured requests": loop.create_task(gateway.capture.run()),
        "reporting data capture": loop.create_task(
            run_periodically("reporting data capture", captured.send, REPORT_S)
        ),
    }
    tasks |= quotas.start() | start_optional(spans, audit)
    cause = await wait_for_end(tasks, stopping)
    LOG.info("closing: %d connections", server.num_connections)
    await server.stop(STOP_GRACE_S)
    await gateway.mirror.close()
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    await send_last(gateway, sender, captured, spans, audit)
    reports.close()
    pool.close()
    heartbeats.cancel()
    if cause is not None:
        raise TerminalError(cause)


def log_start(config: UpConfig) -> None:
    """Log the address, and warn if no key is required."""
    LOG.info("listening at %s", config.client_url)
    if config.insecure_no_auth:
        LOG.warning("signatures are not required: any client that can connect acts as the owner")


def start_optional(
    spans: TraceExport | None, audit: InvocationAudit | None
) -> dict[str, "asyncio.Task[None]"]:
    """Start the tasks that the operator's settings ask for."""
    loop, tasks = asyncio.get_running_loop(), {}
    if spans is not None:
        tasks["exporting traces"] = loop.create_task(spans.run())
    if audit is not None:
        tasks["reporting invocations"] = loop.create_task(audit.report_forever())
    return tasks


async def send_last(
    gateway: Gateway,
    sender: LoadSender,
    captured: CaptureReportSender,
    spans: TraceExport | None,
    audit: InvocationAudit | None,
) -> None:
    """Send the worker's captures, reports and spans that are not sent yet."""
    if audit is not None:
        await audit.finish()
    await gateway.capture.finish()
    await sender.finish()
    await captured.send()
    if spans is not None:
        await spans.finish()


async def tidy(routes: RouteSource, counts: InFlightCounts) -> None:
    """Drop the counts of copies that have left the routes, until cancelled."""
    seen = None

    async def look() -> None:
        nonlocal seen
        table = routes.table
        if table is not seen:
            counts.retain(table.counted_ids())
            seen = table

    await run_periodically("dropping counts of gone copies", look, TIDY_PAUSE_S)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the hostelry's home folder")
    parser.add_argument("--worker", type=int, default=1, help="this worker's number, from 1")
    parser.add_argument("--listen-fd", type=int, help="the inherited socket; else one is bound")
    arguments = parser.parse_args()
    home = Home(arguments.home)
    configure_logging(f"gateway-{arguments.worker}", log_format=log_format(home))
    raise_file_limit()
    inherited = arguments.listen_fd
    listening = None if inherited is None else socket.socket(fileno=inherited)
    try:
        uvloop.run(serve(home, arguments.worker, listening))
    except (OSError, TerminalError) as error:
        sys.exit(f"the gateway cannot run: {error}")


if __name__ == "__main__":
    main()
