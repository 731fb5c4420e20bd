"""Schedules of scheduled actions: at(...), rate(...) and cron(...), as AWS writes them."""

import calendar
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from hostelry.domain.scaling import ScalableTarget, ScheduledAction

# Cron expressions as AWS writes them: [seconds] minutes hours day-of-month month day-of-week year.
#
# Local calendar days and times of day only. Schedules, below, make instants of them. Source: "Cron
# expressions reference" in the Amazon EventBridge user guide, which Application Auto Scaling refers
# to. For LW, L-n, weekday names with L, and ranges that wrap: "CronExpression" of Quartz.


MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
NUM_FIELDS = 6
FIRST_YEAR, LAST_YEAR = 1970, 2199
DAYS_A_WEEK = 7
# (year, month) -> days of that month.
DayRule = Callable[[int, int], frozenset[int]]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field's name, its least and greatest number, and names that stand for numbers."""

    name: str
    least: int
    most: int
    names: Mapping[str, int]


SECONDS = Field(name="seconds", least=0, most=59, names={})
MINUTES = Field(name="minutes", least=0, most=59, names={})
HOURS = Field(name="hours", least=0, most=23, names={})
MONTH_DAYS = Field(name="day-of-month", least=1, most=31, names={})
MONTHS_OF_YEAR = Field(
    name="month", least=1, most=12, names={name: at for at, name in enumerate(MONTHS, start=1)}
)
WEEK_DAYS = Field(
    name="day-of-week",
    least=1,
    most=7,
    names={name: at for at, name in enumerate(WEEKDAYS, start=1)},
)
YEARS = Field(name="year", least=FIRST_YEAR, most=LAST_YEAR, names={})


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed expression. Times of day are (hour, minute), in order."""

    times: tuple[tuple[int, int], ...]
    days: tuple[DayRule, ...]
    months: frozenset[int]
    years: frozenset[int]

    def list_days(self, year: int, month: int) -> list[int]:
        """The days of one of its months on which it fires, in order."""
        return sorted(set().union(*(rule(year, month) for rule in self.days)))


def parse_cron(fields_text: str) -> Cron:
    """Parse the expression between the brackets of cron(...). Raises ValueError if it is invalid.

    A seventh field before the others is seconds. It is checked, and has no effect, because
    schedules are kept by the minute.
    """
    fields = fields_text.upper().split()
    if len(fields) == NUM_FIELDS + 1:
        parse_numbers(SECONDS, fields.pop(0))
    if len(fields) != NUM_FIELDS:
        raise ValueError(
            f"cron needs 6 fields (minutes hours day-of-month month day-of-week year), not"
            f" {len(fields)}"
        )
    minutes, hours, month_day, month, week_day, year = fields
    if (month_day == "?") == (week_day == "?"):
        raise ValueError(
            "exactly one of day-of-month and day-of-week must be ?, since the other one decides"
        )
    times = (
        (hour, minute)
        for hour in parse_numbers(HOURS, hours)
        for minute in parse_numbers(MINUTES, minutes)
    )
    return Cron(
        times=tuple(sorted(times)),
        days=parse_week_days(week_day) if month_day == "?" else parse_month_days(month_day),
        months=parse_numbers(MONTHS_OF_YEAR, month),
        years=parse_numbers(YEARS, year),
    )


def iterate_months(cron: Cron, first: date) -> Iterator[tuple[int, int]]:
    """The (year, month) pairs of the expression, from the month of `first` on."""
    for year in sorted(it for it in cron.years if it >= first.year):
        for month in sorted(cron.months):
            if (year, month) >= (first.year, first.month):
                yield year, month


def iterate_months_back(cron: Cron, last: date) -> Iterator[tuple[int, int]]:
    """The (year, month) pairs of the expression, from the month of `last` back."""
    for year in sorted((it for it in cron.years if it <= last.year), reverse=True):
        for month in sorted(cron.months, reverse=True):
            if (year, month) <= (last.year, last.month):
                yield year, month


def parse_numbers(field: Field, text: str) -> frozenset[int]:
    """The numbers that a field of lists, ranges and steps means."""
    found: set[int] = set()
    for part in text.split(","):
        found |= parse_part(field, part)
    return frozenset(found)


def parse_part(field: Field, part: str) -> set[int]:
    """The numbers of one part: *, n, n-m, and each with /step."""
    span, slash, step_text = part.partition("/")
    step = parse_positive(field, part, step_text) if slash else 1
    if span == "*":
        first, last = field.least, field.most
    elif "-" in span:
        first_text, _, last_text = span.partition("-")
        first, last = parse_number(field, first_text), parse_number(field, last_text)
    else:
        first = parse_number(field, span)
        last = field.most if slash else first
    if first <= last:
        return set(range(first, last + 1, step))
    if field is YEARS:
        raise ValueError(f"{field.name} {part!r} ends before it begins")
    size = field.most - field.least + 1
    return {(it - field.least) % size + field.least for it in range(first, last + size + 1, step)}


def parse_number(field: Field, text: str) -> int:
    """One number of a field, or the name that stands for one."""
    if text in field.names:
        return field.names[text]
    if re.fullmatch("[0-9]{1,4}", text) and field.least <= int(text) <= field.most:
        return int(text)
    names = f", nor one of {', '.join(field.names)}" if field.names else ""
    raise ValueError(
        f"{field.name} {text!r} is not a number from {field.least} to {field.most}{names}"
    )


def parse_positive(field: Field, part: str, text: str) -> int:
    """The step after a slash."""
    if re.fullmatch("[0-9]{1,4}", text) and int(text) > 0:
        return int(text)
    raise ValueError(f"{field.name} {part!r} needs a whole number above 0 after the slash")


def parse_month_days(text: str) -> tuple[DayRule, ...]:
    """Rules of a day-of-month field."""
    return tuple(parse_month_day(part) for part in text.split(","))


def parse_month_day(part: str) -> DayRule:
    """L: the last day. L-n: n days before it. W: the nearest weekday of the same month."""
    if part == "LW":
        return lambda year, month: frozenset({find_nearest_weekday(year, month, 31)})
    if part == "L" or part.startswith("L-"):
        back = parse_number(MONTH_DAYS, part[2:]) if part != "L" else 0
        return lambda year, month: keep_existing_day(year, month, count_days(year, month) - back)
    if part.endswith("W"):
        day = parse_number(MONTH_DAYS, part[:-1])
        return lambda year, month: (
            frozenset({find_nearest_weekday(year, month, day)})
            if day <= count_days(year, month)
            else frozenset()
        )
    days = parse_part(MONTH_DAYS, part)
    return lambda year, month: frozenset(it for it in days if it <= count_days(year, month))


def parse_week_days(text: str) -> tuple[DayRule, ...]:
    """Rules of a day-of-week field."""
    return tuple(parse_week_day(part) for part in text.split(","))


def parse_week_day(part: str) -> DayRule:
    """5L: the month's last Thursday. 5#2: its second one. L alone: Saturday."""
    if part == "L":
        part = "7"
    if part.endswith("L"):
        last = parse_number(WEEK_DAYS, part[:-1])
        return lambda year, month: frozenset(list_week_days(year, month, last)[-1:])
    if "#" in part:
        day_text, _, which_text = part.partition("#")
        day = parse_number(WEEK_DAYS, day_text)
        if which_text not in ("1", "2", "3", "4", "5"):
            raise ValueError(f"day-of-week {part!r} needs a number from 1 to 5 after the #")
        which = int(which_text)
        return lambda year, month: frozenset(list_week_days(year, month, day)[which - 1 : which])
    wanted = parse_part(WEEK_DAYS, part)
    return lambda year, month: frozenset(
        day for week_day in wanted for day in list_week_days(year, month, week_day)
    )


