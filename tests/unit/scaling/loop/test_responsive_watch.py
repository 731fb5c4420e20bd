"""The responsive watch: the resources that chose it, its proposals, and possible faults."""

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, SCOPE
from tests.unit.scaling.loop.scaling_town import KEY, RESOURCE, ScalingTown

from hostelry.base.errors import RetryableError
from hostelry.domain.load import LoadKey, LoadReport, SecondLoad, Wake
from hostelry.domain.metric import Metric, MetricQuery, MetricStat
from hostelry.domain.scaling import Dimension, TargetTracking, target_name
from hostelry.domain.scope import Scope, TagSet
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.decide.decision import Capacity, Proposal, Trigger
from hostelry.scaling.loop.responsive_watch import ResponsiveWatch, ResponsiveWatchDeps
from hostelry.scaling.loop.scaler import Scaler

TAG = "hostelry:responsive"
COMPONENT_ARN = SCOPE.arn("inference-component", "base")
ENDPOINT_ARN = SCOPE.arn("endpoint", "ep")


@dataclass
class RecordingScaler:
    """Keeps its requests. Refuses everything while `refusal` is set."""

    proposals: list[Proposal] = field(default_factory=list)
    refusal: RetryableError | None = None

    def propose(self, proposal: Proposal) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.proposals.append(proposal)

    def trigger(self, trigger: Trigger) -> None:
        raise AssertionError(f"{trigger} is nothing for the responsive watch to do")

    def wake(self, wake: Wake) -> None:
        raise AssertionError(f"{wake} is nothing for the responsive watch to do")


class Scene:
    """A town, the watch over it, and seconds that go by with load."""

    def __init__(self, copies: int = 4, scaler: Scaler | None = None) -> None:
        self.town = ScalingTown(copies=copies)
        self.recording = RecordingScaler()
        self.scaler = scaler or self.recording
        self.metrics = MemoryMetrics(self.town.clock)
        self.watch = self.started()

    def started(self, **changes: Any) -> ResponsiveWatch:
        """A watch as a new process would have it."""
        given = ResponsiveWatchDeps(
            state=self.town.state,
            scaler=self.scaler,
            clock=self.town.clock,
            steady=self.town.steady,
            metrics=self.metrics,
        )
        self.watch = ResponsiveWatch(replace(given, **changes))
        return self.watch

    def tag(self, arn: str, value: str) -> None:
        found = self.town.state.tags.get(SCOPE, arn)
        tags = TagSet(scope=SCOPE, arn=arn, tags={TAG: value})
        self.town.state.tags.put(SCOPE, arn, tags, expect=found.version if found else None)

    def go(self, num_seconds: int, per_s: int, service_s: float = 4.0, **values: Any) -> None:
        """`num_seconds` seconds with `per_s` calls each."""
        for _ in range(num_seconds):
            second = int(self.town.clock.now())
            at_once = per_s * service_s
            load = SecondLoad(
                key=KEY,
                second=second,
                **{
                    "arrivals": per_s,
                    "finished": per_s,
                    "service_s": at_once,
                    "in_flight_mean": at_once,
                    **values,
                },
            )
            self.town.clock.advance(1.0)
            self.town.steady.advance(1.0)
            self.watch.record(second, [load] if per_s or values else [])
            self.watch.tick()

    @property
    def proposed(self) -> list[int]:
        """The numbers that were proposed, other than the present one."""
        return [it.decision.desired for it in self.recording.proposals if it.load_rose_at]


def own_metric(name: str = "ExpectedConcurrencyPerCopy", component: str = "base") -> MetricQuery:
    metric = Metric.of("Hostelry", name, {"InferenceComponentName": component})
    return MetricQuery(id="m", stat=MetricStat(metric=metric, period_s=60, statistic="Average"))


@cases(
    "value",
    case("the target alone", "5"),
    case("with a rate of false alarms", "5 false-alarms-per-hour=0.5"),
)
@pytest.mark.parametrize("arn", [COMPONENT_ARN, ENDPOINT_ARN], ids=["component", "endpoint"])
def test_a_tag_chooses_it_for_a_component_or_for_all_of_an_endpoint(arn: str, value: str) -> None:
    scene = Scene()
    scene.tag(arn, value)
    scene.go(90, 4)
    assert not scene.proposed
    scene.go(4, 20)
    proposal = scene.recording.proposals[0]
    assert scene.proposed[0] == 8
    assert (proposal.by, proposal.resource_id) == ("responsive", RESOURCE)
    assert proposal.dimension is Dimension.COPIES
    assert proposal.load_rose_at == pytest.approx(NOW + 90, abs=2.0)
    assert proposal.at <= NOW + 94


