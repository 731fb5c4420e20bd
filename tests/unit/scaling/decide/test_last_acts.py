"""The acts that cooldowns count from."""

from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.scaling import ActivityStatus, Dimension, ScalingActivity
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decision import LastAct, find_last_acts, find_last_wake

NOW = 1_000_000.0


def act(
    number: int,
    *,
    at: float = NOW,
    capacities: tuple[int, int] = (1, 2),
    status: ActivityStatus = ActivityStatus.SUCCESSFUL,
    by: str = "tracking",
) -> ScalingActivity:
    return ScalingActivity(
        scope=Scope("111122223333", "us-west-2"),
        id=f"a-{number:04}",
        resource_id="inference-component/base",
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


@cases(
    "activities, expected",
    case("none where nothing was done", [], None),
    case("counted from success", [act(1)], LastAct(at=NOW + 5, since_capacity=1, capacity=2)),
    case(
        "one under way counts as done now",
        [act(1, status=ActivityStatus.IN_PROGRESS)],
        LastAct(at=NOW + 60, since_capacity=1, capacity=2),
    ),
    case("bounds begin no cooldown", [act(1, by="")], None),
    case("what failed was none", [act(1, status=ActivityStatus.FAILED)], None),
    case(
        "from before all that it replaced while they came up",
        [
            act(3, at=NOW + 20, capacities=(4, 8)),
            act(2, at=NOW + 10, capacities=(2, 4), status=ActivityStatus.OVERRIDDEN),
            act(1, capacities=(1, 2), status=ActivityStatus.OVERRIDDEN),
        ],
        LastAct(at=NOW + 25, since_capacity=1, capacity=8),
    ),
    case(
        "not from before what had ended",
        [act(2, at=NOW + 20, capacities=(2, 4)), act(1)],
        LastAct(at=NOW + 25, since_capacity=2, capacity=4),
    ),
)
def test_the_last_scale_out(activities: list[ScalingActivity], expected: LastAct | None) -> None:
    # Source: "Target tracking scaling policies" (Cooldown period).
    found = find_last_acts(activities, NOW + 60)
    assert found.scale_out == expected
    assert found.scale_in is None


def test_the_last_wake_is_known_by_its_name() -> None:
    acts = [act(2, at=NOW + 20), act(1, by="wake", capacities=(0, 1))]
    assert find_last_wake(acts, NOW + 60) == LastAct(at=NOW + 5, since_capacity=0, capacity=1)
    assert find_last_wake([replace(acts[1], policy_name="tracking")], NOW) is None
