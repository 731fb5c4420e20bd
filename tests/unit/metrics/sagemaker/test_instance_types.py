"""Metrics by instance type of a variant with pools.

Source: SageMaker developer guide, "Deploy to multiple instance types with instance pools" (Monitor
instance pools): the sets (EndpointName, VariantName, InstanceType) and (InferenceComponentName,
InstanceType), in addition to the sets without the type.
"""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.metrics.sagemaker.census_sample import ADAPTER, HOSTS, MODEL, census
from tests.unit.metrics.sagemaker.load_sample import CHAT, T0, load

from hostelry.domain.load import CopyOutcomes, LoadKey, SecondLoad
from hostelry.domain.metric import MODEL_NAMESPACE, Sample
from hostelry.metrics.sagemaker.census import Census, CopyUsage
from hostelry.metrics.sagemaker.publication import Publication
from hostelry.metrics.sagemaker.utilization import utilization

M0 = T0 - T0 % 60
BIG, SMALL, SPARE = "ml.g6.2xlarge", "ml.g5.xlarge", "ml.g4dn.xlarge"
POOLS = (BIG, SMALL, SPARE)


def place() -> Census:
    """Three big instances and a small one for the model. Each type has a component's copy."""
    found = census()
    types = (BIG, BIG, BIG, SMALL)
    instances = tuple(
        replace(instance, instance_type=kind)
        for instance, kind in zip(found.variants[MODEL].instances, types, strict=True)
    )
    model = replace(
        found.variants[MODEL],
        pools=POOLS,
        instances=instances,
        copies=tuple(
            CopyUsage(
                copy_id=f"of-{room.id}", instance_id=room.id, instance_type=room.instance_type
            )
            for room in instances
        ),
    )
    copies = tuple(
        replace(copy, instance_type=kind)
        for copy, kind in zip(found.components[CHAT].copies, (BIG, SMALL), strict=True)
    )
    (host,) = found.variants[HOSTS].instances
    hosts = replace(
        found.variants[HOSTS],
        pools=POOLS,
        copies=copies,
        instances=(
            replace(host, instance_type=BIG),
            replace(host, id="i-1", instance_type=SMALL),
        ),
    )
    chat = replace(found.components[CHAT], copies=copies)
    pirate = replace(found.components[ADAPTER], copies=copies[:1])
    return replace(
        found,
        variants={MODEL: model, HOSTS: hosts},
        components={CHAT: chat, ADAPTER: pirate},
    )


def published(loads: Iterable[SecondLoad], there: Census, num_seconds: int = 60) -> list[Sample]:
    by_second: dict[int, list[SecondLoad]] = {}
    for seen in loads:
        by_second.setdefault(seen.second, []).append(seen)
    publication = Publication()
    return [
        sample
        for second in range(M0, M0 + num_seconds)
        for _, sample in publication.take(second, by_second.get(second, []), there)
    ]


def by_type(samples: Iterable[Sample], name: str, key: LoadKey) -> dict[str, list[Sample]]:
    """The metric's samples of that name, by instance type."""
    own = {("EndpointName", key.endpoint_name), ("VariantName", key.variant_name)}
    if key.component_name is not None:
        own = {("InferenceComponentName", key.component_name)}
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        dimensions = set(sample.metric.dimensions)
        rest = dict(dimensions - own)
        if sample.metric.name == name and dimensions > own and rest.keys() == {"InstanceType"}:
            found.setdefault(rest["InstanceType"], []).append(sample)
    return found


def sums(found: dict[str, list[Sample]]) -> dict[str, float]:
    return {
        kind: sum(sum(map(float.__mul__, it.values, it.counts)) for it in samples)
        for kind, samples in found.items()
    }


def extremes(samples: list[Sample]) -> tuple[float, float, float]:
    """Mean and extremes of the only sample that is not idle, or of the first."""
    sets = [it.statistics for it in samples if it.statistics is not None]
    busiest = max(sets, key=lambda it: it.maximum)
    return busiest.minimum, busiest.sum / busiest.sample_count, busiest.maximum


BUSY = [
    load(
        M0 + second,
        MODEL,
        arrivals=5,
        finished=5,
        in_flight_mean=8.0,
        on_copies_min=8,
        on_copies_max=8,
        arrivals_by_copy={"of-m-0": 3, "of-m-3": 2},
        in_flight_max_by_copy={"of-m-0": 4, "of-m-1": 2, "of-m-3": 2},
        outcomes_by_copy={"of-m-3": CopyOutcomes(finished=2, errors_5xx=1)},
    )
    for second in range(10)
]