@cases(
    "query, acts",
    case("of its own expected concurrency", own_metric(), True),
    case("of another component's", own_metric(component="other"), False),
    case("of another metric", own_metric("ConcurrentRequestsPerCopy"), False),
)
def test_a_target_tracking_policy_chooses_it(query: MetricQuery, acts: bool) -> None:
    scene = Scene()
    policy = scene.town.track(metric="")
    tracking = TargetTracking(
        target_value=5.0, scale_out_cooldown_s=1.0, scale_in_cooldown_s=1.0, queries=(query,)
    )
    state, key = scene.town.state, f"{target_name(RESOURCE, Dimension.COPIES)}|{policy.name}"
    found = state.scaling_policies.get(SCOPE, key)
    assert found is not None
    changed = replace(policy, tracking=tracking)
    state.scaling_policies.put(SCOPE, key, changed, expect=found.version)
    scene.go(90, 4)
    scene.go(4, 20)
    assert bool(scene.proposed) is acts


@cases(
    "own, endpoints, target",
    case("a component's own tag wins over its endpoint's", "7", "5", 7.0),
    case("a component can be left out", "off", "5", None),
    case("in any case", "Off ", "", None),
)
def test_the_nearest_choice_counts(own: str, endpoints: str, target: float | None) -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, own)
    if endpoints:
        scene.tag(ENDPOINT_ARN, endpoints)
    scene.go(1, 1)
    found = [watched.options.target for watched, _ in scene.watch.overview().values()]
    assert found == ([] if target is None else [target])


@cases(
    "arn, value, why",
    case("a tag that is no number", COMPONENT_ARN, "many", "cannot be read"),
    case("a target that cannot be", COMPONENT_ARN, "-1", "must be from"),
    case("an unknown setting", COMPONENT_ARN, "5 speed=9", "no setting"),
    case("no number", COMPONENT_ARN, "nan", "must be from"),
    case("two targets", ENDPOINT_ARN, "5 5", "no setting"),
)
def test_a_tag_that_cannot_be_is_logged_once_and_does_nothing(
    arn: str, value: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.tag(arn, value)
    with caplog.at_level(logging.WARNING):
        scene.go(90, 4)
        scene.go(4, 20)
    assert not scene.recording.proposals
    (logged,) = caplog.messages
    assert arn in logged
    assert why in logged


@pytest.mark.parametrize("arn", [COMPONENT_ARN, ENDPOINT_ARN], ids=["component", "endpoint"])
def test_without_a_scalable_target_it_does_nothing_and_logs_what_to_call(
    arn: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.tag(arn, "5")
    name = target_name(RESOURCE, Dimension.COPIES)
    found = scene.town.state.scalable_targets.get(SCOPE, name)
    assert found is not None
    scene.town.state.scalable_targets.delete(SCOPE, name, expect=found.version)
    with caplog.at_level(logging.WARNING):
        scene.go(90, 4)
        scene.go(4, 20)
    assert not scene.recording.proposals
    (logged,) = caplog.messages
    assert arn in logged
    assert "RegisterScalableTarget" in logged


def test_bounds_and_suspension_of_the_target_are_kept() -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.town.register(low=1, high=6)
    scene.go(90, 4)
    scene.go(10, 40)
    assert max(scene.proposed) == 6
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.town.register(low=1, high=10, scale_out=True)
    scene.go(90, 4)
    scene.go(10, 40)
    assert set(scene.proposed) == {4}


def test_with_the_real_scaler_capacity_rises_and_aws_policies_cannot_lower_it_meanwhile() -> None:
    scene = Scene()
    scene.scaler = scene.town.scaler
    scene.started()
    scene.tag(COMPONENT_ARN, "5")
    scene.town.register(low=1, high=50)
    scene.go(90, 4)
    scene.go(30, 20)
    assert scene.town.desired == 16
    newest = scene.town.activities[0]
    assert newest.policy_name == "responsive"
    assert newest.receipt is not None
    assert newest.receipt.signal["service_s"] == pytest.approx(4.0)
    assert newest.receipt.load_rose_at == pytest.approx(NOW + 90, abs=20.0)
    policy = scene.town.step(by=-8, cooldown_s=0.0)
    scene.town.alarm(policy, 0.1)
    assert scene.town.desired == 16


def test_after_a_restart_it_learns_again_and_only_a_call_that_waits_makes_it_act() -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.go(90, 4)
    scene.started()
    scene.go(4, 20)
    assert not scene.proposed
    scene.go(1, 20, held=3, oldest_held_s=1.2)
    assert scene.proposed


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0], ids=["back", "forward"])
def test_a_clock_that_jumps_an_hour_neither_makes_it_act_nor_stops_it(jump_s: float) -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.go(90, 4)
    scene.town.clock.advance(jump_s)
    scene.go(40, 4)
    assert not scene.proposed
    scene.go(4, 20)
    assert scene.proposed


def test_a_silent_gateway_is_no_reason_and_no_zeros() -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.go(90, 4)
    scene.town.clock.advance(300.0)
    scene.watch.tick()
    scene.go(20, 4)
    assert not scene.proposed
    known = scene.watch.overview()[KEY][1]
    assert known is not None
    assert known.rates.per_s == pytest.approx(4.0)


