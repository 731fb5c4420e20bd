"""Internal routes that ask the agents of ready copies: kept models and adapters, and metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.base.concurrency import for_each
from hostelry.base.errors import RetryableError, TerminalError
from hostelry.base.json_response import JsonResponse
from hostelry.base.metrics_page import CONTENT_TYPE, PageJoin, relabelled, sample_line
from hostelry.base.whole_number import whole_number
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.fleet.protocol import CopyPage
from hostelry.reconcile.plan.endpoint_state import EndpointState
from hostelry.reconcile.record import filter_visible, load_all
from hostelry.store.records import State

# GET /internal/copy-caches: what the ready copies of LLMs and multi-model endpoints keep, where.
#
# Each is asked through its agent: an LLM's copy for its adapters and its page pool, a multi-model
# copy for its models. For those who look; nothing is asked otherwise.


MAX_COPIES = 64
MAX_ADAPTERS = 1000
AT_ONCE = 16
CACHES_TIMEOUT_S = 4.0

Ask = Callable[[str, str, str, str], Awaitable[dict[str, Any]]]
"""Address of an agent, what, copy, query: what the copy says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTarget:
    """A ready copy that can be asked; `what` is cache or models."""

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
    """The handler; `is_llm` says whether an image is that of a built-in LLM server."""

    def __init__(self, state: State, ask: Ask, is_llm: Callable[[str], bool]) -> None:
        self._state = state
        self._ask = ask
        self._is_llm = is_llm

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/copy-caches", self.caches, methods=["GET"]),)

    async def caches(self, request: Request) -> Response:
        """What each copy keeps, by its id: of `component`, of `endpoint`, or of all.

        At most MAX_COPIES are asked; `limit` bounds the adapters that each of them names. Beside
        them the endpoint's name, where one is asked for, and the declared adapters by their base.
        """
        asked = request.query_params
        limit = asked.get("limit", "0")
        if whole_number(limit, 0, MAX_ADAPTERS) is None:
            return PlainTextResponse(f"limit is {limit:.20}; 0 to {MAX_ADAPTERS}\n", 400)
        states = filter_visible(await asyncio.to_thread(load_all, self._state))
        endpoint, component = asked.get("endpoint"), asked.get("component")
        every = cache_targets(states, self._is_llm, endpoint, component)
        targets = every[:MAX_COPIES]
        found = await self._answers(targets, f"?limit={limit}")
        silent = {"fault": "it did not answer in time"}
        copies = {it.copy_id: {**_shown(it), **found.get(it.copy_id, silent)} for it in targets}
        return JsonResponse(
            {
                "copies": copies,
                "left_out": len(every) - len(targets),
                "endpoint": endpoint_of(states, endpoint, component),
                "declared": declared_adapters(states, component),
            }
        )

    async def _answers(self, targets: Iterable[CacheTarget], query: str) -> dict[str, Any]:
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
            pass  # those that answered are shown
        return found


def cache_targets(
    states: Iterable[EndpointState],
    is_llm: Callable[[str], bool],
    endpoint: str | None = None,
    component: str | None = None,
) -> list[CacheTarget]:
    """The ready copies that keep adapters or models, of one endpoint or component or of all."""
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


def endpoint_of(
    states: Iterable[EndpointState], endpoint: str | None, component: str | None
) -> str | None:
    """The name of the endpoint that is asked for, or of the component's; None for none."""
    for state in states:
        name = None if state.endpoint is None else state.endpoint.name
        if name is not None and (name == endpoint or component in state.components):
            return name
    return None