def test_requests_in_flight_are_divided_by_the_instances_of_their_type() -> None:
    found = by_type(published(BUSY, place()), "ConcurrentRequestsPerModel", MODEL)
    assert extremes(found[BIG]) == (2.0, 2.0, 2.0), "6 of 8 on three instances"
    assert extremes(found[SMALL]) == (2.0, 2.0, 2.0), "2 of 8 on one"
    assert extremes(found[SPARE]) == (0.0, 0.0, 0.0), "a type without instances has zeros"
    assert all(len(it) == 6 and it[0].resolution_s == 1 for it in found.values())


def test_all_types_together_have_what_the_variant_has() -> None:
    samples = published(BUSY, place())
    types = by_type(samples, "ConcurrentRequestsPerModel", MODEL)
    whole = 3 * extremes(types[BIG])[1] + extremes(types[SMALL])[1]
    assert whole == pytest.approx(8.0)


def test_where_all_wait_the_types_have_parts_by_their_instances() -> None:
    waiting = [replace(it, in_flight_max_by_copy={}) for it in BUSY]
    found = by_type(published(waiting, place()), "ConcurrentRequestsPerModel", MODEL)
    assert extremes(found[BIG])[1] == extremes(found[SMALL])[1] == 2.0


@cases(
    "name, expected",
    case("by the copy", "Invocations", {BIG: 30.0, SMALL: 20.0, SPARE: 0.0}),
    case("1/n of the type's n", "InvocationsPerInstance", {BIG: 10.0, SMALL: 20.0, SPARE: 0.0}),
    case("errors where they were", "Invocation5XXErrors", {BIG: 0.0, SMALL: 10.0, SPARE: 0.0}),
)
def test_requests_count_for_the_type_that_took_them(name: str, expected: dict[str, float]) -> None:
    assert sums(by_type(published(BUSY, place()), name, MODEL)) == pytest.approx(expected)


def test_an_adapters_requests_weigh_on_the_types_of_its_base() -> None:
    seconds = [load(M0 + second, on_copies_min=4, on_copies_max=4) for second in range(10)]
    seconds += [
        load(
            M0 + second,
            ADAPTER,
            arrivals=1,
            in_flight_mean=4.0,
            in_flight_min=4,
            in_flight_max=4,
            arrivals_by_copy={"c-0": 1},
            in_flight_max_by_copy={"c-0": 4},
        )
        for second in range(10)
    ]
    samples = published(seconds, place())
    base = by_type(samples, "ConcurrentRequestsPerCopy", CHAT)
    assert (extremes(base[BIG])[1:], extremes(base[SMALL])[1:]) == ((4.0, 4.0), (0.0, 0.0))
    assert extremes(by_type(samples, "ConcurrentRequestsPerCopy", ADAPTER)[BIG])[2] == 4.0
    per_copy = sums(by_type(samples, "InvocationsPerCopy", CHAT))
    assert per_copy == {BIG: 10.0, SMALL: 0.0, SPARE: 0.0}


def test_usage_is_published_for_the_instances_and_the_copies_of_a_type() -> None:
    samples = [it for _, it in utilization(M0, place(), {"c-0": 0.25, "c-1": 0.5})]
    own = by_type(samples, "CPUUtilizationNormalized", CHAT)
    assert {kind: it.values for kind, (it,) in own.items()} == {BIG: (50.0,), SMALL: (100.0,)}
    rooms = by_type(samples, "MemoryUtilization", HOSTS)
    assert {kind: len(it.values) for kind, (it,) in rooms.items()} == {BIG: 1, SMALL: 1}


@cases(
    "there",
    case("without pools", census()),
    case(
        "a component without copies",
        replace(
            place(),
            components={
                key: replace(it, copies=(), num_copies=0) for key, it in place().components.items()
            },
            variants={HOSTS: place().variants[HOSTS]},
        ),
    ),
)
def test_there_is_no_concurrency_by_type(there: Census) -> None:
    found = published([], there)
    names = {it.metric.name for it in found if "InstanceType" in dict(it.metric.dimensions)}
    assert not {it for it in names if it.startswith("Concurrent")}
    assert all(it.metric.namespace == MODEL_NAMESPACE for it in found if it.metric.name in names)
