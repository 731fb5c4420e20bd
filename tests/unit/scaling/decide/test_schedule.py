"""Schedules on a virtual clock.

Sources: CRON = "Cron expressions reference" in the Amazon EventBridge user guide, Q = Quartz's
CronExpression, DST = "Schedule types" (Daylight savings time) in the EventBridge Scheduler user
guide, API = PutScheduledAction in the Application Auto Scaling API reference.
"""

from datetime import datetime, tzinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.scaling import Dimension, ScheduledAction
from hostelry.domain.scope import Scope
from hostelry.scaling.decide.schedule import (
    Schedule,
    Window,
    find_due_firing,
    find_newest_firing,
    find_next_due,
    find_next_firing,
    get_time_zone,
    parse_schedule,
)

ALWAYS = Window(created_at=0.0)
NEW_YORK = "America/New_York"  # forward on 2024-03-10 at 02:00, back on 2024-11-03 at 02:00
LORD_HOWE = "Australia/Lord_Howe"  # by half an hour: forward on 2024-10-06 at 02:00
APIA = "Pacific/Apia"  # had no 2011-12-30


def at(text: str, zone: str = "UTC", fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=get_time_zone(zone), fold=fold).timestamp()


def local(instant: float | None, zone: str = "UTC") -> str | None:
    if instant is None:
        return None
    return datetime.fromtimestamp(instant, get_time_zone(zone)).strftime("%Y-%m-%dT%H:%M:%S%z")


def after(text: str, since: str, zone: str = "UTC") -> str | None:
    found = find_next_firing(parse_schedule(text), get_time_zone(zone), at(since, zone), ALWAYS)
    return None if found is None else (local(found, zone) or "")[:16]


@cases(
    "fields, since, fires",
    case("daily (CRON)", "0 10 * * ? *", "2024-05-01T10:00", "2024-05-02T10:00"),
    case("12:15 (CRON)", "15 12 * * ? *", "2024-05-01T10:00", "2024-05-01T12:15"),
    case("on working days (CRON)", "0 18 ? * MON-FRI *", "2024-05-03T18:00", "2024-05-06T18:00"),
    case("on the 1st (CRON)", "0 8 1 * ? *", "2024-05-01T08:00", "2024-06-01T08:00"),
    case("every 15 minutes (CRON)", "0/15 * * * ? *", "2024-05-01T10:07", "2024-05-01T10:15"),
    case("every 10 minutes of working days (CRON)", "0/10 * ? * MON-FRI *", "2024-05-03T23:50",
        "2024-05-06T00:00"),
    case("every 5 minutes of working hours (CRON)", "0/5 8-17 ? * MON-FRI *", "2024-05-03T17:55",
        "2024-05-06T08:00"),
    case("the last Friday (CRON)", "15 10 ? * 6L 2019-2022", "2019-01-01T00:00",
        "2019-01-25T10:15"),
    case("no such year follows", "15 10 ? * 6L 2019-2022", "2022-12-30T10:15", None),
    case("the second Tuesday (CRON: 3#2)", "0 9 ? * 3#2 *", "2024-05-01T00:00", "2024-05-14T09:00"),
    case("a fifth Monday: in months that have one", "0 9 ? * 2#5 *", "2024-05-01T00:00",
        "2024-07-29T09:00"),
    case("L, leap year", "0 9 L * ? *", "2024-02-01T00:00", "2024-02-29T09:00"),
    case("3 before (Q)", "0 9 L-3 * ? *", "2024-02-01T00:00", "2024-02-26T09:00"),
    case("the last weekday: June ends on a Sunday (Q)", "0 9 LW * ? *", "2024-06-01T00:00",
        "2024-06-28T09:00"),
    case("nearest to Saturday the 15th is the Friday (CRON: W)", "0 9 15W * ? *",
        "2024-06-01T00:00", "2024-06-14T09:00"),
    case("nearest to Saturday the 1st is Monday the 3rd, of the same month (Q)", "0 9 1W * ? *",
        "2024-06-01T00:00", "2024-06-03T09:00"),
    case("nearest to Sunday the 31st is Friday the 29th, of the same month (Q)", "0 9 31W * ? *",
        "2024-03-01T00:00", "2024-03-29T09:00"),
    case("no 31st, no W", "0 9 31W * ? *", "2024-04-01T00:00", "2024-05-31T09:00"),
    case("nearest to Sunday the 3rd is the Monday", "0 9 3W * ? *", "2024-03-01T00:00",
        "2024-03-04T09:00"),
    case("leap days", "0 0 29 2 ? *", "2024-03-01T00:00", "2028-02-29T00:00"),
    case("2100 has none", "0 0 29 2 ? *", "2096-03-01T00:00", "2104-02-29T00:00"),
    case("a day that never comes", "0 0 31 FEB,APR ? *", "2024-01-01T00:00", None),
    case("names", "0 0 ? jan sun 2030", "2024-01-01T00:00", "2030-01-06T00:00"),
    case("a range that wraps (Q)", "0 0 ? * FRI-MON *", "2024-05-07T00:00", "2024-05-10T00:00"),
    case("hours that wrap, by twos (Q)", "0 22-2/2 * * ? *", "2024-05-01T22:00",
        "2024-05-02T00:00"),
    case("1: Sunday (CRON)", "0 0 ? * 1 *", "2024-05-01T00:00", "2024-05-05T00:00"),
    case("L is Saturday (Q)", "0 0 ? * L *", "2024-05-01T00:00", "2024-05-04T00:00"),
    case("seven fields: the seconds have no effect", "30 0 12 * * ? *", "2024-05-01T00:00",
        "2024-05-01T12:00"),
    case("lists", "0,30 9 1,15 * ? *", "2024-05-01T09:30", "2024-05-15T09:00"),
)  # fmt: skip
def test_cron(fields: str, since: str, fires: str | None) -> None:
    assert after(f"cron({fields})", since) == fires


