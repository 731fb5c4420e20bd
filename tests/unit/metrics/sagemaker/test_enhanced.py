"""Enhanced metrics of each container, instance and accelerator, and their periods.

Sources: api.md 6.1 (dimensions, both names of an accelerator, zeros), and MetricsConfig in the
SageMaker API reference (the metrics that the period applies to).
"""

from collections.abc import Iterable, Iterator

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.metrics.sagemaker.census_sample import ADAPTER, HOSTS, MODEL, census
from tests.unit.metrics.sagemaker.load_sample import CHAT, T0, load

from hostelry.domain.copy import GpuUse
from hostelry.domain.load import CopyOutcomes, SecondLoad
from hostelry.domain.metric import (
    COMPONENT_NAMESPACE,
    ENDPOINT_NAMESPACE,
    MODEL_NAMESPACE,
    OWN_NAMESPACE,
    MetricsConfig,
    Sample,
    StatisticSet,
)
from hostelry.metrics.sagemaker.census import Census, CopyUsage, select_period
from hostelry.metrics.sagemaker.publication import Publication
from hostelry.metrics.sagemaker.utilization import utilization

M0 = T0 - T0 % 300
INSTANCE = {"EndpointName", "VariantName", "InstanceId"}
CONTAINER = INSTANCE | {"ContainerId", "InferenceComponentName"}
GPUS = tuple(GpuUse(device=it, busy_percent=50.0, memory_percent=20.0) for it in "01")
FINE = {"InstanceId", "ContainerId", "AcceleratorId", "GpuId"}


def place(period_s: int = 60, *, is_enhanced: bool = True, num_copies: int = 2) -> Census:
    """The sample census with these metrics settings. Each copy has an accelerator."""
    found = census(num_copies, disk_use=0.5)
    copies = tuple(
        replace(it, gpus=GPUS[number : number + 1])
        for number, it in enumerate(found.variants[HOSTS].copies)
    )
    asked = MetricsConfig(is_enhanced=is_enhanced, period_s=period_s)
    variants = {key: replace(it, metrics=asked) for key, it in found.variants.items()}
    variants[HOSTS] = replace(variants[HOSTS], copies=copies)
    variants[MODEL] = replace(
        variants[MODEL],
        copies=tuple(
            CopyUsage(copy_id=f"of-{instance.id}", instance_id=instance.id)
            for instance in variants[MODEL].instances
        ),
    )
    chat = replace(found.components[CHAT], copies=copies)
    pirate = replace(found.components[ADAPTER], copies=copies[:1])
    return replace(found, variants=variants, components={CHAT: chat, ADAPTER: pirate})


def published(
    loads: Iterable[SecondLoad], there: Census, num_seconds: int = 60
) -> Iterator[Sample]:
    """The samples of usage and of requests in `seconds`."""
    by_second: dict[int, list[SecondLoad]] = {}
    for seen in loads:
        by_second.setdefault(seen.second, []).append(seen)
    publication = Publication()
    for second in range(M0, M0 + num_seconds):
        for _, sample in publication.take(second, by_second.get(second, []), there):
            yield sample
    for _, sample in utilization(M0, there, {"c-0": 0.25, "c-1": 0.5}):
        yield sample


def fine(samples: Iterable[Sample], namespace: str, names: set[str]) -> list[Sample]:
    """The samples with exactly these dimensions."""
    mine = [it for it in samples if it.metric.namespace == namespace]
    return [it for it in mine if {name for name, _ in it.metric.dimensions} == names]


def sums(samples: Iterable[Sample], name: str, of: str) -> dict[str, float]:
    """The metric's sums by the value of dimension `of`."""
    found: dict[str, float] = {}
    for sample in samples:
        if sample.metric.name == name:
            total = sum(map(float.__mul__, sample.values, sample.counts))
            id_ = dict(sample.metric.dimensions)[of]
            found[id_] = found.get(id_, 0.0) + total
    return found


OF_REQUESTS = {
    *("Invocations", "Invocation4XXErrors", "Invocation5XXErrors", "InvocationModelErrors"),
    *("MidStreamErrors", "ModelLatency", "OverheadLatency"),
}
TIMES = StatisticSet(sample_count=2, sum=30.0, minimum=10.0, maximum=20.0)
BUSY = [
    load(
        M0,
        arrivals=3,
        finished=3,
        errors_5xx=1,
        model_errors=1,
        arrivals_by_copy={"c-0": 3},
        in_flight_max_by_copy={"c-0": 2},
        outcomes_by_copy={
            "c-0": CopyOutcomes(
                finished=3,
                errors_5xx=1,
                model_errors=1,
                model_latency_us=TIMES,
                overhead_latency_us=TIMES,
            )
        },
    ),
    load(M0 + 1, ADAPTER, arrivals=2, arrivals_by_copy={"c-0": 2}),
    load(M0 + 2, MODEL, arrivals=4, arrivals_by_copy={"of-m-1": 4}),
]


