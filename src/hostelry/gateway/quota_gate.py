"""Holds each call to its quotas: counts it when it comes, and charges it when it has ended.

Without quotas it has no `index`, and handlers do nothing else.
"""

import logging
from collections.abc import Callable

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.openai import find_model
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.dataplane.shared.quota_table import QuotaTable, Taken
from hostelry.dataplane.tracing.call_trace import CHOSEN, CallTrace
from hostelry.dataplane.tracing.token_usage import count_tokens
from hostelry.domain.quota import QuotaDocument
from hostelry.domain.scope import Scope
from hostelry.principals.caller import Caller, CallerKind
from hostelry.quotas.decision import LimitRefusal, LimitUse, build_rate_headers, explain_refusal
from hostelry.quotas.estimate import NO_TOKENS, Tokens, estimate_answer, estimate_tokens
from hostelry.quotas.matching import NO_STANDING, CallStanding, QuotaCall, QuotaIndex
from hostelry.quotas.measures import DAY_MEASURES, count_amounts

LOG = logging.getLogger(__name__)
WARNING_HEADER = "x-hostelry-quota-warning"
THROTTLED = "ThrottlingException"
RATE_LIMITED, OUT_OF_QUOTA = "rate_limit_exceeded", "insufficient_quota"
LOG_EACH_S = 10.0
UNKNOWN = "(unknown)"
NS = 1e9


class LimitReachedError(ServiceError):
    """A quota does not admit the call."""


class QuotaGate:
    """The quotas of one worker.

    Args:
        open_table: opens the table of all workers, once there are quotas.
        now: seconds since the epoch.
        now_ns: nanoseconds of a clock that never goes back.
    """

    def __init__(
        self,
        open_table: Callable[[], QuotaTable],
        now: Callable[[], float],
        now_ns: Callable[[], int],
    ) -> None:
        self.index: QuotaIndex | None = None
        self.table: QuotaTable | None = None
        self.now = now
        self.now_ns = now_ns
        self._open_table = open_table
        self._logged_at: dict[str, float] = {}

    def follow(self, document: QuotaDocument) -> None:
        """Hold the next calls to these quotas."""
        if document.quotas and self.table is None:
            self.table = self._open_table()
        self.index = QuotaIndex(document) if document.quotas else None

    def find_standing(self, call: QuotaCall) -> CallStanding:
        """Find the quotas of a call, and its place in queues."""
        return NO_STANDING if self.index is None else self.index.find(call)

    def admit(
        self,
        call: QuotaCall,
        exchange: Exchange,
        tokens: Tokens | None = None,
        *,
        is_openai: bool = False,
    ) -> "AdmittedCall":
        """Count the call, and return a context that charges it at its end.

        `tokens` are given if the call itself generates none. The answer gets the headers about its
        quotas. Raises LimitReachedError.
        """
        index, table = self.index, self.table
        if index is None or table is None:
            return AdmittedCall(self, call, exchange, None)
        standing = index.find(call)
        if not standing.counts:
            return AdmittedCall(self, call, exchange, None)
        if tokens is None:
            is_text = standing.counts_tokens
            tokens = estimate_tokens(exchange.request.body) if is_text else NO_TOKENS
        prices = index.prices.find(call.adapter, call.component, call.endpoint)
        cost = prices.compute(tokens.prompt, tokens.generated, 0.0)
        amounts = count_amounts(tokens, cost, is_inner=call.is_inner)
        taken = table.take(standing.counts, amounts, self.now())
        refusal = taken.refusal
        headers = build_rate_headers(taken.uses, refusal is not None) if is_openai else {}
        if refusal is not None:
            raise self._refuse(refusal, exchange, headers, is_openai=is_openai)
        if taken.warnings:
            headers[WARNING_HEADER] = self._warn(taken.warnings, index.prices.currency)
        if headers:
            exchange.notes = headers
        return AdmittedCall(self, call, exchange, taken)

    def settle(self, call: QuotaCall, taken: Taken, trace: CallTrace, *, is_failed: bool) -> None:
        """Charge a call that has ended, and end its holds."""
        index, table = self.index, self.table
        assert table is not None, "the call was counted"
        tokens = NO_TOKENS if is_failed else find_tokens(trace)
        cost = 0.0
        if index is not None and not is_failed:
            prices = index.prices.find(call.adapter, call.component, call.endpoint)
            service_s = find_service_ns(trace, self.now_ns()) / NS
            cost = prices.compute(tokens.prompt, tokens.generated, service_s)
        table.settle(taken.holds, count_amounts(tokens, cost), self.now())

    def _refuse(
        self, refusal: LimitRefusal, exchange: Exchange, headers: dict[str, str], *, is_openai: bool
    ) -> LimitReachedError:
        currency = "" if self.index is None else self.index.prices.currency
        exchange.notes = {"Retry-After": str(refusal.retry_s), **headers}
        members = {}
        code = THROTTLED
        if is_openai:
            is_over = refusal.use.measure in DAY_MEASURES
            code = OUT_OF_QUOTA if is_over else RATE_LIMITED
            members = {"type": code if is_over else "requests"}
            if is_over:
                exchange.notes["x-should-retry"] = "false"
        return LimitReachedError(code, explain_refusal(refusal, currency), 429, members)

    def _warn(self, warnings: list[LimitUse], currency: str) -> str:
        """Name the reached limits for a header, and log each quota now and then."""
        now = self.now()
        for use in warnings:
            name = use.counted.quota.name
            if now - self._logged_at.get(name, 0.0) >= LOG_EACH_S:
                self._logged_at[name] = now
                refusal = LimitRefusal(use=use, retry_s=use.wait_s or 1, resets_at=now)
                LOG.warning("answered, and only warned: %s", explain_refusal(refusal, currency))
        return ", ".join(f"{use.counted.quota.name} {use.name}" for use in warnings)


