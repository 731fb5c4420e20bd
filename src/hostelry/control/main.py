"""Control's process: ``python -m hostelry.control.main --home DIR``.

Wires the store, AWS operations, reconcilers and HTTP. It may be killed at any moment. Acknowledged
writes are in the store, and the next control process adopts the running agents.
"""

import argparse
import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import uvloop
from msgspec.structs import replace
from starlette.routing import Route
from starlette.types import ASGIApp

from hostelry.api.iam.execution_role import ensure_execution_role
from hostelry.base import tls
from hostelry.base.asgi_server import listening
from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import HostelryError, TerminalError
from hostelry.base.logging import configure_logging
from hostelry.base.root_key import RootKey
from hostelry.cluster.gateway_hosts import GatewayHostRoutes
from hostelry.control.account_routes import build_account_routes
from hostelry.control.act_routes import ActDeps, OperatorActRoutes
from hostelry.control.app import ControlDeps, build_app
from hostelry.control.audit_routes import AuditRoutes
from hostelry.control.comparisons import Comparisons
from hostelry.control.copy_routes import AGENT_TIMEOUT_S, CopyCacheRoutes, CopyMetricsRoutes
from hostelry.control.cost_routes import CostRoutes
from hostelry.control.data import ControlData, LogCollection, collect_logs, open_data
from hostelry.control.election import LeaderRoutes, Term
from hostelry.control.front import ControlFront
from hostelry.control.identity_providers import build_provider_keys
from hostelry.control.image_file import ImageFile
from hostelry.control.jobs_routes import AsyncRoutes, CaptureBoard, DataLogRoutes, note_job
from hostelry.control.principal_routes import PrincipalBoard, follow_principals
from hostelry.control.quota_routes import QuotaRoutes, publish_quotas
from hostelry.control.reports import CensusTaker
from hostelry.control.rollout_verdicts import report_verdicts
from hostelry.control.scaling import Scaling, run_scaling
from hostelry.control.step_recorder import EndpointStepRecorder
from hostelry.control.usage_routes import ArtifactUseRoutes, UsageRoutes
from hostelry.domain.scope import Scope
from hostelry.fleet.local.client import FencedFleet, HttpAgent
from hostelry.fleet.shapes import get_shape
from hostelry.home.home import (
    Credentials,
    Home,
    UpConfig,
    load_config,
    load_credentials,
    log_format,
)
from hostelry.home.platform_store import open_claimed_store, platform_database
from hostelry.home.price_file import PriceFile
from hostelry.processes.fleets import build_fleet, get_machine, key_shown_to_agents
from hostelry.reconcile.reconciler import Reconciler, ReconcilerDeps
from hostelry.store.protocol import Store
from hostelry.store.records import open_state

MAX_THREADS = 32
# A computing thread lets the event loop run after this time. Python's default is 5 ms.
SWITCH_S = 0.001
DRAIN_SLACK_S = 10.0  # on top of the longest request, before its copy is ended


async def serve(home: Home) -> None:
    """Run control until SIGTERM or SIGINT."""
    config, credentials = load_config(home), load_credentials(home)
    tls.use(home.tls)
    sys.setswitchinterval(SWITCH_S)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MAX_THREADS, "control"))
    with listening(config.control_port) as listener:
        front = ControlFront(listener)
        try:
            async with _await_term(front, home, config, credentials) as term:
                if term is not None:
                    await _lead(home, config, credentials, term, front)
        finally:
            await front.close()


@contextlib.asynccontextmanager
async def _await_term(
    front: ControlFront, home: Home, config: UpConfig, credentials: Credentials
) -> AsyncIterator[Term | None]:
    """Wait until this control leads. Yields its term, or None if the process must end before."""
    if config.store_url is not None:
        # Imported late, because the driver of the database is an extra.
        from hostelry.control.standby import stand_by

        async with stand_by(front, home, config, credentials) as term:
            yield term
        return
    database = platform_database(home, config)
    try:
        state = open_state(open_claimed_store(database, home, config, credentials))
        address = config.control_address
        document = {"leader": address, "epoch": 0, "controls": [address]}
        yield Term(state=state, database=database, leader=lambda: document)
    finally:
        database.close()