def test_requests_count_for_their_container_and_their_instance_and_others_are_zero() -> None:
    found = list(published(BUSY, place()))
    containers = fine(found, MODEL_NAMESPACE, CONTAINER)
    mine = [it for it in containers if ("InferenceComponentName", "chat") in it.metric.dimensions]
    assert sums(mine, "Invocations", "ContainerId") == {"c-0": 3.0, "c-1": 0.0}
    assert sums(containers, "Invocations", "InferenceComponentName") == {"chat": 3, "pirate": 2}
    instances = fine(found, MODEL_NAMESPACE, INSTANCE)
    expected = {"i-0": 5.0, "m-0": 0.0, "m-1": 4.0, "m-2": 0.0, "m-3": 0.0}
    assert sums(instances, "Invocations", "InstanceId") == expected


def test_errors_and_latencies_are_those_of_the_copy_that_had_them() -> None:
    found = list(published(BUSY, place()))
    for names, of, id_ in ((CONTAINER, "ContainerId", "c-0"), (INSTANCE, "InstanceId", "i-0")):
        mine = fine(found, MODEL_NAMESPACE, names)
        errors = [it for it in mine if it.metric.name == "Invocation5XXErrors"]
        assert sums(errors, "Invocation5XXErrors", of)[id_] == 1.0
        busy = [it for it in errors if (of, id_) in it.metric.dimensions]
        assert max(sum(it.counts) for it in busy) == 3.0
        (latency,) = [it for it in mine if it.metric.name == "ModelLatency"]
        assert (latency.statistics, latency.unit) == (TIMES, "Microseconds")
        assert not latency.values


def test_concurrency_of_a_container_is_published_each_ten_seconds_with_zeros() -> None:
    found = fine(published(BUSY, place()), MODEL_NAMESPACE, CONTAINER)
    seen = [it for it in found if it.metric.name == "ConcurrentRequestsPerCopy"]
    most = {
        (dict(sample.metric.dimensions)["ContainerId"], int(sample.at) - M0): max(sample.values)
        for sample in seen
        if ("InferenceComponentName", "chat") in sample.metric.dimensions
    }
    assert most == {
        (copy, at): 2.0 if (copy, at) == ("c-0", 0) else 0.0
        for copy in ("c-0", "c-1")
        for at in range(0, 60, 10)
    }
    assert {sum(it.counts) for it in seen} == {10.0}


@pytest.mark.parametrize(
    ("namespace", "names", "metrics"),
    [
        pytest.param(
            COMPONENT_NAMESPACE,
            CONTAINER,
            {
                *("CPUUtilizationNormalized", "MemoryUtilizationNormalized"),
                *("GPUUtilizationNormalized", "GPUMemoryUtilizationNormalized"),
            },
            id="6.1: of a container",
        ),
        *(
            pytest.param(
                COMPONENT_NAMESPACE,
                CONTAINER | {name},
                {"GPUUtilizationNormalized", "GPUMemoryUtilizationNormalized"},
                id=f"6.1: of a container's accelerator, as {name}",
            )
            for name in ("GpuId", "AcceleratorId")
        ),
        *(
            pytest.param(
                ENDPOINT_NAMESPACE,
                INSTANCE | {name},
                {
                    *("GPUUtilization", "GPUMemoryUtilization"),
                    *("GPUUtilizationNormalized", "GPUMemoryUtilizationNormalized"),
                },
                id=f"6.1: of an instance's accelerator, as {name}",
            )
            for name in ("GpuId", "AcceleratorId")
        ),
        pytest.param(
            ENDPOINT_NAMESPACE,
            INSTANCE,
            {
                *("CPUUtilization", "MemoryUtilization", "DiskUtilization"),
                *("GPUUtilization", "GPUMemoryUtilization", "CPUUtilizationNormalized"),
                *("GPUUtilizationNormalized", "GPUMemoryUtilizationNormalized"),
                *("CPUReservation", "MemoryReservation", "GPUReservation"),
            },
            id="6.1: of an instance",
        ),
        pytest.param(
            MODEL_NAMESPACE,
            INSTANCE,
            OF_REQUESTS | {"ConcurrentRequestsPerModel"},
            id="requests of an instance",
        ),
        pytest.param(
            MODEL_NAMESPACE,
            CONTAINER,
            OF_REQUESTS | {"ConcurrentRequestsPerCopy"},
            id="requests of a container",
        ),
    ],
)
def test_each_place_has_its_metrics(namespace: str, names: set[str], metrics: set[str]) -> None:
    assert {it.metric.name for it in fine(published(BUSY, place()), namespace, names)} == metrics