@cases(
    "text, problem",
    case("nothing", "", "it must be at"),
    case("words", "every day", "it must be at"),
    case("no closing bracket", "cron(0 9 * * ? *", "it must be at"),
    case("five fields, as crontab has them", "cron(0 9 * * *)", "6 fields"),
    case("no ? (CRON)", "cron(0 9 * * * *)", "exactly one of day-of-month"),
    case("two ? (CRON)", "cron(0 9 ? * ? *)", "exactly one of day-of-month"),
    case("minute 60", "cron(60 9 * * ? *)", "minutes '60' is not"),
    case("hour 24", "cron(0 24 * * ? *)", "hours '24' is not"),
    case("day 0", "cron(0 9 0 * ? *)", "day-of-month '0' is not"),
    case("weekday 0 (CRON: 1-7)", "cron(0 9 ? * 0 *)", "day-of-week '0' is not"),
    case("no weekday", "cron(0 9 ? * MOO *)", "nor one of SUN, MON"),
    case("a sixth Monday", "cron(0 9 ? * 2#6 *)", "1 to 5 after the #"),
    case("month 13", "cron(0 9 * 13 ? *)", "month '13' is not"),
    case("before 1970 (CRON)", "cron(0 9 * * ? 1969)", "year '1969' is not"),
    case("years backwards", "cron(0 9 * * ? 2030-2020)", "ends before it begins"),
    case("a step of nothing", "cron(0/0 9 * * ? *)", "above 0 after the slash"),
    case("no step", "cron(0/ 9 * * ? *)", "above 0 after the slash"),
    case("an empty part", "cron(0,, 9 * * ? *)", "minutes '' is not"),
    case("half a range", "cron(1- 9 * * ? *)", "minutes '' is not"),
    case("digits of another script", "cron(٣ 9 * * ? *)", "is not a number"),
    case("seconds are checked", "cron(x 0 9 * * ? *)", "seconds 'X' is not"),
    case("a date without time", "at(2024-05-01)", "yyyy-mm-ddThh:mm:ss"),
    case("30 February", "at(2024-02-30T00:00:00)", "day"),
    case("an offset", "at(2024-05-01T10:00:00Z)", "yyyy-mm-ddThh:mm:ss"),
    case("a rate of nothing", "rate(0 minutes)", "whole number from 1"),
    case("seconds (API)", "rate(5 seconds)", "minute(s), hour(s)"),
    case("a fraction", "rate(1.5 hours)", "whole number"),
    case("longer than time", "rate(99999999 days)", "whole number"),
    case("no number", "rate(minutes)", "whole number"),
)
def test_what_is_no_schedule(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_schedule(text)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["", "Mars/Olympus", "America", "../../etc/passwd", "/etc/localtime", "UTC\x00", "x" * 5000],
)
def test_what_is_no_time_zone(name: str) -> None:
    with pytest.raises(ValueError, match="IANA"):
        get_time_zone(name)


