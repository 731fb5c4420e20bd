"""Schedules of scheduled actions: at(...), rate(...) and cron(...), as instants.

A cron time that the change to summer time leaves out is skipped; one that the change back repeats
counts once, the first time. An at() time that is left out fires as much later as the clocks were
set forward. Source: PutScheduledAction (Schedule, Timezone, StartTime) in the Application Auto
Scaling API reference; "Schedule types" (Daylight savings time) in the EventBridge Scheduler user
guide, for want of a word about it in the former.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from hostelry.domain.scaling import ScalableTarget, ScheduledAction
from hostelry.scaling.decide.cron import Cron, months_back_from, months_from, parse_cron

UNIT_S = {"minute": 60, "hour": 3600, "day": 86400}
MAX_RATE = 10**6
# Local dates are at most a day from those of UTC.
MARGIN = timedelta(days=1)
# Instants outside of these years are not those of a calendar.
LEAST_AT, MOST_AT = 0.0, datetime(2200, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """at(...): a local date and time."""

    local: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """rate(...): every so many seconds, whatever the local time."""

    every_s: int


Schedule = Once | Rate | Cron


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """When a schedule holds: from `start_at` to `end_at`, both included; None is without end.

    A rate counts from `start_at`, which is its first firing, or from `created_at`, which is none.
    """

    created_at: float
    start_at: float | None = None
    end_at: float | None = None

    def has(self, at: float) -> bool:
        """Whether an instant lies within."""
        if self.start_at is not None and at < self.start_at:
            return False
        return self.end_at is None or at <= self.end_at


@lru_cache(maxsize=1024)
def parse_schedule(text: str) -> Schedule:
    """What a Schedule means; raises ValueError, which says what is wrong with it."""
    found = re.fullmatch(r"(at|rate|cron)\((.*)\)", text.strip(), re.DOTALL)
    if found is None:
        raise ValueError("it must be at(yyyy-mm-ddThh:mm:ss), rate(value unit) or cron(fields)")
    kind, inner = found.group(1), found.group(2).strip()
    if kind == "cron":
        return parse_cron(inner)
    return parse_at(inner) if kind == "at" else parse_rate(inner)


def parse_at(text: str) -> Once:
    """The local time of at(...)."""
    if re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text, re.ASCII) is None:
        raise ValueError(f"at needs a date and time as yyyy-mm-ddThh:mm:ss, not {text!r}")
    return Once(local=datetime.fromisoformat(text))


def parse_rate(text: str) -> Rate:
    """The interval of rate(...)."""
    found = re.fullmatch(r"(\d{1,7})\s+(minute|hour|day)s?", text, re.ASCII)
    if found is None or not 1 <= int(found.group(1)) <= MAX_RATE:
        raise ValueError(
            f"rate needs a whole number from 1 to {MAX_RATE} and one of minute(s), hour(s) and"
            f" day(s), not {text!r}"
        )
    return Rate(every_s=int(found.group(1)) * UNIT_S[found.group(2)])


@lru_cache(maxsize=1024)
def time_zone(name: str) -> tzinfo:
    """The IANA time zone of that name; raises ValueError where there is none."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{name!r} is not the name of an IANA time zone") from None


def next_fire(schedule: Schedule, zone: tzinfo, after: float, window: Window) -> float | None:
    """The first firing later than `after`, in seconds since the epoch; None where none follows."""
    if window.start_at is not None and window.start_at > after:
        # A firing just at StartTime counts; a microsecond is less than any schedule resolves.
        after = window.start_at - 1e-6
    after = max(LEAST_AT, after)
    if after >= MOST_AT:
        return None
    if isinstance(schedule, Rate):
        fires = iter([next_of_rate(schedule, after, window)])
    elif isinstance(schedule, Once):
        fires = iter([once_at(schedule, zone)])
    else:
        fires = firings(schedule, zone, local_date(after, zone) - MARGIN)
    found = next((at for at in fires if at > after), None)
    return found if found is not None and window.has(found) else None


