"""Internal routes of quotas: their records, the document for gateways, and their use.

| request | answer |
| --- | --- |
| `GET /internal/quotas?have=VERSION` | the document once it is newer, or 304 after 20 s |
| `POST /internal/quotas` | 200 with notes on selectors without a match. 400 if it is invalid |
| `POST /internal/quotas/delete` | 200, or 404 |
| `POST /internal/quotas/use` | the shares that the reporting host may use |
| `GET /internal/quotas/use` | all quotas with their use |
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.audit.acts import AuditEntry
from hostelry.audit.trail import AuditTrail
from hostelry.base.clock import Clock, monotonic_s
from hostelry.base.concurrency import run_periodically
from hostelry.base.errors import RetryableError
from hostelry.base.ids import new_uuid
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse, refuse_invalid
from hostelry.control.audit_routes import MAX_CHARS
from hostelry.cost.prices import PriceList
from hostelry.domain.quota import (
    EACH,
    LIMITS,
    MAX_QUOTAS,
    CallPrices,
    Quota,
    QuotaDocument,
    QuotaReport,
    ReportedUse,
)
from hostelry.domain.scope import ALL_REGIONS, Scope
from hostelry.quotas.matching import build_document
from hostelry.quotas.measures import DAY_COST, NANO, list_limits
from hostelry.quotas.shares import ShareLedger
from hostelry.reconcile.route_board import SnapshotBoard
from hostelry.store.records import State, Versioned

LOG = logging.getLogger(__name__)
WAIT_S = 20.0
LOOK_S = 1.0
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CHARS)]


class AskedQuota(Quota, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quota to set, in place of the quota of that name. Its id and time are not read."""