@cases(
    "fields, zone, since, fires",
    case("a time that summer time leaves out is skipped (DST)", "30 2 * * ? *", NEW_YORK,
        "2024-03-09T03:00", "2024-03-11T02:30"),
    case("a time that comes twice fires the first time (DST)", "30 1 * * ? *", NEW_YORK,
        "2024-11-02T12:00", "2024-11-03T01:30"),
    case("a time that comes twice fires once (DST)", "30 1 * * ? *", NEW_YORK, "2024-11-03T01:30",
        "2024-11-04T01:30"),
    case("a gap of half an hour", "15 2 * * ? *", LORD_HOWE, "2024-10-05T12:00",
        "2024-10-07T02:15"),
    case("a day that was left out", "0 9 * * ? *", APIA, "2011-12-29T09:00", "2011-12-31T09:00"),
    case("nine stays nine over the change", "0 9 * * ? *", NEW_YORK, "2024-03-09T09:00",
        "2024-03-10T09:00"),
    case("14 hours ahead of UTC", "0 0 * * ? *", "Pacific/Kiritimati", "2024-05-01T00:00",
        "2024-05-02T00:00"),
)  # fmt: skip
def test_cron_in_time_zones(fields: str, zone: str, since: str, fires: str) -> None:
    assert after(f"cron({fields})", since, zone) == fires


def test_the_first_of_a_repeated_hour_is_meant() -> None:
    found = find_next_firing(
        parse_schedule("cron(30 1 * * ? *)"), get_time_zone(NEW_YORK),
        at("2024-11-03T00:00", NEW_YORK), ALWAYS,
    )  # fmt: skip
    assert local(found, NEW_YORK) == "2024-11-03T01:30:00-0400"


@cases(
    "text, zone, fires",
    case("UTC (API)", "at(2024-05-01T10:00:00)", "UTC", "2024-05-01T10:00:00+0000"),
    case("a zone", "at(2024-05-01T10:00:00)", NEW_YORK, "2024-05-01T10:00:00-0400"),
    case("a time that is left out fires after the gap, for it has no second chance",
        "at(2024-03-10T02:30:00)", NEW_YORK, "2024-03-10T03:30:00-0400"),
    case("a time that comes twice means the first", "at(2024-11-03T01:30:00)", NEW_YORK,
        "2024-11-03T01:30:00-0400"),
)  # fmt: skip
def test_at_fires_once(text: str, zone: str, fires: str) -> None:
    schedule, where = parse_schedule(text), get_time_zone(zone)
    found = find_next_firing(schedule, where, at("2024-01-01T00:00"), ALWAYS)
    assert found is not None
    assert local(found, zone) == fires
    assert find_next_firing(schedule, where, found, ALWAYS) is None


@cases(
    "text, window, since, fires",
    case("a rate counts from its creation", "rate(5 minutes)", Window(created_at=1000.0), 1000.0,
        1300.0),
    case("and on", "rate(5 minutes)", Window(created_at=1000.0), 1300.0, 1600.0),
    case("a rate fires first at StartTime (API)", "rate(1 hour)",
        Window(created_at=0.0, start_at=5000.0), 100.0, 5000.0),
    case("and from there on", "rate(1 hour)", Window(created_at=0.0, start_at=5000.0), 5000.0,
        8600.0),
    case("EndTime itself still counts", "rate(2 days)", Window(created_at=0.0, end_at=172800.0),
        0.0, 172800.0),
    case("nothing after EndTime (API)", "rate(2 days)", Window(created_at=0.0, end_at=172799.0),
        0.0, None),
    case("StartTime itself counts", "cron(0 * * * ? *)", Window(created_at=0.0, start_at=7200.0),
        0.0, 7200.0),
    case("nothing before StartTime (API)", "cron(0 * * * ? *)",
        Window(created_at=0.0, start_at=7201.0), 0.0, 10800.0),
    case("cron ends too", "cron(0 * * * ? *)", Window(created_at=0.0, end_at=3599.0), 0.0, None),
    case("at after EndTime never fires", "at(1970-01-01T01:00:00)",
        Window(created_at=0.0, end_at=10.0), 0.0, None),
    case("a clock beyond the calendar", "cron(0 * * * ? *)", ALWAYS, 1e18, None),
    case("a clock before it", "cron(0 * * * ? *)", ALWAYS, -1e18, 3600.0),
)  # fmt: skip
def test_start_and_end(text: str, window: Window, since: float, fires: float | None) -> None:
    assert find_next_firing(parse_schedule(text), get_time_zone("UTC"), since, window) == fires


def action(schedule: str, zone: str = "UTC", **more: float) -> ScheduledAction:
    put = ScheduledAction(
        scope=Scope("123456789012", "us-west-2"),
        name="n",
        arn="arn",
        resource_id="inference-component/c",
        dimension=Dimension.COPIES,
        schedule=schedule,
        timezone=zone,
        created_at=at("2024-05-01T00:30"),
    )
    return replace(put, **more)


