"""Isolation that a model asks for with the variable HOSTELRY_ISOLATION of its container.

A value names one level of the copy, one level of its place, or both with a plus: `user`,
`instance`, `container+host`.
"""

import enum
from collections.abc import Mapping

import msgspec

VARIABLE = "HOSTELRY_ISOLATION"


class CopyLevel(enum.StrEnum):
    """What separates a copy's processes from other copies. Each level includes those before."""

    PROCESS = "process"
    USER = "user"
    CONTAINER = "container"


class PlaceLevel(enum.StrEnum):
    """Who may run next to the copies: other models, none on the instance, none on the host."""

    SHARED = "shared"
    INSTANCE = "instance"
    HOST = "host"


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """The isolation that a model asks for. Without a level of the copy, the platform chooses it."""

    copy: CopyLevel | None = None
    place: PlaceLevel = PlaceLevel.SHARED


def read_isolation(environment: Mapping[str, str]) -> Isolation:
    """Return the isolation that a container's environment asks for. Raises ValueError."""
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return Isolation()
    asked = Isolation()
    for word in text.split("+"):
        level = word.strip().lower()
        if level in list(CopyLevel) and asked.copy is None:
            asked = msgspec.structs.replace(asked, copy=CopyLevel(level))
        elif level in ("instance", "host") and asked.place is PlaceLevel.SHARED:
            asked = msgspec.structs.replace(asked, place=PlaceLevel(level))
        else:
            raise ValueError(
                f"{VARIABLE} is {text[:80]!r}. It names one of process, user, container, one of "
                "instance, host, or one of each with a plus, such as container+instance"
            )
    return asked
