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


class HeldIsolation(msgspec.Struct, frozen=True, kw_only=True):
    """The isolation of a copy's processes, as its agent saw it in /proc once the copy answered.

    level: the highest level of the copy that holds.
    asked: the level that the model asks for, if any.
    user: the user id of the processes, as this machine counts.
    has_own_user: whether neither the agent nor another copy has that user, without capabilities.
    namespaces: the kinds of `KINDS` that neither the agent nor another copy shares.
    max_memory_bytes: the memory limit of their control group. None if the kernel enforces none.
    cpus: the weight of their control group, in CPUs. None without a group.
    missing: the lacks of the asked level, as sentences. Empty if it holds.
    """

    level: CopyLevel
    asked: CopyLevel | None = None
    user: int = 0
    has_own_user: bool = False
    namespaces: tuple[str, ...] = ()
    max_memory_bytes: int | None = None
    cpus: float | None = None
    missing: tuple[str, ...] = ()


# The namespaces of the level `container`, as /proc/PID/ns names them.
KINDS = {
    "mnt": "file systems",
    "pid": "processes",
    "ipc": "shared memory and semaphores",
    "net": "network",
}


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
