"""Control killed between any two writes of a decision: the next one continues, and acts once."""

import contextlib

import pytest
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, SCOPE
from tests.unit.scaling.loop.scaling_town import ScalingTown

from hostelry.domain.scaling import ActivityStatus
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, Record, StoreUnavailable


class Killed(BaseException):
    """The process ends here: nothing catches it."""


class DyingStore(MemoryStore):
    """A store that ends its process at the write that `left` counts down to."""

    left: int | None = None
    fault: Exception | None = None

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        if self.fault is not None:
            raise self.fault
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed
        return super().put(key, body, expect=expect)


@pytest.mark.parametrize("writes", range(4))
def test_a_kill_after_so_many_writes_of_a_decision_loses_and_doubles_nothing(writes: int) -> None:
    store = DyingStore()
    town = ScalingTown(store, copies=1)
    policy = town.track()
    town.alarm(policy, 5.0)  # so that the alarm is in ALARM before the writes are counted
    store.left = writes + 1
    with contextlib.suppress(Killed):
        town.alarm(policy, 12.0)
    store.left = None
    town.start()
    town.scaler.recover()
    town.alarm(policy, 12.0)  # an alarm that lasts triggers again
    town.serve(town.desired)
    town.pass_time(1)
    assert town.desired == 3
    done = [it for it in town.activities if not it.not_scaled]
    assert [(it.status, it.from_capacity, it.to_capacity) for it in done] == [
        (ActivityStatus.SUCCESSFUL, 1, 3)
    ]


def pending(town: ScalingTown, store: DyingStore) -> None:
    """Leaves a decision 1 -> 3 of which only the activity is written."""
    policy = town.track()
    town.alarm(policy, 5.0)
    store.left = 2
    with pytest.raises(Killed):
        town.alarm(policy, 12.0)
    store.left = None
    assert town.desired == 1


@cases(
    "meanwhile, desired, status",
    case("is finished", {}, 3, ActivityStatus.IN_PROGRESS),
    case("another number was set", {"copies": 2}, 2, ActivityStatus.OVERRIDDEN),
    case("it is an hour old", {"late_s": 3600.0}, 1, ActivityStatus.OVERRIDDEN),
    case("the bounds are others", {"maximum": 2}, 1, ActivityStatus.OVERRIDDEN),
    case("the component is gone", {"gone": True}, None, ActivityStatus.FAILED),
)
def test_a_decision_that_was_not_carried_out(
    meanwhile: dict[str, float], desired: int | None, status: ActivityStatus
) -> None:
    store = DyingStore()
    town = ScalingTown(store, copies=1)
    pending(town, store)
    if "copies" in meanwhile:
        town.change(desired_copies=int(meanwhile["copies"]))
    if "maximum" in meanwhile:
        town.register(high=int(meanwhile["maximum"]))
    town.clock.advance(meanwhile.get("late_s", 0.0))
    if meanwhile.get("gone"):
        found = town.state.components.get(SCOPE, "base")
        assert found is not None
        town.state.components.delete(SCOPE, "base", expect=found.version)
    town.start()
    town.scaler.recover()
    (act,) = [it for it in town.activities if it.to_capacity == 3]
    assert act.status is status
    if desired is not None:
        assert town.desired == desired


def test_a_store_that_takes_nothing_leaves_everything_as_it_was() -> None:
    store = DyingStore()
    town = ScalingTown(store, copies=1)
    policy = town.track()
    town.alarm(policy, 5.0)
    store.fault = StoreUnavailable("the disk is full")
    with pytest.raises(StoreUnavailable):
        town.scaler.trigger(town.triggered(policy, policy.alarm_names[0], [12.0]))
    store.fault = None
    assert town.desired == 1
    town.alarm(policy, 12.0)
    assert town.desired == 3
    assert town.activities[0].started_at == NOW


def test_a_decision_that_the_store_took_half_of_is_finished_a_second_later() -> None:
    store = DyingStore()
    town = ScalingTown(store, copies=1)
    policy = town.track()
    town.alarm(policy, 5.0)
    store.left = 2  # the alarm and the activity, but not the number
    with pytest.raises(Killed):
        town.alarm(policy, 12.0)
    store.left = None
    town.pass_time(1)  # the same process continues, as it does after a full disk
    assert town.desired == 3
    assert town.activities[0].status is ActivityStatus.IN_PROGRESS
