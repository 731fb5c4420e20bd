"""Divides the cost of an hour over what caused it. Pure.

    of an hour of an instance                    goes to
    ------------------------------------------   --------------------------------------------------
    the share that a component reserves          the component
    all of it, if the variant has a model        the model
    the share that nothing reserves              idle: UNRESERVED

    of a copy that adapters or models share      goes to
    ------------------------------------------   --------------------------------------------------
    an hour with requests                        the adapters or models, by seconds of service
    an hour without requests                     idle: SHARED_UNUSED

    measured energy of an hour                   goes to all parts of instances, by their hours

The parts of an hour sum to the price of the hour. An unknown price leaves the amount unknown.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.cost.prices import PriceList, get_price_per_hour
from hostelry.cost.usage import NO_CALLS, Calls, HourUsage, UsageTarget, VariantFleet

T = TypeVar("T")

HOUR_S = 3_600
BYTES_PER_GB = 1e9
J_PER_KWH = 3.6e6
LEAST_MEASURED = 0.95  # of the recorded time. Below it the energy of the hour is a lower bound
LEAST_SHARE = 1e-9  # smaller remainders come from rounding
HOURS_PER_MONTH = 730  # AWS's month for prices
NO_ENDPOINT = "(models and configurations)"  # several endpoints can use them


class Idle(Enum):
    """Why a cost belongs to no model."""

    UNRESERVED = "not reserved by any copy"
    SHARED_UNUSED = "shared copies without a request"


class ChargeKind(Enum):
    """The kind of a charge, which decides its price."""

    INSTANCE = "instance"
    ENERGY = "energy"
    SERVERLESS = "serverless"
    PROVISIONED = "serverless, provisioned"
    BYTES_IN = "transfer in"
    BYTES_OUT = "transfer out"
    STORAGE = "storage"
    STEP = "steps"


UNITS: Mapping[ChargeKind, str] = {
    ChargeKind.INSTANCE: "Hours",
    ChargeKind.ENERGY: "kWh",
    ChargeKind.SERVERLESS: "GB-Seconds",
    ChargeKind.PROVISIONED: "GB-Seconds",
    ChargeKind.BYTES_IN: "GB",
    ChargeKind.BYTES_OUT: "GB",
    ChargeKind.STORAGE: "GB-Months",
    ChargeKind.STEP: "Steps",
}

# The settings of prices.toml.
SETTINGS: Mapping[ChargeKind, str] = {
    ChargeKind.ENERGY: "electricity.measured (an hour without a measurement)",
    ChargeKind.SERVERLESS: "serverless.price_per_gb_s",
    ChargeKind.PROVISIONED: "serverless.price_per_provisioned_gb_s",
    ChargeKind.BYTES_IN: "transfer.price_per_gb_in",
    ChargeKind.BYTES_OUT: "transfer.price_per_gb_out",
    ChargeKind.STORAGE: "storage.price_per_gb_month",
}


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the cost of the hour that begins at `at`.

    An unknown price leaves `unit_price` and `amount` None. Storage has no `target`. An idle charge
    has the variant or the component that has the instance or the copy.
    """

    at: float
    kind: ChargeKind
    quantity: float
    unit_price: float | None
    target: UsageTarget | None = None
    instance_type: str | None = None
    model: str | None = None
    tenant: str | None = None
    idle: Idle | None = None

    @property
    def amount(self) -> float | None:
        """The cost in the currency of the prices."""
        return None if self.unit_price is None else self.quantity * self.unit_price

    @property
    def missing_price(self) -> str | None:
        """The setting of prices.toml that would make the amount known, or None if it is known."""
        if self.unit_price is not None:
            return None
        if self.kind is ChargeKind.INSTANCE:
            return f'instances."{self.instance_type}"'
        return SETTINGS[self.kind]


class Owner(msgspec.Struct, frozen=True):
    """What has copies: a component, or the model of a variant (None)."""

    endpoint: str
    variant: str
    component: str | None


