"""The book of activities stays within bounds."""

from tests.unit.reconcile.samples import NOW, SCOPE
from tests.unit.scaling.loop.scaling_town import RESOURCE

from hostelry.domain.scaling import ActivityStatus, Dimension, ScalingActivity
from hostelry.scaling.loop.activities import KEPT_S, MAX_KEPT, ActivityBook
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
