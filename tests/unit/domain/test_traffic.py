"""Traffic policies: the steps and shares of each, and what is refused."""

from dataclasses import replace
from itertools import pairwise, product

import pytest

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


@pytest.mark.parametrize(
    ("traffic", "instances", "shares", "turned_on"),
    [
        pytest.param(TrafficPolicy(), 4, [1.0], [4], id="all at once"),
        pytest.param(policy(CANARY, COUNT, 1), 4, [0.25, 1.0], [1, 4], id="one instance of four"),
        pytest.param(policy(CANARY, PERCENT, 30), 10, [0.3, 1.0], [3, 10], id="30 % of ten"),
        pytest.param(policy(CANARY, PERCENT, 10), 3, [1 / 3, 1.0], [1, 3], id="at least one"),
        pytest.param(policy(CANARY, PERCENT, 50), 3, [1 / 3, 1.0], [1, 3], id="at most half"),
        pytest.param(
            policy(CANARY, PERCENT, 10), 1, [0.1, 1.0], [1, 1], id="a fleet of one, by its traffic"
        ),
        pytest.param(policy(LINEAR, COUNT, 1), 3, [1 / 3, 2 / 3, 1.0], [1, 2, 3], id="one by one"),
        pytest.param(policy(LINEAR, COUNT, 2), 5, [0.4, 0.8, 1.0], [2, 4, 5], id="a shorter last"),
        pytest.param(
            policy(LINEAR, PERCENT, 30), 1, [0.3, 0.6, 0.9, 1.0], [1, 1, 1, 1], id="one, in steps"
        ),
        pytest.param(policy(LINEAR, PERCENT, 10), 2, [0.5, 1.0], [1, 2], id="10 % of two"),
        pytest.param(policy(CANARY, COUNT, 1), 0, [1.0, 1.0], [0, 0], id="no instances"),
        pytest.param(policy(ROLLING, COUNT, 2), 5, [0.4, 0.8, 1.0], [2, 4, 5], id="in batches"),
        pytest.param(policy(ROLLING, PERCENT, 50), 1, [1.0], [1], id="a batch of one"),
        pytest.param(
            policy(ROLLING, PERCENT, 40), 4, [0.25, 0.5, 0.75, 1.0], [1, 2, 3, 4], id="at most 40 %"
        ),
        pytest.param(policy(ROLLING, PERCENT, 5), 2, [0.5, 1.0], [1, 2], id="5 % of two"),
    ],
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


@pytest.mark.parametrize(
    ("old", "new", "replaced"),
    [
        pytest.param(4, 4, [0, 1, 2, 3, 4], id="fleets of the same size"),
        pytest.param(3, 4, [0, 0, 1, 2, 3], id="a smaller old one"),
        pytest.param(9, 4, [0, 2, 4, 6, 9], id="a larger old one"),
        pytest.param(4, 0, [0, 4], id="no new instances"),
    ],
)
def test_batches_replace_the_same_part_of_the_old_fleet(
    old: int, new: int, replaced: list[int]
) -> None:
    traffic = policy(ROLLING, COUNT, 1)
    assert [traffic.replaced(it, old, new) for it in range(len(replaced))] == replaced


@pytest.mark.parametrize("percent", [5, 20, 33, 50])
def test_a_fleet_and_one_batch_are_enough(percent: int) -> None:
    traffic = policy(ROLLING, PERCENT, percent)
    for old, new in product(range(1, 12), repeat=2):
        size = traffic.turned_on(1, new)
        for step in range(1, traffic.num_steps([new]) + 1):
            there = old - traffic.replaced(step - 1, old, new) + traffic.turned_on(step, new)
            assert min(old, new) <= there <= max(old, new) + size, (old, new)
        assert traffic.replaced(step, old, new) == old, (old, new)


@pytest.mark.parametrize(
    ("traffic", "instances", "message"),
    [
        pytest.param(policy(CANARY, PERCENT, 50), 4, None, id="half"),
        pytest.param(
            policy(CANARY, PERCENT, 51),
            4,
            "CanarySize.Value is 51; it must be 1 to 50 per cent of the instances.",
            id="more than half",
        ),
        pytest.param(
            policy(CANARY, COUNT, 3),
            4,
            "CanarySize.Value is 3, and variant A has 4 instances; it must be 1 to 2, as a step is"
            " 1 to 50 per cent of them.",
            id="more instances than half",
        ),
        pytest.param(
            policy(CANARY, COUNT, 1),
            1,
            "CanarySize.Value is 1, and variant A has 1 instance; use CAPACITY_PERCENT",
            id="the only instance",
        ),
        pytest.param(policy(CANARY, COUNT, 1), 100, None, id="one of a hundred"),
        pytest.param(
            policy(LINEAR, PERCENT, 9),
            4,
            "LinearStepSize.Value is 9; it must be 10 to 50 per cent of the instances.",
            id="too small a step",
        ),
        pytest.param(
            policy(LINEAR, COUNT, 1),
            20,
            "LinearStepSize.Value is 1, and variant A has 20 instances; it must be 2 to 10",
            id="too few instances",
        ),
        pytest.param(policy(LINEAR, COUNT, 2), 20, None, id="a tenth"),
        pytest.param(policy(CANARY, COUNT, 9), 0, None, id="no instances"),
        pytest.param(policy(ROLLING, COUNT, 1), 1, None, id="a batch of the only instance"),
        pytest.param(policy(ROLLING, PERCENT, 5), 100, None, id="a batch of a twentieth"),
        pytest.param(
            policy(ROLLING, PERCENT, 4),
            4,
            "RollingUpdatePolicy.MaximumBatchSize.Value is 4; it must be 5 to 50 per cent of the"
            " instances.",
            id="too small a batch",
        ),
        pytest.param(
            policy(ROLLING, COUNT, 3),
            5,
            "RollingUpdatePolicy.MaximumBatchSize.Value is 3, and variant A has 5 instances; it"
            " must be 1 to 2, as a batch is 5 to 50 per cent of them.",
            id="a batch of more than half",
        ),
    ],
)
def test_size(traffic: TrafficPolicy, instances: int, message: str | None) -> None:
    if message is None:
        check_size(traffic, "A", instances)
        return
    with pytest.raises(ServiceError) as refused:
        check_size(traffic, "A", instances)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("traffic", "bake_s", "limit_s", "message"),
    [
        pytest.param(policy(LINEAR, COUNT, 1), 99.0, 1000.0, None, id="less than the limit"),
        pytest.param(policy(LINEAR, COUNT, 1), 3600.0, None, None, id="no limit"),
        pytest.param(
            policy(LINEAR, COUNT, 1),
            100.0,
            1000.0,
            "3 times WaitIntervalInSeconds 300 and TerminationWaitInSeconds 100 must be less than"
            " MaximumExecutionTimeoutInSeconds 1000.",
            id="as long as the limit",
        ),
        pytest.param(
            TrafficPolicy(),
            600.0,
            600.0,
            "TerminationWaitInSeconds 600 must be less than MaximumExecutionTimeoutInSeconds 600.",
            id="a trial as long as the limit",
        ),
    ],
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