def newest_fire(
    schedule: Schedule, zone: tzinfo, since: float, now: float, window: Window
) -> float | None:
    """The last firing later than `since` and not later than `now`; None where there was none."""
    if window.end_at is not None:
        now = min(now, window.end_at)
    now = min(now, MOST_AT)
    since = max(since, LEAST_AT - 1.0)
    if now <= since:
        return None
    if isinstance(schedule, Rate):
        fires = iter([newest_of_rate(schedule, now, window)])
    elif isinstance(schedule, Once):
        fires = iter([once_at(schedule, zone)])
    else:
        fires = firings_back(schedule, zone, local_date(now, zone) + MARGIN)
    found = next((at for at in fires if at <= now), None)
    return found if found is not None and found > since and window.has(found) else None


def due(action: ScheduledAction, now: float) -> float | None:
    """The firing that is to be done now; None where nothing is due.

    Of those missed while nothing ran only the newest is made up for, since each one sets the
    bounds again; a clock that is set back repeats none. Raises ValueError where the record's
    schedule or time zone is not (or no longer) known.
    """
    since = action.created_at if action.fired_at is None else action.fired_at
    schedule, zone = parse_schedule(action.schedule), time_zone(action.timezone)
    return newest_fire(schedule, zone, since, now, window_of(action))


def next_due(action: ScheduledAction, now: float) -> float | None:
    """When the action fires next, later than `now`; None: never again. Raises as `due`."""
    after = now if action.fired_at is None else max(now, action.fired_at)
    schedule, zone = parse_schedule(action.schedule), time_zone(action.timezone)
    return next_fire(schedule, zone, after, window_of(action))


def window_of(action: ScheduledAction) -> Window:
    """When the action's schedule holds."""
    return Window(created_at=action.created_at, start_at=action.start_at, end_at=action.end_at)


def with_bounds(target: ScalableTarget, action: ScheduledAction) -> ScalableTarget:
    """The target with the action's bounds; where only one is given, the other gives way to it."""
    low = target.min_capacity if action.min_capacity is None else action.min_capacity
    high = target.max_capacity if action.max_capacity is None else action.max_capacity
    if low > high:
        low, high = (low, low) if action.max_capacity is None else (high, high)
    return replace(target, min_capacity=low, max_capacity=high)


def once_at(schedule: Once, zone: tzinfo) -> float:
    """The instant of at(...)."""
    return schedule.local.replace(tzinfo=zone).timestamp()


def next_of_rate(rate: Rate, after: float, window: Window) -> float:
    """The first multiple of the interval later than `after`."""
    first = first_of_rate(rate, window)
    if after < first:
        return first
    return first + ((after - first) // rate.every_s + 1) * rate.every_s


def newest_of_rate(rate: Rate, now: float, window: Window) -> float:
    """The last multiple of the interval not later than `now`; the first where all are later."""
    first = first_of_rate(rate, window)
    return first + max(0.0, (now - first) // rate.every_s) * rate.every_s


def first_of_rate(rate: Rate, window: Window) -> float:
    """The first firing."""
    if window.start_at is not None:
        return window.start_at
    return window.created_at + rate.every_s


def firings(cron: Cron, zone: tzinfo, first: date) -> Iterator[float]:
    """Instants from a local date on, in order."""
    for year, month in months_from(cron, first):
        for day in cron.days_of(year, month):
            if date(year, month, day) >= first:
                yield from firings_of(cron, zone, date(year, month, day))


def firings_back(cron: Cron, zone: tzinfo, last: date) -> Iterator[float]:
    """Instants from a local date back, the newest first."""
    for year, month in months_back_from(cron, last):
        for day in reversed(cron.days_of(year, month)):
            if date(year, month, day) <= last:
                yield from reversed(firings_of(cron, zone, date(year, month, day)))


def firings_of(cron: Cron, zone: tzinfo, day: date) -> list[float]:
    """The instants of a local day, in order: times that it leaves out are none."""
    found: list[float] = []
    for hour, minute in cron.times:
        local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
        at = local.timestamp()
        local = datetime.fromtimestamp(at, zone)
        if (local.hour, local.minute, local.day) == (hour, minute, day.day):
            found.append(at)
    return sorted(found)


def local_date(at: float, zone: tzinfo) -> date:
    """The date at an instant."""
    return datetime.fromtimestamp(at, zone).date()
