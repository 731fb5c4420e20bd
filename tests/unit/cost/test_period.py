"""Periods of cost reports, from --from, --to and --last."""

from datetime import UTC, datetime

import pytest
from tests.cases import case, cases

from hostelry.base.errors import UsageError
from hostelry.cost.period import find_period


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW = at("2026-12-03T10:30")


@cases(
    "given, since, until",
    case("a day by default", (None, None, None), "2026-12-02T10:00", "2026-12-03T11:00"),
    case("hours", (None, None, "2h"), "2026-12-03T08:00", "2026-12-03T11:00"),
    case("weeks", (None, None, "1w"), "2026-11-26T10:00", "2026-12-03T11:00"),
    case("from a date", ("2026-12-01", None, None), "2026-12-01T00:00", "2026-12-03T11:00"),
    case(
        "between two times",
        ("2026-12-01T01:20", "2026-12-01T02:20", None),
        "2026-12-01T01:00",
        "2026-12-01T03:00",
    ),
    case(
        "in another zone",
        ("2026-12-01T01:00+01:00", "2026-12-01T01:00", None),
        "2026-12-01T00:00",
        "2026-12-01T01:00",
    ),
    case("a day before", (None, "2026-12-02", None), "2026-12-01T00:00", "2026-12-02T00:00"),
)
def test_a_period_is_extended_to_whole_hours(
    given: tuple[str | None, str | None, str | None], since: str, until: str
) -> None:
    found = find_period(*given, NOW)
    assert (found.since, found.until) == (at(since), at(until))


@cases(
    "given, message",
    case("no unit", (None, None, "24"), "--last is 24;"),
    case("no time", (None, None, "0h"), "--last is 0h;"),
    case("too long a number", (None, None, "9" * 500 + "h"), "give whole hours, days or weeks"),
    case("minutes", (None, None, "90m"), "--last is 90m; give whole hours, days or weeks, such as"),
    case("longer than usage is kept", (None, None, "456d"), "--last is 456d, and usage is kept"),
    case("very long", (None, None, "999999999d"), "is kept 455 days: give at most 455d"),
    case("dates too far apart", ("2025-01-01", "2026-12-01", None), "the period has 699 days"),
    case("two ways at once", ("2026-12-01", None, "1h"), "exclude each other"),
    case("no date", ("soon", None, None), "--from is soon;"),
    case("before the epoch", ("1900-01-01", None, None), "--from is 1900-01-01;"),
    case("empty", ("2026-12-01", "2026-12-01", None), "is the same as --to 2026-12-01T00:00: give"),
    case("backwards", ("2026-12-02", "2026-12-01", None), "T00:00 is after --to 2026-12-01T00:00"),
    case("the future", ("2026-12-04", "2026-12-05", None), "--from 2026-12-04T00:00 is after the"),
    case("from the future to now", ("2026-12-04", None, None), "is after the present 2026-12-03"),
    case("a day of the future", (None, "2026-12-09", "24h"), "exclude each other"),
    case("the day before a far end", (None, "2026-12-09", None), "--to 2026-12-09T00:00 is after"),
)
def test_an_invalid_period_is_refused(
    given: tuple[str | None, str | None, str | None], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        find_period(*given, NOW)
    assert message in str(caught.value)
