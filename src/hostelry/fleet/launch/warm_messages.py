"""Messages between an agent and its warm interpreter: JSON, one message a line."""

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkOrder:
    """Fork a copy: its arguments (without the program), variables, working folder and log.

    The answer repeats `number`: an earlier order may have been cancelled. With `uid` and
    `gid` the copy runs as that user, without supplementary groups.
    """

    number: int
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    log: str
    uid: int | None = None
    gid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToParent:
    """One of: a copy to fork, or the pid of a forked one that may run."""

    fork: ForkOrder | None = None
    go: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FromParent:
    """One of: everything is imported; the pid of a new copy; why none was forked; one that ended.

    `number` is that of the order answered; `exit_code` belongs to `ended`; negative: the signal.
    """

    ready: bool = False
    number: int = 0
    forked: int | None = None
    refused: str | None = None
    ended: int | None = None
    exit_code: int = 0


def line(message: ToParent | FromParent) -> bytes:
    """The message as it is sent."""
    return msgspec.json.encode(message) + b"\n"
