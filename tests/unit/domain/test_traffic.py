"""Traffic policies: their steps and shares, and refusals."""

from itertools import pairwise, product

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.base.errors import ServiceError
from hostelry.domain.traffic import (
    FleetSize,
    FleetUnit,
    TrafficPolicy,
    TrafficType,
    check_size,
    check_waits,
)

COUNT, PERCENT = FleetUnit.INSTANCE_COUNT, FleetUnit.CAPACITY_PERCENT
CANARY, LINEAR, ROLLING = TrafficType.CANARY, TrafficType.LINEAR, TrafficType.ROLLING


def policy(kind: TrafficType, unit: FleetUnit, value: int, wait_s: float = 300.0) -> TrafficPolicy:
    return TrafficPolicy(type=kind, size=FleetSize(unit=unit, value=value), wait_s=wait_s)


@cases(
    "traffic, instances, shares, turned_on",
    case("all at once", TrafficPolicy(), 4, [1.0], [4]),
    case("one instance of four", policy(CANARY, COUNT, 1), 4, [0.25, 1.0], [1, 4]),
    case("30 % of ten", policy(CANARY, PERCENT, 30), 10, [0.3, 1.0], [3, 10]),
    case("at least one", policy(CANARY, PERCENT, 10), 3, [1 / 3, 1.0], [1, 3]),
    case("at most half", policy(CANARY, PERCENT, 50), 3, [1 / 3, 1.0], [1, 3]),
    case("a fleet of one, by its traffic", policy(CANARY, PERCENT, 10), 1, [0.1, 1.0], [1, 1]),
    case("one by one", policy(LINEAR, COUNT, 1), 3, [1 / 3, 2 / 3, 1.0], [1, 2, 3]),
    case("a shorter last", policy(LINEAR, COUNT, 2), 5, [0.4, 0.8, 1.0], [2, 4, 5]),
    case("one, in steps", policy(LINEAR, PERCENT, 30), 1, [0.3, 0.6, 0.9, 1.0], [1, 1, 1, 1]),
    case("10 % of two", policy(LINEAR, PERCENT, 10), 2, [0.5, 1.0], [1, 2]),
    case("no instances", policy(CANARY, COUNT, 1), 0, [1.0, 1.0], [0, 0]),
    case("in batches", policy(ROLLING, COUNT, 2), 5, [0.4, 0.8, 1.0], [2, 4, 5]),
    case("a batch of one", policy(ROLLING, PERCENT, 50), 1, [1.0], [1]),
    case("at most 40 %", policy(ROLLING, PERCENT, 40), 4, [0.25, 0.5, 0.75, 1.0], [1, 2, 3, 4]),
    case("5 % of two", policy(ROLLING, PERCENT, 5), 2, [0.5, 1.0], [1, 2]),
)
def test_shares_are_those_of_the_instances_turned_on(
    traffic: TrafficPolicy, instances: int, shares: list[float], turned_on: list[int]
) -> None:
    steps = range(1, traffic.num_steps([instances]) + 1)
    assert [traffic.share(it, instances) for it in steps] == pytest.approx(shares)
    assert [traffic.turned_on(it, instances) for it in steps] == turned_on


@pytest.mark.parametrize("instances", [1, 2, 3, 7, 30, 100])
def test_steps_rise_to_all_and_none_is_more_than_half(instances: int) -> None:
    for value in range(10, 51):
        traffic = policy(LINEAR, PERCENT, value)
        steps = range(traffic.num_steps([instances]) + 1)
        shares = [traffic.share(it, instances) for it in steps]
        assert shares[-1] == 1.0, value
        assert all(0 < after - before <= 0.5 + 1e-9 for before, after in pairwise(shares)), value
        assert len(shares) <= 20, "at most 20 steps of whole instances, none of no instance"


def test_variants_of_different_size_share_the_steps() -> None:
    traffic = policy(LINEAR, COUNT, 1)
    assert traffic.num_steps([2, 4]) == 4
    assert [traffic.share(it, 2) for it in (1, 2, 3, 4)] == [0.5, 1.0, 1.0, 1.0]
    assert traffic.num_waits([2, 4]) == 3
    assert replace(traffic, type=ROLLING).num_waits([2, 4]) == 4, "after the last one, too"