class AdmittedCall:
    """A call under way. Used as a context, it charges the call at its end.

    A call that ends with a ServiceError used no tokens.
    """

    __slots__ = ("_call", "_exchange", "_gate", "_taken")

    def __init__(
        self, gate: QuotaGate, call: QuotaCall, exchange: Exchange, taken: Taken | None
    ) -> None:
        self._gate = gate
        self._call = call
        self._exchange = exchange
        self._taken = taken

    def __enter__(self) -> None:
        """Begin the call."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the call."""
        taken, self._taken = self._taken, None
        if taken is not None and taken.holds:
            is_failed = kind is not None and issubclass(kind, ServiceError)
            self._gate.settle(self._call, taken, self._exchange.trace, is_failed=is_failed)


def find_tokens(trace: CallTrace) -> Tokens:
    """The tokens that an answer reports, or an estimate. Only LLMs have tokens."""
    if not trace.is_llm or trace.status >= 400:
        return NO_TOKENS
    reported = count_tokens(trace.tail) if trace.tail else None
    if reported is not None:
        return Tokens(*reported)
    return estimate_answer(trace.bytes_in, trace.bytes_out, trace.num_events)


def find_service_ns(trace: CallTrace, now_ns: int) -> int:
    """Nanoseconds from the choice of the copy to the end of its answer. 0 without a copy."""
    chosen = [event[1] for event in trace.each_event() if event[0] == CHOSEN]
    return max(0, (trace.answered_ns or now_ns) - chosen[-1]) if chosen else 0


def name_principal(caller: Caller) -> str:
    """The ARN that quotas select a caller by. Copies of graphs have none."""
    return "" if caller.kind is CallerKind.AGENT else caller.principal_arn


def describe_invocation(
    table: RouteTable, scope: Scope, principal: str, invocation: InvokeRequest
) -> QuotaCall:
    """Name an invocation for quotas. Endpoints and components without a route are all one name."""
    name = invocation.inference_component_name
    known = table.endpoint(scope, invocation.endpoint_name) is not None
    found = None if name is None else table.component(scope, name)
    component, adapter = name_component(found, "" if name is None else UNKNOWN)
    return QuotaCall(
        account=scope.account,
        principal=principal,
        endpoint=invocation.endpoint_name if known else UNKNOWN,
        component=component,
        adapter=adapter,
        is_inner=not principal,
    )


def describe_completion(
    table: RouteTable, scope: Scope, principal: str, name: str, openai_key: str = ""
) -> QuotaCall:
    """Name a call of the OpenAI routes for quotas. Models without a route are all one name."""
    try:
        found = find_model(table, scope, name)
    except ServiceError:
        found = None
    component, adapter = name_component(found, UNKNOWN)
    return QuotaCall(
        account=scope.account,
        principal=principal,
        endpoint=UNKNOWN if found is None else found.endpoint_name,
        component=component,
        adapter=adapter,
        openai_key=openai_key,
    )


def name_component(found: Destination | None, otherwise: str) -> tuple[str, str]:
    """The component and the adapter of a destination, as quotas name them."""
    if found is None:
        return otherwise, ""
    base = found.base_key
    if base is not None and base.component_name is not None:
        return base.component_name, found.component_name or ""
    return found.component_name or "", found.adapter_id or ""
