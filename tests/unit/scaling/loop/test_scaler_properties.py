"""For events in any order, with kills in between, capacity is within bounds and each act ends."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.reconcile.samples import NOW, SCOPE
from tests.unit.scaling.loop.scaling_town import KEY, NAME, RESOURCE, ScalingTown
from tests.unit.scaling.loop.test_kill_between_writes import DyingStore, Killed

from hostelry.domain.component import ComponentStatus
from hostelry.domain.load import Wake
from hostelry.domain.scaling import Dimension
from hostelry.scaling.decide.decision import UNDER_WAY, Decision, Proposal
from hostelry.scaling.decide.tracking_alarms import AlarmSide

MAX_WRITES = 6
VALUES = st.sampled_from([0.0, 0.3, 4.9, 5.0, 5.1, 23.0, 1e9, float("nan"), float("inf")])
STEPS = st.one_of(
    st.tuples(st.just("high"), VALUES),
    st.tuples(st.just("low"), VALUES),
    st.tuples(st.just("propose"), st.integers(0, 99)),
    st.tuples(st.just("wake"), st.integers(1, 200)),
    st.tuples(st.just("bounds"), st.integers(0, 12)),
    st.tuples(st.just("serve"), st.integers(0, 12)),
    st.tuples(st.just("by hand"), st.integers(0, 12)),
    st.tuples(st.just("clock"), st.sampled_from([-3600.0, 3600.0])),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 10.0, 200.0])),
    st.tuples(st.just("kill after"), st.integers(0, MAX_WRITES)),
    st.tuples(st.just("updating"), st.just(0)),
)


def play(town: ScalingTown, step: str, value: float) -> None:
    policy = town.state.scaling_policies.list(SCOPE)[0].value
    if step in ("high", "low"):
        town.alarm(policy, value, side=AlarmSide.HIGH if step == "high" else AlarmSide.LOW)
    elif step == "propose":
        decision = Decision(desired=int(value), reason="it rose")
        town.scaler.propose(
            Proposal(
                scope=SCOPE,
                resource_id=RESOURCE,
                dimension=Dimension.COPIES,
                by="responsive",
                decision=decision,
                load_rose_at=None,
                at=town.now,
            )
        )
    elif step == "wake":
        town.scaler.wake(Wake(key=KEY, held=int(value), at=NOW))
    elif step == "bounds":
        town.register(int(value) // 2, int(value))
        town.scaler.settle(SCOPE, NAME)
    elif step == "serve":
        town.serve(min(int(value), town.desired), previous_spec=None)
    elif step == "by hand":
        town.change(desired_copies=int(value))
    elif step == "clock":
        town.clock.advance(value)
    elif step == "updating":
        town.change(status=ComponentStatus.UPDATING, previous_spec=town.base.spec)
    else:
        town.pass_time(value)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_any_life_of_a_target_ends_within_bounds_with_every_act_ended(
    steps: list[tuple[str, float]],
) -> None:
    store = DyingStore()
    town = ScalingTown(store, copies=1)
    town.track()
    for step, value in steps:
        if step == "kill after":
            store.left = int(value)
            continue
        with contextlib.suppress(Killed):
            play(town, step, value)
            continue
        store.left = None
        town.start()
        town.scaler.recover()
    store.left = None
    town.serve(town.desired, previous_spec=None)
    town.scaler.recover()
    for _ in range(3):
        town.pass_time(1)
        town.serve(town.desired, previous_spec=None)
    target = town.state.scalable_targets.list(SCOPE)[0].value
    assert target.min_capacity <= town.desired <= target.max_capacity
    assert [it for it in town.activities if it.status in UNDER_WAY] == []
    for activity in town.activities:
        assert activity.ended_at is not None
        assert activity.not_scaled or activity.cause
