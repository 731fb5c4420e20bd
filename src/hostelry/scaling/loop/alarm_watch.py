"""Evaluation of every due alarm. A changed state is written first, then acted on.

    watch = AlarmWatch(
        AlarmWatchDeps(state=state, metrics=metrics, scaler=scaler, clock=clock),
        AlarmActionDeps(
            state=state, clock=clock, addresses_of=AddressFile(home.actions).of, post=...
        ),
    )
    await watch.run()  # until cancelled. Errors of an evaluation propagate. May be run again

Scaling policies are triggered again for as long as the state lasts, so that no trigger is lost with
the process. Web notifications are marked in the state once they are sent.

| alarm now | done |
| --- | --- |
| entered a state | it is written, its policies triggered, its web actions queued |
| still in a state with policies | they are triggered again after each evaluation interval |
| web actions not marked as done | they are queued again |
| the clock was set a short time ago | nothing, until new periods have passed |
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock, MonotonicClock, until_next_s
from hostelry.base.errors import Conflict, RetryableError
from hostelry.domain.alarm import AlarmHistoryItem, AlarmStatus, CompositeAlarm, MetricAlarm
from hostelry.metrics.protocol import MetricReader
from hostelry.scaling.decide.alarm import (
    AlarmVerdict,
    get_hold_s,
    get_next_evaluation_at,
    get_repeat_s,
)
from hostelry.scaling.decide.alarm_events import (
    Alarm,
    TargetKind,
    build_action_item,
    build_transition_item,
    get_target_kind,
    is_pending,
    move_status,
)
from hostelry.scaling.decide.composite import find_suppression
from hostelry.scaling.decide.decision import Trigger
from hostelry.scaling.loop.alarm_actions import AlarmActionDeps, AlarmNotifier, Job, build_job
from hostelry.scaling.loop.alarm_evaluation import (
    Composites,
    evaluate_alarm,
    get_arns,
    get_forced_values,
    get_statuses,
)
from hostelry.scaling.loop.scaler import Scaler
from hostelry.store.alarm_log import append_history, forget_histories
from hostelry.store.records import State, Versioned

LOG = logging.getLogger(__name__)
A = TypeVar("A", MetricAlarm, CompositeAlarm)
TICK_S = 1.0
JUMP_S = 5.0  # how far the clock may be from the steady clock before it counts as set
MAX_BATCH = 500  # evaluations between two looks at anything else
MAX_ROUNDS = 10  # of composite alarms on composite alarms
HOUSEKEEPING_S = 3600.0


class AlarmWatchDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the alarm watch. `steady` never jumps."""

    state: State
    metrics: MetricReader
    scaler: Scaler
    clock: Clock
    steady: Clock = msgspec.field(default_factory=MonotonicClock)


class AlarmSchedule(msgspec.Struct, kw_only=True):
    """Memory of one alarm: when it is due, when its policies were triggered last and for what."""

    due_at: float
    configured_at: float
    triggered_at: float | None = None
    triggered_for: Job | None = None


