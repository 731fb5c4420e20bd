"""The book of activities stays within bounds, and tells which acts cooldowns count from."""

from dataclasses import replace

import pytest
from tests.unit.autoscaler.scaling_town import RESOURCE
from tests.unit.reconcile.samples import NOW, SCOPE

from hostelry.autoscaler.activities import KEPT_S, MAX_KEPT, ActivityBook
from hostelry.autoscaler.last_acts import last_acts, last_wake
from hostelry.domain.scaling import ActivityStatus, Dimension, ScalingActivity
from hostelry.scaling_policy.decision import LastAct
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state


def act(
    number: int,
    *,
    at: float = NOW,
    capacities: tuple[int, int] = (1, 2),
    status: ActivityStatus = ActivityStatus.SUCCESSFUL,
    by: str = "tracking",
) -> ScalingActivity:
    return ScalingActivity(
        scope=SCOPE,
        id=f"a-{number:04}",
        resource_id=RESOURCE,
        dimension=Dimension.COPIES,
        from_capacity=capacities[0],
        to_capacity=capacities[1],
        cause="a cause",
        description="a description",
        status=status,
        started_at=at,
        ended_at=None if status is ActivityStatus.IN_PROGRESS else at + 5,
        policy_name=by,
    )


def test_so_many_activities_of_a_target_are_kept_and_the_newest_of_them() -> None:
    state = open_state(MemoryStore())
    book = ActivityBook(state)
    under_way = act(0, status=ActivityStatus.IN_PROGRESS)
    book.write(under_way, NOW)
    for number in range(1, MAX_KEPT + 51):
        book.write(act(number, at=NOW + number), NOW + number)
    kept = {it.value.id for it in state.scaling_activities.list()}
    assert len(kept) == MAX_KEPT + 1
    assert under_way.id in kept, "what has not ended never goes"
    assert "a-0001" not in kept
    again = ActivityBook(state).of(SCOPE, RESOURCE, Dimension.COPIES)
    assert again[0].id == f"a-{MAX_KEPT + 50:04}"


def test_activities_go_after_six_weeks() -> None:
    # Source: DescribeScalingActivities in the Application Auto Scaling API reference.
    state = open_state(MemoryStore())
    book = ActivityBook(state)
    book.write(act(1), NOW)
    book.write(act(2, at=NOW + KEPT_S + 1), NOW + KEPT_S + 1)
    assert [it.value.id for it in state.scaling_activities.list()] == ["a-0002"]


def test_a_change_is_written_and_kept_in_its_place() -> None:
    state = open_state(MemoryStore())
    book = ActivityBook(state)
    first = book.write(act(1, status=ActivityStatus.IN_PROGRESS), NOW)
    book.write(act(2, at=NOW + 1), NOW + 1)
    book.change(first, status=ActivityStatus.OVERRIDDEN)
    stored = state.scaling_activities.get(SCOPE, first.id)
    assert stored is not None
    assert stored.value.status is ActivityStatus.OVERRIDDEN
    assert [it.id for it in book.of(SCOPE, RESOURCE, Dimension.COPIES)] == ["a-0002", "a-0001"]


@pytest.mark.parametrize(
    ("activities", "expected"),
    [
        pytest.param([], None, id="none where nothing was done"),
        pytest.param(
            [act(1)], LastAct(at=NOW + 5, since_capacity=1, capacity=2), id="counted from success"
        ),
        pytest.param(
            [act(1, status=ActivityStatus.IN_PROGRESS)],
            LastAct(at=NOW + 60, since_capacity=1, capacity=2),
            id="one under way counts as done now",
        ),
        pytest.param([act(1, by="")], None, id="bounds begin no cooldown"),
        pytest.param([act(1, status=ActivityStatus.FAILED)], None, id="what failed was none"),
        pytest.param(
            [
                act(3, at=NOW + 20, capacities=(4, 8)),
                act(2, at=NOW + 10, capacities=(2, 4), status=ActivityStatus.OVERRIDDEN),
                act(1, capacities=(1, 2), status=ActivityStatus.OVERRIDDEN),
            ],
            LastAct(at=NOW + 25, since_capacity=1, capacity=8),
            id="from before all that it replaced while they came up",
        ),
        pytest.param(
            [act(2, at=NOW + 20, capacities=(2, 4)), act(1)],
            LastAct(at=NOW + 25, since_capacity=2, capacity=4),
            id="not from before what had ended",
        ),
    ],
)
def test_the_last_scale_out(activities: list[ScalingActivity], expected: LastAct | None) -> None:
    # Source: "Target tracking scaling policies" (Cooldown period).
    found = last_acts(activities, NOW + 60)
    assert found.scale_out == expected
    assert found.scale_in is None


def test_the_last_wake_is_told_apart() -> None:
    acts = [act(2, at=NOW + 20), act(1, by="wake", capacities=(0, 1))]
    assert last_wake(acts, NOW + 60) == LastAct(at=NOW + 5, since_capacity=0, capacity=1)
    assert last_wake([replace(acts[1], policy_name="tracking")], NOW) is None
