"""Publishing of closed seconds: correct sums, gauges of ten seconds, zeros, gaps."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.metrics.sagemaker.census_sample import ADAPTER, MODEL, census
from tests.unit.metrics.sagemaker.load_sample import CHAT, T0, load

from hostelry.domain.load import ConfigLoad, Distribution, LoadKey, SecondLoad
from hostelry.domain.metric import Sample
from hostelry.metrics.sagemaker.census import Census, CopyUsage
from hostelry.metrics.sagemaker.publication import MAX_NAMES_AT_ONCE, Publication

M0 = T0 - T0 % 60


def published(
    loads: Iterable[SecondLoad], seconds: Iterable[int], place: Census | None = None
) -> list[Sample]:
    """All samples of these seconds. A second without a report is a gap."""
    by_second: dict[int, list[SecondLoad]] = {}
    for seen in loads:
        by_second.setdefault(seen.second, []).append(seen)
    publication, found = Publication(), []
    for second in seconds:
        samples = publication.take(second, by_second.get(second, []), place or census())
        found += [sample for _, sample in samples]
    return found


def of(samples: list[Sample], name: str, key: LoadKey = CHAT) -> list[Sample]:
    """A metric's samples, under the plain dimensions of the name."""
    dimensions = {("InferenceComponentName", key.component_name)}
    if key.component_name is None:
        dimensions = {("EndpointName", key.endpoint_name), ("VariantName", key.variant_name)}
    mine = [it for it in samples if it.metric.name == name]
    return [it for it in mine if set(it.metric.dimensions) == dimensions]


def total(samples: list[Sample]) -> float:
    return sum(
        value * count
        for sample in samples
        for value, count in zip(sample.values, sample.counts, strict=True)
    )


def num(samples: list[Sample]) -> float:
    return sum(sum(it.counts) for it in samples)


def test_a_minutes_sum_is_the_number_of_requests_and_its_average_the_error_rate() -> None:
    loads = [load(M0 + it, arrivals=4, finished=4, errors_5xx=it % 2) for it in range(60)]
    found = published(loads, range(M0, M0 + 60))
    assert total(of(found, "Invocations")) == num(of(found, "Invocations")) == 240
    errors = of(found, "Invocation5XXErrors")
    assert (total(errors), num(errors)) == (30, 240)


def by_config(samples: list[Sample], name: str) -> dict[str, list[Sample]]:
    """A metric's samples of MODEL by EndpointConfigName. "" has samples without this name."""
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        dimensions = dict(sample.metric.dimensions)
        if sample.metric.name == name and dimensions.get("VariantName") == MODEL.variant_name:
            found.setdefault(dimensions.get("EndpointConfigName", ""), []).append(sample)
    return found


def shifting() -> Census:
    """The place while MODEL's traffic moves to configuration config-3."""
    place = census()
    before = place.variants[MODEL]
    old = [replace(it, config_name="config-2") for it in before.instances]
    new = [replace(it, id=f"n-{it.id}", config_name="config-3") for it in old[:2]]
    moving = replace(
        before,
        instances=(*old, *new),
        copies=tuple(CopyUsage(copy_id=f"c-{it.id}", instance_id=it.id) for it in (*old, *new)),
        new_config_name="config-3",
    )
    return replace(place, variants={**place.variants, MODEL: moving})


def test_each_configuration_has_the_requests_that_its_copies_served() -> None:
    slow, fast = (Distribution(values=(it,), counts=(1,)) for it in (900.0, 100.0))
    parts = {
        "config-2": ConfigLoad(arrivals=9, finished=9, model_latency_us=fast),
        "config-3": ConfigLoad(arrivals=1, finished=1, errors_5xx=1, model_latency_us=slow),
    }
    seen = load(M0, MODEL, arrivals=10, finished=10, errors_5xx=1, by_config=parts)
    found = published([seen], range(M0, M0 + 10), shifting())
    arrived = by_config(found, "Invocations")
    assert {name: total(it) for name, it in arrived.items()} == {
        "": 10, "config-2": 9, "config-3": 1
    }  # fmt: skip
    failed = by_config(found, "Invocation5XXErrors")
    rates = {name: (total(it), num(it)) for name, it in failed.items()}
    assert rates == {"": (1, 10), "config-2": (0, 9), "config-3": (1, 1)}
    latencies = by_config(found, "ModelLatency")
    assert latencies["config-3"][0].values == (900.0,)
    each = by_config(found, "InvocationsPerInstance")
    assert {name: total(it) for name, it in each.items()} == {
        "": pytest.approx(10 / 6), "config-2": 9 / 4, "config-3": 1 / 2
    }  # fmt: skip


@cases(
    "most_by_copy, means",
    case(
        "by the most on the copies of each",
        {"c-m-0": 3, "c-m-1": 3, "c-n-m-0": 6, "gone": 9},
        {"": 2.0, "config-2": 1.5, "config-3": 3.0},
    ),
    case("what waits is the one's in service", {}, {"": 2.0, "config-2": 3.0, "config-3": 0.0}),
)
def test_requests_in_flight_are_divided_by_the_instances_of_each_fleet(
    most_by_copy: dict[str, int], means: dict[str, float]
) -> None:
    counts = {"in_flight_mean": 12.0, "on_copies_min": 12, "on_copies_max": 12}
    loads = [
        load(second, MODEL, in_flight_max_by_copy=most_by_copy, **counts)
        for second in range(M0, M0 + 10)
    ]
    found = by_config(
        published(loads, range(M0, M0 + 10), shifting()), "ConcurrentRequestsPerModel"
    )
    for name, (sample,) in found.items():
        assert sample.statistics is not None
        assert sample.statistics.sum / sample.statistics.sample_count == pytest.approx(means[name])
    assert found.keys() == means.keys()


def test_requests_that_another_fleet_served_before_it_was_gone_are_not_the_new_ones() -> None:
    parts = {"config-1": ConfigLoad(arrivals=9), "config-2": ConfigLoad(arrivals=1)}
    found = published([load(M0, MODEL, arrivals=10, by_config=parts)], [M0])
    each = by_config(found, "InvocationsPerInstance")
    assert {name: total(it) for name, it in each.items()} == {"": 10 / 4, "config-2": 1 / 4}


def test_requests_that_no_configuration_has_count_for_the_one_in_service() -> None:
    twice, once = (Distribution(values=(100.0,), counts=(it,)) for it in (2, 1))
    parts = {"config-3": ConfigLoad(arrivals=1, finished=1, model_latency_us=once)}
    seen = load(M0, MODEL, arrivals=4, finished=3, model_latency_us=twice, by_config=parts)
    found = published([seen], [M0], shifting())
    arrived = by_config(found, "Invocations")
    assert {name: total(it) for name, it in arrived.items()} == {
        "": 4, "config-2": 3, "config-3": 1
    }  # fmt: skip
    latencies = by_config(found, "ModelLatency")
    assert {name: num(it) for name, it in latencies.items()} == {
        "": 2, "config-2": 1, "config-3": 1
    }  # fmt: skip


@pytest.mark.parametrize("metric", ["Invocation5XXErrors", "InvocationsPerInstance"])
def test_a_minute_without_requests_has_zeros_of_both_configurations(metric: str) -> None:
    found = by_config(published([], range(M0, M0 + 60), shifting()), metric)
    assert {name: total(it) for name, it in found.items()} == {
        "": 0, "config-2": 0, "config-3": 0
    }  # fmt: skip


def test_requests_per_copy_and_instance_are_shares_of_one() -> None:
    loads = [load(M0, arrivals=6), load(M0, MODEL, arrivals=8)]
    found = published(loads, [M0])
    assert total(of(found, "InvocationsPerCopy")) == 3.0
    assert total(of(found, "InvocationsPerInstance", MODEL)) == 2.0


def test_an_adapters_requests_weigh_on_its_base() -> None:
    loads = [
        load(M0, arrivals=2, on_copies_max=5, on_copies_min=1, in_flight_max=2),
        load(M0, ADAPTER, arrivals=4, in_flight_max=4),
    ]
    found = published(loads, range(M0, M0 + 10))
    assert total(of(found, "Invocations")) == 2
    assert total(of(found, "InvocationsPerCopy")) == (2 + 4) / 2
    base, adapter = (of(found, "ConcurrentRequestsPerCopy", it)[0] for it in (CHAT, ADAPTER))
    assert base.statistics is not None
    assert adapter.statistics is not None
    assert (base.statistics.maximum, adapter.statistics.maximum) == (5 / 2, 4)


def test_concurrency_is_the_extremes_and_the_mean_of_ten_seconds() -> None:
    loads = [
        load(M0 + second, in_flight_mean=3.0, on_copies_min=2, on_copies_max=4 + (second == 7))
        for second in range(10)
    ]
    (sample,) = of(published(loads, range(M0, M0 + 10)), "ConcurrentRequestsPerCopy")
    assert (sample.at, sample.resolution_s) == (M0, 1)
    assert sample.statistics is not None
    assert (sample.statistics.minimum, sample.statistics.maximum) == (1.0, 2.5)
    assert sample.statistics.sum / sample.statistics.sample_count == 1.5


def test_a_second_without_the_name_is_one_without_requests() -> None:
    loads = [load(M0, in_flight_mean=4.0, on_copies_min=4, on_copies_max=4)]
    (sample,) = of(published(loads, range(M0, M0 + 10)), "ConcurrentRequestsPerCopy")
    assert sample.statistics is not None
    assert (sample.statistics.minimum, sample.statistics.maximum) == (0.0, 2.0)


def test_without_a_report_there_is_nothing_not_even_zeros() -> None:
    found = published([], [M0, M0 + 9, M0 + 45])
    assert {it.at for it in of(found, "ConcurrentRequestsPerCopy")} == {M0}


