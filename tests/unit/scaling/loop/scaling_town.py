"""A scaler over an in-memory store, with one component, and clocks that tests move."""

import itertools
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from tests.unit.reconcile.samples import (
    NOW,
    SCOPE,
    component,
    component_spec,
    deployment,
    endpoint,
    variant,
)

from hostelry.base.clock import ManualClock
from hostelry.domain.alarm import (
    AlarmActions,
    AlarmRule,
    AlarmState,
    AlarmStatus,
    Comparison,
    MetricAlarm,
)
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, CopySpec, CopyStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.metric import Datapoint
from hostelry.domain.scaling import (
    Adjustment,
    Dimension,
    ScalableTarget,
    ScalingActivity,
    ScalingPolicy,
    StepAdjustment,
    StepScaling,
    Suspended,
    TargetTracking,
    policy_key,
    target_name,
)
from hostelry.scaling.decide.decision import Trigger
from hostelry.scaling.decide.tracking_alarms import AlarmSide, build_alarm_name
from hostelry.scaling.loop.scaler import ScalerDeps, TargetScaler
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Store
from hostelry.store.records import open_state

RESOURCE = "inference-component/base"
NAME = target_name(RESOURCE, Dimension.COPIES)
KEY = LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="AllTraffic", component_name="base")
CONCURRENCY = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
INVOCATIONS = "SageMakerInferenceComponentInvocationsPerCopy"


class FakeLoads:
    """The seconds of load that a test gives."""

    def __init__(self) -> None:
        self.seconds: dict[LoadKey, list[SecondLoad]] = {}

    def recent(self, key: LoadKey, since: int) -> Sequence[SecondLoad]:
        return [it for it in self.seconds.get(key, ()) if it.second >= since]

    def add(self, second: float, key: LoadKey = KEY, **values: Any) -> None:
        self.seconds.setdefault(key, []).append(SecondLoad(key=key, second=int(second), **values))


