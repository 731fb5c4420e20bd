"""The period of a cost report, from --from, --to and --last. Pure."""

import re
from datetime import UTC, datetime

import msgspec

from hostelry.base.errors import UsageError

HOUR_S = 3_600
SECONDS = {"h": HOUR_S, "d": 24 * HOUR_S, "w": 7 * 24 * HOUR_S}
LAST = re.compile(r"([0-9]{1,18})([hdw])")
MOST_DAYS = 455  # as long as usage is kept
DEFAULT_LAST = "24h"
MAX_SHOWN_CHARACTERS = 80


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """Whole hours, in seconds since the epoch. The last hour may not be over."""

    since: float
    until: float


def find_period(since: str | None, until: str | None, last: str | None, now: float) -> Period:
    """The period, extended to whole hours. Raises UsageError."""
    if last is not None and (since is not None or until is not None):
        raise UsageError("--last and --from or --to exclude each other; give one of them")
    end = now if until is None else _parse_instant(until, "--to")
    if since is not None:
        start = _parse_instant(since, "--from")
    else:
        start = end - _parse_last(last or DEFAULT_LAST)
    if start > now:
        name = f"--from {_show(start)}" if since is not None else f"--to {_show(end)}"
        raise UsageError(f"{name} is after the present {_show(now)} UTC: give an earlier time")
    if start >= end:
        what = "the same as" if start == end else "after"
        raise UsageError(
            f"--from {_show(start)} is {what} --to {_show(end)}: give a --to that is later"
        )
    if end - start > MOST_DAYS * SECONDS["d"]:
        num_days = (end - start) / SECONDS["d"]
        raise UsageError(
            f"the period has {num_days:.0f} days, and usage is kept {MOST_DAYS} days: give a later"
            " --from"
        )
    return Period(since=start // HOUR_S * HOUR_S, until=-(-end // HOUR_S) * HOUR_S)


def _parse_last(text: str) -> float:
    found = LAST.fullmatch(text)
    if found is None or not int(found[1]):
        raise UsageError(
            f"--last is {text[:MAX_SHOWN_CHARACTERS]}; give whole hours, days or weeks, such as"
            " 24h, 7d or 4w"
        )
    seconds = float(int(found[1]) * SECONDS[found[2]])
    if seconds > MOST_DAYS * SECONDS["d"]:
        raise UsageError(
            f"--last is {text}, and usage is kept {MOST_DAYS} days: give at most {MOST_DAYS}d"
        )
    return seconds


def _parse_instant(text: str, option: str) -> float:
    try:
        at = datetime.fromisoformat(text)
        found = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        found = -1.0
    if found < 0:
        raise UsageError(
            f"{option} is {text[:MAX_SHOWN_CHARACTERS]}; give a date or a time in UTC, such as"
            " 2026-11-30 or 2026-11-30T08:00"
        )
    return found


def _show(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M}"
