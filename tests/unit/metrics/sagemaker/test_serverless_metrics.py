"""Metrics of serverless variants, their usage, and the set-up times of their environments."""

from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.metric import Sample
from hostelry.domain.scope import Scope
from hostelry.domain.serverless import ServerlessConfig
from hostelry.metrics.sagemaker.census import Census, CopyUsage, ScopedSample, VariantCensus
from hostelry.metrics.sagemaker.load_metrics import InFlight
from hostelry.metrics.sagemaker.serverless import (
    sample_period,
    sample_second,
    setup_times,
    setups,
)

KEY = LoadKey(scope=Scope("1", "us-east-1"), endpoint_name="fn", variant_name="main")


def census(ready: int = 0, *copies: CopyUsage) -> Census:
    config = ServerlessConfig(memory_mb=2048, max_concurrency=10, provisioned_concurrency=ready)
    variant = VariantCensus(
        key=KEY,
        config_name="c",
        takes_components=False,
        instances=(),
        copies=copies,
        serverless=config,
    )
    return Census(variants={KEY: variant})


def by_name(scoped: list[ScopedSample]) -> dict[str, Sample]:
    """The samples of the dimensions without the configuration's name."""
    samples = [it for _, it in scoped]
    return {it.metric.name: it for it in samples if len(it.metric.dimensions) == 2}


def test_requests_beyond_the_provisioned_are_spillover() -> None:
    load = SecondLoad(key=KEY, second=5, arrivals=10, spilled=3)
    found = by_name(list(sample_second(load, census(2))))
    counts = {
        name.removeprefix("ServerlessProvisionedConcurrency"): it.values
        for name, it in found.items()
    }
    assert counts == {"Invocations": (7.0,), "SpilloverInvocations": (3.0,)}


def test_usage_counts_what_was_served() -> None:
    load = SecondLoad(
        key=KEY, second=5, finished=3, billed_ms=40, bytes_in=7, bytes_out=9, throttled=2
    )
    found = by_name(list(sample_second(load, census())))
    assert {name: it.values[0] for name, it in found.items()} == {
        "ServerlessRequests": 3,
        "ServerlessThrottles": 2,
        "ServerlessBilledTime": 40,
        "ServerlessMemoryTime": 40 * 2048,
        "ServerlessBytesIn": 7,
        "ServerlessBytesOut": 9,
    }


def test_other_variants_have_none_of_these() -> None:
    load = SecondLoad(key=KEY, second=5, arrivals=3, finished=3, billed_ms=40)
    assert list(sample_second(load, Census())) == []
    assert list(sample_period(0, 10, InFlight(), KEY, Census())) == []


def test_concurrency_is_a_share_of_the_most_and_of_the_provisioned() -> None:
    seen = InFlight(mean=4.0, least=0, most=6)
    found = by_name(list(sample_period(0, 10, seen, KEY, census(4))))
    tops = {it: found[it].statistics.maximum for it in found if found[it].statistics}  # type: ignore[union-attr]
    assert tops == {
        "ServerlessConcurrentExecutionsUtilization": 0.6,
        "ServerlessProvisionedConcurrencyUtilization": 1.0,
        "ServerlessProvisionedConcurrencyExecutions": 4,
    }
    assert found["ServerlessProvisionedTime"].values == (4 * 2048 * 10.0,)


def test_without_a_request_there_are_zeros() -> None:
    found = by_name(list(sample_period(0, 10, InFlight(), KEY, census(1))))
    utilization = found["ServerlessProvisionedConcurrencyUtilization"].statistics
    assert utilization is not None
    assert utilization.maximum == 0
    assert found["ServerlessProvisionedConcurrencySpilloverInvocations"].values == (0.0,)
    assert "ServerlessProvisionedConcurrencyExecutions" not in by_name(
        list(sample_period(0, 10, InFlight(), KEY, census()))
    )


def test_each_process_that_is_proven_has_one_set_up_time() -> None:
    first = CopyUsage(copy_id="a", instance_id="i", setup=(0, 0.25))
    again = CopyUsage(copy_id="a", instance_id="i", setup=(1, 0.5))
    other = CopyUsage(copy_id="b", instance_id="i", setup=(0, 1.5))
    known = setups(census(0, first))
    assert list(setup_times(9, known, census(0, first))) == []
    found = [it for _, it in setup_times(9, known, census(0, again, other))]
    assert sorted({it.values[0] for it in found}) == [500_000.0, 1_500_000.0]
    assert {it.unit for it in found} == {"Microseconds"}
