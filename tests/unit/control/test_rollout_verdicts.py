"""Control's verdicts on updates: each second counts once, for its fleet and its step."""

import asyncio

from msgspec.structs import replace
from tests.unit.reconcile.samples import NOW, SCOPE, deployment, endpoint, variant

from hostelry.base.clock import ManualClock
from hostelry.comparison.fleet_verdict import StepVerdict
from hostelry.comparison.verdict import VersionOutcome
from hostelry.control.rollout_verdicts import FORGET_S, RolloutVerdicts
from hostelry.domain.endpoint import Bake, Endpoint, EndpointStatus, Shift, UpdateGuard
from hostelry.domain.load import ConfigLoad, Distribution, LoadKey, LoadReport, SecondLoad
from hostelry.domain.traffic import Allowance
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.reconcile.plan.endpoint_state import GroupKey
from hostelry.reconcile.plan.guards import find_watched_update

ALLOWANCE = Allowance(errors=0.05, latency=1.0)
OLD = deployment(variant(model="m"))
KEY = LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="AllTraffic")


class Rig:
    """An endpoint's update, and a worker that reports the load of its fleets."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        new = deployment(variant(model="m2"), generation=2)
        guard = UpdateGuard(allowance=ALLOWANCE, bake_s=600.0)
        self.new = replace(new, guard=guard, started_at=NOW)
        self.endpoint = replace(endpoint(OLD, status=EndpointStatus.UPDATING), pending=self.new)
        self.sequence = 0
        self.restart()

    def restart(self) -> None:
        self.aggregator = LoadAggregator(self.clock.now() - 100)
        self.verdicts = RolloutVerdicts(self.aggregator, self.clock)

    def become(self, **changes: object) -> Endpoint:
        self.endpoint = replace(self.endpoint, **changes)  # fields by name
        return self.endpoint

    def step(self, number: int) -> None:
        self.become(shift=Shift(step=number, since=self.clock.now()))

    def bake(self) -> None:
        trial = Bake(before=OLD, since=self.clock.now())
        self.become(active=self.new, pending=None, shift=None, bake=trial)

    def seconds(self, count: int, old: int = 0, new: int = 0, errors: int = 0) -> None:
        """Report seconds with these numbers of requests to each fleet."""
        for _ in range(count):
            at = int(self.clock.now())
            self.clock.advance(1)
            self.sequence += 1
            by_config = {
                name: ConfigLoad(
                    finished=num,
                    errors_5xx=failed,
                    model_latency_us=Distribution(values=(1000.0,), counts=(num,)),
                )
                for name, num, failed in (("config-1", old, 0), ("config-2", new, errors))
                if num
            }
            load = SecondLoad(key=KEY, second=at, finished=old + new, by_config=by_config)
            report = LoadReport(
                worker="w",
                started_at=1.0,
                sequence=self.sequence,
                seconds=(load,),
                first=at,
                through=at,
            )
            self.aggregator.take(report, self.clock.now())

    def verdict(self) -> StepVerdict:
        update = find_watched_update(self.endpoint)
        assert update is not None
        return self.verdicts.decide(update)

    def decided(self) -> list[GroupKey]:
        found: list[GroupKey] = []
        asyncio.run(self.verdicts.report_decided(found.append))
        return found


def test_a_broken_fleet_is_worse_within_seconds_of_its_first_requests() -> None:
    rig = Rig()
    rig.seconds(5, old=100)
    assert rig.verdict().text == "undecided after 0 requests, none of the old fleet was counted"
    rig.step(1)
    assert rig.verdict().outcome is VersionOutcome.UNDECIDED
    rig.seconds(3, old=90, new=10, errors=10)
    assert rig.decided() == [GroupKey(SCOPE, "ep")]
    found = rig.verdict()
    assert found.outcome is VersionOutcome.WORSE
    assert "errors 100 % (from " in (found.failure or "")
    assert "of 30 requests" in (found.failure or "")


def test_each_step_is_decided_by_its_own_requests_and_the_trial_by_the_old_ones_before() -> None:
    rig = Rig()
    rig.verdict()
    rig.seconds(2, old=100)
    rig.step(1)
    rig.verdict()
    rig.seconds(60, old=90, new=10)
    assert rig.verdict().text.startswith("no worse after 600 requests")
    rig.step(2)
    rig.seconds(2, old=50, new=50)  # before it is asked about
    assert rig.verdict().text.startswith("undecided after 100 requests")
    assert rig.decided() == []
    rig.bake()
    assert rig.verdict().text == "undecided after 0 requests, errors 0 % against 0 %"
    rig.seconds(20, new=100)
    assert rig.verdict().text.startswith("no worse after 2000 requests")
    assert rig.verdicts.describe(rig.endpoint) == rig.verdict().text


def test_without_its_evidence_control_cannot_decide_a_trial() -> None:
    rig = Rig()
    rig.verdict()
    rig.seconds(20, old=100)
    rig.bake()
    rig.verdict()
    rig.restart()
    assert rig.verdicts.describe(rig.endpoint) is None
    rig.seconds(30, new=100, errors=100)
    expected = "undecided after 3000 requests, none of the old fleet was counted"
    assert rig.verdict().text == expected, "the minute before the first look is looked up"
    assert rig.decided() == []


def test_another_update_has_its_own_evidence_and_what_is_over_is_forgotten() -> None:
    rig = Rig()
    rig.step(1)
    rig.verdict()
    rig.seconds(5, old=90, new=10, errors=10)
    assert rig.decided()
    again = replace(rig.new, generation=3, started_at=rig.clock.now())
    rig.become(pending=again, shift=None)
    assert rig.verdict().text.startswith("undecided after 0 requests")
    rig.seconds(5, old=100)
    assert rig.decided() == []
    rig.become(status=EndpointStatus.IN_SERVICE)
    assert find_watched_update(rig.endpoint) is None
    assert rig.verdicts.describe(rig.endpoint) is None
    rig.become(status=EndpointStatus.UPDATING, shift=Shift(step=1, since=rig.clock.now()))
    rig.clock.advance(FORGET_S + 1)
    rig.become(name="another")
    rig.verdict()
    assert rig.verdicts.describe(rig.become(name="ep")) is None
