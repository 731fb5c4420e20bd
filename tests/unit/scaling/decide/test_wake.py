"""Waking a name without copies: which, to how many, and for how long it stays awake."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.domain.at_zero import Wakeable
from hostelry.domain.scaling import Dimension, ScalableTarget, Suspended
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decision import Capacity, LastAct
from hostelry.scaling.decide.wake import MAX_FIRST, Waiting, decide, explain_awake, wakeable

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


@cases(
    "waiting, capacity, expected",
    case("one request starts one copy", Waiting(held=1), room(), 1),
    case("a hundred of unknown length start one", Waiting(held=100), room(), 1),
    case("a hundred short ones too", Waiting(held=100, service_s=0.05), room(), 1),
    case("30 s of work one by one in 10 s are three", Waiting(held=10, service_s=3.0), room(), 3),
    case("a copy that does five at once is enough for them",
        Waiting(held=10, service_s=3.0, at_once=5.0), room(), 1),
    case("a burst starts no more than four", Waiting(held=100, service_s=3.0, at_once=5.0), room(),
        MAX_FIRST),
    case("nor over the max", Waiting(held=100, service_s=30.0), room(maximum=2), 2),
    case("nor less than the min", Waiting(held=1), room(minimum=3), 3),
    case("MaxCapacity 0 starts nothing", Waiting(held=1), room(maximum=0), 0),
    case("nothing waits", Waiting(held=0), room(), 0),
    case("a copy on its way is enough", Waiting(held=9), room(desired=1), 1),
    case("but more are started where more is known to wait", Waiting(held=30, service_s=2.0),
        room(desired=1), MAX_FIRST),
    case("a wake never lowers", Waiting(held=1), room(desired=7), 7),
    case("NaN is not known", Waiting(held=9, service_s=math.nan), room(), 1),
    case("nor is infinity", Waiting(held=9, service_s=math.inf), room(), 1),
    case("side by side by NaN is one by one", Waiting(held=10, service_s=3.0, at_once=math.nan),
        room(), 3),
    case("or by none", Waiting(held=10, service_s=3.0, at_once=0.0), room(), 3),
    case("numbers at the end of what a float holds",
        Waiting(held=99, service_s=1e307, at_once=1.7e308), room(), 1),
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


@cases(
    "wanted, woken, pace, now, kept",
    case("not to zero within the cooldown", 0, WOKEN, 1.0, NOW + 299.0, True),
    case("after it as the alarms say", 0, WOKEN, 1.0, NOW + 301.0, False),
    case("fewer, but not none, is not its matter", 1, WOKEN, 1.0, NOW + 1.0, False),
    case("nothing was woken", 0, None, 1.0, NOW, False),
    case("pace divides the cooldown", 0, WOKEN, 60.0, NOW + 6.0, False),
    case("a clock set back an hour", 0, WOKEN, 1.0, NOW - 3600.0, False),
    case("or one set on an hour", 0, WOKEN, 1.0, NOW + 3600.0, False),
)  # fmt: skip
def test_a_wake_is_not_undone_at_once(
    wanted: int, woken: LastAct | None, pace: float, now: float, kept: bool
) -> None:
    assert (explain_awake(wanted, woken, 300.0, pace, now) is not None) is kept