def test_a_period_that_a_gap_cut_short_is_published_when_reports_come_again() -> None:
    loads = [load(M0 + 3, on_copies_max=6, in_flight_mean=6.0)]
    found = published(loads, [M0 + 3, M0 + 45])
    (sample,) = of(found, "ConcurrentRequestsPerCopy")
    assert sample.at == M0
    assert sample.statistics is not None
    assert sample.statistics.maximum == 3.0


def test_at_zero_copies_there_is_no_concurrency_per_copy_and_refusals_are_counted() -> None:
    loads = [load(M0, arrivals=1, finished=1, no_capacity=1)]
    found = published(loads, range(M0, M0 + 60), census(num_copies=0))
    assert of(found, "ConcurrentRequestsPerCopy") == of(found, "InvocationsPerCopy") == []
    assert total(of(found, "NoCapacityInvocationFailures")) == 1
    assert total(of(found, "Invocations")) == 1


def test_a_minute_has_zeros_where_nothing_happened_and_only_there() -> None:
    found = published([load(M0 + 5, arrivals=1, finished=1)], range(M0, M0 + 60))
    assert num(of(found, "Invocations")) == num(of(found, "Invocation4XXErrors")) == 1
    assert [it.values for it in of(found, "Invocations", MODEL)] == [(0.0,)]
    assert [it.values for it in of(found, "InvocationsPerInstance", MODEL)] == [(0.0,)]
    assert of(found, "ModelLatency", MODEL) == []


def test_what_is_in_no_census_has_counts_and_no_shares() -> None:
    gone = replace(CHAT, component_name="gone")
    found = published([load(M0, gone, arrivals=3, finished=3)], range(M0, M0 + 10))
    assert total(of(found, "Invocations", gone)) == 3
    assert of(found, "InvocationsPerCopy", gone) == []


def test_very_many_names_are_published_in_tens_of_seconds_with_the_same_sums() -> None:
    keys = [replace(CHAT, component_name=f"c{it}") for it in range(MAX_NAMES_AT_ONCE + 1)]
    latency = Distribution(values=(5.0,), counts=(2,))
    loads = [
        load(M0 + second, key, arrivals=2, finished=2, model_latency_us=latency)
        for second in range(10)
        for key in keys
    ]
    found = published(loads, range(M0, M0 + 10))
    for key in (keys[0], keys[-1]):
        assert total(of(found, "Invocations", key)) == 20
        assert num(of(found, "ModelLatency", key)) == 20
        assert len(of(found, "Invocations", key)) == 1


def test_our_own_metrics_are_those_of_each_second() -> None:
    loads = [
        load(M0, arrivals=3, finished=2, service_s=1.0, in_flight_mean=1.5, held=4),
        load(M0 + 1, in_flight_mean=2.5, in_flight_max_by_copy={"c-1": 3}),
    ]
    found = published(loads, range(M0, M0 + 10))
    assert [it.values for it in of(found, "InFlight")] == [(1.5,), (2.5,)]
    assert [it.values for it in of(found, "Held")] == [(4.0,), (0.0,)]
    assert [it.values for it in of(found, "ServiceTime")] == [(0.5,)]
    assert [it.values for it in of(found, "Copies")] == [(2.0,)]
    by_copy = [it for it in found if it.metric.name == "InFlightPerCopy"]
    assert [(dict(it.metric.dimensions)["CopyId"], it.values) for it in by_copy] == [
        ("c-1", (3.0,))
    ]


@pytest.mark.parametrize("jump_s", [3600, -3600], ids=["forward", "backward"])
def test_a_jump_of_the_clock_ends_what_was_open(jump_s: int) -> None:
    loads = [load(M0 + 3, on_copies_max=2), load(M0 + jump_s, on_copies_max=4)]
    seconds = [M0 + 3, *range(M0 + jump_s, M0 + jump_s + 10)]
    samples = of(published(loads, seconds), "ConcurrentRequestsPerCopy")
    assert [it.statistics and it.statistics.maximum for it in samples] == [1.0, 2.0]


def test_what_came_late_adds_to_its_second() -> None:
    late = list(Publication().late([load(M0, arrivals=2, finished=1)], census()))
    found = [sample for _, sample in late]
    assert total(of(found, "Invocations")) == 2
    assert of(found, "ConcurrentRequestsPerCopy") == []


def test_counts_that_come_late_are_added_to_hostelrys_own_metrics_too() -> None:
    late = load(M0, MODEL, arrivals=3, finished=2, service_s=0.5, dropped=4, in_flight_mean=0.0)
    found = [sample for _, sample in Publication().late([late], census())]
    names = ("Arrivals", "MirrorsDropped", "ServiceTime")
    assert {name: total(of(found, name, MODEL)) for name in names} == {
        "Arrivals": 3, "MirrorsDropped": 4, "ServiceTime": 0.25
    }  # fmt: skip
    assert not {it.metric.name for it in found} & {"InFlight", "Held"}
