"""Versions that may work together on one platform. Pure.

Neighbours are versions of one major number whose minor numbers differ by one at the most, and the
last ones of a major number with the first of the next, X.0. Neighbours understand each other's
messages, records and schema; `tests/contract/skew/` holds each release to that.
"""

import re

VERSION = re.compile(r"(\d+)\.(\d+)(?:\D.*)?")


def are_neighbours(one: str, other: str) -> bool:
    """Whether the two may work together, as also where nothing is known of one of them."""
    found = [VERSION.fullmatch(it) for it in (one, other)]
    if found[0] is None or found[1] is None:
        return True
    older, newer = sorted((int(it[1]), int(it[2])) for it in found if it is not None)
    if older[0] == newer[0]:
        return newer[1] - older[1] <= 1
    return newer == (older[0] + 1, 0)


def is_newer(version: str, own: str) -> bool:
    """Whether `version` has a greater major or minor number; also if one of them has none."""
    found = [VERSION.fullmatch(it) for it in (version, own)]
    if found[0] is None or found[1] is None:
        return version != own
    numbers = [(int(it[1]), int(it[2])) for it in found if it is not None]
    return numbers[0] > numbers[1]


def skew_refusal(what: str, version: str, other: str, others: str) -> str | None:
    """Why `what`, of `version`, may not work with `other`, of version `others`; None: it may."""
    if are_neighbours(version, others):
        return None
    return (
        f"{what} is Hostelry {version} and {other} is {others}: on one platform versions may be one"
        " minor number apart, so upgrade by one at a time"
    )