def list_week_days(year: int, month: int, week_day: int) -> list[int]:
    """The days of a month on a weekday, of which 1 is Sunday."""
    first = date(year, month, 1)
    # isoweekday has 7 for Sunday, and so the same numbers modulo 7.
    offset = (week_day - 1 - first.isoweekday()) % DAYS_A_WEEK
    return list(range(1 + offset, count_days(year, month) + 1, DAYS_A_WEEK))


def find_nearest_weekday(year: int, month: int, day: int) -> int:
    """The Monday to Friday nearest to a day, or to the month's last, without leaving the month."""
    last = count_days(year, month)
    day = min(day, last)
    shift = {6: -1, 7: 1}.get(date(year, month, day).isoweekday(), 0)
    if day + shift < 1:
        shift = 2
    elif day + shift > last:
        shift = -2
    return (date(year, month, day) + timedelta(days=shift)).day


def keep_existing_day(year: int, month: int, day: int) -> frozenset[int]:
    """The day, where the month has it."""
    return frozenset({day} if 1 <= day <= count_days(year, month) else ())


def count_days(year: int, month: int) -> int:
    """How long a month is."""
    return calendar.monthrange(year, month)[1]


# Schedules of scheduled actions: at(...), rate(...) and cron(...), as instants.
#
# A cron time that the change to summer time leaves out is skipped. A cron time that the change back
# repeats counts once, the first time. An at() time that is left out fires as much later as the
# clocks were set forward. Source: PutScheduledAction (Schedule, Timezone, StartTime) in the
# Application Auto Scaling API reference. For daylight saving: "Schedule types" (Daylight savings
# time) in the EventBridge Scheduler user guide.


