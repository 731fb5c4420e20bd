"""Cron expressions as AWS writes them: [seconds] minutes hours day-of-month month day-of-week year.

Local calendar days and times of day only; `schedule` makes instants of them. Source:
"Cron expressions reference" in the Amazon EventBridge user guide, which Application Auto Scaling
refers to; "CronExpression" of Quartz for LW, L-n, weekday names with L, and ranges that wrap.
"""

import calendar
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
NUM_FIELDS = 6
FIRST_YEAR, LAST_YEAR = 1970, 2199
DAYS_A_WEEK = 7
# (year, month) -> days of that month.
DayRule = Callable[[int, int], frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A parsed expression; times of day are (hour, minute), in order."""

    times: tuple[tuple[int, int], ...]
    days: tuple[DayRule, ...]
    months: frozenset[int]
    years: frozenset[int]

    def days_of(self, year: int, month: int) -> list[int]:
        """The days of one of its months on which it fires, in order."""
        return sorted(set().union(*(rule(year, month) for rule in self.days)))


def parse_cron(fields_text: str) -> Cron:
    """The expression between the brackets of cron(...); raises ValueError where it is not one.

    A seventh field before the others is seconds: it is checked, and has no effect, for schedules
    are kept by the minute.
    """
    fields = fields_text.upper().split()
    if len(fields) == NUM_FIELDS + 1:
        numbers(SECONDS, fields.pop(0))
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
        (hour, minute) for hour in numbers(HOURS, hours) for minute in numbers(MINUTES, minutes)
    )
    return Cron(
        times=tuple(sorted(times)),
        days=week_days(week_day) if month_day == "?" else month_days(month_day),
        months=numbers(MONTHS_OF_YEAR, month),
        years=numbers(YEARS, year),
    )


def months_from(cron: Cron, first: date) -> Iterator[tuple[int, int]]:
    """The (year, month) that the expression has, from that of `first` on."""
    for year in sorted(it for it in cron.years if it >= first.year):
        for month in sorted(cron.months):
            if (year, month) >= (first.year, first.month):
                yield year, month


def months_back_from(cron: Cron, last: date) -> Iterator[tuple[int, int]]:
    """The (year, month) that the expression has, from that of `last` back."""
    for year in sorted((it for it in cron.years if it <= last.year), reverse=True):
        for month in sorted(cron.months, reverse=True):
            if (year, month) <= (last.year, last.month):
                yield year, month


def numbers(field: Field, text: str) -> frozenset[int]:
    """The numbers that a field of lists, ranges and steps means."""
    found: set[int] = set()
    for part in text.split(","):
        found |= part_numbers(field, part)
    return frozenset(found)


def part_numbers(field: Field, part: str) -> set[int]:
    """The numbers of one part: *, n, n-m, and each with /step."""
    span, slash, step_text = part.partition("/")
    step = positive(field, part, step_text) if slash else 1
    if span == "*":
        first, last = field.least, field.most
    elif "-" in span:
        first_text, _, last_text = span.partition("-")
        first, last = number(field, first_text), number(field, last_text)
    else:
        first = number(field, span)
        last = field.most if slash else first
    if first <= last:
        return set(range(first, last + 1, step))
    if field is YEARS:
        raise ValueError(f"{field.name} {part!r} ends before it begins")
    size = field.most - field.least + 1
    return {(it - field.least) % size + field.least for it in range(first, last + size + 1, step)}


def number(field: Field, text: str) -> int:
    """One number of a field, or the name that stands for one."""
    if text in field.names:
        return field.names[text]
    if re.fullmatch("[0-9]{1,4}", text) and field.least <= int(text) <= field.most:
        return int(text)
    names = f", nor one of {', '.join(field.names)}" if field.names else ""
    raise ValueError(
        f"{field.name} {text!r} is not a number from {field.least} to {field.most}{names}"
    )


def positive(field: Field, part: str, text: str) -> int:
    """The step after a slash."""
    if re.fullmatch("[0-9]{1,4}", text) and int(text) > 0:
        return int(text)
    raise ValueError(f"{field.name} {part!r} needs a whole number above 0 after the slash")


def month_days(text: str) -> tuple[DayRule, ...]:
    """Rules of a day-of-month field."""
    return tuple(month_day_rule(part) for part in text.split(","))


def month_day_rule(part: str) -> DayRule:
    """L: the last day; L-n: n days before it; W: the weekday nearest to it, of the same month."""
    if part == "LW":
        return lambda year, month: frozenset({nearest_weekday(year, month, 31)})
    if part == "L" or part.startswith("L-"):
        back = number(MONTH_DAYS, part[2:]) if part != "L" else 0
        return lambda year, month: existing(year, month, num_days(year, month) - back)
    if part.endswith("W"):
        day = number(MONTH_DAYS, part[:-1])
        return lambda year, month: (
            frozenset({nearest_weekday(year, month, day)})
            if day <= num_days(year, month)
            else frozenset()
        )
    days = part_numbers(MONTH_DAYS, part)
    return lambda year, month: frozenset(it for it in days if it <= num_days(year, month))


def week_days(text: str) -> tuple[DayRule, ...]:
    """Rules of a day-of-week field."""
    return tuple(week_day_rule(part) for part in text.split(","))


def week_day_rule(part: str) -> DayRule:
    """5L: the month's last Thursday; 5#2: its second one; L alone: Saturday."""
    if part == "L":
        part = "7"
    if part.endswith("L"):
        last = number(WEEK_DAYS, part[:-1])
        return lambda year, month: frozenset(days_on(year, month, last)[-1:])
    if "#" in part:
        day_text, _, which_text = part.partition("#")
        day = number(WEEK_DAYS, day_text)
        if which_text not in ("1", "2", "3", "4", "5"):
            raise ValueError(f"day-of-week {part!r} needs a number from 1 to 5 after the #")
        which = int(which_text)
        return lambda year, month: frozenset(days_on(year, month, day)[which - 1 : which])
    wanted = part_numbers(WEEK_DAYS, part)
    return lambda year, month: frozenset(
        day for week_day in wanted for day in days_on(year, month, week_day)
    )


def days_on(year: int, month: int, week_day: int) -> list[int]:
    """The days of a month on a weekday, of which 1 is Sunday."""
    first = date(year, month, 1)
    # isoweekday has 7 for Sunday, and so the same numbers modulo 7.
    offset = (week_day - 1 - first.isoweekday()) % DAYS_A_WEEK
    return list(range(1 + offset, num_days(year, month) + 1, DAYS_A_WEEK))


def nearest_weekday(year: int, month: int, day: int) -> int:
    """The Monday to Friday nearest to a day, or to the month's last, without leaving the month."""
    last = num_days(year, month)
    day = min(day, last)
    shift = {6: -1, 7: 1}.get(date(year, month, day).isoweekday(), 0)
    if day + shift < 1:
        shift = 2
    elif day + shift > last:
        shift = -2
    return (date(year, month, day) + timedelta(days=shift)).day


def existing(year: int, month: int, day: int) -> frozenset[int]:
    """The day, where the month has it."""
    return frozenset({day} if 1 <= day <= num_days(year, month) else ())


def num_days(year: int, month: int) -> int:
    """How long a month is."""
    return calendar.monthrange(year, month)[1]