@cases(
    "old, new, replaced",
    case("fleets of the same size", 4, 4, [0, 1, 2, 3, 4]),
    case("a smaller old one", 3, 4, [0, 0, 1, 2, 3]),
    case("a larger old one", 9, 4, [0, 2, 4, 6, 9]),
    case("no new instances", 4, 0, [0, 4]),
)
def test_batches_replace_the_same_part_of_the_old_fleet(
    old: int, new: int, replaced: list[int]
) -> None:
    traffic = policy(ROLLING, COUNT, 1)
    assert [traffic.count_replaced(it, old, new) for it in range(len(replaced))] == replaced


@pytest.mark.parametrize("percent", [5, 20, 33, 50])
def test_a_fleet_and_one_batch_are_enough(percent: int) -> None:
    traffic = policy(ROLLING, PERCENT, percent)
    for old, new in product(range(1, 12), repeat=2):
        size = traffic.turned_on(1, new)
        for step in range(1, traffic.num_steps([new]) + 1):
            there = old - traffic.count_replaced(step - 1, old, new) + traffic.turned_on(step, new)
            assert min(old, new) <= there <= max(old, new) + size, (old, new)
        assert traffic.count_replaced(step, old, new) == old, (old, new)


@cases(
    "traffic, instances, message",
    case("half", policy(CANARY, PERCENT, 50), 4, None),
    case(
        "more than half",
        policy(CANARY, PERCENT, 51),
        4,
        "CanarySize.Value is 51; it must be 1 to 50 per cent of the instances.",
    ),
    case(
        "more instances than half",
        policy(CANARY, COUNT, 3),
        4,
        "CanarySize.Value is 3, and variant A has 4 instances; it must be 1 to 2, as a step is"
        " 1 to 50 per cent of them.",
    ),
    case(
        "the only instance",
        policy(CANARY, COUNT, 1),
        1,
        "CanarySize.Value is 1, and variant A has 1 instance; use CAPACITY_PERCENT",
    ),
    case("one of a hundred", policy(CANARY, COUNT, 1), 100, None),
    case(
        "too small a step",
        policy(LINEAR, PERCENT, 9),
        4,
        "LinearStepSize.Value is 9; it must be 10 to 50 per cent of the instances.",
    ),
    case(
        "too few instances",
        policy(LINEAR, COUNT, 1),
        20,
        "LinearStepSize.Value is 1, and variant A has 20 instances; it must be 2 to 10",
    ),
    case("a tenth", policy(LINEAR, COUNT, 2), 20, None),
    case("no instances", policy(CANARY, COUNT, 9), 0, None),
    case("a batch of the only instance", policy(ROLLING, COUNT, 1), 1, None),
    case("a batch of a twentieth", policy(ROLLING, PERCENT, 5), 100, None),
    case(
        "too small a batch",
        policy(ROLLING, PERCENT, 4),
        4,
        "RollingUpdatePolicy.MaximumBatchSize.Value is 4; it must be 5 to 50 per cent of the"
        " instances.",
    ),
    case(
        "a batch of more than half",
        policy(ROLLING, COUNT, 3),
        5,
        "RollingUpdatePolicy.MaximumBatchSize.Value is 3, and variant A has 5 instances; it"
        " must be 1 to 2, as a batch is 5 to 50 per cent of them.",
    ),
)
def test_size(traffic: TrafficPolicy, instances: int, message: str | None) -> None:
    if message is None:
        check_size(traffic, "A", instances)
        return
    with pytest.raises(ServiceError) as refused:
        check_size(traffic, "A", instances)
    assert message in refused.value.message


@cases(
    "traffic, bake_s, limit_s, message",
    case("less than the limit", policy(LINEAR, COUNT, 1), 99.0, 1000.0, None),
    case("no limit", policy(LINEAR, COUNT, 1), 3600.0, None, None),
    case(
        "as long as the limit",
        policy(LINEAR, COUNT, 1),
        100.0,
        1000.0,
        "3 times WaitIntervalInSeconds 300 and TerminationWaitInSeconds 100 must be less than"
        " MaximumExecutionTimeoutInSeconds 1000.",
    ),
    case(
        "a trial as long as the limit",
        TrafficPolicy(),
        600.0,
        600.0,
        "TerminationWaitInSeconds 600 must be less than MaximumExecutionTimeoutInSeconds 600.",
    ),
)
def test_waits(
    traffic: TrafficPolicy, bake_s: float, limit_s: float | None, message: str | None
) -> None:
    if message is None:
        check_waits(traffic, [4], bake_s, limit_s)
        return
    with pytest.raises(ServiceError) as refused:
        check_waits(traffic, [4], bake_s, limit_s)
    assert message in refused.value.message
