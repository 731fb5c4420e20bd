"""Components with a specification for each instance type, devices, and zones."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import (
    Town,
    component,
    component_spec,
    container,
    deployment,
    endpoint,
    needs,
    variant,
)

from hostelry.domain.component import (
    ComponentStatus,
    InferenceComponent,
    Scheduling,
    TypedSpec,
)
from hostelry.domain.shape import Requirements


def typed(instance_type: str, image: str, requirements: Requirements) -> TypedSpec:
    return TypedSpec(
        instance_type=instance_type,
        container=container(image),
        requirements=requirements,
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
    )


def of_types(*specs: TypedSpec, copies: int = 1) -> InferenceComponent:
    spec = replace(
        component_spec(specs[0].requirements, specs[0].container.image), by_type=tuple(specs)
    )
    return replace(component(copies=copies), spec=spec)


SMALL = typed("ml.small", "small:1", needs(1, 8))
BIG = typed("ml.big", "big:1", needs(2, 64))


def where(town: Town) -> list[tuple[str, str, float]]:
    """Each copy's instance type, image and accelerators."""
    types = {it.id: it.instance_type for it in town.instance_records()}
    found = [
        (types[copy.instance_id], copy.spec.container.image, len(copy.spec.device_ids))
        for copy in town.copy_records()
    ]
    return sorted(found)


def test_a_copy_runs_what_is_specified_for_the_type_of_its_instance(town: Town) -> None:
    pools = variant(pools=["ml.small", "ml.big"], max_instances=4)
    town.switches.max_instances = 1
    town.add(endpoint(deployment(pools)), of_types(SMALL, BIG))
    town.settle()
    town.switches.no_capacity["ml.small"] = "none left"
    town.switches.max_instances = 9
    town.change_component(status=ComponentStatus.UPDATING, desired_copies=3)
    town.settle()
    assert where(town) == [
        ("ml.big", "big:1", 2),
        ("ml.big", "big:1", 2),
        ("ml.small", "small:1", 1),
    ]
    town.check_integrity()


def test_a_type_without_a_specification_holds_no_copy(town: Town) -> None:
    pools = variant(pools=["ml.small", "ml.big"], count=2, max_instances=4)
    town.add(endpoint(deployment(pools)), of_types(BIG, copies=2))
    town.settle()
    assert {it for it, _, _ in where(town)} == {"ml.big"}
    assert town.component_status() is ComponentStatus.IN_SERVICE


def test_a_component_for_no_type_of_the_endpoint_fails_with_both_named(town: Town) -> None:
    town.add(endpoint(deployment(variant(instance_type="ml.small"))), of_types(BIG))
    town.turn(3)
    found = town.component()
    assert found.status is ComponentStatus.FAILED
    assert "its specifications are for ml.big" in (found.failure_reason or "")


def test_devices_are_one_copys_alone_and_come_free_with_it(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2, requirements=needs(2)))
    town.settle()
    assert sorted(it.spec.device_ids for it in town.copy_records()) == [(0, 1), (2, 3)]
    (first, _) = sorted(town.copy_records(), key=lambda it: it.spec.device_ids)
    town.clock.advance(60)
    town.fleet.crash_copy(first.spec.id, "gone")
    town.settle()
    assert sorted(it.spec.device_ids for it in town.copy_records()) == [(0, 1), (2, 3)]


@cases(
    "scheduling, expected",
    case("as SPREAD asks for it", Scheduling(), [1, 1, 1]),
    case("as zones ask for it", Scheduling(max_imbalance=0), [1, 1, 1]),
)
def test_copies_are_spread_over_zones(
    town: Town, scheduling: Scheduling, expected: list[int]
) -> None:
    base = component(copies=3)
    assert base.spec is not None
    base = replace(base, spec=replace(base.spec, scheduling=scheduling))
    town.add(endpoint(deployment(variant(count=3))), base)
    town.settle()
    zones = {it.id: it.zone for it in town.instance_records()}
    used = [zones[it.instance_id] for it in town.copy_records()]
    assert [used.count(it) for it in sorted(set(zones.values()))] == expected
