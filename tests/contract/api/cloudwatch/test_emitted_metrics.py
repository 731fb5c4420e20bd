"""Emitted metrics, against the table that SageMaker documents.

Source: SageMaker developer guide, "Monitor Amazon SageMaker AI with Amazon CloudWatch".
"""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tests.unit.metrics.sagemaker.census_sample import ADAPTER, MODEL, census
from tests.unit.metrics.sagemaker.load_sample import CHAT, T0, load

from hostelry.domain.load import NO_MODEL_LOADS, Distribution, LoadKey, ModelLoads, SecondLoad
from hostelry.domain.metric import (
    COMPONENT_NAMESPACE,
    ENDPOINT_NAMESPACE,
    MODEL_NAMESPACE,
    Sample,
)
from hostelry.metrics.sagemaker.census import CopyUsage
from hostelry.metrics.sagemaker.publication import Publication
from hostelry.metrics.sagemaker.utilization import utilization

COMPONENT = ("InferenceComponentName",)
VARIANT = ("EndpointName", "VariantName")
NEW_FLEET = ("EndpointConfigName", "EndpointName", "VariantName")
BOTH = {COMPONENT, VARIANT, NEW_FLEET}
TABLE = {
    "Invocations": ("None", BOTH),
    "InvocationsPerInstance": ("None", {VARIANT, NEW_FLEET}),
    "InvocationsPerCopy": ("None", {COMPONENT}),
    "ConcurrentRequestsPerModel": ("None", {VARIANT, NEW_FLEET}),
    "ConcurrentRequestsPerCopy": ("None", {COMPONENT}),
    "Invocation4XXErrors": ("None", BOTH),
    "Invocation5XXErrors": ("None", BOTH),
    "InvocationModelErrors": ("None", BOTH),
    "ModelLatency": ("Microseconds", BOTH),
    "OverheadLatency": ("Microseconds", BOTH),
    "MidStreamErrors": ("None", BOTH),
    "FirstChunkLatency": ("Microseconds", BOTH),
    "FirstChunkModelLatency": ("Microseconds", BOTH),
    "FirstChunkOverheadLatency": ("Microseconds", BOTH),
    "NoCapacityInvocationFailures": ("None", {COMPONENT}),
    "ModelCacheHit": ("None", {VARIANT, NEW_FLEET}),
    "ModelLoadingWaitTime": ("Microseconds", {VARIANT, NEW_FLEET}),
    "ModelDownloadingTime": ("Microseconds", {VARIANT, NEW_FLEET}),
    "ModelLoadingTime": ("Microseconds", {VARIANT, NEW_FLEET}),
    "ModelUnloadingTime": ("Microseconds", {VARIANT, NEW_FLEET}),
}
OF_MODELS = {it for it in TABLE if it.endswith("Time") or it == "ModelCacheHit"}
HIGH_RESOLUTION = {
    "ConcurrentRequestsPerModel",
    "ConcurrentRequestsPerCopy",
    "NoCapacityInvocationFailures",
}
USES = {
    (ENDPOINT_NAMESPACE, "CPUUtilization", VARIANT),
    (ENDPOINT_NAMESPACE, "MemoryUtilization", VARIANT),
    (ENDPOINT_NAMESPACE, "DiskUtilization", VARIANT),
    (ENDPOINT_NAMESPACE, "CPUUtilizationNormalized", VARIANT),
    (ENDPOINT_NAMESPACE, "CPUReservation", VARIANT),
    (ENDPOINT_NAMESPACE, "MemoryReservation", VARIANT),
    (ENDPOINT_NAMESPACE, "GPUReservation", VARIANT),
    (COMPONENT_NAMESPACE, "CPUUtilizationNormalized", COMPONENT),
    (COMPONENT_NAMESPACE, "MemoryUtilizationNormalized", COMPONENT),
}


def busy(second: int, key: LoadKey) -> SecondLoad:
    some = Distribution(values=(1000.0,), counts=(2,))
    return load(
        second,
        key,
        arrivals=2,
        finished=2,
        no_capacity=1,
        model_latency_us=some,
        overhead_latency_us=some,
        first_chunk_latency_us=some,
        first_chunk_model_latency_us=some,
        first_chunk_overhead_latency_us=some,
        model_loads=NO_MODEL_LOADS
        if key.component_name
        else ModelLoads(
            lookups=2,
            hits=1,
            waiting_us=some,
            downloading_us=some,
            loading_us=some,
            unloading_us=some,
        ),
    )


