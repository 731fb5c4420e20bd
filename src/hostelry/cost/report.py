"""Sums charges by name, with idle cost apart and unknown prices named. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from hostelry.cost.attribution import HOUR_S, Charge, ChargeKind, Idle, divide_by_tenant
from hostelry.cost.steps import StepCount, sum_steps
from hostelry.cost.usage import (
    AI_RECOMMENDATION_PREFIX,
    RECOMMENDATION_PREFIX,
    TRANSFORM_PREFIX,
    Calls,
    HourUsage,
    UsageTarget,
)

JOB_PREFIXES = (TRANSFORM_PREFIX, RECOMMENDATION_PREFIX, AI_RECOMMENDATION_PREFIX)

STORAGE = "(object store)"
NO_TENANT, NO_MODEL = "(no tenant)", "(no target model)"
BY = ("endpoint", "component", "adapter", "model", "tenant", "instance-type", "hour")
LEAST_REPORTED = 0.95
OF_INSTANCES = frozenset({ChargeKind.INSTANCE, ChargeKind.ENERGY})
# Rows of these names have no requests.
WITHOUT_CALLS = frozenset({"instance-type"})


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of charges. `known` is their sum as far as prices are known.

    With `num_unknown` charges of an unknown price it is a lower bound. `instance_h` are the hours
    of instances in these charges, whether their prices are known or not.
    """

    known: float = 0.0
    num_unknown: int = 0
    num_known: int = 0
    instance_h: float = 0.0

    @property
    def is_complete(self) -> bool:
        """True if the price of every charge is known."""
        return not self.num_unknown

    @property
    def value(self) -> float | None:
        """The sum, or None if no price is known."""
        return None if self.num_unknown and not self.num_known else self.known

    def plus(self, other: "Amount") -> "Amount":
        """The sum of both."""
        return Amount(
            known=self.known + other.known,
            num_unknown=self.num_unknown + other.num_unknown,
            num_known=self.num_known + other.num_known,
            instance_h=self.instance_h + other.instance_h,
        )


NOTHING = Amount()
UNKNOWN = Amount(num_unknown=1)


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one name. Requests cannot be divided by instance types: `calls` None."""

    name: str
    amount: Amount
    calls: Calls | None

    @property
    def per_1000_calls(self) -> float | None:
        """The cost of 1,000 requests, or None without requests or without a complete cost."""
        return self._per_1000(None if self.calls is None else self.calls.requests)

    @property
    def per_1000_tokens(self) -> float | None:
        """The cost of 1,000 tokens of input and output, or None as for requests.

        None also if fewer than LEAST_REPORTED of the requests reported their tokens.
        """
        calls = self.calls
        if calls is None or calls.token_requests < calls.requests * LEAST_REPORTED:
            return None
        return self._per_1000(calls.tokens)

    def _per_1000(self, num: float | None) -> float | None:
        return self.amount.known / num * 1000 if num and self.amount.is_complete else None


class IdleRow(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of an endpoint's instances or copies that served no model."""

    endpoint: str
    component: str | None
    reason: Idle
    amount: Amount


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of an endpoint in hours without a request, which scaling to zero could save.

    `is_uncalled` is True if no request came in the whole period.
    """

    endpoint: str
    num_hours: int
    amount: Amount
    is_uncalled: bool


class CostReport(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a period of `period_s`, of which `recorded_s` have records.

    `missing_prices` are the settings of prices.toml that are missing.
    """

    rows: Sequence[CostRow]
    idle: Sequence[IdleRow]
    savings: Sequence[Saving]
    total: Amount
    missing_prices: Sequence[str]
    recorded_s: float
    period_s: float
    steps: Sequence[StepCount] = ()


def sum_charges(charges: Iterable[Charge]) -> Amount:
    """The sum of the charges whose prices are known, and the number of others."""
    rows = list(charges)
    known = [it.amount for it in rows if it.amount is not None]
    hours = (it.quantity for it in rows if it.kind is ChargeKind.INSTANCE)
    return Amount(
        known=math.fsum(known),
        num_unknown=len(rows) - len(known),
        num_known=len(known),
        instance_h=math.fsum(hours),
    )


def select_name(
    name: str, charges: Iterable[Charge], hours: Iterable[HourUsage]
) -> tuple[list[Charge], list[HourUsage]]:
    """The charges and requests of an endpoint, a component or an adapter."""
    kept = []
    for hour in hours:
        calls = {it: calls for it, calls in hour.calls.items() if _has_name(it, name)}
        kept.append(
            HourUsage(
                at=hour.at,
                instance_s=hour.instance_s,
                calls=calls,
                by_model={it: hour.by_model[it] for it in calls if it in hour.by_model},
                by_tenant={it: hour.by_tenant[it] for it in calls if it in hour.by_tenant},
                recorded_s=hour.recorded_s,
                steps={it: num for it, num in hour.steps.items() if it[0] == name},
            )
        )
    found = [it for it in charges if it.target is not None and _has_name(it.target, name)]
    return found, kept


def _has_name(target: UsageTarget, name: str) -> bool:
    return name in (target.endpoint, target.component, target.base)