def test_an_accelerator_is_published_once_for_each_copy_and_once_for_its_instance() -> None:
    found = list(published((), place()))
    (one, other) = [
        sample
        for sample in fine(found, COMPONENT_NAMESPACE, CONTAINER | {"GpuId"})
        if sample.metric.name == "GPUUtilizationNormalized"
    ]
    ids = {(dict(it.metric.dimensions)[n], it.values) for it in (one, other) for n in ("GpuId",)}
    assert ids == {("gpu_0", (50.0,)), ("gpu_1", (50.0,))}
    on_instance = fine(found, ENDPOINT_NAMESPACE, INSTANCE | {"AcceleratorId"})
    assert sums(on_instance, "GPUMemoryUtilization", "AcceleratorId") == {"gpu_0": 20, "gpu_1": 20}


@pytest.mark.parametrize("period_s", [10, 60, 300])
def test_without_enhanced_metrics_there_are_none(period_s: int) -> None:
    found = published(BUSY, place(period_s, is_enhanced=False))
    assert not [it for it in found if FINE & {name for name, _ in it.metric.dimensions}]


@cases(
    "period_s, is_enhanced, of_requests, of_use",
    case("ten seconds, of both", 10, True, 10, 1),
    case("half a minute, of both", 30, True, 30, 1),
    case("not enhanced: of use only", 10, False, 60, 1),
    case("a minute", 60, True, 60, 60),
    case("requests lie in their own minute always", 300, True, 60, 60),
)
def test_periods_below_a_minute_are_of_high_resolution(
    period_s: int, is_enhanced: bool, of_requests: int, of_use: int
) -> None:
    loads = [load(M0 + it, arrivals=1, finished=1) for it in range(5, 60)]
    found = list(published(loads, place(period_s, is_enhanced=is_enhanced)))
    mine = {(("InferenceComponentName", "chat"),)}
    requests = [it for it in found if it.metric.dimensions in mine]
    errors = [it for it in requests if it.metric.name == "Invocation5XXErrors"]
    assert {it.resolution_s for it in errors} == {60 if of_requests == 60 else 1}
    if of_requests < 60:
        assert {it.at - M0 for it in errors} == set(range(0, 60, of_requests))
    use = [it for it in requests if it.metric.namespace == COMPONENT_NAMESPACE]
    assert {it.resolution_s for it in use} == {of_use}


def test_an_idle_period_has_its_zeros() -> None:
    found = published((), place(10))
    zeros = [it for it in found if it.metric.name == "Invocations"]
    by_metric: dict[object, set[float]] = {}
    for zero in zeros:
        assert zero.values == (0.0,)
        by_metric.setdefault(zero.metric, set()).add(zero.at - M0)
    assert set(map(frozenset, by_metric.values())) == {frozenset(range(0, 60, 10))}


def test_a_copy_that_is_gone_has_no_more_metrics() -> None:
    gone = [load(M0, arrivals=1, arrivals_by_copy={"c-1": 1}, in_flight_max_by_copy={"c-1": 1})]
    found = [*published(gone, place(num_copies=1))]
    named = [it for it in found if it.metric.namespace != OWN_NAMESPACE]
    assert not [it for it in named if "c-1" in dict(it.metric.dimensions).values()]
    whole = fine(found, MODEL_NAMESPACE, {"InferenceComponentName"})
    assert sums(whole, "Invocations", "InferenceComponentName")["chat"] == 1.0


def test_another_copy_adds_so_many_series_and_no_more() -> None:
    def num(num_copies: int) -> int:
        return len({it.metric for it in published((), place(num_copies=num_copies))})

    of_requests, of_use, of_its_accelerator, of_that_on_the_instance = 6, 4, 2 * 2, 2 * 4
    assert num(2) - num(1) == of_requests + of_use + of_its_accelerator + of_that_on_the_instance


def test_usage_is_published_only_where_the_period_is_theirs() -> None:
    there = place(10)
    slow = replace(there.variants[MODEL], metrics=MetricsConfig())
    there = replace(there, variants={**there.variants, MODEL: slow})
    assert set(select_period(60, there).variants) == {MODEL}
    assert not select_period(60, there).components
    assert set(select_period(10, there).components) == {CHAT, ADAPTER}
