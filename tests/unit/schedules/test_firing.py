"""Firings of schedules and further attempts: pure decisions on plain values."""

from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.event_schedule import EventSchedule, ScheduledExecution, ScheduleTarget
from hostelry.domain.scope import Scope
from hostelry.schedules.firing import (
    due_at,
    expression_problem,
    is_over,
    next_attempt_at,
    next_due_at,
    window_offset_s,
)

NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z
HOUR_S = 3600.0
TARGET = ScheduleTarget(arn="arn:aws:scheduler:::aws-sdk:sagemaker:deleteModel")


def schedule(expression: str, **fields: object) -> EventSchedule:
    made = EventSchedule(
        scope=Scope("123456789012", "us-west-2"),
        group="default",
        name="nightly",
        created_at=NOW,
        modified_at=NOW,
        expression=expression,
        timezone="UTC",
        target=TARGET,
        given={},
    )
    return replace(made, **fields)


PENDING = ScheduledExecution(id="x", scheduled_at=NOW, next_at=NOW + 7, attempt=1)
OLD = replace(TARGET, max_age_s=60.0)


@cases(
    "given, after_s, expected_s",
    case("a rate fires at once", schedule("rate(1 hour)"), 0, 0),
    case("a rate waits for its interval", schedule("rate(1 hour)", fired_at=NOW), 3599, None),
    case(
        "of missed firings the newest is made up for",
        schedule("rate(1 hour)", fired_at=NOW),
        3 * HOUR_S + 1,
        3 * HOUR_S,
    ),
    case("a rate waits for StartDate", schedule("rate(1 hour)", start_at=NOW + 100), 99, None),
    case("a rate fires at StartDate", schedule("rate(1 hour)", start_at=NOW + 100), 100, 100),
    case("a one-time schedule waits", schedule("at(2023-11-14T22:13:30)"), 9, None),
    case("a one-time schedule fires", schedule("at(2023-11-14T22:13:30)"), 11, 10),
    case("and only once", schedule("at(2023-11-14T22:13:30)", fired_at=NOW + 10), 1e6, None),
    case(
        "its time is that of its time zone",
        schedule("at(2023-11-14T23:13:30)", timezone="Europe/Berlin"),
        11,
        10,
    ),
    case("cron fires at its local time", schedule("cron(0 23 * * ? *)"), 2800.5, 2800),
    case("disabled: never", schedule("rate(1 hour)", is_enabled=False), 9e9, None),
    case(
        "not after EndDate", schedule("rate(1 hour)", end_at=NOW + 10, fired_at=NOW), HOUR_S, None
    ),
    case("one execution at a time", schedule("rate(1 hour)", execution=PENDING), HOUR_S, None),
    case("too old: dropped", schedule("at(2023-11-14T22:13:30)", target=OLD), 200, None),
)
def test_a_schedule_is_due(given: EventSchedule, after_s: float, expected_s: float | None) -> None:
    expected = None if expected_s is None else NOW + expected_s
    assert due_at(given, NOW + after_s) == expected


@cases(
    "given, expected_s",
    case("after its interval", schedule("rate(1 hour)", fired_at=NOW), HOUR_S),
    case("at its next attempt", schedule("rate(1 hour)", execution=PENDING), 7),
    case("disabled: never", schedule("rate(1 hour)", is_enabled=False), None),
    case("at its time", schedule("at(2023-11-14T22:13:30)"), 10),
    case("now, where it is due", schedule("rate(1 hour)"), 1),
    case("never", schedule("at(2023-11-14T22:13:30)", fired_at=NOW + 10), None),
)
def test_there_is_something_to_do_next(given: EventSchedule, expected_s: float | None) -> None:
    assert next_due_at(given, NOW + 1) == (None if expected_s is None else NOW + expected_s)


def test_a_flexible_window_delays_a_firing_by_the_same_part_of_it_each_time() -> None:
    given = schedule("at(2023-11-14T22:13:30)", window_s=600.0)
    offset_s = window_offset_s(given, NOW + 10)
    assert 0 < offset_s < 600
    assert due_at(given, NOW + 10 + offset_s - 0.1) is None
    assert next_due_at(given, NOW + 10 + offset_s - 0.1) == NOW + 10 + offset_s
    assert due_at(given, NOW + 10 + offset_s) == NOW + 10


@cases(
    "attempt, age_s, retries, pause_s",
    case("a second after the first", 1, 0, 185, 1),
    case("twice as long each time", 4, 20, 185, 8),
    case("five minutes at most", 30, 9000, 185, 300),
    case("never without retries", 1, 0, 0, None),
    case("never after the last", 3, 9, 2, None),
    case("never past the event's age", 9, 86_300, 185, None),
)
def test_a_failed_call_is_tried_again(
    attempt: int, age_s: float, retries: int, pause_s: float | None
) -> None:
    given = schedule("rate(1 hour)", target=replace(TARGET, max_retries=retries))
    execution = ScheduledExecution(id="x", scheduled_at=NOW, next_at=NOW, attempt=attempt)
    at = next_attempt_at(given, execution, NOW + age_s)
    assert at == (None if pause_s is None else NOW + age_s + pause_s)


@cases(
    "expression, timezone, start_s, end_s, problem",
    case("a rate", "rate(5 minutes)", "UTC", None, None, None),
    case("a start that has passed", "rate(5 minutes)", "UTC", -50, None, None),
    case("a later time", "at(2024-01-01T00:00:00)", "UTC", None, None, None),
    case("a past time", "at(2020-01-01T00:00:00)", "UTC", None, None, "the past"),
    case("a past year", "cron(0 0 1 1 ? 2020)", "UTC", None, None, "the past"),
    case("no rate", "rate(0 days)", "UTC", None, None, "whole number"),
    case("no expression", "soon", "UTC", None, None, "must be at("),
    case("no time zone", "rate(1 day)", "Moon", None, None, "IANA time zone"),
    case("an end in the past", "rate(1 day)", "UTC", None, -1, "EndDate"),
    case("an end before the start", "rate(1 day)", "UTC", 50, 20, "StartDate"),
)
def test_what_may_be_scheduled(
    expression: str,
    timezone: str,
    start_s: float | None,
    end_s: float | None,
    problem: str | None,
) -> None:
    start_at = None if start_s is None else NOW + start_s
    end_at = None if end_s is None else NOW + end_s
    found = expression_problem(expression, timezone, start_at, end_at, NOW)
    assert found is None if problem is None else found is not None and problem in found


def test_a_schedule_is_over_after_its_last_firing() -> None:
    once = schedule("at(2023-11-14T22:13:30)")
    assert not is_over(once, NOW)
    assert not is_over(once, NOW + 20), "it is due"
    assert not is_over(replace(once, fired_at=NOW + 10, execution=PENDING), NOW + 20)
    assert is_over(replace(once, fired_at=NOW + 10), NOW + 20)