def find_shared(hours: Iterable[HourUsage]) -> frozenset[Owner]:
    """Owners whose copies served adapters or target models in any of the hours."""
    found: set[Owner] = set()
    for hour in hours:
        found.update(_get_owner(target) for target in hour.calls if target.base is not None)
        found.update(_get_owner(target) for target in hour.by_model)
    return frozenset(found)


def attribute(hours: Collection[HourUsage], prices: PriceList) -> list[Charge]:
    """The charges of all hours."""
    shared = find_shared(hours)
    return [charge for hour in hours for charge in attribute_hour(hour, prices, shared)]


def attribute_hour(
    hour: HourUsage, prices: PriceList, shared: Collection[Owner] = ()
) -> Iterator[Charge]:
    """The charges of one hour. `shared` are the owners whose copies adapters or models share."""
    instances = list(_charge_instances(hour, prices, shared))
    yield from instances
    if prices.per_measured_kwh is not None:
        yield from _charge_energy(hour, instances, prices.per_measured_kwh)
    yield from _charge_serverless(hour, prices)
    yield from _charge_bytes(hour, prices)
    if prices.per_step is not None:
        yield from _charge_steps(hour, prices.per_step)
    if hour.stored_byte_s:
        quantity = hour.stored_byte_s / BYTES_PER_GB / HOUR_S / HOURS_PER_MONTH
        price = prices.storage_per_gb_month
        yield Charge(at=hour.at, kind=ChargeKind.STORAGE, quantity=quantity, unit_price=price)


def _charge_instances(
    hour: HourUsage, prices: PriceList, shared: Collection[Owner]
) -> Iterator[Charge]:
    targets: dict[Owner, list[UsageTarget]] = {}
    for target in hour.calls:
        targets.setdefault(_get_owner(target), []).append(target)
    reserved: dict[VariantFleet, dict[str | None, float]] = {}
    for (fleet, component), seconds in hour.reserved_s.items():
        reserved.setdefault(fleet, {})[component] = seconds
    for fleet, seconds in hour.instance_s.items():
        whole = Charge(
            at=hour.at,
            kind=ChargeKind.INSTANCE,
            quantity=seconds / HOUR_S,
            unit_price=get_price_per_hour(prices, fleet.instance_type),
            target=UsageTarget(endpoint=fleet.endpoint, variant=fleet.variant),
            instance_type=fleet.instance_type,
        )
        for owner, charge in _divide_fleet(whole, fleet, reserved.get(fleet, {})):
            if owner is None:
                yield charge
            else:
                is_shared = owner in shared
                yield from _divide_copy(charge, hour, targets.get(owner, []), is_shared)


def _charge_energy(
    hour: HourUsage, instances: Collection[Charge], per_kwh: float
) -> Iterator[Charge]:
    """Divide the measured energy over the charges for instances.

    If a part of the hour was not measured, a charge of an unknown amount is added to each.
    """
    total = math.fsum(it.quantity for it in instances)
    is_measured = hour.energy_s >= hour.recorded_s * LEAST_MEASURED
    for charge in instances:
        if total > 0:
            kwh = hour.energy_j / J_PER_KWH * (charge.quantity / total)
            yield replace(charge, kind=ChargeKind.ENERGY, quantity=kwh, unit_price=per_kwh)
        if not is_measured:
            yield replace(charge, kind=ChargeKind.ENERGY, quantity=0.0, unit_price=None)


def divide_by_tenant(charges: Iterable[Charge], hours: Iterable[HourUsage]) -> Iterator[Charge]:
    """Divide the charges for requests over the tenants that sent the requests.

    Charges whose requests named no tenant, idle charges and charges for storage stay whole.
    """
    by_start = {hour.at: hour for hour in hours}
    for charge in charges:
        hour, target = by_start[charge.at], charge.target
        tenants = {} if target is None else hour.by_tenant.get(target, {})
        if target is None or charge.idle is not None or not tenants:
            yield charge
            continue
        shares = _get_shares(tenants, hour.calls.get(target, NO_CALLS))
        for tenant, share in shares.items():
            yield replace(charge, quantity=charge.quantity * share, tenant=tenant)