UNIT_S = {"minute": 60, "hour": 3600, "day": 86400}
MAX_RATE = 10**6
# Local dates are at most a day from UTC's.
MARGIN = timedelta(days=1)
# The calendar has no instants outside of these years.
LEAST_AT, MOST_AT = 0.0, datetime(2200, 1, 1, tzinfo=UTC).timestamp()


class Once(msgspec.Struct, frozen=True, kw_only=True):
    """at(...): a local date and time."""

    local: datetime


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """rate(...): an interval in seconds, whatever the local time."""

    every_s: int


Schedule = Once | Rate | Cron


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule holds: from `start_at` to `end_at`, both included (None: without end).

    A rate counts from `start_at`, which is its first firing, or from `created_at`, at which it does
    not fire.
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
    """Parse a Schedule. Raises ValueError, which names the error."""
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
def get_time_zone(name: str) -> tzinfo:
    """The IANA time zone of that name. Raises ValueError if the name is unknown."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{name!r} is not the name of an IANA time zone") from None


def find_next_firing(
    schedule: Schedule, zone: tzinfo, after: float, window: Window
) -> float | None:
    """The first firing later than `after`, in seconds since the epoch. None if none follows."""
    if window.start_at is not None and window.start_at > after:
        # A firing just at StartTime counts. A microsecond is less than any schedule resolves.
        after = window.start_at - 1e-6
    after = max(LEAST_AT, after)
    if after >= MOST_AT:
        return None
    if isinstance(schedule, Rate):
        fires = iter([find_next_multiple(schedule, after, window)])
    elif isinstance(schedule, Once):
        fires = iter([get_once_at(schedule, zone)])
    else:
        fires = iterate_firings(schedule, zone, get_local_date(after, zone) - MARGIN)
    found = next((at for at in fires if at > after), None)
    return found if found is not None and window.has(found) else None


def find_newest_firing(
    schedule: Schedule, zone: tzinfo, since: float, now: float, window: Window
) -> float | None:
    """The last firing later than `since` and not later than `now`. None without one."""
    if window.end_at is not None:
        now = min(now, window.end_at)
    now = min(now, MOST_AT)
    since = max(since, LEAST_AT - 1.0)
    if now <= since:
        return None
    if isinstance(schedule, Rate):
        fires = iter([find_newest_multiple(schedule, now, window)])
    elif isinstance(schedule, Once):
        fires = iter([get_once_at(schedule, zone)])
    else:
        fires = iterate_firings_back(schedule, zone, get_local_date(now, zone) + MARGIN)
    found = next((at for at in fires if at <= now), None)
    return found if found is not None and found > since and window.has(found) else None


def find_due_firing(action: ScheduledAction, now: float) -> float | None:
    """The firing to be done now. None if nothing is due.

    Of the firings missed while nothing ran only the newest is made up for, since each one sets the
    bounds again. A clock that is set back repeats no firing. Raises ValueError if the record's
    schedule or time zone is not (or no longer) known.
    """
    since = action.created_at if action.fired_at is None else action.fired_at
    schedule, zone = parse_schedule(action.schedule), get_time_zone(action.timezone)
    return find_newest_firing(schedule, zone, since, now, get_window(action))


def find_next_due(action: ScheduledAction, now: float) -> float | None:
    """The action's next firing, later than `now`. None: never again. Raises ValueError likewise."""
    after = now if action.fired_at is None else max(now, action.fired_at)
    schedule, zone = parse_schedule(action.schedule), get_time_zone(action.timezone)
    return find_next_firing(schedule, zone, after, get_window(action))


