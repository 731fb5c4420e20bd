"""Firings of schedules, and further attempts of failed calls. PURE.

a schedule                          fires
----------------------------------  --------------------------------------------------------------
at(...)                             once, at that local time
rate(...)                           at StartDate, else at once, then after each interval
cron(...)                           at its local times
disabled, or outside its dates      not
several firings missed              the newest of them only, if its event is not too old by then
with a flexible time window         at an instant in the window, which the firing decides

a failed call                       follows
----------------------------------  --------------------------------------------------------------
refused by the operation (4xx)      nothing: the same call would be refused again
any other failure                   a further one after 1, 2, 4 ... 300 s, within the retry policy
"""

import hashlib

from hostelry.domain.event_schedule import EventSchedule, ScheduledExecution
from hostelry.scaling.decide.schedule import (
    Once,
    Rate,
    Schedule,
    Window,
    find_newest_firing,
    find_next_firing,
    get_time_zone,
    parse_schedule,
)

LONGEST_PAUSE_S = 300.0


def due_at(schedule: EventSchedule, now: float) -> float | None:
    """The scheduled time of the firing that is due now. None if nothing is due.

    Raises ValueError if the record's expression or time zone is not known.
    """
    if not schedule.is_enabled or schedule.execution is not None:
        return None
    parsed = parse_schedule(schedule.expression)
    at = find_newest_firing(
        parsed, get_time_zone(schedule.timezone), _since(schedule), now, _window(schedule, parsed)
    )
    if at is None or now - at > schedule.target.max_age_s:
        return None
    return at if at + window_offset_s(schedule, at) <= now else None


def next_due_at(schedule: EventSchedule, now: float) -> float | None:
    """The next instant to act: `now` if something is due, None if nothing follows.

    Raises ValueError as `due_at`.
    """
    if schedule.execution is not None:
        return schedule.execution.next_at
    if not schedule.is_enabled:
        return None
    parsed, zone = parse_schedule(schedule.expression), get_time_zone(schedule.timezone)
    window = _window(schedule, parsed)
    # Its scheduled time has passed, but its time in the flexible window may still come.
    begun = find_newest_firing(parsed, zone, _since(schedule), now, window)
    if begun is not None and now - begun <= schedule.target.max_age_s:
        return max(now, begun + window_offset_s(schedule, begun))
    at = find_next_firing(parsed, zone, max(now, _since(schedule)), window)
    return None if at is None else at + window_offset_s(schedule, at)


def is_over(schedule: EventSchedule, now: float) -> bool:
    """Whether it never fires again."""
    return schedule.execution is None and next_due_at(schedule, now) is None


def next_attempt_at(
    schedule: EventSchedule, execution: ScheduledExecution, now: float
) -> float | None:
    """When an execution whose call has just failed is tried again. None means never."""
    if execution.attempt > schedule.target.max_retries:
        return None
    pause_s = min(LONGEST_PAUSE_S, 2.0 ** min(execution.attempt - 1, 16))
    at = now + pause_s
    return at if at - execution.scheduled_at <= schedule.target.max_age_s else None


def window_offset_s(schedule: EventSchedule, at: float) -> float:
    """How long after `at` a firing happens: the same each time that it is asked."""
    if not schedule.window_s:
        return 0.0
    digest = hashlib.sha256(f"{schedule.arn} {at}".encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32 * schedule.window_s


def expression_problem(
    expression: str, timezone: str, start_at: float | None, end_at: float | None, now: float
) -> str | None:
    """Say why a schedule with these terms cannot be created now, or None if it can."""
    try:
        parsed, zone = parse_schedule(expression), get_time_zone(timezone)
    except ValueError as error:
        return f"Invalid Schedule Expression {expression} in time zone {timezone}: {error}."
    if end_at is not None and end_at <= now:
        return "The EndDate that you specify must be in the future."
    if start_at is not None and end_at is not None and start_at >= end_at:
        return "The StartDate that you specify must come before the EndDate."
    if isinstance(parsed, Once):
        start_at = end_at = None  # they have no effect on a one-time schedule
    window = Window(created_at=now, start_at=start_at, end_at=end_at)
    if find_next_firing(parsed, zone, now, window) is None:
        return f"Schedule Expression {expression} in time zone {timezone} lies in the past."
    return None


def _since(schedule: EventSchedule) -> float:
    # A rate's first firing is at the very instant that the schedule was made.
    before = schedule.modified_at - 1e-3
    return before if schedule.fired_at is None else schedule.fired_at


def _window(schedule: EventSchedule, parsed: Schedule) -> Window:
    start_at, end_at = schedule.start_at, schedule.end_at
    if isinstance(parsed, Once):
        start_at = end_at = None
    elif isinstance(parsed, Rate) and (start_at is None or start_at < schedule.modified_at):
        start_at = schedule.modified_at
    return Window(created_at=schedule.modified_at, start_at=start_at, end_at=end_at)
