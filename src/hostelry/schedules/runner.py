"""The loop of schedules: a due call is recorded first, then made, and settled last.

A kill between the call and its settling makes the same call again, with the same execution id: a
schedule calls its target at least once. While a full disk refuses the outcome of a call, the runner
keeps it in memory and does not call again.
"""

import logging
import uuid
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from hostelry.base.clock import Clock
from hostelry.base.errors import Conflict, HostelryError, ServiceError
from hostelry.domain.event_schedule import EventSchedule, ScheduledExecution, schedule_key
from hostelry.schedules.firing import due_at, is_over, next_attempt_at, next_due_at
from hostelry.schedules.targets import TargetCall, TargetError, build_call, fill_template
from hostelry.store.records import State, Versioned

LOG = logging.getLogger(__name__)
LONGEST_S = 60.0  # a clock that is set forward is noticed by then
ATTEMPTS, ERRORS, DROPPED, DEAD = (
    "InvocationAttemptCount",
    "TargetErrorCount",
    "InvocationDroppedCount",
    "InvocationsSentToDeadLetterCount",
)


class ScheduleDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of a runner.

    `invoke` makes a call in a schedule's scope, or raises ServiceError. `bury` sends the input of
    an event that is given up to its dead-letter queue, with the reason. `count` counts for
    `schedule`'s group under a metric's name.
    """

    state: State
    clock: Clock
    gateway_url: str
    invoke: Callable[[EventSchedule, TargetCall], None]
    bury: Callable[[EventSchedule, ServiceError], bool]
    count: Callable[[EventSchedule, str], None]


class ScheduleRunner:
    """Every schedule of a store. `run_due` is called by one thread, at the times of `next_at`."""

    def __init__(self, deps: ScheduleDeps) -> None:
        self._deps = deps
        self._broken: set[str] = set()
        # The outcomes of calls, by the execution and the number of its attempts before.
        self._unrecorded: dict[tuple[str, int], ServiceError | None] = {}

    def run_due(self) -> None:
        """Fire due schedules, and make further attempts of failed calls."""
        listed = list(self._deps.state.event_schedules.list())
        if self._unrecorded:
            under_way = {it.value.execution.id for it in listed if it.value.execution is not None}
            for attempt in [it for it in self._unrecorded if it[0] not in under_way]:
                del self._unrecorded[attempt]  # its schedule was deleted, or begins again
        for stored in listed:
            try:
                self._look(stored)
            except Conflict:
                continue  # a client wrote it meanwhile: seen at the next look
            except ValueError as error:
                self._warn_once(stored.value, error)

    def next_at(self) -> float:
        """When to look again, at the latest."""
        now = self._deps.clock.now()
        found = [now + LONGEST_S]
        for stored in self._deps.state.event_schedules.list():
            try:
                following = next_due_at(stored.value, now)
            except ValueError:
                continue
            found += [] if following is None else [following]
        return min(found)

    def _look(self, stored: Versioned[EventSchedule]) -> None:
        schedule, now = stored.value, self._deps.clock.now()
        at = due_at(schedule, now)
        if at is not None:
            execution = ScheduledExecution(id=str(uuid.uuid4()), scheduled_at=at, next_at=now)
            stored = self._put(stored, replace(schedule, fired_at=at, execution=execution))
            schedule = stored.value
        if schedule.execution is None:
            if schedule.deletes_itself and schedule.fired_at and is_over(schedule, now):
                self._delete(stored)
        elif schedule.execution.next_at <= now:
            self._call(stored, schedule.execution)

    def _call(self, stored: Versioned[EventSchedule], execution: ScheduledExecution) -> None:
        schedule = stored.value
        attempt = (execution.id, execution.attempt)
        if attempt not in self._unrecorded:
            self._deps.count(schedule, ATTEMPTS)
            failure = self._try_call(schedule, execution)
            if failure is not None:
                self._deps.count(schedule, ERRORS)
            self._unrecorded[attempt] = failure
        failure = self._unrecorded[attempt]
        if failure is None:
            LOG.info("schedule %s called %s", schedule.arn, schedule.target.arn)
            self._settle(stored)
        else:
            tried = replace(execution, attempt=execution.attempt + 1)
            self._handle_failure(stored, tried, failure)
        del self._unrecorded[attempt]

    def _try_call(
        self, schedule: EventSchedule, execution: ScheduledExecution
    ) -> ServiceError | None:
        """Call the target. Returns the error, None if the call succeeded."""
        deps, text = self._deps, fill_template(schedule, execution)
        try:
            deps.invoke(schedule, build_call(schedule.target.arn, text, deps.gateway_url))
        except TargetError as error:
            return ServiceError("ValidationException", str(error))
        except ServiceError as error:
            return error
        except HostelryError as error:
            return ServiceError("ServiceUnavailable", str(error), 503)
        return None

    def _handle_failure(
        self, stored: Versioned[EventSchedule], execution: ScheduledExecution, error: ServiceError
    ) -> None:
        schedule, deps = stored.value, self._deps
        now = deps.clock.now()
        may_pass = error.http_status >= 500 or error.http_status == 429
        next_at = next_attempt_at(schedule, execution, now) if may_pass else None
        LOG.warning(
            "schedule %s, attempt %d: %s: %s (%s)",
            schedule.arn,
            execution.attempt,
            error.code,
            error.message,
            "no further attempt" if next_at is None else f"again in {next_at - now:.0f} s",
        )
        if next_at is None:
            deps.count(schedule, DEAD if deps.bury(schedule, error) else DROPPED)
            self._settle(stored)
            return
        problem = f"{error.code}: {error.message}"[:1024]
        again = replace(execution, next_at=next_at, problem=problem)
        self._put(stored, replace(schedule, execution=again))

    def _settle(self, stored: Versioned[EventSchedule]) -> None:
        """End the execution. A schedule that deletes itself goes with its last execution."""
        settled = replace(stored.value, execution=None)
        if settled.deletes_itself and is_over(settled, self._deps.clock.now()):
            self._delete(stored)
        else:
            self._put(stored, settled)

    def _put(
        self, stored: Versioned[EventSchedule], schedule: EventSchedule
    ) -> Versioned[EventSchedule]:
        key = schedule_key(schedule.group, schedule.name)
        records = self._deps.state.event_schedules
        return records.put(schedule.scope, key, schedule, expect=stored.version)

    def _delete(self, stored: Versioned[EventSchedule]) -> None:
        schedule = stored.value
        key = schedule_key(schedule.group, schedule.name)
        self._deps.state.event_schedules.delete(schedule.scope, key, expect=stored.version)

    def _warn_once(self, schedule: EventSchedule, error: ValueError) -> None:
        if schedule.arn not in self._broken:
            self._broken.add(schedule.arn)
            LOG.warning("schedule %s cannot be read: %s", schedule.arn, error)