def get_window(action: ScheduledAction) -> Window:
    """When the action's schedule holds."""
    return Window(created_at=action.created_at, start_at=action.start_at, end_at=action.end_at)


def replace_bounds(target: ScalableTarget, action: ScheduledAction) -> ScalableTarget:
    """The target with the action's bounds. If only one is given, the other gives way to it."""
    low = target.min_capacity if action.min_capacity is None else action.min_capacity
    high = target.max_capacity if action.max_capacity is None else action.max_capacity
    if low > high:
        low, high = (low, low) if action.max_capacity is None else (high, high)
    return replace(target, min_capacity=low, max_capacity=high)


def get_once_at(schedule: Once, zone: tzinfo) -> float:
    """The instant of at(...)."""
    return schedule.local.replace(tzinfo=zone).timestamp()


def find_next_multiple(rate: Rate, after: float, window: Window) -> float:
    """The first multiple of the interval later than `after`."""
    first = get_first_firing(rate, window)
    if after < first:
        return first
    return first + ((after - first) // rate.every_s + 1) * rate.every_s


def find_newest_multiple(rate: Rate, now: float, window: Window) -> float:
    """The last multiple of the interval not later than `now`. The first if all are later."""
    first = get_first_firing(rate, window)
    return first + max(0.0, (now - first) // rate.every_s) * rate.every_s


def get_first_firing(rate: Rate, window: Window) -> float:
    """The first firing."""
    if window.start_at is not None:
        return window.start_at
    return window.created_at + rate.every_s


def iterate_firings(cron: Cron, zone: tzinfo, first: date) -> Iterator[float]:
    """Instants from a local date on, in order."""
    for year, month in iterate_months(cron, first):
        for day in cron.list_days(year, month):
            if date(year, month, day) >= first:
                yield from list_firings(cron, zone, date(year, month, day))


def iterate_firings_back(cron: Cron, zone: tzinfo, last: date) -> Iterator[float]:
    """Instants from a local date back, the newest first."""
    for year, month in iterate_months_back(cron, last):
        for day in reversed(cron.list_days(year, month)):
            if date(year, month, day) <= last:
                yield from reversed(list_firings(cron, zone, date(year, month, day)))


def list_firings(cron: Cron, zone: tzinfo, day: date) -> list[float]:
    """The instants of a local day, in order. Times that the day leaves out have no instant."""
    found: list[float] = []
    for hour, minute in cron.times:
        local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
        at = local.timestamp()
        local = datetime.fromtimestamp(at, zone)
        if (local.hour, local.minute, local.day) == (hour, minute, day.day):
            found.append(at)
    return sorted(found)


def get_local_date(at: float, zone: tzinfo) -> date:
    """The date at an instant."""
    return datetime.fromtimestamp(at, zone).date()
