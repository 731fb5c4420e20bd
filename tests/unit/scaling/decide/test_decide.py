"""The plan for each request: every row of the tables of `decide` and `look_back_s`."""

from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.alarm import AlarmState
from hostelry.domain.load import LoadKey, SecondLoad, Wake
from hostelry.domain.metric import Datapoint
from hostelry.domain.scaling import (
    Dimension,
    ScalableTarget,
    ScalingPolicy,
    Suspended,
    TargetTracking,
)
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.decide import PlannedAction, TargetSnapshot, decide, get_look_back_s
from hostelry.scaling.decide.decision import (
    BoundsCheck,
    Decision,
    LastAct,
    Proposal,
    Request,
    Resource,
    Trigger,
)
from hostelry.scaling.decide.tracking_alarms import AlarmSide, build_alarm_name

NOW = 1_000_000.0
SCOPE = Scope("111122223333", "us-west-2")
ID = "inference-component/base"
KEY = LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="v", component_name="base")
TARGET = ScalableTarget(
    scope=SCOPE, resource_id=ID, dimension=Dimension.COPIES, arn="arn:target",
    min_capacity=1, max_capacity=10, role_arn="", created_at=0.0,
)  # fmt: skip
THERE = Resource(
    keys=(KEY,), desired=4, serving=4, status="InService",
    is_settled=True, may_grow=True, is_ending=False,
)  # fmt: skip
UPDATING = replace(THERE, status="Updating", is_settled=False, may_grow=False)
METRIC = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
POLICY = ScalingPolicy(
    scope=SCOPE, name="tracking", arn="arn:policy", resource_id=ID, dimension=Dimension.COPIES,
    created_at=0.0, tracking=TargetTracking(
        target_value=5.0, scale_out_cooldown_s=60.0, scale_in_cooldown_s=60.0, predefined=METRIC
    ),
)  # fmt: skip
KNOWN = TargetSnapshot(target=TARGET, resource=THERE, policies=(POLICY,))


def triggered(value: float, side: AlarmSide = AlarmSide.HIGH) -> Trigger:
    return Trigger(
        scope=SCOPE, policy_arn="arn:policy", alarm_name=build_alarm_name(ID, side, "u"),
        state=AlarmState.ALARM, threshold=5.0, values=(Datapoint(NOW - 10, value),), at=NOW,
    )  # fmt: skip


def proposed(desired: int, *, may_lower: bool = False) -> Proposal:
    return Proposal(
        scope=SCOPE, resource_id=ID, dimension=Dimension.COPIES, by="responsive",
        decision=Decision(desired=desired, reason="rose."), load_rose_at=NOW - 3, at=NOW,
        may_lower=may_lower,
    )  # fmt: skip


HIGH, LOW = triggered(10.0), triggered(1.0, AlarmSide.LOW)
WAKE = Wake(key=KEY, held=1, at=NOW)
EMPTY = replace(THERE, desired=0, serving=0)
FAILING = (SecondLoad(key=KEY, second=int(NOW) - 2, finished=10, errors_5xx=5),)


