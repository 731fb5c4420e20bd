"""Messages between a process and its warm interpreter: JSON, one message per line."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkOrder:
    """Fork a process that runs `main()` of `module` as if `argv` had been started.

    The answer repeats `number`: an earlier order may have been cancelled. The variable `marker` of
    `environment` also becomes visible in /proc, where it is blank if there is none. With `uid` and
    `gid` the process runs as that user, without supplementary groups. The descriptors that come
    with the order get the numbers `fds`.
    """

    number: int
    module: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    marker: str
    folder: str
    log: str
    umask: int | None = None
    uid: int | None = None
    gid: int | None = None
    fds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToParent:
    """One of: a process to fork; the pid of a forked process that may run; a lent stream.

    With `lend` comes one descriptor, of a socket: further orders are read from that, too.
    """

    fork: ForkOrder | None = None
    go: int | None = None
    lend: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FromParent:
    """One of: ready; the pid of a forked process; why none was forked; the pid of an ended process.

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


def arguments_of(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments of a program that is started as `python -m MODULE ARGUMENTS`."""
    return tuple(argv[argv.index("-m") + 2 :]) if "-m" in argv else ()
