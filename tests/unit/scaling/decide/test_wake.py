"""Waking a name without copies: which, to how many, and for how long it stays awake."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostelry.domain.at_zero import Wakeable
from hostelry.domain.scaling import Dimension, ScalableTarget, Suspended
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decision import Capacity, LastAct
from hostelry.scaling.decide.wake import MAX_FIRST, Waiting, decide, keeps_awake, wakeable

NOW = 1_700_000_000.0


def target(minimum: int = 0, maximum: int = 4, **suspended: bool) -> ScalableTarget:
    return ScalableTarget(
        scope=Scope("111122223333", "us-west-2"),
        resource_id="inference-component/llm",
        dimension=Dimension.COPIES,
        arn="arn",
        min_capacity=minimum,
        max_capacity=maximum,
        role_arn="role",
        created_at=NOW,
        suspended=Suspended(**suspended),
    )


@pytest.mark.parametrize(
    ("registered", "expected"),
    [
        pytest.param(None, Wakeable.NO_TARGET, id="zero by hand with nothing registered stays off"),
        pytest.param(target(), Wakeable.YES, id="a target that allows a copy wakes"),
        pytest.param(target(0, 1), Wakeable.YES, id="also one that allows just one"),
        # Source: the scale-to-zero example of scheduled actions sets Min = Max = 0.
        pytest.param(target(0, 0), Wakeable.MAX_ZERO, id="off by schedule stays off"),
        pytest.param(target(scale_out=True), Wakeable.SUSPENDED, id="scaling out is suspended"),
        pytest.param(target(scale_in=True, scheduled=True), Wakeable.YES,
                     id="other suspensions do not matter"),
    ],
)  # fmt: skip
def test_who_may_be_woken(registered: ScalableTarget | None, expected: Wakeable) -> None:
    assert wakeable(registered) is expected


def room(desired: int = 0, minimum: int = 0, maximum: int = 10) -> Capacity:
    return Capacity(desired=desired, serving=0, minimum=minimum, maximum=maximum)


@pytest.mark.parametrize(
    ("waiting", "capacity", "expected"),
    [
        pytest.param(Waiting(held=1), room(), 1, id="one request starts one copy"),
        pytest.param(Waiting(held=100), room(), 1, id="a hundred of unknown length start one"),
        pytest.param(Waiting(held=100, service_s=0.05), room(), 1, id="a hundred short ones too"),
        pytest.param(Waiting(held=10, service_s=3.0), room(), 3,
                     id="30 s of work one by one in 10 s are three"),
        pytest.param(Waiting(held=10, service_s=3.0, at_once=5.0), room(), 1,
                     id="a copy that does five at once is enough for them"),
        pytest.param(Waiting(held=100, service_s=3.0, at_once=5.0), room(), MAX_FIRST,
                     id="a burst starts no more than four"),
        pytest.param(Waiting(held=100, service_s=30.0), room(maximum=2), 2, id="nor over the max"),
        pytest.param(Waiting(held=1), room(minimum=3), 3, id="nor less than the min"),
        pytest.param(Waiting(held=1), room(maximum=0), 0, id="MaxCapacity 0 starts nothing"),
        pytest.param(Waiting(held=0), room(), 0, id="nothing waits"),
        pytest.param(Waiting(held=9), room(desired=1), 1, id="a copy on its way is enough"),
        pytest.param(Waiting(held=30, service_s=2.0), room(desired=1), MAX_FIRST,
                     id="but more are started where more is known to wait"),
        pytest.param(Waiting(held=1), room(desired=7), 7, id="a wake never lowers"),
        pytest.param(Waiting(held=9, service_s=math.nan), room(), 1, id="NaN is not known"),
        pytest.param(Waiting(held=9, service_s=math.inf), room(), 1, id="nor is infinity"),
        pytest.param(Waiting(held=10, service_s=3.0, at_once=math.nan), room(), 3,
                     id="side by side by NaN is one by one"),
        pytest.param(Waiting(held=10, service_s=3.0, at_once=0.0), room(), 3, id="or by none"),
        pytest.param(Waiting(held=99, service_s=1e307, at_once=1.7e308), room(), 1,
                     id="numbers at the end of what a float holds"),
    ],
)  # fmt: skip
def test_how_many_are_started(waiting: Waiting, capacity: Capacity, expected: int) -> None:
    assert decide(waiting, capacity).desired == expected


@given(
    held=st.integers(0, 10**9),
    service_s=st.none() | st.floats(),
    at_once=st.floats(),
    desired=st.integers(0, 50),
    maximum=st.integers(0, 50),
)
def test_any_wake_raises_within_the_bounds_or_changes_nothing(
    held: int, service_s: float | None, at_once: float, desired: int, maximum: int
) -> None:
    capacity = room(desired, 0, maximum)
    waiting = Waiting(held=held, service_s=service_s, at_once=at_once)
    decision = decide(waiting, capacity)
    assert decision.desired >= desired
    assert decision.desired == desired or decision.desired <= min(maximum, MAX_FIRST)
    again = decide(waiting, room(decision.desired, 0, maximum))
    assert again.desired == decision.desired
    assert decision.reason
    assert all(math.isfinite(value) for value in decision.signal.values())


WOKEN = LastAct(at=NOW, since_capacity=0, capacity=1)


@pytest.mark.parametrize(
    ("wanted", "woken", "pace", "now", "kept"),
    [
        pytest.param(0, WOKEN, 1.0, NOW + 299.0, True, id="not to zero within the cooldown"),
        pytest.param(0, WOKEN, 1.0, NOW + 301.0, False, id="after it as the alarms say"),
        pytest.param(1, WOKEN, 1.0, NOW + 1.0, False, id="fewer, but not none, is not its matter"),
        pytest.param(0, None, 1.0, NOW, False, id="nothing was woken"),
        pytest.param(0, WOKEN, 60.0, NOW + 6.0, False, id="pace divides the cooldown"),
        pytest.param(0, WOKEN, 1.0, NOW - 3600.0, False, id="a clock set back an hour"),
        pytest.param(0, WOKEN, 1.0, NOW + 3600.0, False, id="or one set on an hour"),
    ],
)  # fmt: skip
def test_a_wake_is_not_undone_at_once(
    wanted: int, woken: LastAct | None, pace: float, now: float, kept: bool
) -> None:
    assert (keeps_awake(wanted, woken, 300.0, pace, now) is not None) is kept