def minute(active: tuple[LoadKey, ...]) -> Iterator[Sample]:
    """The samples of a whole minute, in which the active names have requests each second."""
    publication = Publication()
    for second in range(T0 - T0 % 60, T0 - T0 % 60 + 60):
        loads = [busy(second, key) for key in active]
        for _, sample in publication.take(second, loads, census()):
            yield sample


def names(sample: Sample) -> tuple[str, ...]:
    return tuple(name for name, _ in sample.metric.dimensions)


def of_aws(active: tuple[LoadKey, ...]) -> list[Sample]:
    return [it for it in minute(active) if it.metric.namespace == MODEL_NAMESPACE]


@pytest.mark.parametrize("name", sorted(TABLE))
def test_a_busy_minute_has_the_metric_with_its_unit_and_dimensions(name: str) -> None:
    found = [it for it in of_aws((CHAT, ADAPTER, MODEL)) if it.metric.name == name]
    assert {names(it) for it in found} == TABLE[name][1]
    assert {it.unit for it in found} == {TABLE[name][0]}
    assert {it.resolution_s for it in found} == {1 if name in HIGH_RESOLUTION else 60}


def test_nothing_is_emitted_that_the_table_has_not() -> None:
    assert {it.metric.name for it in of_aws((CHAT, ADAPTER, MODEL))} == set(TABLE)


@pytest.mark.parametrize("name", sorted(it for it in TABLE if TABLE[it][1] == BOTH))
def test_requests_of_components_count_for_their_endpoints_fleet_too(name: str) -> None:
    # api.md 6.1: any invocation metric for a new fleet, with EndpointConfigName
    found = [it for it in of_aws((CHAT, ADAPTER)) if it.metric.name == name]
    fleet = [it for it in found if ("EndpointConfigName", "config-1") in it.metric.dimensions]
    own = [it for it in found if names(it) == COMPONENT]
    assert sum(sum(it.counts) for it in fleet) == sum(sum(it.counts) for it in own) > 0


def test_an_idle_minute_has_one_zero_of_a_fleet_however_many_components_it_has() -> None:
    idle = [it for it in of_aws(()) if names(it) == NEW_FLEET]
    mine = [it for it in idle if ("EndpointConfigName", "config-1") in it.metric.dimensions]
    counted = {name for name, row in TABLE.items() if row[1] == BOTH}
    expected = {it for it in counted if not it.endswith("Latency")}
    assert {it.metric.name for it in mine} == expected
    assert {(it.values, it.counts) for it in mine} == {((0.0,), (1.0,))}
    assert len(mine) == len({it.metric.name for it in mine})


def test_an_idle_minute_has_zeros_of_all_but_latencies() -> None:
    idle = of_aws(())
    counted = {it for it in TABLE if not it.endswith("Latency")}
    assert {it.metric.name for it in idle} == counted - OF_MODELS
    sums = {it.statistics.maximum if it.statistics else max(it.values) for it in idle}
    assert sums == {0.0}


def test_instances_and_copies_report_their_use_in_per_cent() -> None:
    reported = [it for _, it in utilization(T0, census(disk_use=0.5), {"c-0": 0.25, "c-1": 0.5})]
    assert {(it.metric.namespace, it.metric.name, names(it)) for it in reported} == USES
    assert {it.unit for it in reported} == {"Percent"}


def test_instances_with_many_models_report_how_many_are_loaded() -> None:
    here = census()
    variant = here.variants[MODEL]
    host = variant.instances[0].id
    copies = (CopyUsage(copy_id="c-9", instance_id=host, loaded_models=3),)
    here = replace(here, variants={**here.variants, MODEL: replace(variant, copies=copies)})
    reported = [it for _, it in utilization(T0, here, {}) if it.metric.name == "LoadedModelCount"]
    assert [(names(it), it.unit, it.values) for it in reported] == [(VARIANT, "None", (3.0,))]
