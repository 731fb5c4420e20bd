"""A store, metrics and a scaler that only listens, around the alarm watch."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from hostelry.base.clock import ManualClock
from hostelry.domain.alarm import (
    AlarmActions,
    AlarmRule,
    AlarmState,
    Comparison,
    CompositeAlarm,
    MetricAlarm,
    MissingData,
    alarm_arn,
)
from hostelry.domain.load import Wake
from hostelry.domain.metric import Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.decide.alarm_events import Alarm, build_status, move_status
from hostelry.scaling.decide.decision import Proposal, Trigger
from hostelry.scaling.loop.alarm_actions import Addresses, AlarmActionDeps, AlarmNotifier
from hostelry.scaling.loop.alarm_watch import AlarmWatch, AlarmWatchDeps
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

SCOPE = Scope("123456789012", "us-west-2")
POLICY = (
    "arn:aws:autoscaling:us-west-2:123456789012:scalingPolicy:5d3c:resource/sagemaker/"
    "inference-component/chat:policyName/steps"
)
TOPIC = "arn:aws:sns:us-west-2:123456789012:alerts"
HOOK = "http://127.0.0.1:9/hook"
ALARM, OK, NO_DATA = AlarmState.ALARM, AlarmState.OK, AlarmState.INSUFFICIENT_DATA
START = 1_699_999_800.0


@dataclass
class Listener:
    """A scaler that keeps its requests. Each error in `fails` is raised once instead."""

    triggers: list[Trigger] = field(default_factory=list)
    fails: list[Exception] = field(default_factory=list)

    def trigger(self, trigger: Trigger) -> None:
        if self.fails:
            raise self.fails.pop()
        self.triggers.append(trigger)

    def propose(self, proposal: Proposal) -> None:
        raise AssertionError(proposal)

    def wake(self, wake: Wake) -> None:
        raise AssertionError(wake)


@dataclass
class Web:
    """The posted messages. `answers` are given in turn, then 200. Exceptions are raised."""

    posted: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    answers: list[int | Exception] = field(default_factory=list)

    async def post(self, address: str, headers: Mapping[str, str], body: bytes) -> int:
        self.posted.append((address, headers, body))
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        return answer


class Rig:
    """One control's alarm watch with its clock. `restart` begins another control."""

    def __init__(
        self, store: Any = None, topics: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.clock = ManualClock(START)
        self.steady = ManualClock(0.0)
        self.state: State = open_state(store or MemoryStore())
        self.metrics = MemoryMetrics(self.clock)
        self.scaler = Listener()
        self.web = Web()
        self._topics = dict(topics or {})
        self.sns_topics: set[str] = set()
        self.published: list[tuple[str, str, str, str]] = []
        self.restart()

    def restart(self) -> None:
        around = AlarmActionDeps(
            state=self.state,
            clock=self.clock,
            addresses_of=Addresses(topics=self._topics).of,
            post=self.web.post,
            publish=self._publish,
        )
        self.watch = AlarmWatch(
            AlarmWatchDeps(
                state=self.state,
                metrics=self.metrics,
                scaler=self.scaler,
                clock=self.clock,
                steady=self.steady,
            ),
            around,
        )
        self.notifier = AlarmNotifier(around)

    def _publish(self, topic_arn: str, subject: str, message: str, message_id: str) -> bool:
        if topic_arn in self.sns_topics:
            self.published.append((topic_arn, subject, message, message_id))
        return topic_arn in self.sns_topics

    def advance(self, delta_s: float) -> None:
        self.clock.advance(delta_s)
        self.steady.advance(delta_s)

    def look(self) -> list[Alarm]:
        return self.watch.look()

    def look_for(self, seconds: int) -> list[Alarm]:
        """Look every second. Returns the alarms with due web actions."""
        due: list[Alarm] = []
        for _ in range(seconds):
            self.advance(1)
            due += self.look()
        return due

    def notify(self, alarms: Sequence[Alarm]) -> None:
        async def every() -> None:
            await asyncio.gather(*(self.notifier.notify(it) for it in alarms))

        asyncio.run(every())

    def put(self, name: str = "high", **changes: Any) -> MetricAlarm:
        actions = changes.pop("actions", AlarmActions(alarm=(POLICY,)))
        alarm = MetricAlarm(
            scope=SCOPE,
            name=name,
            arn=alarm_arn(SCOPE, name),
            rule=rule_of(**changes),
            actions=actions,
            status=build_status(self.clock.now()),
            configured_at=self.clock.now(),
            given={},
        )
        self.state.metric_alarms.put(SCOPE, name, alarm, expect=None)
        return alarm

    def put_composite(self, name: str, rule: str, **fields: Any) -> CompositeAlarm:
        alarm = CompositeAlarm(
            scope=SCOPE,
            name=name,
            arn=alarm_arn(SCOPE, name),
            expression=rule,
            actions=fields.pop("actions", AlarmActions(alarm=(HOOK,), ok=(HOOK,))),
            status=build_status(self.clock.now()),
            configured_at=self.clock.now(),
            given={},
            **fields,
        )
        self.state.composite_alarms.put(SCOPE, name, alarm, expect=None)
        return alarm

    def alarm(self, name: str = "high") -> Alarm:
        found = self.state.metric_alarms.get(SCOPE, name) or self.state.composite_alarms.get(
            SCOPE, name
        )
        assert found is not None
        alarm: Alarm = found.value
        return alarm

    def force(self, name: str, state: AlarmState, data: str | None = None) -> None:
        """Set an alarm's state as SetAlarmState does."""
        alarm = self.alarm(name)
        records: Any = (
            self.state.metric_alarms
            if isinstance(alarm, MetricAlarm)
            else self.state.composite_alarms
        )
        found = records.get(SCOPE, name)
        status = move_status(alarm.status, state, "by hand", data, self.clock.now())
        records.put(SCOPE, name, replace(alarm, status=status), expect=found.version)

    def measure(self, value: float, seconds: int = 1, name: str = "Load") -> None:
        """One sample per second from now on, with a look after each."""
        for _ in range(seconds):
            self.sample(value, name)
            self.advance(1)
            self.look()

    def sample(self, value: float, name: str = "Load") -> None:
        sample = Sample(
            metric=Metric(namespace="Own", name=name),
            at=self.clock.now(),
            values=(value,),
            resolution_s=1,
        )
        self.metrics.record(SCOPE, [sample])

    def history(self, name: str = "high") -> list[str]:
        found = self.state.alarm_histories.get(SCOPE, name)
        return [] if found is None else [it.summary for it in found.value.items]


def rule_of(
    *,
    period_s: int = 10,
    num: int = 1,
    missing: MissingData = MissingData.MISSING,
    metric: str = "Load",
    **changes: Any,
) -> AlarmRule:
    return replace(
        AlarmRule(
            evaluation_periods=num,
            datapoints_to_alarm=num,
            threshold=5.0,
            comparison=Comparison.GREATER,
            missing=missing,
            stat=MetricStat(
                metric=Metric(namespace="Own", name=metric), period_s=period_s, statistic="Maximum"
            ),
        ),
        **changes,
    )
