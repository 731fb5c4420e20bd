"""Internal routes that ask agents about ready copies: loaded models and adapters, and metrics.

Agents are asked only when a client asks control. The copy of an LLM reports its adapters and its
page pool, the copy of a multi-model endpoint its models.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.base.concurrency import for_each
from hostelry.base.errors import RetryableError, TerminalError
from hostelry.base.http import whole_number
from hostelry.base.json_response import JsonResponse
from hostelry.base.metrics_page import CONTENT_TYPE, PageJoin, merge_labels, sample_line
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.fleet.protocol import CopyPage
from hostelry.reconcile.plan.endpoint_state import EndpointState
from hostelry.reconcile.record import filter_visible, load_all
from hostelry.store.records import State

MAX_COPIES = 64
MAX_ADAPTERS = 1000
AT_ONCE = 16
CACHES_TIMEOUT_S = 4.0
MAX_BYTES = 32 * 1024 * 1024
AGENT_TIMEOUT_S = 5.0
METRICS_TIMEOUT_S = 5.5
TURN_S = 2.0  # how long a scrape waits while another scrape builds the page
PARAMETER = "endpoint"
NAME = "hostelry_copy_metrics"
HEADS = (
    (f"{NAME}_up", "1 where the copy gave its page in this scrape."),
    (f"{NAME}_seconds", "Time that the copy took for its page."),
    (f"{NAME}_dropped", "Lines of the copy's page that are left out here, by reason."),
)
Ask = Callable[[str, str, str, str], Awaitable[dict[str, Any]]]
"""(agent's address, "cache" or "models", copy's id, query) -> the copy's answer."""


class CacheTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A ready copy to ask. `what` is cache or models."""

    copy_id: str
    what: str
    agent_address: str | None
    account: str
    endpoint: str
    variant: str
    component: str | None
    instance: str
    ready_at: float | None


class CopyCacheRoutes:
    """GET /internal/copy-caches. `is_llm` decides whether an image is a built-in LLM server."""

    def __init__(self, state: State, ask: Ask, is_llm: Callable[[str], bool]) -> None:
        self._state = state
        self._ask = ask
        self._is_llm = is_llm

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/copy-caches", self.caches, methods=["GET"]),)

    async def caches(self, request: Request) -> Response:
        """The cache of each copy by its id: of a `component`, of an `endpoint`, or of all.

        At most MAX_COPIES copies are asked. `limit` bounds the adapters that each copy names. The
        answer also has the endpoint's name, if the client asked for one, and the declared adapters.
        """
        asked = request.query_params
        limit = asked.get("limit", "0")
        if whole_number(limit, 0, MAX_ADAPTERS) is None:
            return PlainTextResponse(f"limit is {limit:.20}; 0 to {MAX_ADAPTERS}\n", 400)
        states = filter_visible(await asyncio.to_thread(load_all, self._state))
        endpoint, component = asked.get("endpoint"), asked.get("component")
        every = list_cache_targets(states, self._is_llm, endpoint, component)
        targets = every[:MAX_COPIES]
        found = await self._ask_copies(targets, f"?limit={limit}")
        silent = {"fault": "it did not answer in time"}
        copies = {it.copy_id: {**_show(it), **found.get(it.copy_id, silent)} for it in targets}
        return JsonResponse(
            {
                "copies": copies,
                "left_out": len(every) - len(targets),
                "endpoint": find_endpoint_name(states, endpoint, component),
                "declared": count_declared_adapters(states, component),
            }
        )

    async def _ask_copies(self, targets: Iterable[CacheTarget], query: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        async def ask(target: CacheTarget) -> None:
            if target.agent_address is None:
                found[target.copy_id] = {"fault": "its instance has no agent now"}
                return
            try:
                answer = await self._ask(target.agent_address, target.what, target.copy_id, query)
                found[target.copy_id] = {target.what: answer}
            except (RetryableError, TerminalError) as error:
                found[target.copy_id] = {"fault": str(error)[:300]}

        try:
            async with asyncio.timeout(CACHES_TIMEOUT_S):
                await for_each(targets, ask, AT_ONCE)
        except TimeoutError:
            pass  # the answers received so far are shown
        return found


def list_cache_targets(
    states: Iterable[EndpointState],
    is_llm: Callable[[str], bool],
    endpoint: str | None = None,
    component: str | None = None,
) -> list[CacheTarget]:
    """The ready copies that keep adapters or models, of one endpoint or component, or all."""
    found = [
        CacheTarget(
            copy_id=copy.spec.id,
            what="models" if copy.status.models_address is not None else "cache",
            agent_address=None if instance is None else instance.agent_address,
            account=copy.scope.account,
            endpoint=copy.endpoint_name,
            variant=copy.variant_name,
            component=copy.component_name,
            instance=copy.instance_id,
            ready_at=copy.ready_at,
        )
        for state in states
        for copy in state.copies.values()
        if copy.status.phase is CopyPhase.READY
        and endpoint in (None, copy.endpoint_name)
        and component in (None, copy.component_name)
        and (copy.status.models_address is not None or is_llm(copy.spec.container.image))
        for instance in [state.instances.get(copy.instance_id)]
    ]
    return sorted(found, key=lambda it: (it.endpoint, it.component or "", it.copy_id))


def find_endpoint_name(
    states: Iterable[EndpointState], endpoint: str | None, component: str | None
) -> str | None:
    """The name of the given endpoint, or of the component's endpoint. None if unknown."""
    for state in states:
        name = None if state.endpoint is None else state.endpoint.name
        if name is not None and (name == endpoint or component in state.components):
            return name
    return None