def build_report(
    charges: Collection[Charge], hours: Sequence[HourUsage], by: str, period_s: float
) -> CostReport:
    """The report of a period of `period_s` seconds. `by` is one of BY."""
    used = [it for it in charges if it.idle is None]
    if by == "tenant":
        used = list(divide_by_tenant(used, hours))
    amounts: dict[str, list[Charge]] = {}
    for charge in used:
        amounts.setdefault(_name_charge(charge, by), []).append(charge)
    calls = None if by in WITHOUT_CALLS else _sum_calls(hours, by)
    names = [*amounts, *(it for it in calls or () if it not in amounts)]
    rows = [
        CostRow(
            name=name,
            amount=sum_charges(amounts.get(name, ())),
            calls=None if calls is None else calls.get(name, Calls()),
        )
        for name in names
    ]
    if by == "hour":
        rows.sort(key=lambda it: it.name)
    else:
        rows.sort(key=lambda it: (-it.amount.known, -it.amount.instance_h, it.name))
    recorded_s = math.fsum(min(it.recorded_s, HOUR_S) for it in hours)
    missing = {it.missing_price for it in charges}
    step_price = next((it.unit_price for it in charges if it.kind is ChargeKind.STEP), None)
    return CostReport(
        rows=rows,
        idle=list(_sum_idle(charges)),
        savings=list(_find_savings(charges, hours)),
        total=sum_charges(charges),
        missing_prices=sorted(it for it in missing if it is not None),
        recorded_s=recorded_s,
        period_s=period_s,
        steps=sum_steps(hours, step_price),
    )


def _name_charge(charge: Charge, by: str) -> str:
    if by == "hour":
        return name_hour(charge.at)
    if by == "instance-type":
        return charge.instance_type or f"({charge.kind.value})"
    if charge.target is None:
        return STORAGE
    if by == "tenant":
        return charge.tenant or NO_TENANT
    if by == "model":
        return charge.model or _name_target(charge.target, "adapter")
    return _name_target(charge.target, by)


def _name_target(target: UsageTarget, by: str) -> str:
    if by == "endpoint":
        return target.endpoint
    if by == "component":
        return target.owner or target.endpoint
    return target.component or target.endpoint


def name_hour(at: float) -> str:
    """An hour as tables show it, in UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:00}"


def _sum_calls(hours: Iterable[HourUsage], by: str) -> Mapping[str, Calls]:
    parts: dict[str, list[Calls]] = {}
    for hour in hours:
        for target, calls in hour.calls.items():
            for name, part in _divide_calls(hour, target, calls, by):
                parts.setdefault(name, []).append(part)
    return {name: add_calls(them) for name, them in parts.items()}


def _divide_calls(
    hour: HourUsage, target: UsageTarget, calls: Calls, by: str
) -> Iterator[tuple[str, Calls]]:
    """Yield a target's requests by the names of rows."""
    if by == "hour":
        yield name_hour(hour.at), calls
    elif by in ("model", "tenant"):
        parts = (hour.by_model if by == "model" else hour.by_tenant).get(target, {})
        yield from parts.items()
        rest = subtract_calls(calls, add_calls(parts.values()))
        if rest.requests > 0:
            yield NO_TENANT if by == "tenant" else _name_target(target, "adapter"), rest
    else:
        yield _name_target(target, by), calls


def add_calls(parts: Iterable[Calls]) -> Calls:
    """The sums over all parts."""
    rows = list(parts)
    return _combine(lambda name: math.fsum(getattr(it, name) for it in rows))


def subtract_calls(whole: Calls, part: Calls) -> Calls:
    """The calls of `whole` that are not in `part`."""
    return _combine(lambda name: max(0.0, getattr(whole, name) - getattr(part, name)))


def _combine(get: Callable[[str], float]) -> Calls:
    return Calls(
        requests=get("requests"),
        service_s=get("service_s"),
        bytes_in=get("bytes_in"),
        bytes_out=get("bytes_out"),
        token_requests=get("token_requests"),
        tokens_in=get("tokens_in"),
        tokens_out=get("tokens_out"),
    )


def _sum_idle(charges: Iterable[Charge]) -> Iterator[IdleRow]:
    found: dict[tuple[str, str | None, Idle], list[Charge]] = {}
    for charge in charges:
        if charge.idle is not None and charge.target is not None:
            key = charge.target.endpoint, charge.target.component, charge.idle
            found.setdefault(key, []).append(charge)
    for (endpoint, component, reason), them in sorted(
        found.items(), key=lambda it: (it[0][0], it[0][1] or "", it[0][2].value)
    ):
        yield IdleRow(
            endpoint=endpoint, component=component, reason=reason, amount=sum_charges(them)
        )


def _find_savings(charges: Iterable[Charge], hours: Sequence[HourUsage]) -> Iterator[Saving]:
    """Endpoints with instances in hours without a request."""
    called = {
        (hour.at, target.endpoint)
        for hour in hours
        for target, calls in hour.calls.items()
        if calls.requests > 0
    }
    ever = {endpoint for _, endpoint in called}
    quiet: dict[str, list[Charge]] = {}
    for charge in charges:
        target = charge.target
        if target is None or charge.kind not in OF_INSTANCES:
            continue
        is_job = target.endpoint.startswith(JOB_PREFIXES)  # its instances end with it
        if not is_job and (charge.at, target.endpoint) not in called:
            quiet.setdefault(target.endpoint, []).append(charge)
    nums = Counter({name: len({it.at for it in them}) for name, them in quiet.items()})
    for endpoint, them in sorted(quiet.items()):
        yield Saving(
            endpoint=endpoint,
            num_hours=nums[endpoint],
            amount=sum_charges(them),
            is_uncalled=endpoint not in ever,
        )