async def _lead(
    home: Home, config: UpConfig, credentials: Credentials, term: Term, front: ControlFront
) -> None:
    state = term.state
    owner = Scope(credentials.account_id, credentials.region)
    made_at = home.credentials.stat().st_mtime
    ensure_execution_role(state, owner, credentials.role_name, made_at)
    clock = SystemClock()
    census = CensusTaker(state, lambda: reconciler.instances.facts, home.root, monotonic_s)
    data = open_data(home, config, credentials, state, term.database, clock)
    scaling = Scaling(home, config, credentials, data, clock, get_shape, census.take)
    logs = LogCollection(home, config, clock)
    deps = replace(
        _reconciler_deps(home, config, credentials, clock, term),
        verdict_of=scaling.verdicts.decide,
        note_job=lambda job, lines: note_job(logs.store, clock, job, lines),
    )
    reconciler: Reconciler = Reconciler(state, deps)
    principals = PrincipalBoard(state, owner.account, clock)
    quotas = build_quotas(home, owner, data, scaling, clock)
    async with (
        follow_principals(principals),
        publish_quotas(quotas),
        collect_logs(logs),
        run_scaling(scaling),
        report_verdicts(scaling.verdicts, reconciler.queue.add),
    ):
        asynchronous = AsyncRoutes(state, scaling.messages.services.topics, scaling.metrics)
        steps = EndpointStepRecorder(state, scaling.metrics, clock)
        gateway_hosts = GatewayHostRoutes(monotonic_s)
        captured = CaptureBoard(scaling.metrics)
        app = build_app(
            ControlDeps(
                state=state,
                reconciler=reconciler,
                credentials=credentials,
                clock=clock,
                get_shape=get_shape,
                machine=get_machine(),
                find_price=PriceFile(home.prices).get_price_per_hour,
                max_body_bytes=config.max_body_bytes,
                wake=scaling.wake,
                aggregator=scaling.aggregator,
                metrics=scaling.metrics,
                checks_roles=not config.any_role,
                find_provider_keys=build_provider_keys(home, config).find,
                pace=config.pace,
                root_key=RootKey(home.root_key),
                logs=logs.store,
                messaging=scaling.messages.services,
                calls=scaling.events.rows,
                foreign_s3=config.s3_endpoint or "",
                more_routes=(
                    *scaling.routes,
                    *asynchronous.routes(),
                    *UsageRoutes(owner, scaling.metrics, clock).routes(),
                    *CostRoutes(owner, state, scaling.metrics, clock).routes(),
                    *ArtifactUseRoutes(state).routes(),
                    *DataLogRoutes(state, logs.store, clock).routes(),
                    *Comparisons(owner, state, scaling.aggregator, clock).routes(),
                    *captured.routes(),
                    *quotas.routes(),
                    *_copy_routes(config, credentials, term, deps.is_llm),
                    *_act_routes(data, credentials, reconciler, clock, steps),
                    *LeaderRoutes(term.leader).routes(),
                    *gateway_hosts.routes(),
                    *principals.routes(),
                    *_join_routes(home, state.store, owner, config, gateway_hosts, term),
                ),
                last_used=scaling.environments.idle_since,
                captured=captured.list_variants,
                verdict_of=scaling.verdicts.describe,
                note_step=steps.note_call,
                leader=None if term.epoch is None else term.leader,
                gateway_hosts=gateway_hosts.shown,
                reached_quotas=quotas.list_reached,
                trail=data.audit,
            )
        )
        await _run(front, app, reconciler, [principals.board.close, quotas.close])


def build_quotas(
    home: Home, owner: Scope, data: ControlData, scaling: Scaling, clock: SystemClock
) -> QuotaRoutes:
    """The routes of quotas. Their use is in the metrics, too."""
    prices = PriceFile(home.prices)
    quotas = QuotaRoutes(owner, data.state, prices.get, data.audit, clock)
    scaling.exposition.collectors.append(quotas.collect)
    return quotas


def _join_routes(
    home: Home, store: Store, owner: Scope, config: UpConfig, hosts: GatewayHostRoutes, term: Term
) -> tuple[Route, ...]:
    if config.cluster_host is None:
        return ()
    # Imported late, because a platform on one machine does not need it.
    from hostelry.cluster.join_routes import JoinRoutes
    from hostelry.cluster.join_token import live_hosts

    return JoinRoutes(
        home=home,
        store=store,
        owner=owner,
        clock=SystemClock(),
        address=config.control_address,
        live=lambda: live_hosts(hosts.live(), term.leader()),
    ).routes()


def _copy_routes(
    config: UpConfig, credentials: Credentials, term: Term, is_llm: Callable[[str], bool]
) -> tuple[Route, ...]:
    """The routes whose answers come from the agents of copies."""
    agent = partial(
        HttpAgent,
        internal_key=key_shown_to_agents(config, credentials),
        call_timeout_s=AGENT_TIMEOUT_S,
        epoch=term.epoch,
    )
    pages = CopyMetricsRoutes(term.state, lambda it: agent(it).copy_pages())
    caches = CopyCacheRoutes(term.state, lambda it, *asked: agent(it).copy_account(*asked), is_llm)
    return (*pages.routes(), *caches.routes())


def _act_routes(
    data: ControlData,
    credentials: Credentials,
    reconciler: Reconciler,
    clock: SystemClock,
    steps: EndpointStepRecorder,
) -> tuple[Route, ...]:
    acts = ActDeps(
        state=data.state,
        facts=lambda: reconciler.instances.facts,
        audit=data.audit,
        clock=clock,
        get_shape=get_shape,
        note_act=steps.note_act,
    )
    return (
        *AuditRoutes(data.audit, clock).routes(),
        *OperatorActRoutes(acts).routes(),
        *build_account_routes(data.state, credentials, data.audit, clock, data.metrics),
    )


def _reconciler_deps(
    home: Home, config: UpConfig, credentials: Credentials, clock: SystemClock, term: Term
) -> ReconcilerDeps:
    fleet, connect = build_fleet(home, config, credentials, term.epoch)
    images = ImageFile(home.images)
    images.rules()  # read now, so that an error in the file is logged at the start
    return ReconcilerDeps(
        fleet=fleet if term.epoch is None else FencedFleet(fleet, term.check),
        connect=connect,
        clock=clock,
        get_shape=get_shape,
        is_llm=images.is_llm,
        pace=config.pace,
        at_zero=config.at_zero,
        max_drain_s=max(config.invoke_timeout_s, config.stream_timeout_s) + DRAIN_SLACK_S,
    )


async def _run(
    front: ControlFront,
    app: ASGIApp,
    reconciler: Reconciler,
    end_polls: Iterable[Callable[[], None]],
) -> None:
    """Serve and reconcile until a signal. Raises TerminalError if reconciling ends first."""
    reconciling = asyncio.create_task(reconciler.run())

    def release() -> None:
        reconciler.release()
        for end in end_polls:
            end()

    front.release = release
    front.show(app)
    await asyncio.wait({reconciling, front.ended}, return_when=asyncio.FIRST_COMPLETED)
    if not front.ended.done():
        await front.close()
        await reconciling
        raise TerminalError("the reconciler ended unexpectedly")
    reconciling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reconciling


def main() -> None:
    """Parse the arguments and run. On an error, print a line and exit with code 1."""
    parser = argparse.ArgumentParser(prog="python -m hostelry.control.main", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    home = Home(parser.parse_args().home)
    configure_logging("control", log_format=log_format(home))
    gc.freeze()  # else each collection would scan the imported modules and stop the loop for 50 ms
    try:
        uvloop.run(serve(home))
    except (HostelryError, OSError) as error:
        sys.exit(f"control cannot run: {error}")
    finally:
        gc.freeze()  # else the exit would collect over all objects once more


if __name__ == "__main__":
    main()
