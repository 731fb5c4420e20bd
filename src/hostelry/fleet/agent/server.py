"""HTTP server of an agent (docs/architecture.md section 5), which refuses replaced leaders."""

import asyncio
import logging
import socket
from collections.abc import Callable

import msgspec
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.asgi_server import EndsWithServer
from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.guards import INTERNAL_KEY_HEADER, KeyGuard, OwnHostsOnly
from hostelry.base.json import decode
from hostelry.base.peers import EPOCH_HEADER, parse_epoch
from hostelry.domain.copy import CopySpec
from hostelry.fleet.agent.agent import InstanceAgent
from hostelry.fleet.agent.metrics_pages import MetricsPages
from hostelry.fleet.agent.models.copy_models import PREFIX as LEASES
from hostelry.fleet.agent.models.copy_models import LeaseRoutes
from hostelry.fleet.records import InstanceFolder

LOG = logging.getLogger(__name__)
MAX_DESIRED_BYTES = 32 * 1024 * 1024
MAX_WAIT_S = 60.0
MAX_LOG_LINES = 10_000
COPY_TIMEOUT_S = 5.0
MAX_CACHE_QUERY = 100


class EpochGuard:
    """Refuses calls of control's former leaders, by the highest epoch that has called.

    The highest epoch is on disk before its first call is carried out. So no delayed call of an
    earlier leader is carried out after a call of its successor, even by a restarted agent. Calls
    without an epoch, which a single control makes, pass. A refusal is 409 with the highest epoch in
    the header, or 503 if the epoch cannot be recorded.
    """

    def __init__(self, folder: InstanceFolder) -> None:
        self._folder = folder
        self._recording = asyncio.Lock()
        self._highest = folder.load_epoch()

    async def refusal(self, request: Request) -> Response | None:
        """The answer that refuses the call. After None, carry it out before awaiting anything."""
        given = request.headers.get(EPOCH_HEADER)
        if given is None:
            return None
        epoch = parse_epoch(given)
        if epoch is None:
            return PlainTextResponse(
                f"{EPOCH_HEADER}: {given[:40]!r} is not an epoch", status_code=400
            )
        if epoch > self._highest:
            try:
                await self._raise_to(epoch)
            except OSError as error:
                text = f"the epoch {epoch} cannot be recorded: {error}"
                return PlainTextResponse(text, status_code=503)
        if epoch < self._highest:
            return PlainTextResponse(
                f"epoch {epoch} is over: the leader with epoch {self._highest} has called",
                status_code=409,
                headers={EPOCH_HEADER: str(self._highest)},
            )
        return None

    def guard(self, app: ASGIApp) -> ASGIApp:
        """Wrap `app`, so that it gets only calls that pass."""

        async def guard(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = await self.refusal(Request(scope)) if scope["type"] == "http" else None
            await (refusal or app)(scope, receive, send)

        return guard

    async def _raise_to(self, epoch: int) -> None:
        async with self._recording:
            if epoch > self._highest:
                await asyncio.to_thread(self._folder.save_epoch, epoch)
                self._highest = epoch


class AgentRoutes:
    """The agent's routes. `finish` ends the process once everything is stopped.

    A call carries the internal key, or the copy's key if a gateway leases models of a copy.
    """

    def __init__(
        self, agent: InstanceAgent, finish: Callable[[], None], epochs: EpochGuard
    ) -> None:
        self._agent = agent
        self._finish = finish
        self._epochs = epochs
        self._pages = MetricsPages(monotonic_s)

    def app(self, internal_key: str) -> ASGIApp:
        """The ASGI application."""
        routes = [
            Route("/copies", self.put_copies, methods=["PUT"]),
            Route("/observe", self.observe, methods=["GET"]),
            Route("/logs/{copy_id}", self.get_logs, methods=["GET"]),
            Route("/models/{copy_id}", self.get_models, methods=["GET"]),
            Route("/graph/{copy_id}", self.get_graph, methods=["GET"]),
            Route("/cache/{copy_id}", self.get_cache, methods=["GET"]),
            Route("/metrics", self.get_metrics, methods=["GET"]),
            Route("/shutdown", self.shutdown, methods=["POST"]),
        ]
        refusal = PlainTextResponse(f"{INTERNAL_KEY_HEADER} is missing or wrong", status_code=403)
        app = self._epochs.guard(Starlette(routes=routes))
        guard = KeyGuard(app, INTERNAL_KEY_HEADER, internal_key, refusal)
        leases = LeaseRoutes(self._agent.find_models, self._agent.hide_paths).app()

        async def either(scope: Scope, receive: Receive, send: Send) -> None:
            is_lease = str(scope.get("path", "")).startswith(f"{LEASES}/")
            await (leases if is_lease else guard)(scope, receive, send)

        return EndsWithServer(OwnHostsOnly(either))

    async def put_copies(self, request: Request) -> Response:
        """PUT /copies: replace all desired copies. Answers once they are on disk."""
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_DESIRED_BYTES:
                return PlainTextResponse(f"more than {MAX_DESIRED_BYTES} bytes", status_code=413)
        refusal = await self._epochs.refusal(request)  # the body may have come slowly
        if refusal is not None:
            return refusal
        try:
            await self._agent.apply(decode(body, tuple[CopySpec, ...]))
        except (msgspec.DecodeError, TerminalError) as error:
            return PlainTextResponse(str(error), status_code=400)
        except OSError as error:
            return PlainTextResponse(
                f"the desired copies cannot be recorded: {error}", status_code=503
            )
        return Response(status_code=204)

    async def observe(self, request: Request) -> Response:
        """GET /observe?have=VERSION&wait_s=N."""
        try:
            wait_s = min(MAX_WAIT_S, max(0.0, float(request.query_params.get("wait_s", "0"))))
        except ValueError as error:
            return PlainTextResponse(f"wait_s: {error}", status_code=400)
        observation = await self._agent.observe(request.query_params.get("have"), wait_s)
        return Response(msgspec.json.encode(observation), media_type="application/json")

    async def get_logs(self, request: Request) -> Response:
        """GET /logs/COPY_ID?lines=N: text."""
        try:
            lines = min(MAX_LOG_LINES, int(request.query_params.get("lines", "100")))
            tail = await self._agent.log_tail(request.path_params["copy_id"], lines)
        except (ValueError, TerminalError) as error:
            return PlainTextResponse(str(error), status_code=400)
        return PlainTextResponse(tail)

    async def get_models(self, request: Request) -> Response:
        """GET /models/COPY_ID: the models of a multi-model copy, and its last evictions."""
        found = self._agent.find_models(request.path_params["copy_id"])
        if found is None:
            return PlainTextResponse("no multi-model copy of that id is here", status_code=404)
        return Response(msgspec.json.encode(found[0].account()), media_type="application/json")

    async def get_graph(self, request: Request) -> Response:
        """GET /graph/COPY_ID: the graph of a copy, with the times of its steps."""
        return await self._ask_copy(request, "/graph")

    async def get_cache(self, request: Request) -> Response:
        """GET /cache/COPY_ID?limit=N: where an LLM copy's adapters are, and its page pool."""
        return await self._ask_copy(request, f"/cache?{request.url.query[:MAX_CACHE_QUERY]}")

    async def _ask_copy(self, request: Request, path: str) -> Response:
        """The JSON that the copy's server answers at `path`."""
        server = self._agent.find_server(request.path_params["copy_id"])
        if server is None:
            return PlainTextResponse("no copy of that id serves here", status_code=404)
        answer, body = await server.call("GET", path, timeout_s=COPY_TIMEOUT_S)
        if answer.fault is not None:
            return PlainTextResponse(answer.fault, status_code=answer.status or 502)
        return Response(body, media_type="application/json")

    async def get_metrics(self, _request: Request) -> Response:
        """GET /metrics: a JSON list of `CopyPage`, of the ready copies."""
        pages = await self._pages.collect(self._agent.metrics_sources())
        return Response(msgspec.json.encode(pages), media_type="application/json")

    async def shutdown(self, _request: Request) -> Response:
        """POST /shutdown: answers at once, then stops every copy and this process."""
        return Response(status_code=202, background=BackgroundTask(self._shut_down))

    async def _shut_down(self) -> None:
        LOG.info("shutting down: every copy is stopped")
        await self._agent.stop()
        self._finish()


def loopback_socket() -> socket.socket:
    """A listening socket on a free loopback port."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener
