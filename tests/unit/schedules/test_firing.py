"""Firings of schedules and further attempts: pure decisions on plain values."""

from dataclasses import replace

import pytest

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
    return replace(made, **fields)  # type: ignore[arg-type]


PENDING = ScheduledExecution(id="x", scheduled_at=NOW, next_at=NOW + 7, attempt=1)
OLD = replace(TARGET, max_age_s=60.0)


@pytest.mark.parametrize(
    ("given", "after_s", "expected_s"),
    [
        pytest.param(schedule("rate(1 hour)"), 0, 0, id="a rate fires at once"),
        pytest.param(
            schedule("rate(1 hour)", fired_at=NOW), 3599, None, id="a rate waits for its interval"
        ),
        pytest.param(
            schedule("rate(1 hour)", fired_at=NOW),
            3 * HOUR_S + 1,
            3 * HOUR_S,
            id="of missed firings the newest is made up for",
        ),
        pytest.param(
            schedule("rate(1 hour)", start_at=NOW + 100), 99, None, id="a rate waits for StartDate"
        ),
        pytest.param(
            schedule("rate(1 hour)", start_at=NOW + 100), 100, 100, id="a rate fires at StartDate"
        ),
        pytest.param(schedule("at(2023-11-14T22:13:30)"), 9, None, id="a one-time schedule waits"),
        pytest.param(schedule("at(2023-11-14T22:13:30)"), 11, 10, id="a one-time schedule fires"),
        pytest.param(
            schedule("at(2023-11-14T22:13:30)", fired_at=NOW + 10), 1e6, None, id="and only once"
        ),
        pytest.param(
            schedule("at(2023-11-14T23:13:30)", timezone="Europe/Berlin"),
            11,
            10,
            id="its time is that of its time zone",
        ),
        pytest.param(
            schedule("cron(0 23 * * ? *)"), 2800.5, 2800, id="cron fires at its local time"
        ),
        pytest.param(schedule("rate(1 hour)", is_enabled=False), 9e9, None, id="disabled: never"),
        pytest.param(
            schedule("rate(1 hour)", end_at=NOW + 10, fired_at=NOW),
            HOUR_S,
            None,
            id="not after EndDate",
        ),
        pytest.param(
            schedule("rate(1 hour)", execution=PENDING), HOUR_S, None, id="one execution at a time"
        ),
        pytest.param(
            schedule("at(2023-11-14T22:13:30)", target=OLD), 200, None, id="too old: dropped"
        ),
    ],
)
def test_a_schedule_is_due(given: EventSchedule, after_s: float, expected_s: float | None) -> None:
    expected = None if expected_s is None else NOW + expected_s
    assert due_at(given, NOW + after_s) == expected


@pytest.mark.parametrize(
    ("given", "expected_s"),
    [
        pytest.param(schedule("rate(1 hour)", fired_at=NOW), HOUR_S, id="after its interval"),
        pytest.param(schedule("rate(1 hour)", execution=PENDING), 7, id="at its next attempt"),
        pytest.param(schedule("rate(1 hour)", is_enabled=False), None, id="disabled: never"),
        pytest.param(schedule("at(2023-11-14T22:13:30)"), 10, id="at its time"),
        pytest.param(schedule("rate(1 hour)"), 1, id="now, where it is due"),
        pytest.param(schedule("at(2023-11-14T22:13:30)", fired_at=NOW + 10), None, id="never"),
    ],
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


@pytest.mark.parametrize(
    ("attempt", "age_s", "retries", "pause_s"),
    [
        pytest.param(1, 0, 185, 1, id="a second after the first"),
        pytest.param(4, 20, 185, 8, id="twice as long each time"),
        pytest.param(30, 9000, 185, 300, id="five minutes at most"),
        pytest.param(1, 0, 0, None, id="never without retries"),
        pytest.param(3, 9, 2, None, id="never after the last"),
        pytest.param(9, 86_300, 185, None, id="never past the event's age"),
    ],
)
def test_a_failed_call_is_tried_again(
    attempt: int, age_s: float, retries: int, pause_s: float | None
) -> None:
    given = schedule("rate(1 hour)", target=replace(TARGET, max_retries=retries))
    execution = ScheduledExecution(id="x", scheduled_at=NOW, next_at=NOW, attempt=attempt)
    at = next_attempt_at(given, execution, NOW + age_s)
    assert at == (None if pause_s is None else NOW + age_s + pause_s)


@pytest.mark.parametrize(
    ("expression", "timezone", "start_s", "end_s", "problem"),
    [
        pytest.param("rate(5 minutes)", "UTC", None, None, None, id="a rate"),
        pytest.param("rate(5 minutes)", "UTC", -50, None, None, id="a start that has passed"),
        pytest.param("at(2024-01-01T00:00:00)", "UTC", None, None, None, id="a later time"),
        pytest.param("at(2020-01-01T00:00:00)", "UTC", None, None, "the past", id="a past time"),
        pytest.param("cron(0 0 1 1 ? 2020)", "UTC", None, None, "the past", id="a past year"),
        pytest.param("rate(0 days)", "UTC", None, None, "whole number", id="no rate"),
        pytest.param("soon", "UTC", None, None, "must be at(", id="no expression"),
        pytest.param("rate(1 day)", "Moon", None, None, "IANA time zone", id="no time zone"),
        pytest.param("rate(1 day)", "UTC", None, -1, "EndDate", id="an end in the past"),
        pytest.param("rate(1 day)", "UTC", 50, 20, "StartDate", id="an end before the start"),
    ],
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