def count_declared_adapters(states: Iterable[EndpointState], base: str | None) -> dict[str, Any]:
    """The adapters that are inference components, by their base. With `base`, also their names.

    `not_ready` has the adapters that are not InService, with status and reason.
    """
    found: dict[str, Any] = {}
    for state in states:
        for component in state.components.values():
            if component.adapter is None or base not in (None, component.adapter.base_name):
                continue
            shown = found.setdefault(
                component.adapter.base_name, {"count": 0, "names": [], "not_ready": {}}
            )
            shown["count"] += 1
            if base is None:
                continue
            shown["names"].append(component.name)
            if component.status is not ComponentStatus.IN_SERVICE:
                shown["not_ready"][component.name] = {
                    "status": component.status.value,
                    "reason": component.failure_reason,
                }
    return found


def _show(target: CacheTarget) -> dict[str, Any]:
    shown = asdict(target)
    del shown["copy_id"], shown["agent_address"]
    return shown


class MetricsTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A ready copy, its agent's address, and the labels of its samples."""

    copy_id: str
    agent_address: str | None
    labels: Mapping[str, str]


class CopyMetricsRoutes:
    """GET /internal/copy-metrics. `ask` gets the pages of an agent's copies from its address."""

    def __init__(self, state: State, ask: Callable[[str], Awaitable[Sequence[CopyPage]]]) -> None:
        self._state = state
        self._ask = ask
        self._turn = asyncio.Lock()

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/copy-metrics", self.page, methods=["GET"]),)

    async def page(self, request: Request) -> Response:
        """The joined metrics of every copy, or of the copies of the named endpoints."""
        unknown = sorted({*request.query_params} - {PARAMETER})
        if unknown:
            return _refuse(400, f"{', '.join(unknown)}: the only parameter is {PARAMETER}.")
        names = request.query_params.getlist(PARAMETER)
        states = filter_visible(await asyncio.to_thread(load_all, self._state))
        missing = {*names} - {it.endpoint.name for it in states if it.endpoint is not None}
        if missing:
            return _refuse(404, f"There is no endpoint {', '.join(sorted(missing))}.")
        try:
            async with asyncio.timeout(TURN_S):
                await self._turn.acquire()
        except TimeoutError:
            return _refuse(503, "This page is being put together for others; ask less often.")
        try:
            targets = list_metrics_targets(states, names)
            pages = await self._ask_agents({it.agent_address for it in targets})
            text = await asyncio.to_thread(join_pages, targets, pages)
        finally:
            self._turn.release()
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    async def _ask_agents(self, addresses: Iterable[str | None]) -> dict[str, CopyPage]:
        """The pages of the agents that answer in time, by copy."""
        found: dict[str, CopyPage] = {}

        async def ask(address: str) -> None:
            try:
                found.update({it.copy_id: it for it in await self._ask(address)})
            except (RetryableError, TerminalError):
                return  # metrics show the agent's copies as down

        try:
            async with asyncio.timeout(METRICS_TIMEOUT_S):
                await for_each((it for it in addresses if it is not None), ask, AT_ONCE)
        except TimeoutError:
            pass
        return found


def list_metrics_targets(
    states: Iterable[EndpointState], endpoints: Sequence[str] = ()
) -> list[MetricsTarget]:
    """The ready copies of the named endpoints, or of all."""
    found = []
    for state in states:
        if state.endpoint is None or (endpoints and state.endpoint.name not in endpoints):
            continue
        for copy in state.copies.values():
            if copy.status.phase is not CopyPhase.READY:
                continue
            instance = state.instances.get(copy.instance_id)
            labels = {
                "account": copy.scope.account,
                "region": copy.scope.region,
                "endpoint": copy.endpoint_name,
                "variant": copy.variant_name,
                "component": copy.component_name or "",
                "copy": copy.spec.id,
                "container": copy.spec.container.hostname or "",
            }
            address = None if instance is None else instance.agent_address
            target = MetricsTarget(copy_id=copy.spec.id, agent_address=address, labels=labels)
            found.append(target)
    return sorted(found, key=lambda it: (*it.labels.values(),))


def join_pages(
    targets: Iterable[MetricsTarget], pages: Mapping[str, CopyPage], max_bytes: int = MAX_BYTES
) -> str:
    """Join the pages of `targets`. Built-in servers come first, so their metric types win."""
    join = PageJoin(max_bytes)
    rows: dict[str, list[str]] = {name: [] for name, _ in HEADS}
    found = [(it, pages.get(it.copy_id, CopyPage(copy_id="", answer="down"))) for it in targets]
    for target, copy in sorted(found, key=lambda it: not it[1].is_built_in):
        if copy.answer == "none":
            continue
        added = join.add(target.labels, copy.page)
        is_up = copy.answer == "up" and added is not None
        num_samples = sum(len(it.samples) for it in copy.page.families)
        dropped = {"limit": num_samples, **copy.page.dropped} if added is None else added
        labels = merge_labels(target.labels, ())
        rows[f"{NAME}_up"].append(sample_line(f"{NAME}_up", labels, str(int(is_up))))
        if target.copy_id in pages:
            seconds = f"{copy.seconds:.6f}"
            rows[f"{NAME}_seconds"].append(sample_line(f"{NAME}_seconds", labels, seconds))
        rows[f"{NAME}_dropped"] += [
            sample_line(f"{NAME}_dropped", (*labels, ("reason", reason)), str(number))
            for reason, number in sorted(dropped.items())
        ]
    own = (
        f"# HELP {name} {words}\n# TYPE {name} gauge\n{''.join(rows[name])}"
        for name, words in HEADS
    )
    return f"{''.join(own)}{join.text()}"


def _refuse(status: int, message: str) -> Response:
    return PlainTextResponse(f"{message}\n", status)