def _divide_fleet(
    whole: Charge, fleet: VariantFleet, reserved_s: Mapping[str | None, float]
) -> Iterator[tuple[Owner | None, Charge]]:
    """Yield the share of each owner, and the idle rest with None."""
    seconds = whole.quantity * HOUR_S
    total_s = math.fsum(reserved_s.values())
    scale = min(1.0, seconds / total_s) if total_s > 0 else 1.0  # rounded sums may exceed the whole
    for component, part_s in reserved_s.items():
        if part_s > 0:
            owner = Owner(fleet.endpoint, fleet.variant, component)
            target = UsageTarget(
                endpoint=fleet.endpoint, variant=fleet.variant, component=component
            )
            yield owner, replace(whole, quantity=part_s * scale / HOUR_S, target=target)
    rest_s = seconds - total_s * scale
    if rest_s > seconds * LEAST_SHARE:
        yield None, replace(whole, quantity=rest_s / HOUR_S, idle=Idle.UNRESERVED)


def _divide_copy(
    charge: Charge, hour: HourUsage, targets: Iterable[UsageTarget], is_shared: bool
) -> Iterator[Charge]:
    """Divide the cost of an owner's copies over its targets, and over the models of each."""
    used = {it: hour.calls[it] for it in targets if hour.calls[it].requests > 0}
    if not used:
        yield replace(charge, idle=Idle.SHARED_UNUSED) if is_shared else charge
        return
    for target, share in _get_shares(used, NO_CALLS).items():
        assert target is not None, "nothing is left over"
        part = replace(charge, quantity=charge.quantity * share, target=target)
        models = hour.by_model.get(target, {})
        for model, within in _get_shares(models, hour.calls[target]).items():
            yield replace(part, quantity=part.quantity * within, model=model)


def _get_shares(parts: Mapping[T, Calls], whole: Calls) -> Mapping[T | None, float]:
    """The share of each part by seconds of service, or by requests if no time was measured.

    The shares sum to 1. The part of `whole` that is in no part has the key None.
    """
    by_time = any(it.service_s > 0 for it in (*parts.values(), whole))
    weights: dict[T | None, float] = {
        key: it.service_s if by_time else it.requests for key, it in parts.items()
    }
    known = math.fsum(weights.values())
    rest = (whole.service_s if by_time else whole.requests) - known
    if rest > known * LEAST_SHARE or not known:
        weights[None] = max(rest, 0.0) or 1.0
    total = math.fsum(weights.values())
    return {key: it / total for key, it in weights.items() if it > 0}


def _charge_serverless(hour: HourUsage, prices: PriceList) -> Iterator[Charge]:
    for target, use in hour.serverless.items():
        rows = (
            (ChargeKind.SERVERLESS, use.gb_s, prices.serverless_per_gb_s),
            (ChargeKind.PROVISIONED, use.provisioned_gb_s, prices.provisioned_per_gb_s),
        )
        for kind, quantity, price in rows:
            if quantity:
                yield Charge(
                    at=hour.at, kind=kind, quantity=quantity, unit_price=price, target=target
                )


def _charge_bytes(hour: HourUsage, prices: PriceList) -> Iterator[Charge]:
    for target, calls in hour.calls.items():
        rows = (
            (ChargeKind.BYTES_IN, calls.bytes_in, prices.per_gb_in),
            (ChargeKind.BYTES_OUT, calls.bytes_out, prices.per_gb_out),
        )
        for kind, num_bytes, price in rows:
            if num_bytes:
                quantity = num_bytes / BYTES_PER_GB
                yield Charge(
                    at=hour.at, kind=kind, quantity=quantity, unit_price=price, target=target
                )


def _charge_steps(hour: HourUsage, per_step: float) -> Iterator[Charge]:
    """Without a price steps are counted, and no cost is missing."""
    for (endpoint, _), num in hour.steps.items():
        target = UsageTarget(endpoint=endpoint or NO_ENDPOINT, variant="")
        yield Charge(
            at=hour.at, kind=ChargeKind.STEP, quantity=num, unit_price=per_step, target=target
        )


def _get_owner(target: UsageTarget) -> Owner:
    return Owner(target.endpoint, target.variant, target.owner)