def declared_adapters(states: Iterable[EndpointState], base: str | None) -> dict[str, Any]:
    """Adapters that are components of their own, by their base; their names for one `base` alone.

    `not_ready` are those that are not InService, with their status and its reason.
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


def _shown(target: CacheTarget) -> dict[str, Any]:
    shown = asdict(target)
    del shown["copy_id"], shown["agent_address"]
    return shown


MAX_BYTES = 32 * 1024 * 1024
AGENT_TIMEOUT_S = 5.0
METRICS_TIMEOUT_S = 5.5
TURN_S = 2.0  # for the page that is being put together for another scrape
PARAMETER = "endpoint"
NAME = "hostelry_copy_metrics"
HEADS = (
    (f"{NAME}_up", "1 where the copy gave its page in this scrape."),
    (f"{NAME}_seconds", "Time that the copy took for its page."),
    (f"{NAME}_dropped", "Lines of the copy's page that are left out here, by reason."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsTarget:
    """A ready copy: the agent that can ask it, and the labels of its samples."""

    copy_id: str
    agent_address: str | None
    labels: Mapping[str, str]


class CopyMetricsRoutes:
    """The handler; `ask` gives the pages of an agent's copies, by its address."""

    def __init__(self, state: State, ask: Callable[[str], Awaitable[Sequence[CopyPage]]]) -> None:
        self._state = state
        self._ask = ask
        self._turn = asyncio.Lock()

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/copy-metrics", self.page, methods=["GET"]),)

    async def page(self, request: Request) -> Response:
        """The page of every copy, or of those of the endpoints named by `endpoint`."""
        unknown = sorted({*request.query_params} - {PARAMETER})
        if unknown:
            return _refusal(400, f"{', '.join(unknown)}: the only parameter is {PARAMETER}.")
        names = request.query_params.getlist(PARAMETER)
        states = filter_visible(await asyncio.to_thread(load_all, self._state))
        missing = {*names} - {it.endpoint.name for it in states if it.endpoint is not None}
        if missing:
            return _refusal(404, f"There is no endpoint {', '.join(sorted(missing))}.")
        try:
            async with asyncio.timeout(TURN_S):
                await self._turn.acquire()
        except TimeoutError:
            return _refusal(503, "This page is being put together for others; ask less often.")
        try:
            targets = metrics_targets(states, names)
            pages = await self._pages({it.agent_address for it in targets})
            text = await asyncio.to_thread(joined_page, targets, pages)
        finally:
            self._turn.release()
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    async def _pages(self, addresses: Iterable[str | None]) -> dict[str, CopyPage]:
        """The pages of those agents that answer in time, by copy."""
        found: dict[str, CopyPage] = {}

        async def ask(address: str) -> None:
            try:
                found.update({it.copy_id: it for it in await self._ask(address)})
            except (RetryableError, TerminalError):
                return  # its copies are down

        try:
            async with asyncio.timeout(METRICS_TIMEOUT_S):
                await for_each((it for it in addresses if it is not None), ask, AT_ONCE)
        except TimeoutError:
            pass
        return found


def metrics_targets(
    states: Iterable[EndpointState], endpoints: Sequence[str] = ()
) -> list[MetricsTarget]:
    """The ready copies, of the named endpoints or of all."""
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


def joined_page(
    targets: Iterable[MetricsTarget], pages: Mapping[str, CopyPage], max_bytes: int = MAX_BYTES
) -> str:
    """The pages of `targets` as one. Built-in servers come first: their families' types count."""
    join = PageJoin(max_bytes)
    rows: dict[str, list[str]] = {name: [] for name, _ in HEADS}
    found = [(it, pages.get(it.copy_id, CopyPage(copy_id="", answer="down"))) for it in targets]
    for target, copy in sorted(found, key=lambda it: not it[1].is_built_in):
        if copy.answer == "none":
            continue
        added = join.add(target.labels, copy.page)
        is_up = copy.answer == "up" and added is not None
        dropped = {"limit": _num_samples(copy), **copy.page.dropped} if added is None else added
        labels = relabelled(target.labels, ())
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


def _num_samples(copy: CopyPage) -> int:
    return sum(len(it.samples) for it in copy.page.families)


def _refusal(status: int, message: str) -> Response:
    return PlainTextResponse(f"{message}\n", status)