class SetQuota(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The request to set a quota."""

    who: Name
    quota: AskedQuota


class DeleteQuota(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The quota to delete."""

    who: Name
    account: Name
    name: Name


@contextlib.asynccontextmanager
async def publish_quotas(quotas: "QuotaRoutes") -> AsyncIterator[None]:
    """Publish changes of quotas and prices for the block."""
    task = asyncio.create_task(run_periodically("publishing quotas", quotas.publish, LOOK_S))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class QuotaRoutes:
    """Handlers of quotas.

    Args:
        owner: the platform's first account.
        state: the records.
        get_prices: returns the prices of prices.toml.
        audit: gets each change.
        clock: seconds since the epoch.
    """

    def __init__(
        self,
        owner: Scope,
        state: State,
        get_prices: Callable[[], PriceList | None],
        audit: AuditTrail,
        clock: Clock,
    ) -> None:
        self._owner = owner
        self._state = state
        self._get_prices = get_prices
        self._audit = audit
        self._clock = clock
        self._board: SnapshotBoard[QuotaDocument] = SnapshotBoard()
        self._ledger = ShareLedger(monotonic_s())
        self.close = self._board.close

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/quotas", self.get_newer, methods=["GET"]),
            Route("/internal/quotas", self.set, methods=["POST"]),
            Route("/internal/quotas/delete", self.delete, methods=["POST"]),
            Route("/internal/quotas/use", self.take_report, methods=["POST"]),
            Route("/internal/quotas/use", self.show, methods=["GET"]),
        )

    async def publish(self) -> None:
        """Publish the quotas, if they or the prices have changed."""
        self._board.publish(await asyncio.to_thread(self._build_document))

    async def get_newer(self, request: Request) -> Response:
        """Return the quotas once they differ from the caller's, or 304 after 20 seconds."""
        document = await self._board.newer_than(request.query_params.get("have"), WAIT_S)
        if document is None:
            return Response(status_code=304)
        return JsonResponse(document)

    async def set(self, request: Request) -> Response:
        """Record a quota, and return notes on parts that have no effect yet."""
        with refuse_invalid("quota"):
            asked = decode(await request.body(), SetQuota)
        problem = await asyncio.to_thread(self._find_problem, asked.quota)
        if problem is not None:
            return JsonResponse({"error": problem}, 400)
        return await self._change(self._record, asked)

    async def delete(self, request: Request) -> Response:
        """Delete a quota."""
        with refuse_invalid("quota"):
            asked = decode(await request.body(), DeleteQuota)
        return await self._change(self._remove, asked)

    async def take_report(self, request: Request) -> Response:
        """Note a host's use, and return its shares. 400 if the report is invalid."""
        with refuse_invalid("report"):
            report = decode(await request.body(), QuotaReport)
        document = self._board.snapshot
        limits = {} if document is None else {it.id: list_limits(it) for it in document.quotas}
        now_s, now = monotonic_s(), self._clock.now()
        return JsonResponse(self._ledger.take(report, limits, now_s, now))

    async def show(self, request: Request) -> Response:
        """All quotas with their use. `name` selects one."""
        name = request.query_params.get("name")
        document, uses = await asyncio.to_thread(self._build_document), self._group_uses()
        shown = [
            show_quota(quota, uses.get(quota.id, []))
            for quota in document.quotas
            if name in (None, quota.name)
        ]
        currency, hosts = document.prices.currency, self._ledger.num_hosts
        return JsonResponse({"quotas": shown, "currency": currency, "hosts": hosts})

    def list_reached(self) -> dict[str, Any]:
        """The quotas with a limit that is reached, and the currency of costs. Or nothing."""
        document, uses = self._board.snapshot, self._group_uses()
        shown = [
            show_quota(quota, uses[quota.id])
            for quota in (() if document is None else document.quotas)
            if quota.id in uses
        ]
        reached = [it for it in shown if is_reached(it)]
        if document is None or not reached:
            return {}
        return {"quotas": reached, "currency": document.prices.currency}

    def collect(self) -> Iterator[Metric]:
        """Metrics of each quota: its limits, its use and its refusals, over all its counts."""
        labels = ("account", "quota", "limit")
        limits = GaugeMetricFamily("hostelry_quota_limit", "Limits of quotas.", labels=labels)
        used = GaugeMetricFamily("hostelry_quota_used", "Use of quotas.", labels=labels)
        refused = CounterMetricFamily(
            "hostelry_quota_refused", "Calls that a quota refused.", labels=labels
        )
        warned = CounterMetricFamily(
            "hostelry_quota_warned", "Calls beyond a quota that only warns.", labels=labels
        )
        document, uses = self._board.snapshot, self._group_uses()
        for quota in () if document is None else document.quotas:
            mine = uses.get(quota.id, [])
            for measure, limit in list_limits(quota):
                key, unit = (quota.account, quota.name, LIMITS[measure]), _get_unit(measure)
                limits.add_metric(key, limit / unit)
                used.add_metric(key, sum(it.used[measure] + it.held[measure] for it in mine) / unit)
                refused.add_metric(key, sum(it.refused[measure] for it in mine))
                warned.add_metric(key, sum(it.warned[measure] for it in mine))
        yield from (limits, used, refused, warned)

    def _group_uses(self) -> dict[str, list[ReportedUse]]:
        found: dict[str, list[ReportedUse]] = {}
        for use in self._ledger.list_uses():
            found.setdefault(use.quota_id, []).append(use)
        return found

    def _build_document(self) -> QuotaDocument:
        prices = self._get_prices()
        calls = CallPrices() if prices is None or prices.calls is None else prices.calls
        return build_document((it.value for it in self._state.quotas.list()), calls)

    async def _change(self, act: Callable[[Any], dict[str, Any]], asked: Any) -> Response:
        try:
            shown = await asyncio.to_thread(act, asked)
        except RetryableError as error:
            return JsonResponse({"error": f"Try again: {error}"}, 503)
        except OSError as error:
            text = f"The audit log cannot be written, so nothing was done: {error}"
            return JsonResponse({"error": text}, 507)
        await self.publish()
        return JsonResponse(shown, 404 if "error" in shown else 200)

    def _find_problem(self, quota: Quota) -> str | None:
        """Why the quota cannot be set."""
        account = quota.account
        known = {EACH, self._owner.account}
        if account not in known and not any(it.value.id == account for it in self._list_accounts()):
            return f"there is no account {account}; give an account's id, or * for each account"
        prices = self._get_prices()
        if quota.cost_per_day is not None and (prices is None or prices.calls is None):
            return (
                "cost_per_day needs the price of a call: add the table [calls] to prices.toml "
                "(`hostelry cost --example-prices` prints an example)"
            )
        is_new = self._find(account, quota.name) is None
        if is_new and len(self._state.quotas.list()) >= MAX_QUOTAS:
            return f"there are {MAX_QUOTAS} quotas already, and no more may be set"
        return None

    def _list_accounts(self) -> list[Versioned[Any]]:
        return self._state.accounts.list()

    def _record(self, asked: SetQuota) -> dict[str, Any]:
        with self._state.writing:
            before = self._find(asked.quota.account, asked.quota.name)
            fields = asdict(asked.quota)
            if before is None:
                quota = Quota(**fields | {"id": new_uuid(), "created_at": self._clock.now()})
            else:
                old = before.value
                quota = Quota(**fields | {"id": old.id, "created_at": old.created_at})
            self._note(asked.who, "set-quota", quota.account, quota.name)
            scope = Scope(quota.account, ALL_REGIONS)
            expect = None if before is None else before.version
            self._state.quotas.put(scope, quota.name, quota, expect=expect)
        return {"quota": msgspec.to_builtins(quota), "notes": self._list_notes(quota)}

    def _remove(self, asked: DeleteQuota) -> dict[str, Any]:
        with self._state.writing:
            found = self._find(asked.account, asked.name)
            if found is None:
                names = ", ".join(it.value.name for it in self._state.quotas.list()) or "none"
                error = f"there is no quota {asked.name} of account {asked.account}. There are: "
                return {"error": error + names}
            self._note(asked.who, "delete-quota", asked.account, asked.name)
            scope = Scope(asked.account, ALL_REGIONS)
            self._state.quotas.delete(scope, asked.name, expect=found.version)
        return {"name": asked.name}

    def _find(self, account: str, name: str) -> Versioned[Quota] | None:
        return self._state.quotas.get(Scope(account, ALL_REGIONS), name)

    def _list_notes(self, quota: Quota) -> list[str]:
        """The selectors that name nothing yet."""
        state, notes = self._state, []
        kinds = (
            ("endpoint", "endpoint", state.endpoints),
            ("component", "inference component", state.components),
            ("adapter", "adapter component", state.components),
        )
        for name, what, records in kinds:
            value = getattr(quota, name)
            named = value not in (None, EACH)
            if named and not any(it.value.name == value for it in records.list()):
                notes.append(f"There is no {what} {value} yet.")
        return notes

    def _note(self, who: str, act: str, account: str, name: str) -> None:
        """Add the change to the audit log, before it is made."""
        entry = AuditEntry(
            at=self._clock.now(),
            who=who,
            act=act,
            target=f"quota {name}",
            outcome="accepted",
            account=account,
        )
        self._audit.append(entry)


def show_quota(quota: Quota, uses: list[ReportedUse]) -> dict[str, Any]:
    """A quota with the use of each of its counts, by limit. Costs are in the currency."""
    counts = []
    for use in sorted(uses, key=lambda it: it.values):
        limits = {}
        for measure, limit in list_limits(quota):
            unit = _get_unit(measure)
            limits[LIMITS[measure]] = {
                "limit": limit / unit if unit > 1 else limit,
                "used": use.used[measure] / unit if unit > 1 else use.used[measure],
                "held": use.held[measure] / unit if unit > 1 else use.held[measure],
                "refused": use.refused[measure],
                "warned": use.warned[measure],
                "is_reached": use.used[measure] + use.held[measure] >= limit,
            }
        each = [name for name, value in quota.selectors.items() if value == EACH]
        names = dict(zip(each, use.values, strict=False))
        counts.append({"names": names, "limits": limits})
    return {**msgspec.to_builtins(quota), "counts": counts}


def is_reached(shown: dict[str, Any]) -> bool:
    """True if a limit of a shown quota is reached."""
    return any(use["is_reached"] for it in shown["counts"] for use in it["limits"].values())


def _get_unit(measure: int) -> int:
    return NANO if measure == DAY_COST else 1
