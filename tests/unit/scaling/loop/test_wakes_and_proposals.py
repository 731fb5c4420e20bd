"""Wakes and proposals of the responsive policy, as the scaler handles them."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, SCOPE, adapter
from tests.unit.scaling.loop.scaling_town import KEY, RESOURCE, ScalingTown

from hostelry.domain.load import Wake
from hostelry.domain.scaling import Dimension
from hostelry.scaling.decide.decision import Decision, Proposal
from hostelry.scaling.decide.tracking_alarms import AlarmSide


def test_a_wake_gives_the_first_copy_at_once_and_a_second_wake_none() -> None:
    town = ScalingTown(copies=0)
    town.register(low=0)
    wake = Wake(key=KEY, held=1, at=NOW - 0.1)
    town.scaler.wake(wake)
    town.scaler.wake(replace(wake, held=2))
    assert town.desired == 1
    (act,) = town.activities
    assert act.policy_name == "wake"
    assert act.receipt is not None
    assert act.receipt.load_rose_at == NOW - 0.1


def test_a_wake_of_an_adapter_is_one_of_its_base() -> None:
    town = ScalingTown(copies=0)
    town.register(low=0)
    town.state.components.put(SCOPE, "spanish", adapter(), expect=None)
    town.scaler.wake(Wake(key=replace(KEY, component_name="spanish"), held=1, at=NOW))
    assert town.desired == 1


@cases(
    "bounds",
    case("no copy is allowed", {"low": 0, "high": 0}),
    case("scaling out is suspended", {"low": 0, "scale_out": True}),
)
def test_a_wake_does_nothing_where(bounds: dict[str, int]) -> None:
    town = ScalingTown(copies=0)
    town.register(**bounds)  # type: ignore[arg-type] # bounds and suspensions, by name
    town.scaler.wake(Wake(key=KEY, held=1, at=NOW))
    assert town.desired == 0
    assert town.activities == []


def test_what_was_woken_is_not_sent_back_to_zero_at_once() -> None:
    town = ScalingTown(copies=0)
    town.register(low=0)
    policy = town.track()
    town.scaler.wake(Wake(key=KEY, held=1, at=NOW))
    town.serve(1)
    town.pass_time(1)
    town.alarm(policy, 0.0, side=AlarmSide.LOW)
    assert town.desired == 1
    town.pass_time(200)
    town.alarm(policy, 0.0, side=AlarmSide.LOW)
    assert town.desired == 0


def proposal(desired: int, at: float = NOW, *, may_lower: bool = False) -> Proposal:
    return Proposal(
        scope=SCOPE,
        resource_id=RESOURCE,
        dimension=Dimension.COPIES,
        by="responsive",
        decision=Decision(desired=desired, reason="arrivals rose to 8/s.", signal={"rate": 8.0}),
        load_rose_at=NOW - 2.5,
        at=at,
        may_lower=may_lower,
    )


def test_a_proposal_raises_within_bounds_and_never_lowers() -> None:
    town = ScalingTown(copies=2)
    town.track()
    town.scaler.propose(proposal(1))
    assert town.desired == 2
    assert town.activities == []
    town.scaler.propose(proposal(40))
    assert town.desired == 10
    assert town.activities[0].cause == "responsive: arrivals rose to 8/s."
    assert town.activities[0].receipt is not None
    assert town.activities[0].receipt.load_rose_at == NOW - 2.5


def test_a_proposal_lowers_where_no_target_tracking_policy_sees_to_that() -> None:
    town = ScalingTown(copies=4)
    town.loads.add(town.now - 2, finished=10, errors_5xx=5)
    town.scaler.propose(proposal(2, may_lower=True))
    assert town.desired == 4, "the guard holds for proposals too"
    town.loads.seconds.clear()
    town.scaler.propose(proposal(2))
    assert town.desired == 4, "it says what is needed at least"
    town.scaler.propose(proposal(2, may_lower=True))
    assert town.desired == 2


def test_a_proposal_keeps_capacity_up_for_as_long_as_it_is_made() -> None:
    town = ScalingTown(copies=6)
    policy = town.track()
    town.scaler.propose(proposal(4))
    town.alarm(policy, 0.5, side=AlarmSide.LOW)
    assert town.desired == 4
    town.serve(4)
    town.pass_time(1)
    town.pass_time(300)
    town.alarm(policy, 0.5, side=AlarmSide.LOW)
    assert town.desired == 1