class ScalingTown:
    """A serving component "base" on endpoint "ep", registered between 1 and 10 copies."""

    def __init__(self, store: Store | None = None, *, copies: int = 1, pace: float = 1.0) -> None:
        self.state = open_state(store or MemoryStore())
        self.clock, self.steady = ManualClock(NOW), ManualClock(0.0)
        self.loads = FakeLoads()
        self.pace = pace
        self._ids = itertools.count(1)
        self.refusal: str | None = None
        host = endpoint(deployment(variant(count=4)), EndpointStatus.IN_SERVICE)
        self.state.endpoints.put(SCOPE, "ep", host, expect=None)
        base = component(copies=copies, status=ComponentStatus.IN_SERVICE)
        base = replace(base, created_at=NOW - 3600.0)
        self.state.components.put(SCOPE, "base", base, expect=None)
        self.serve(copies)
        self.register()
        self.scaler = self.start()

    def start(self) -> TargetScaler:
        """A scaler, as a new process makes it."""
        self.scaler = TargetScaler(
            ScalerDeps(
                state=self.state,
                aggregator=self.loads,
                clock=self.clock,
                steady=self.steady,
                refuse_fewer=lambda *_: self.refusal,
                pace=self.pace,
                new_id=lambda: f"a-{next(self._ids):03}",
            )
        )
        return self.scaler

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.steady.advance(seconds)
        self.scaler.tick()

    @property
    def now(self) -> float:
        return self.clock.now()

    @property
    def base(self) -> InferenceComponent:
        found = self.state.components.get(SCOPE, "base")
        assert found is not None
        return found.value

    @property
    def desired(self) -> int:
        return self.base.desired_copies

    def change(self, **changes: Any) -> None:
        found = self.state.components.get(SCOPE, "base")
        assert found is not None
        after = replace(found.value, **changes)
        self.state.components.put(SCOPE, "base", after, expect=found.version)

    def change_host(self, **changes: Any) -> None:
        """Change the endpoint's record."""
        found = self.state.endpoints.get(SCOPE, "ep")
        assert found is not None
        after = replace(found.value, **changes)
        self.state.endpoints.put(SCOPE, "ep", after, expect=found.version)

    def serve(self, count: int, **changes: Any) -> None:
        """Make `count` copies ready and the component InService, as the reconciler does."""
        for stored in self.state.copies.list(SCOPE):
            self.state.copies.delete(SCOPE, stored.value.spec.id, expect=stored.version)
        for number in range(count):
            self.put_copy(f"c-{number}")
        self.change(status=ComponentStatus.IN_SERVICE, deadline_at=None, **changes)

    def put_copy(self, copy_id: str, **status: Any) -> None:
        spec = component_spec()
        copy = Copy(
            scope=SCOPE,
            endpoint_name="ep",
            variant_name="AllTraffic",
            component_name="base",
            generation=1,
            instance_id="i-1",
            spec=CopySpec(
                id=copy_id,
                owner="component/base",
                container=spec.container,
                requirements=spec.requirements,
                download_timeout_s=60.0,
                startup_timeout_s=60.0,
            ),
            status=CopyStatus(
                id=copy_id, **{"phase": CopyPhase.READY, "address": "http://h:1", **status}
            ),
            created_at=NOW,
            ready_at=NOW,
        )
        found = self.state.copies.get(SCOPE, copy_id)
        self.state.copies.put(SCOPE, copy_id, copy, expect=None if found is None else found.version)

    def register(self, low: int = 1, high: int = 10, **suspended: bool) -> None:
        found = self.state.scalable_targets.get(SCOPE, NAME)
        target = ScalableTarget(
            scope=SCOPE,
            resource_id=RESOURCE,
            dimension=Dimension.COPIES,
            arn="arn:target",
            min_capacity=low,
            max_capacity=high,
            role_arn="arn:role",
            created_at=NOW,
            suspended=Suspended(**suspended),
        )
        self.state.scalable_targets.put(
            SCOPE, NAME, target, expect=None if found is None else found.version
        )

    def track(
        self,
        name: str = "tracking",
        *,
        target: float = 5.0,
        metric: str = CONCURRENCY,
        **options: Any,
    ) -> ScalingPolicy:
        tracking = TargetTracking(
            target_value=target,
            predefined=metric,
            **{"scale_out_cooldown_s": 180.0, "scale_in_cooldown_s": 180.0, **options},
        )
        names = tuple(build_alarm_name(RESOURCE, side, name) for side in AlarmSide)
        policy = self._policy(name, tracking=tracking, alarm_names=names)
        for alarm in names:
            self.set_alarm(alarm, AlarmState.OK)
        return policy

    def step(self, name: str = "steps", *, by: int = 1, cooldown_s: float = 60.0) -> ScalingPolicy:
        stepping = StepScaling(
            adjustment=Adjustment.CHANGE,
            steps=(StepAdjustment(lower=0.0, upper=None, adjustment=by),)
            if by > 0
            else (StepAdjustment(lower=None, upper=0.0, adjustment=by),),
            cooldown_s=cooldown_s,
        )
        return self._policy(name, stepping=stepping)

    def _policy(self, name: str, **options: Any) -> ScalingPolicy:
        policy = ScalingPolicy(
            scope=SCOPE,
            name=name,
            arn=f"arn:policy/{name}",
            resource_id=RESOURCE,
            dimension=Dimension.COPIES,
            created_at=NOW,
            **options,
        )
        key = policy_key(RESOURCE, Dimension.COPIES, name)
        self.state.scaling_policies.put(SCOPE, key, policy, expect=None)
        return policy

    def set_alarm(self, name: str, state: AlarmState) -> None:
        found = self.state.metric_alarms.get(SCOPE, name)
        alarm = MetricAlarm(
            scope=SCOPE,
            name=name,
            arn=f"arn:alarm/{name}",
            rule=AlarmRule(
                evaluation_periods=3,
                datapoints_to_alarm=3,
                threshold=5.0,
                comparison=Comparison.GREATER,
            ),
            actions=AlarmActions(),
            status=AlarmStatus(state=state, updated_at=self.now, transitioned_at=self.now),
            configured_at=NOW,
            given={},
        )
        self.state.metric_alarms.put(
            SCOPE, name, alarm, expect=None if found is None else found.version
        )

    def alarm(
        self,
        policy: ScalingPolicy,
        *values: float,
        side: AlarmSide = AlarmSide.HIGH,
        threshold: float = 5.0,
        name: str | None = None,
    ) -> None:
        """Put an alarm of the policy into ALARM, which triggers the policy."""
        alarm = name or build_alarm_name(RESOURCE, side, policy.name)
        self.set_alarm(alarm, AlarmState.ALARM)
        self.scaler.trigger(self.triggered(policy, alarm, values, threshold))

    def triggered(
        self, policy: ScalingPolicy, alarm: str, values: Sequence[float], threshold: float = 5.0
    ) -> Trigger:
        start = self.now - 10.0 * len(values)
        return Trigger(
            scope=SCOPE,
            policy_arn=policy.arn,
            alarm_name=alarm,
            state=AlarmState.ALARM,
            threshold=threshold,
            values=tuple(Datapoint(start + 10.0 * at, it) for at, it in enumerate(values)),
            at=self.now,
        )

    def ok(self, policy: ScalingPolicy, side: AlarmSide) -> None:
        self.set_alarm(build_alarm_name(RESOURCE, side, policy.name), AlarmState.OK)

    @property
    def activities(self) -> list[ScalingActivity]:
        """The recorded activities, newest first."""
        every = [it.value for it in self.state.scaling_activities.list(SCOPE)]
        return sorted(every, key=lambda it: (it.started_at, it.id), reverse=True)
