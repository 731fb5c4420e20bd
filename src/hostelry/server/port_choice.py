"""Which ports a hostelry listens on: those it was told, else its own earlier ones or any free.

Two that start at once never choose the same: the door's port is listened on in the moment it is
chosen, and the object store's is reserved until `up` ends, under a name that one process of this
machine can hold.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port
from hostelry.server.home import UpConfig
from hostelry.server.ports import bind, is_free, require_free_port

DOOR_PORT, S3_PORT = 8787, 8788
TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A port as it was asked for: `told` by a flag, or the `default` and what was chosen before."""

    told: int | None
    default: int
    chosen_before: int | None = None

    @property
    def candidates(self) -> Sequence[int]:
        """The ports to try, best first."""
        if self.told is not None:
            return [self.told]
        return list(dict.fromkeys(it for it in (self.chosen_before, self.default) if it))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What was chosen: the door's listening socket, and the object store's port.

    `chosen_door`, `chosen_s3`: the port where it is one that the hostelry found by itself.
    """

    door: socket.socket
    door_port: int
    s3_port: int
    chosen_door: int | None = None
    chosen_s3: int | None = None
    said: tuple[str, ...] = field(default=())


def try_each(
    wish: Wish, take: Callable[[int], bool], draw: Callable[[], int]
) -> tuple[int, int | None]:
    """The first port that `take` takes, and the same again where nobody named it.

    Raises TerminalError where none can be had; a port that was told is tried alone.
    """
    for port in wish.candidates:
        if take(port):
            return port, None if port in (wish.told, wish.default) else port
    if wish.told is None:
        for _ in range(TRIES):
            if take(port := draw()):
                return port, port
    tried = ", ".join(map(str, wish.candidates))
    raise TerminalError(f"no port can be had (tried {tried})")


@contextlib.contextmanager
def chosen_ports(
    host: str,
    door: Wish,
    s3: Wish | None,
    *,
    inherited: socket.socket | None = None,
    own_s3: int | None = None,
) -> Iterator[Ports]:
    """The ports of one `up`; `s3` None where it needs none.

    `inherited` is the door of workers that live on, `own_s3` the port of their object store.
    Raises TerminalError naming the flag of a port that was told and is taken.
    """
    with contextlib.ExitStack() as stack:
        if inherited is not None:
            stack.enter_context(inherited)
        doors: list[socket.socket] = []

        def take_door(port: int) -> bool:
            if s3 is not None and port == s3.told:
                return False
            if inherited is not None and is_at(inherited, host, port):
                doors.append(inherited)
                return True
            with contextlib.suppress(OSError):
                doors.append(stack.enter_context(bind(host, port)))
            return bool(doors)

        def take_s3(port: int) -> bool:
            if port == door_port:
                return False
            held = stack.enter_context(socket.socket(socket.AF_UNIX))
            with contextlib.suppress(OSError):
                held.bind(f"\0hostelry-objectstore-{port}")
                if port == own_s3 or is_free(host, port):
                    return True
            held.close()
            return port == own_s3

        require_told(host, door, "--port", "door", inherited_port(inherited, host))
        door_port, chosen_door = try_each(door, take_door, lambda: free_port(host))
        s3_port, chosen_s3 = S3_PORT, None
        if s3 is not None:
            require_told(host, s3, "--s3-port", "object store", own_s3)
            s3_port, chosen_s3 = try_each(s3, take_s3, lambda: free_port(host))
        yield Ports(
            door=doors[0],
            door_port=door_port,
            s3_port=s3_port,
            chosen_door=chosen_door,
            chosen_s3=chosen_s3,
            said=sentences(chosen_door, chosen_s3),
        )


def require_told(host: str, wish: Wish, flag: str, purpose: str, own: int | None) -> None:
    """Raise TerminalError where a port that was told is taken, by others than this hostelry."""
    if wish.told is not None and wish.told != own:
        require_free_port(host, wish.told, flag, purpose)


def is_at(listening: socket.socket, host: str, port: int) -> bool:
    """Whether a socket listens on that very address."""
    return tuple(listening.getsockname()[:2]) == (host, port)


def inherited_port(listening: socket.socket | None, host: str) -> int | None:
    """The port of an inherited door at `host`."""
    if listening is None or listening.getsockname()[0] != host:
        return None
    return int(listening.getsockname()[1])


def sentences(chosen_door: int | None, chosen_s3: int | None) -> tuple[str, ...]:
    """What the operator reads of ports that were not the default ones: one line, or none."""
    parts = []
    if chosen_door is not None:
        parts.append(f"the door is at {chosen_door} (--port {DOOR_PORT} is the default)")
    if chosen_s3 is not None:
        parts.append(f"the object store at {chosen_s3} (--s3-port, {S3_PORT})")
    if not parts:
        return ()
    return (f"another program had the default ports: {', '.join(parts)}; they are kept",)


def wishes(
    told_door: int | None, told_s3: int | None, before: UpConfig | None
) -> tuple[Wish, Wish]:
    """The wishes for door and object store of an `up` with these flags; `before`: its last run."""
    return (
        Wish(
            told=told_door,
            default=DOOR_PORT,
            chosen_before=before.chosen_door_port if before else None,
        ),
        Wish(
            told=told_s3, default=S3_PORT, chosen_before=before.chosen_s3_port if before else None
        ),
    )
