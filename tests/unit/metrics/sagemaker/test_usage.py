"""Samples of usage: sums over requests, the limits of names, instances over time."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.metrics.sagemaker.load_sample import CHAT, SCOPE, T0, load

from hostelry.cost.holding import WHOLE, HeldInstance
from hostelry.cost.usage import UsageSum, UsageTarget, VariantFleet, gather_hours
from hostelry.domain.load import PartLoad
from hostelry.metrics.sagemaker.census import Census, ComponentCensus, ScopedSample
from hostelry.metrics.sagemaker.usage import (
    OTHERS,
    PartNames,
    divide_periods,
    sample_calls,
    sample_instances,
    sample_recorded,
)

M0 = T0 - T0 % 60
SPANISH = replace(CHAT, component_name="spanish")
CENSUS = Census(
    components={SPANISH: ComponentCensus(key=SPANISH, num_copies=1, base=CHAT)},
)


def sums(scoped: list[ScopedSample]) -> list[UsageSum]:
    found = []
    for _, sample in scoped:
        assert sample.statistics is not None
        dimensions = dict(sample.metric.dimensions)
        at = sample.at // 3600 * 3600
        found.append(UsageSum(sample.metric.name, dimensions, at, sample.statistics.sum))
    return found


def test_requests_of_an_adapter_name_its_base() -> None:
    seen = load(
        T0,
        SPANISH,
        finished=3,
        service_s=1.5,
        bytes_in=7,
        bytes_out=9,
        token_requests=2,
        tokens_in=20,
        tokens_out=5,
        by_tenant={"t": PartLoad(finished=1, service_s=0.5, token_requests=1, tokens_in=8)},
        by_model={"m": PartLoad(finished=2, service_s=1.0)},
    )
    (hour,) = gather_hours(sums(list(sample_calls(seen, CENSUS, PartNames()))))
    target = UsageTarget(endpoint="ep", variant="all", component="spanish", base="chat")
    (calls,) = hour.calls.values()
    assert list(hour.calls) == [target]
    assert (calls.requests, calls.service_s, calls.bytes_in, calls.bytes_out) == (3, 1.5, 7, 9)
    assert (calls.token_requests, calls.tokens) == (2, 25)
    assert hour.by_tenant[target]["t"].tokens == 8
    assert hour.by_model[target]["m"].requests == 2


def test_requests_to_a_jobs_own_endpoint_count_for_the_job() -> None:
    steps = [replace(CHAT, endpoint_name=f"recommendation-job/sizes/{it}") for it in (1, 2)]
    loads = [load(T0, replace(it, component_name=None), finished=3) for it in steps]
    (hour,) = gather_hours(
        sums([it for one in loads for it in sample_calls(one, CENSUS, PartNames())])
    )
    found = {it.endpoint: calls.requests for it, calls in hour.calls.items()}
    assert found == {"recommendations job sizes": 6}


def test_a_second_without_requests_has_no_samples() -> None:
    assert list(sample_calls(load(T0), CENSUS, PartNames())) == []


def test_names_above_the_limits_share_one() -> None:
    names = PartNames(most_per_name=2, most=3)
    assert [names.limit(CHAT, "Tenant", it) for it in "abac"] == ["a", "b", "a", OTHERS]
    assert [names.limit(CHAT, "TargetModel", it) for it in "ab"] == ["a", OTHERS]
    assert names.limit(SPANISH, "Tenant", "a") == OTHERS


def test_names_of_an_earlier_process_keep_their_places() -> None:
    seen = load(T0, by_tenant={"old": PartLoad(finished=1)})
    samples = [it.metric for _, it in sample_calls(seen, CENSUS, PartNames())]
    names = PartNames(most_per_name=1)
    names.know(samples)
    assert [names.limit(CHAT, "Tenant", it) for it in ("new", "old")] == [OTHERS, "old"]


@cases(
    "since, until, expected",
    case("within a period", 10, 20, [(0, 10)]),
    case("over periods", 250, 610, [(0, 50), (300, 300), (600, 10)]),
    case("no time", 50, 50, []),
    case("backwards", 50, 40, []),
)
def test_time_is_divided_at_periods(
    since: float, until: float, expected: list[tuple[int, float]]
) -> None:
    assert list(divide_periods(since, until)) == expected


def held(
    endpoint: str, since: float, shares: dict[str | None, float] | None = None
) -> HeldInstance:
    return HeldInstance(
        scope=SCOPE,
        endpoint=endpoint,
        variant="all",
        instance_type="ml.a",
        since=since,
        shares=WHOLE if shares is None else shares,
    )


def test_instances_count_from_their_start() -> None:
    instances = [
        held("model", M0 - 500),
        held("model", M0 + 90),
        held("ep", M0 - 500, {"a": 0.5, "b": 0.25}),
        held("transform-job/job", M0 - 500),
    ]
    found = sums(list(sample_instances(instances, M0 + 50, M0 + 100)))
    (hour,) = gather_hours(found)
    times = {fleet.endpoint: time for fleet, time in hour.instance_s.items()}
    assert times["model"] == 60
    assert times["ep"] == 50
    fleet = VariantFleet(endpoint="ep", variant="all", instance_type="ml.a")
    assert hour.reserved_s[fleet, "a"] == 25
    assert hour.reserved_s[fleet, "b"] == 12.5
    assert hour.reserved_s[replace(fleet, endpoint="model"), None] == 60


def test_recorded_time_comes_with_the_stored_bytes() -> None:
    (hour,) = gather_hours(sums(list(sample_recorded(SCOPE, 1000, M0, M0 + 90))))
    assert (hour.recorded_s, hour.stored_byte_s) == (90, 90_000)
    (hour,) = gather_hours(sums(list(sample_recorded(SCOPE, None, M0, M0 + 90))))
    assert (hour.recorded_s, hour.stored_byte_s) == (90, 0)
