"""The parts of an hour, their sums over random fleets, and the reports on them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.cost.attribution import (
    Charge,
    ChargeKind,
    Idle,
    attribute,
    attribute_hour,
    divide_by_tenant,
    find_shared,
)
from hostelry.cost.holding import divide_instance
from hostelry.cost.prices import InstancePrice, PriceList
from hostelry.cost.report import BY, build_report, select_name, sum_charges
from hostelry.cost.usage import Calls, HourUsage, ServerlessUse, UsageTarget, VariantFleet
from hostelry.domain.shape import Requirements, Shape

AT = 3600.0 * 400_000
BIG = VariantFleet(endpoint="e", variant="v", instance_type="big")
PRICES = PriceList(
    currency="USD",
    instances={
        "big": InstancePrice(machine_per_hour=8.0),
        "small": InstancePrice(machine_per_hour=1.0),
    },
    serverless_per_gb_s=0.5,
    provisioned_per_gb_s=0.25,
    per_gb_in=1.0,
    per_gb_out=2.0,
    storage_per_gb_month=730.0,
)


def target(
    component: str | None = None, base: str | None = None, endpoint: str = "e"
) -> UsageTarget:
    return UsageTarget(endpoint=endpoint, variant="v", component=component, base=base)


def served(requests: float, service_s: float = 0.0) -> Calls:
    return Calls(requests=requests, service_s=service_s)


def an_hour(
    reserved: dict[str | None, float], calls: dict[UsageTarget, Calls] | None = None, at: float = AT
) -> HourUsage:
    """An hour of one big instance."""
    shares = {(BIG, name): share * 3600 for name, share in reserved.items()}
    return HourUsage(at=at, instance_s={BIG: 3600.0}, reserved_s=shares, calls=calls or {})


def parts(charges: list[Charge]) -> dict[str, float]:
    found: dict[str, float] = {}
    for charge in charges:
        assert charge.target is not None
        assert charge.amount is not None
        what = charge.model or charge.target.component or charge.target.endpoint
        name = f"{what}: {charge.idle.value}" if charge.idle else what
        found[name] = round(found.get(name, 0.0) + charge.amount, 9)
    return found


UNRESERVED = f"e: {Idle.UNRESERVED.value}"


@cases(
    "reserved, calls, expected",
    case("a model has the whole instance", {None: 1.0}, {}, {"e": 8.0}),
    case("an instance without a copy is idle", {}, {}, {UNRESERVED: 8.0}),
    case(
        "components pay for their shares",
        {"a": 0.5, "b": 0.25},
        {target("a"): served(1)},
        {"a": 4.0, "b": 2.0, UNRESERVED: 2.0},
    ),
    case(
        "shares beyond the instance are reduced",
        {"a": 1.5, "b": 0.5},
        {},
        {"a": 6.0, "b": 2.0},
    ),
    case(
        "adapters divide the copy by seconds of service",
        {"a": 0.5},
        {
            target("x", "a"): served(9, 1.0),
            target("y", "a"): served(1, 2.0),
            target("a"): served(1, 1.0),
        },
        {"x": 1.0, "y": 2.0, "a": 1.0, UNRESERVED: 4.0},
    ),
    case(
        "without measured time adapters divide the copy by requests",
        {"a": 1.0},
        {target("x", "a"): served(3), target("y", "a"): served(1)},
        {"x": 6.0, "y": 2.0},
    ),
    case(
        "an adapter without a request pays nothing",
        {"a": 1.0},
        {target("x", "a"): served(3), target("y", "a"): served(0)},
        {"x": 8.0},
    ),
)
def test_the_parts_of_an_hour(
    reserved: dict[str | None, float], calls: dict[UsageTarget, Calls], expected: dict[str, float]
) -> None:
    assert parts(attribute([an_hour(reserved, calls)], PRICES)) == expected


def test_an_hour_without_a_request_is_idle_on_a_shared_copy_alone() -> None:
    busy = an_hour({"a": 0.5, "b": 0.5}, {target("x", "a"): served(1, 1.0)})
    quiet = an_hour({"a": 0.5, "b": 0.5}, at=AT + 3600)
    found = parts(list(attribute_hour(quiet, PRICES, find_shared([busy, quiet]))))
    assert found == {f"a: {Idle.SHARED_UNUSED.value}": 4.0, "b": 4.0}


def test_target_models_divide_the_instance_and_the_rest_has_no_model() -> None:
    hour = an_hour({None: 1.0}, {target(): served(10, 4.0)})
    hour.by_model[target()] = {"m1": served(1, 1.0), "m2": served(5, 2.0)}
    assert parts(attribute([hour], PRICES)) == {"m1": 2.0, "m2": 4.0, "e": 2.0}
    report = build_report(attribute([hour], PRICES), [hour], "model", 3600)
    calls = {it.name: it.calls.requests for it in report.rows if it.calls is not None}
    assert calls == {"m1": 1, "m2": 5, "e": 4}


def test_tenants_divide_what_their_requests_caused() -> None:
    hour = an_hour({"a": 0.5}, {target("a"): served(4, 4.0)})
    hour.by_tenant[target("a")] = {"t": served(1, 1.0), "u": served(1, 2.0)}
    charges = list(divide_by_tenant(attribute([hour], PRICES), [hour]))
    assert {it.tenant: it.amount for it in charges if it.idle is None} == {
        "t": 1.0,
        "u": 2.0,
        None: 1.0,
    }
    report = build_report(attribute([hour], PRICES), [hour], "tenant", 3600)
    assert {it.name: it.amount.known for it in report.rows} == {"t": 1, "u": 2, "(no tenant)": 1}


def test_serverless_bytes_and_storage_have_their_prices() -> None:
    hour = HourUsage(
        at=AT,
        calls={target(): Calls(requests=2, bytes_in=2e9, bytes_out=1e9)},
        serverless={target(): ServerlessUse(gb_s=4.0, provisioned_gb_s=8.0)},
        stored_byte_s=3e9 * 3600,
    )
    amounts = {it.kind: it.amount for it in attribute([hour], PRICES)}
    assert amounts == pytest.approx(
        {
            ChargeKind.SERVERLESS: 2.0,
            ChargeKind.PROVISIONED: 2.0,
            ChargeKind.BYTES_IN: 2.0,
            ChargeKind.BYTES_OUT: 2.0,
            ChargeKind.STORAGE: 3.0,
        }
    )
    report = build_report(attribute([hour], PRICES), [hour], "endpoint", 3600)
    assert [it.name for it in report.rows] == ["e", "(object store)"]
    assert report.total.known == pytest.approx(11.0)


MEASURED = replace(PRICES, per_measured_kwh=2.0)


def test_measured_energy_is_divided_by_the_hours_of_instances() -> None:
    hour = an_hour({"a": 0.25}, {target("a"): served(1)})
    hour.recorded_s = hour.energy_s = 3600.0
    hour.energy_j = 3.6e6 * 4
    charges = attribute([hour], MEASURED)
    energy = [it for it in charges if it.kind is ChargeKind.ENERGY]
    assert {it.idle: it.amount for it in energy} == {None: 2.0, Idle.UNRESERVED: 6.0}
    hour.energy_s = 1800.0
    report = build_report(attribute([hour], MEASURED), [hour], "endpoint", 3600)
    assert report.total.known == 16.0
    assert not report.total.is_complete
    (missing,) = report.missing_prices
    assert missing.startswith("electricity.measured")


def test_an_unknown_price_is_named_and_never_zero() -> None:
    other = VariantFleet(endpoint="o", variant="v", instance_type="rare")
    hour = an_hour({None: 1.0}, {target(): Calls(requests=1, bytes_in=1.0)})
    hour.instance_s[other] = 3600.0
    hour.reserved_s[other, None] = 3600.0
    prices = PriceList(currency="USD", instances=PRICES.instances)
    charges = attribute([hour], prices)
    report = build_report(charges, [hour], "endpoint", 3600)
    assert report.missing_prices == ['instances."rare"', "transfer.price_per_gb_in"]
    by_name = {it.name: it for it in report.rows}
    assert by_name["o"].amount.value is None
    assert by_name["e"].amount.known == 8.0
    assert not by_name["e"].amount.is_complete
    assert by_name["e"].per_1000_calls is None
    assert (report.total.known, report.total.num_unknown) == (8.0, 2)


def test_savings_are_hours_without_a_call_on_the_endpoint() -> None:
    hours = [
        an_hour({"a": 0.5}, {target("a"): served(1)}),
        an_hour({"a": 0.5}, at=AT + 3600),
        an_hour({"a": 0.5}, {target("a"): served(0)}, at=AT + 7200),
    ]
    other = VariantFleet(endpoint="never", variant="v", instance_type="small")
    job = VariantFleet(endpoint="transform job j", variant="v", instance_type="small")
    for fleet in (other, job):
        hours[0].instance_s[fleet] = 1800.0
        hours[0].reserved_s[fleet, None] = 1800.0
    report = build_report(attribute(hours, PRICES), hours, "endpoint", 3 * 3600)
    found = {it.endpoint: (it.num_hours, it.amount.known, it.is_uncalled) for it in report.savings}
    assert found == {"e": (2, 16.0, False), "never": (1, 0.5, True)}


def test_a_name_selects_an_endpoint_a_component_or_an_adapter() -> None:
    hour = an_hour({"a": 0.5}, {target("x", "a"): served(1, 1.0), target("a"): served(1, 1.0)})
    charges = attribute([hour], PRICES)
    amounts = {
        name: sum_charges(select_name(name, charges, [hour])[0]).known
        for name in ("e", "a", "x", "none")
    }
    assert amounts == {"e": 8.0, "a": 4.0, "x": 2.0, "none": 0.0}


def test_unit_costs_need_calls_and_reported_tokens() -> None:
    hour = an_hour(
        {"a": 0.5, "b": 0.5},
        {
            target("a"): Calls(requests=4, token_requests=4, tokens_in=30, tokens_out=10),
            target("b"): Calls(requests=4, token_requests=1, tokens_in=3, tokens_out=1),
        },
    )
    report = build_report(attribute([hour], PRICES), [hour], "component", 3600)
    found = {it.name: (it.per_1000_calls, it.per_1000_tokens) for it in report.rows}
    assert found == {"a": (1000.0, 100.0), "b": (1000.0, None)}


GIB = 1024**3
SHAPE = Shape(cpus=4, memory_bytes=16 * GIB, accelerators=0)


@cases(
    "copies, expected",
    case("no copy", [], {}),
    case("the larger share counts", [("a", 1, 8)], {"a": 0.5}),
    case("copies of one component", [("a", 1, 1), ("a", 1, 1)], {"a": 0.5}),
    case("more than all is reduced", [("a", 4, 1), ("b", 1, 16)], {"a": 0.5, "b": 0.5}),
    case("no reservation of CPUs", [("a", 0, 4)], {"a": 0.25}),
)
def test_the_reserved_share(
    copies: list[tuple[str, float, int]], expected: dict[str, float]
) -> None:
    needs = [
        (name, Requirements(cpus=cpus, min_memory_bytes=gib * GIB)) for name, cpus, gib in copies
    ]
    assert divide_instance(SHAPE, needs) == expected


names = st.sampled_from(["a", "b", "c"])
seconds = st.floats(0, 3600, allow_subnormal=False)


@st.composite
def fleets(draw: st.DrawFn) -> list[HourUsage]:
    hours = []
    for number in range(draw(st.integers(1, 3))):
        hour = HourUsage(at=AT + number * 3600)
        for endpoint in draw(st.sets(names)):
            for kind in draw(st.sets(st.sampled_from(["big", "small"]))):
                fleet = VariantFleet(endpoint=endpoint, variant="v", instance_type=kind)
                hour.instance_s[fleet] = draw(seconds)
                for component in draw(st.sets(st.one_of(st.none(), names))):
                    hour.reserved_s[fleet, component] = draw(seconds)
            for component in draw(st.sets(st.one_of(st.none(), names))):
                base = draw(st.one_of(st.none(), names)) if component else None
                who = target(component, base, endpoint)
                hour.calls[who] = served(draw(st.integers(0, 9)), draw(seconds))
                hour.by_model[who] = {it: served(1, draw(seconds)) for it in draw(st.sets(names))}
                hour.by_tenant[who] = {it: served(1, draw(seconds)) for it in draw(st.sets(names))}
        hours.append(hour)
    return hours


@given(fleets())
def test_the_parts_of_any_fleet_sum_to_the_machines_total(hours: list[HourUsage]) -> None:
    charges = attribute(hours, PRICES)
    for hour in hours:
        machines = math.fsum(
            seconds / 3600 * PRICES.instances[fleet.instance_type].per_hour
            for fleet, seconds in hour.instance_s.items()
        )
        mine = [it for it in charges if it.at == hour.at]
        assert sum_charges(mine).known == pytest.approx(machines, rel=0.005, abs=1e-12)
        divided = sum_charges(divide_by_tenant(mine, hours))
        assert divided.known == pytest.approx(machines, rel=0.005, abs=1e-12)
    total = sum_charges(charges)
    for by in BY:
        report = build_report(charges, hours, by, 3600)
        shown = [it.amount.known for it in report.rows]
        shown += [it.amount.known for it in report.idle]
        assert math.fsum(shown) == pytest.approx(total.known, rel=0.005, abs=1e-12)
        assert total.is_complete
        assert all(it >= 0 for it in shown)