@cases(
    "of, now, fires",
    case("not yet", action("cron(0 * * * ? *)"), "2024-05-01T00:59", None),
    case("now", action("cron(0 * * * ? *)"), "2024-05-01T01:00", "2024-05-01T01:00"),
    case("after a week without control the newest missed one is made up for",
        action("cron(0 * * * ? *)"), "2024-05-08T07:20", "2024-05-08T07:00"),
    case("once", action("cron(0 * * * ? *)", fired_at=at("2024-05-08T07:00")), "2024-05-08T07:20",
        None),
    case("a clock set back by an hour repeats nothing",
        action("cron(0 * * * ? *)", fired_at=at("2024-05-08T07:00")), "2024-05-08T06:20", None),
    case("a clock set forward skips nothing",
        action("cron(0 * * * ? *)", fired_at=at("2024-05-08T07:00")), "2024-05-08T08:30",
        "2024-05-08T08:00"),
    case("what lies before the creation was not missed", action("at(2024-05-01T00:00:00)"),
        "2024-05-01T01:00", None),
    case("one that happens once is made up for, however late", action("at(2024-05-01T02:00:00)"),
        "2024-05-09T00:00", "2024-05-01T02:00"),
    case("and not twice", action("at(2024-05-01T02:00:00)", fired_at=at("2024-05-01T02:00")),
        "2024-05-09T00:00", None),
    case("a rate", action("rate(1 hour)"), "2024-05-01T05:00", "2024-05-01T04:30"),
    case("a rate's first", action("rate(1 hour)"), "2024-05-01T01:29", None),
    case("a rate before its StartTime", action("rate(1 hour)", start_at=at("2024-05-02T00:00")),
        "2024-05-01T05:00", None),
    case("the last before EndTime is made up for",
        action("cron(0 * * * ? *)", end_at=at("2024-05-01T03:30")), "2024-05-09T00:00",
        "2024-05-01T03:00"),
    case("one before StartTime was not missed",
        action("cron(0 * * * ? *)", start_at=at("2024-05-01T03:30")), "2024-05-01T03:40", None),
    case("in its time zone", action("cron(30 2 * * ? *)", NEW_YORK), "2024-05-01T07:00",
        "2024-05-01T06:30"),
    case("never", action("cron(0 0 30 2 ? *)"), "2199-01-01T00:00", None),
)  # fmt: skip
def test_what_is_due(of: ScheduledAction, now: str, fires: str | None) -> None:
    found = find_due_firing(of, at(now))
    assert (local(found) or "")[:16] == (fires or "")


def test_what_is_due_next() -> None:
    hourly = action("cron(0 * * * ? *)")
    assert find_next_due(hourly, at("2024-05-01T01:00")) == at("2024-05-01T02:00")
    fired = replace(hourly, fired_at=at("2024-05-01T02:00"))
    assert find_next_due(fired, at("2024-05-01T01:10")) == at("2024-05-01T03:00")


SCHEDULES: st.SearchStrategy[Schedule] = st.sampled_from(
    [
        "cron(0/7 * * * ? *)", "cron(30 1,2 * * ? *)", "cron(0 3 ? * SUN#2 *)", "cron(0 3 L * ? *)",
        "cron(59 23 31 12 ? *)", "at(2024-03-10T02:30:00)", "rate(7 hours)", "rate(1 minute)",
    ]
).map(parse_schedule)  # fmt: skip
ZONES = st.sampled_from(["UTC", NEW_YORK, LORD_HOWE, APIA, "Asia/Kathmandu"]).map(get_time_zone)
INSTANTS = st.floats(at("2011-12-01T00:00"), at("2026-01-01T00:00"))


@given(SCHEDULES, ZONES, INSTANTS, st.floats(0, 400 * 86400))
def test_the_newest_is_the_last_of_the_next_ones(
    schedule: Schedule, zone: tzinfo, since: float, more: float
) -> None:
    window = Window(created_at=at("2011-11-01T00:00"))
    newest = find_newest_firing(schedule, zone, since, since + more, window)
    following = find_next_firing(schedule, zone, since, window)
    if newest is None:
        assert following is None or following > since + more
        return
    assert following is not None
    assert since < following <= newest <= since + more
    after_newest = find_next_firing(schedule, zone, newest, window)
    assert after_newest is None or after_newest > since + more


@given(SCHEDULES, ZONES, INSTANTS)
def test_fires_are_later_and_by_the_minute(schedule: Schedule, zone: tzinfo, since: float) -> None:
    window = Window(created_at=at("2011-11-01T00:00"))
    found = find_next_firing(schedule, zone, since, window)
    assert found is None or (found > since and found % 60 == 0)
