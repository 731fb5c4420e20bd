"""Use of instances and reservations, in per cent."""

from collections.abc import Mapping

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.metrics.sagemaker.census_sample import HOSTS, MODEL, census
from tests.unit.metrics.sagemaker.load_sample import CHAT, T0

from hostelry.domain.copy import GpuUse
from hostelry.domain.load import LoadKey
from hostelry.domain.metric import COMPONENT_NAMESPACE, ENDPOINT_NAMESPACE, TRANSFORM_NAMESPACE
from hostelry.metrics.sagemaker.census import Census, CopyUsage, Resources
from hostelry.metrics.sagemaker.utilization import cpus_used, utilization


def use(copy_id: str, cpu_s: float | None, cpu_at: float = 160.0) -> CopyUsage:
    return CopyUsage(copy_id=copy_id, instance_id="i-0", cpu_s=cpu_s, cpu_at=cpu_at)


def later(*copies: CopyUsage) -> Census:
    """The place a minute later, with those copies."""
    before = census()
    hosts = replace(before.variants[HOSTS], copies=copies)
    return replace(before, variants={**before.variants, HOSTS: hosts})


@cases(
    "copy, used",
    case("30 s of CPU in 60 s are half a CPU", use("c-0", 40.0), {"c-0": 0.5}),
    case("a process begun anew", use("c-0", 6.0), {"c-0": 0.1}),
    case("nothing new is known", use("c-0", 40.0, 100.0), {}),
    case("the machine was started again", use("c-0", 40.0, 5.0), {}),
    case("the agent cannot tell", use("c-0", None), {}),
    case("a copy that was not there before", use("c-9", 40.0), {}),
)
def test_cpus_are_what_was_spent_between_two_looks(
    copy: CopyUsage, used: Mapping[str, float]
) -> None:
    assert cpus_used(census(), later(copy)) == used


def test_the_instances_of_both_fleets_count_while_traffic_shifts() -> None:
    before = census()
    rooms = before.variants[MODEL].instances[:2]
    copies = tuple(CopyUsage(copy_id=f"c-{it.id}", instance_id=it.id) for it in rooms)
    both = replace(
        before.variants[MODEL], instances=rooms, copies=copies, new_config_name="config-3"
    )
    used = {"c-m-0": 0.5, "c-m-1": 0.1}
    (found,) = [
        sample.values
        for _, sample in utilization(T0, Census(variants={MODEL: both}), used)
        if sample.metric.name == "CPUUtilization"
    ]
    assert found == (50.0, 10.0)


def test_the_host_of_a_transform_job() -> None:
    key = LoadKey(scope=MODEL.scope, endpoint_name="transform-job/nightly", variant_name="v")
    before = census()
    room = replace(before.variants[MODEL].instances[0], id="i-9")
    copy = CopyUsage(copy_id="c-9", instance_id="i-9", memory_bytes=room.shape.memory_bytes // 4)
    hosts = replace(before.variants[MODEL], key=key, instances=(room,), copies=(copy,))
    found = [
        (sample.metric.namespace, sample.metric.name, sample.metric.dimensions, sample.values)
        for _, sample in utilization(T0, Census(transforms={key: hosts}), {"c-9": 0.5})
    ]
    host = (("Host", "nightly/i-9"),)
    assert found == [
        (TRANSFORM_NAMESPACE, "CPUUtilization", host, (50.0,)),
        (TRANSFORM_NAMESPACE, "MemoryUtilization", host, (25.0,)),
    ]


def values(name: str, key: LoadKey, used: Mapping[str, float]) -> list[tuple[float, ...]]:
    names = {key.component_name, None} if key.component_name else {key.endpoint_name}
    return [
        sample.values
        for _, sample in utilization(T0, census(disk_use=0.25), used)
        if sample.metric.name == name and names & {value for _, value in sample.metric.dimensions}
    ]


@cases(
    "name, key, expected",
    case("per cent of one core", "CPUUtilization", HOSTS, [(75.0,)]),
    case("per cent of all four", "CPUUtilizationNormalized", HOSTS, [(18.75,)]),
    case("2 of 16 GiB", "MemoryUtilization", HOSTS, [(12.5,)]),
    case("one of four cores is reserved", "CPUReservation", HOSTS, [(25.0,)]),
    case("4 of 16 GiB are reserved", "MemoryReservation", HOSTS, [(25.0,)]),
    case("both accelerators are reserved", "GPUReservation", HOSTS, [(100.0,)]),
    case("a value for each instance", "DiskUtilization", MODEL, [(25.0,) * 4]),
    case("models reserve nothing", "CPUReservation", MODEL, []),
    case("over the reservation", "CPUUtilizationNormalized", CHAT, [(50.0, 100.0)]),
    case("1 of 2 GiB each", "MemoryUtilizationNormalized", CHAT, [(50.0, 50.0)]),
)
def test_usage_is_in_per_cent(name: str, key: LoadKey, expected: list[tuple[float, ...]]) -> None:
    assert values(name, key, {"c-0": 0.25, "c-1": 0.5}) == expected


def test_accelerators_are_published_where_a_copy_sees_some() -> None:
    gpus = (
        GpuUse(device="0", busy_percent=90.0, memory_percent=50.0),
        GpuUse(device="1", busy_percent=30.0, memory_percent=10.0),
    )
    place = census()
    busy = replace(place.variants[HOSTS].copies[0], gpus=gpus)
    hosts = replace(place.variants[HOSTS], copies=(busy, replace(busy, copy_id="c-1")))
    component = replace(place.components[CHAT], copies=(busy,))
    place = replace(
        place,
        variants={HOSTS: hosts},
        components={CHAT: component},
    )
    found = {
        (it.metric.namespace, it.metric.name): it.values for _, it in utilization(T0, place, {})
    }
    assert {key: value for key, value in found.items() if "GPUU" in key[1] or "GPUM" in key[1]} == {
        (ENDPOINT_NAMESPACE, "GPUUtilization"): (120.0,),
        (ENDPOINT_NAMESPACE, "GPUMemoryUtilization"): (60.0,),
        (ENDPOINT_NAMESPACE, "GPUUtilizationNormalized"): (60.0,),
        (ENDPOINT_NAMESPACE, "GPUMemoryUtilizationNormalized"): (30.0,),
        (COMPONENT_NAMESPACE, "GPUUtilizationNormalized"): (60.0,),
        (COMPONENT_NAMESPACE, "GPUMemoryUtilizationNormalized"): (30.0,),
    }


def test_what_is_not_known_is_left_out() -> None:
    assert values("CPUUtilization", HOSTS, {}) == []
    assert values("CPUUtilizationNormalized", CHAT, {}) == []


def test_a_copy_that_reserves_nothing_is_measured_by_its_instance() -> None:
    # Source: the table of /aws/sagemaker/InferenceComponents: relative to the reservation, or
    # without one "... over the limit".
    place = census()
    (copy, _) = place.components[CHAT].copies
    room = Resources(cpus=4.0, memory_bytes=16 * 1024**3)
    chat = replace(
        place.components[CHAT], reserved=Resources(), copies=(replace(copy, limit=room),)
    )
    place = replace(place, variants={}, components={CHAT: chat})
    found = {it.metric.name: it.values for _, it in utilization(T0, place, {"c-0": 0.25})}
    assert found == {
        "CPUUtilizationNormalized": (6.25,),
        "MemoryUtilizationNormalized": (6.25,),
    }