class AlarmWatch:
    """The evaluation loop of one process. `look` makes one pass.

    `is_behind` is set by a pass that left due alarms to the next one.
    """

    def __init__(self, deps: AlarmWatchDeps, action_deps: AlarmActionDeps) -> None:
        self._deps = deps
        self._actions = AlarmNotifier(action_deps)
        self._composites = Composites()
        self._composites_seen: tuple[int, ...] = ()  # versions that they were evaluated on
        self._has_written = False  # metric alarms, in this pass
        self._schedules: dict[str, AlarmSchedule] = {}  # by the alarm's ARN
        self._entered: list[Alarm] = []  # in this pass, with web actions
        self._instants = (deps.clock.now(), deps.steady.now())
        self._set_at: float | None = None  # when the clock was set last
        self._tidied_at: float | None = None
        self.is_behind = False

    async def run(self) -> None:
        """Make a pass each second until cancelled. Web actions run as tasks."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self.is_behind = False
                try:
                    for alarm in await asyncio.to_thread(self.look):
                        tasks.create_task(self._actions.notify(alarm))
                except RetryableError as error:
                    LOG.warning("alarms are evaluated again: %s", error)
                if not self.is_behind:
                    await self._deps.clock.sleep(until_next_s(self._deps.clock.now(), TICK_S))

    def look(self) -> list[Alarm]:
        """Make one pass over due alarms. Return the alarms whose web actions are due now."""
        now = self._deps.clock.now()
        self._notice_jump(now)
        stored = self._deps.state.metric_alarms.list()
        self._forget(stored)
        self._entered, self._has_written = [], False
        for alarm in stored:
            if is_pending(alarm.value):
                self._act_on_pending(alarm, now)
        due = [it for it in stored if self._is_due(it.value, now)]
        self.is_behind = len(due) > MAX_BATCH
        for alarm in islice(due, MAX_BATCH):
            self._evaluate(alarm, now)
        self._evaluate_composites(stored, now)
        self._tidy(now)
        entered = {build_job(it): it for it in self._entered}
        return [it for it in entered.values() if self._actions.is_free_for(it)]

    def _notice_jump(self, now: float) -> None:
        """Hold states after the clock was set, until alarms have seen new periods."""
        before, steady_before = self._instants
        steady = self._deps.steady.now()
        self._instants = (now, steady)
        if abs((now - before) - (steady - steady_before)) < JUMP_S:
            return
        LOG.warning(
            "the clock was set by %.0f s: alarms keep their states for a while", now - before
        )
        self._set_at = now
        for schedule in self._schedules.values():
            schedule.due_at, schedule.triggered_at = now, None

    def _is_due(self, alarm: MetricAlarm, now: float) -> bool:
        schedule = self._schedules.get(alarm.arn)
        if schedule is None:
            schedule = AlarmSchedule(due_at=now, configured_at=alarm.configured_at)
        elif schedule.configured_at != alarm.configured_at:
            schedule = replace(schedule, due_at=now, configured_at=alarm.configured_at)
        self._schedules[alarm.arn] = schedule
        if schedule.due_at > now:
            return False
        held_until = self._held_until(alarm, now)
        if held_until is not None:
            schedule.due_at = held_until
            return False
        return True

    def _held_until(self, alarm: MetricAlarm, now: float) -> float | None:
        if self._set_at is None:
            return None
        until = self._set_at + get_hold_s(alarm.rule)
        return until if now < until else None

    def _evaluate(self, stored: Versioned[MetricAlarm], now: float) -> None:
        alarm = stored.value
        schedule = self._schedules[alarm.arn]
        # Before anything can go wrong: one alarm that fails does not keep the others from theirs.
        schedule.due_at = get_next_evaluation_at(alarm.rule, alarm.name, now)
        verdict = evaluate_alarm(self._deps.metrics, alarm, now)
        if not verdict.is_settled:
            schedule.due_at = get_next_evaluation_at(alarm.rule, alarm.name, now, is_settled=False)
        items: list[AlarmHistoryItem] = []
        if verdict.state is not alarm.status.state:
            entered = self._enter(stored, verdict, now)
            if entered is None:
                schedule.due_at = now  # a client wrote it meanwhile: evaluate the new rule
                return
            items = [build_transition_item(entered, alarm.status, now)]
            alarm = entered
        items = [*self._trigger_policies(alarm, schedule, verdict, now), *items]
        if items:
            append_history(self._deps.state, alarm.scope, items)

    def _enter(
        self, stored: Versioned[MetricAlarm], verdict: AlarmVerdict, now: float
    ) -> MetricAlarm | None:
        """Write the alarm in its new state and return it. None if a race was lost."""
        before = stored.value
        self._has_written = True
        status = move_status(before.status, verdict.state, verdict.reason, verdict.reason_data, now)
        entered = replace(before, status=status)
        if not (is_pending(entered) and _has_web(entered)):
            entered = replace(before, status=replace(status, acted_at=now))
        try:
            self._deps.state.metric_alarms.put(
                before.scope, before.name, entered, expect=stored.version
            )
        except Conflict:
            return None
        if is_pending(entered):
            self._entered.append(entered)
        return entered

    def _act_on_pending(self, stored: Versioned[MetricAlarm], now: float) -> None:
        """Begin the actions of a state that was set by hand, or entered before a restart."""
        alarm = stored.value
        schedule = AlarmSchedule(due_at=now, configured_at=alarm.configured_at)
        schedule = self._schedules.setdefault(alarm.arn, schedule)
        if schedule.triggered_for != build_job(alarm) and _list_policies(alarm):
            verdict = evaluate_alarm(self._deps.metrics, alarm, now)
            values = get_forced_values(alarm.status) or verdict.values
            items = self._trigger_policies(alarm, schedule, replace(verdict, values=values), now)
            append_history(self._deps.state, alarm.scope, items)
        if _has_web(alarm):
            self._entered.append(alarm)
            return
        self._has_written = True
        acted = replace(alarm, status=replace(alarm.status, acted_at=now))
        with contextlib.suppress(Conflict):  # it is seen again at the next look
            self._deps.state.metric_alarms.put(
                alarm.scope, alarm.name, acted, expect=stored.version
            )

    def _trigger_policies(
        self, alarm: MetricAlarm, schedule: AlarmSchedule, verdict: AlarmVerdict, now: float
    ) -> list[AlarmHistoryItem]:
        """Trigger the policies of the alarm's state when that is due. Return the history items.

        History has the first trigger of a transition, no repetition.
        """
        policies = _list_policies(alarm)
        if not policies:
            return []
        is_first = schedule.triggered_for != build_job(alarm)
        interval_s = get_repeat_s(alarm.rule)
        if (
            not is_first
            and schedule.triggered_at is not None
            and 0 <= now - schedule.triggered_at < interval_s
        ):
            return []
        is_news = is_first and alarm.status.acted_at in (None, now)
        schedule.triggered_for, schedule.triggered_at = build_job(alarm), now
        items = [self._trigger(alarm, it, verdict, now) for it in policies]
        return items if is_news else []

    def _trigger(
        self, alarm: MetricAlarm, policy_arn: str, verdict: AlarmVerdict, now: float
    ) -> AlarmHistoryItem:
        trigger = Trigger(
            scope=alarm.scope,
            policy_arn=policy_arn,
            alarm_name=alarm.name,
            state=alarm.status.state,
            threshold=alarm.rule.threshold,
            values=verdict.values,
            at=now,
        )
        problem = None
        try:
            self._deps.scaler.trigger(trigger)
        except RetryableError as error:
            LOG.info("alarm %s: %s is triggered again: %s", alarm.name, policy_arn, error)
            problem = str(error)
        return build_action_item(alarm, policy_arn, problem, now)

    def _evaluate_composites(self, stored: Sequence[Versioned[MetricAlarm]], now: float) -> None:
        """Evaluate composite alarms until none changes, since each may depend on others."""
        state = self._deps.state
        composites = state.composite_alarms.list()
        for _ in range(MAX_ROUNDS if composites else 0):
            metric = state.metric_alarms.list() if self._has_written else stored
            seen = (*_get_newest(metric), *_get_newest(composites))
            if seen == self._composites_seen or not self._move_composites(metric, composites, now):
                self._composites_seen = seen
                break
            composites = state.composite_alarms.list()
        self._entered += [it.value for it in composites if self._has_due_actions(it.value, now)]

    def _move_composites(
        self,
        metric: Sequence[Versioned[MetricAlarm]],
        composites: Sequence[Versioned[CompositeAlarm]],
        now: float,
    ) -> bool:
        """Write every composite alarm whose state changed. Return whether there was one."""
        alarms: list[Alarm] = [it.value for it in metric]
        alarms += [it.value for it in composites]
        statuses, arns = get_statuses(alarms), get_arns(alarms)
        self._composites.keep([it.value for it in composites])
        changed = [self._composites.evaluate(it.value, statuses, arns, now) for it in composites]
        pairs = zip(composites, changed, strict=True)
        moves = [(stored, after) for stored, after in pairs if after is not None]
        for stored, after in moves:
            self._put_composite(stored, after, now)
        return bool(moves)

    def _put_composite(
        self, stored: Versioned[CompositeAlarm], after: CompositeAlarm, now: float
    ) -> None:
        if not is_pending(after):
            after = replace(after, status=replace(after.status, acted_at=now))
        state = self._deps.state
        try:
            state.composite_alarms.put(after.scope, after.name, after, expect=stored.version)
        except Conflict:
            self._composites.forget(after)
            return
        append_history(state, after.scope, [build_transition_item(after, stored.value.status, now)])

    def _has_due_actions(self, alarm: CompositeAlarm, now: float) -> bool:
        if not is_pending(alarm):
            return False
        return find_suppression(alarm, self._suppressor(alarm), now) is None

    def _suppressor(self, alarm: CompositeAlarm) -> AlarmStatus | None:
        if alarm.suppressor is None:
            return None
        state, scope = self._deps.state, alarm.scope
        metric = state.metric_alarms.get(scope, alarm.suppressor)
        if metric is not None:
            return metric.value.status
        composite = state.composite_alarms.get(scope, alarm.suppressor)
        return None if composite is None else composite.value.status

    def _forget(self, stored: Sequence[Versioned[MetricAlarm]]) -> None:
        if len(self._schedules) <= len(stored):
            return
        arns = {it.value.arn for it in stored}
        self._schedules = {
            arn: schedule for arn, schedule in self._schedules.items() if arn in arns
        }

    def _tidy(self, now: float) -> None:
        steady = self._deps.steady.now()
        if self._tidied_at is None:
            self._tidied_at = steady
        if steady - self._tidied_at >= HOUSEKEEPING_S:
            self._tidied_at = steady
            forget_histories(self._deps.state, now)


def _get_newest(stored: Sequence[Versioned[A]]) -> tuple[int, int]:
    """A value that changes whenever one of the records does."""
    return len(stored), max((it.version for it in stored), default=0)


def _list_policies(alarm: MetricAlarm) -> Sequence[str]:
    if not alarm.actions.enabled:
        return ()
    actions = alarm.actions.on(alarm.status.state)
    return [it for it in actions if get_target_kind(it) is TargetKind.POLICY]


def _has_web(alarm: Alarm) -> bool:
    """Return whether the alarm's present state has web actions."""
    actions = alarm.actions.on(alarm.status.state)
    return any(get_target_kind(it) is not TargetKind.POLICY for it in actions)
