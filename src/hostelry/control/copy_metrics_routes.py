"""GET /internal/copy-metrics: the model servers' own metrics, of all ready copies, as one page."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.base.concurrently import for_each
from hostelry.base.errors import RetryableError, TerminalError
from hostelry.base.metrics_page import CONTENT_TYPE, PageJoin, relabelled, sample_line
from hostelry.domain.copy import CopyPhase
from hostelry.fleet.protocol import CopyPage
from hostelry.reconcile.plan.endpoint_state import EndpointState
from hostelry.reconcile.record import load_all, visible
from hostelry.store.records import State

MAX_BYTES = 32 * 1024 * 1024
AGENT_TIMEOUT_S = 5.0
TOTAL_S = 5.5
TURN_S = 2.0  # for the page that is being put together for another scrape
AT_ONCE = 16
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
        states = visible(await asyncio.to_thread(load_all, self._state))
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
            async with asyncio.timeout(TOTAL_S):
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