@cases(
    "changes, request_, action, desired",
    case("an alarm that is high", {}, HIGH, PlannedAction.SET, 8),
    case("an alarm that is low", {}, LOW, PlannedAction.SET, 1),
    case("no resource", {"resource": None}, HIGH, PlannedAction.GONE, None),
    case("a resource that ends", {"resource": replace(THERE, is_ending=True)}, BoundsCheck(),
        PlannedAction.GONE, None),
    case("a resource that takes no number now", {"resource": UPDATING}, HIGH,
        PlannedAction.POSTPONE, 8),
    case("at the maximum", {"target": replace(TARGET, max_capacity=4)}, HIGH, PlannedAction.REFUSE,
        4),
    case("at the target", {}, triggered(5.0), PlannedAction.NOTHING, 4),
    case("no lower than what was proposed a short time ago", {"proposal": proposed(3)}, LOW,
        PlannedAction.SET, 3),
    case("a load that fails", {"seconds": FAILING}, LOW, PlannedAction.NOTHING, 4),
    case("a copy that died", {"num_crashed": 1}, LOW, PlannedAction.NOTHING, 4),
    case("an update whose traffic shifted a moment ago", {"had_two_fleets": True}, LOW,
        PlannedAction.NOTHING, 4),
    case("such an update, and an alarm that is high", {"had_two_fleets": True}, HIGH,
        PlannedAction.SET, 8),
    case("an update whose traffic shifts", {"had_two_fleets": True, "resource": UPDATING}, LOW,
        PlannedAction.POSTPONE, 1),
    case("suspended", {"target": replace(TARGET, suspended=Suspended(scale_out=True))}, HIGH,
        PlannedAction.NOTHING, 4),
    case("woken a short time ago", {"target": replace(TARGET, min_capacity=0),
         "woken": LastAct(at=NOW - 30, since_capacity=0, capacity=4)},
        triggered(0.0, AlarmSide.LOW), PlannedAction.NOTHING, 4),
    case("a proposal, in the bounds", {}, proposed(40), PlannedAction.SET, 10),
    case("a proposal is a floor", {}, proposed(2), PlannedAction.NOTHING, 4),
    case("target tracking scales in, a proposal does not", {}, proposed(2, may_lower=True),
        PlannedAction.NOTHING, 4),
    case("a proposal that may lower", {"policies": ()}, proposed(2, may_lower=True),
        PlannedAction.SET, 2),
    case("a wake", {"resource": EMPTY}, WAKE, PlannedAction.SET, 1),
    case("a wake of what is off on purpose",
        {"resource": EMPTY, "target": replace(TARGET, min_capacity=0, max_capacity=0)}, WAKE,
        PlannedAction.NOTHING, None),
    case("above the bounds", {"target": replace(TARGET, max_capacity=3)}, BoundsCheck(),
        PlannedAction.SET, 3),
    case("within the bounds", {}, BoundsCheck(), PlannedAction.NOTHING, None),
)  # fmt: skip
def test_the_plan(
    changes: dict[str, Any], request_: Request, action: PlannedAction, desired: int | None
) -> None:
    plan = decide(replace(KNOWN, **changes), request_, NOW)
    assert plan.action is action
    assert (None if plan.decision is None else plan.decision.desired) == desired


@cases(
    "changes, request_, span_s",
    case("a wake", {"resource": EMPTY}, WAKE, 600),
    case("a trigger that raises", {}, HIGH, 600),
    case("a trigger that lowers", {}, LOW, 60),
    case("a lower proposal", {"policies": ()}, proposed(2, may_lower=True), 60),
    case("a trigger that changes nothing", {}, triggered(5.0), 0),
    case("a proposal that raises", {}, proposed(9), 0),
    case("no resource", {"resource": None}, HIGH, 0),
    case("bounds", {"target": replace(TARGET, max_capacity=3)}, BoundsCheck(), 0),
)
def test_the_load_that_a_decision_needs(
    changes: dict[str, Any], request_: Request, span_s: int
) -> None:
    assert get_look_back_s(replace(KNOWN, **changes), request_, NOW) == span_s


def test_the_cause_names_what_decided() -> None:
    by_alarm = decide(KNOWN, HIGH, NOW).cause
    name = build_alarm_name(ID, AlarmSide.HIGH, "u")
    assert by_alarm.text == f"monitor alarm {name} in state ALARM triggered policy tracking"
    assert (by_alarm.by, by_alarm.load_rose_at) == ("tracking", NOW - 10)
    kept = decide(replace(KNOWN, proposal=proposed(9)), HIGH, NOW).cause
    assert kept.by == "responsive", "the larger number decides"
    woken = decide(replace(KNOWN, resource=EMPTY), WAKE, NOW).cause
    assert woken.text == "1 request waited for a copy of inference component base"