def test_seconds_that_waited_too_long_teach_but_are_no_reason_to_act() -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.go(90, 4)
    first = int(scene.town.clock.now())
    for second in range(first, first + 30):
        per_s = 20 if second < first + 5 else 4
        load = SecondLoad(key=KEY, second=second, arrivals=per_s, in_flight_mean=16.0)
        scene.watch.record(second, [load])
    scene.town.clock.advance(31.0)
    scene.watch.tick()
    assert not scene.proposed
    known = scene.watch.overview()[KEY][1]
    assert known is not None
    assert known.num_seconds == 120


def test_a_scaler_that_cannot_is_asked_again_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.go(90, 4)
    scene.recording.refusal = RetryableError("no space left on the device")
    with caplog.at_level(logging.WARNING):
        scene.go(10, 20)
    assert len(caplog.records) == 1
    scene.recording.refusal = None
    scene.go(60, 20)
    assert scene.proposed


def test_expected_concurrency_per_copy_is_a_metric_of_every_second() -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.go(60, 4)
    stat = own_metric().stat
    assert stat is not None
    points = scene.metrics.datapoints(SCOPE, replace(stat, period_s=1), NOW + 30, NOW + 60)
    assert len(points) == 30
    assert points[-1].value == pytest.approx(4.0)


def test_a_name_without_load_costs_a_look_every_ten_seconds() -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.go(90, 4)
    scene.go(3000, 0)
    before = scene.watch.overview()[KEY][1]
    scene.go(9, 0)
    after = scene.watch.overview()[KEY][1]
    assert before is not None
    assert after is not None
    assert after.num_seconds - before.num_seconds <= 1
    scene.go(6, 30)
    assert scene.proposed


@cases(
    "tracked, lower",
    case("where no target-tracking policy does", False, [3]),
    case("but not where one does", True, []),
)
def test_it_scales_in_where_that_was_chosen(tracked: bool, lower: list[int]) -> None:
    scene = Scene()
    if tracked:
        scene.town.track()
    scene.tag(COMPONENT_ARN, "5 scale-in-after-s=60")
    scene.go(90, 3)
    scene.go(70, 0)
    proposed = [it.decision.desired for it in scene.recording.proposals]
    assert proposed == lower


def test_what_is_gone_is_forgotten() -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    scene.go(5, 4)
    assert list(scene.watch.overview()) == [KEY]
    found = scene.town.state.components.get(SCOPE, "base")
    assert found is not None
    scene.town.state.components.delete(SCOPE, "base", expect=found.version)
    scene.go(5, 4)
    assert not scene.watch.overview()


def test_it_hears_of_a_boards_seconds_as_they_close() -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    board = LoadAggregator(scene.town.clock.now())
    scene.watch.listen(board)
    for number in range(100):
        second = int(scene.town.clock.now())
        arrivals = 20 if number >= 95 else 4
        load = SecondLoad(
            key=KEY, second=second, arrivals=arrivals, finished=4, service_s=16.0,
            in_flight_mean=16.0,
        )  # fmt: skip
        scene.town.clock.advance(1.0)
        report = LoadReport(
            worker="gateway-1", started_at=NOW, sequence=number + 1, seconds=(load,),
            first=second, through=second,
        )  # fmt: skip
        board.take(report, scene.town.clock.now())
        scene.watch.wait(0.0)
        scene.watch.tick()
    assert scene.proposed[0] == 8


def test_capacity_is_of_what_serves() -> None:
    scene = Scene(copies=4)
    scene.tag(COMPONENT_ARN, "5")
    scene.town.serve(2)
    scene.go(1, 1)
    watched, _ = scene.watch.overview()[KEY]
    assert watched.capacity == Capacity(desired=4, serving=2, minimum=1, maximum=10)


def test_another_accounts_names_are_other_names() -> None:
    scene = Scene()
    scene.tag(COMPONENT_ARN, "5")
    other = LoadKey(
        scope=Scope("999999999999", SCOPE.region),
        endpoint_name=KEY.endpoint_name,
        variant_name=KEY.variant_name,
        component_name=KEY.component_name,
    )
    scene.go(90, 4)
    for _ in range(5):
        second = int(scene.town.clock.now())
        mine = SecondLoad(key=KEY, second=second, arrivals=4, in_flight_mean=16.0)
        theirs = SecondLoad(key=other, second=second, arrivals=400, in_flight_mean=1600.0)
        scene.town.clock.advance(1.0)
        scene.watch.record(second, [mine, theirs])
        scene.watch.tick()
    assert not scene.proposed


def test_another_choice_keeps_what_was_learnt() -> None:
    scene = Scene()
    scene.started(metrics=None)
    scene.tag(COMPONENT_ARN, "50")
    scene.go(90, 4)
    scene.go(4, 20)
    assert not scene.proposed
    scene.tag(COMPONENT_ARN, "4")
    scene.go(4, 20)
    assert scene.proposed
