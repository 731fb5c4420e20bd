"""Messages between a process and its warm interpreter: JSON, one message per line."""

from collections.abc import Sequence

import msgspec


class ForkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Fork a process that runs `main()` of `module` as if `argv` had been started.

    The answer repeats `number`, because an earlier order may have been cancelled. The variable
    `marker` of `environment` also becomes visible in /proc, blank if it is not set. With `uid` and
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


class ToParent(msgspec.Struct, frozen=True, kw_only=True):
    """A process to fork, the pid of a forked process that may run, or a lent stream.

    With `lend` comes the descriptor of a socket, from which further orders are read, too.
    """

    fork: ForkOrder | None = None
    go: int | None = None
    lend: bool = False


class FromParent(msgspec.Struct, frozen=True, kw_only=True):
    """Readiness, the pid of a forked process, a refusal to fork, or the pid of an ended process.

    `number` is the answered order's. `exit_code` belongs to `ended`. Negative: the signal.
    """

    ready: bool = False
    number: int = 0
    forked: int | None = None
    refused: str | None = None
    ended: int | None = None
    exit_code: int = 0


def encode_line(message: ToParent | FromParent) -> bytes:
    """Encode the message for the socket."""
    return msgspec.json.encode(message) + b"\n"


def extract_arguments(argv: Sequence[str]) -> tuple[str, ...]:
    """The arguments of a program that is started as `python -m MODULE ARGUMENTS`."""
    return tuple(argv[argv.index("-m") + 2 :]) if "-m" in argv else ()
