"""Choice of the ports of a hostelry: requested ones, else its own earlier ones, else free ones.

| requested | free | port |
| --- | --- | --- |
| by a flag | yes | that one, which is kept for the next start |
| by a flag | no | TerminalError, which names the flag |
| no | earlier one | the earlier one |
| no | default | the default |
| no | neither | any free one, which is kept for the next start |

Two that start at once never choose the same: the gateway's port is listened on as it is chosen, and
the object store's is reserved until `up` ends, under a name that one process of this machine can
hold.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port
from hostelry.home.home import UpConfig
from hostelry.home.ports import bind, is_free, require_address, require_free_port

GATEWAY_PORT, S3_PORT = 8787, 8788
TRIES = 20


class PortRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A port `requested` by a flag, or else the port chosen before, or the `default`."""

    requested: int | None
    default: int
    chosen_before: int | None = None

    @property
    def candidates(self) -> Sequence[int]:
        """The ports to try, best first."""
        if self.requested is not None:
            return [self.requested]
        return list(dict.fromkeys(it for it in (self.chosen_before, self.default) if it))


class ChosenPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's listening socket and port, and the object store's port.

    `chosen_gateway`, `chosen_s3`: the port if the next start is to have it, too: None if it is the
    default.
    """

    listener: socket.socket
    gateway_port: int
    s3_port: int
    chosen_gateway: int | None = None
    chosen_s3: int | None = None
    notes: tuple[str, ...] = ()


def try_each(
    request: PortRequest, take: Callable[[int], bool], draw: Callable[[], int]
) -> tuple[int, int | None]:
    """The first port that `take` takes, and the same port to keep, or None if it is the default.

    A requested port is tried alone. Raises TerminalError if no port can be taken.
    """
    for port in request.candidates:
        if take(port):
            return port, None if port == request.default else port
    if request.requested is None:
        for _ in range(TRIES):
            if take(port := draw()):
                return port, port
    tried = ", ".join(map(str, request.candidates))
    raise TerminalError(f"no port is free (tried {tried})")


@contextlib.contextmanager
def choose_ports(
    host: str,
    gateway: PortRequest,
    s3: PortRequest | None,
    *,
    inherited: socket.socket | None = None,
    own_s3: int | None = None,
) -> Iterator[ChosenPorts]:
    """The ports of one `up`, reserved for the block. Without `s3` it needs no port for S3.

    `inherited` is the listener of adopted workers, `own_s3` the port of an adopted object store.
    Raises TerminalError naming the flag of a requested port that is taken.
    """
    with contextlib.ExitStack() as stack:
        require_address(host)
        if inherited is not None:
            stack.enter_context(inherited)
        listeners: list[socket.socket] = []

        def take_gateway(port: int) -> bool:
            if s3 is not None and port == s3.requested:
                return False
            if inherited is not None and is_at(inherited, host, port):
                listeners.append(inherited)
                return True
            with contextlib.suppress(OSError):
                listeners.append(stack.enter_context(bind(host, port)))
            return bool(listeners)

        def take_s3(port: int) -> bool:
            if port == gateway_port:
                return False
            held = stack.enter_context(socket.socket(socket.AF_UNIX))
            with contextlib.suppress(OSError):
                held.bind(f"\0hostelry-objectstore-{port}")
                if port == own_s3 or is_free(host, port):
                    return True
            held.close()
            return port == own_s3

        def draw() -> int:
            return free_port(host)

        require_requested(host, gateway, "--port", "gateway", inherited_port(inherited, host))
        gateway_port, chosen_gateway = try_each(gateway, take_gateway, draw)
        s3_port, chosen_s3 = S3_PORT, None
        if s3 is not None:
            require_requested(host, s3, "--s3-port", "object store", own_s3)
            s3_port, chosen_s3 = try_each(s3, take_s3, draw)
        yield ChosenPorts(
            listener=listeners[0],
            gateway_port=gateway_port,
            s3_port=s3_port,
            chosen_gateway=chosen_gateway,
            chosen_s3=chosen_s3,
            notes=notes(
                ("gateway", "--port", gateway, gateway_port),
                ("object store", "--s3-port", s3, s3_port),
            ),
        )


def require_requested(
    host: str, request: PortRequest, flag: str, purpose: str, own: int | None
) -> None:
    """Raise TerminalError if another program has a requested port. `own` is this hostelry's."""
    if request.requested is not None and request.requested != own:
        require_free_port(host, request.requested, flag, purpose)


def is_at(listening: socket.socket, host: str, port: int) -> bool:
    """Whether a socket listens on that very address."""
    return tuple(listening.getsockname()[:2]) == (host, port)


def inherited_port(listening: socket.socket | None, host: str) -> int | None:
    """The port of an inherited listener at `host`."""
    if listening is None or listening.getsockname()[0] != host:
        return None
    return int(listening.getsockname()[1])


def notes(*taken: tuple[str, str, PortRequest | None, int]) -> tuple[str, ...]:
    """A line for each (server, flag, request, port) that has another port than the one to expect.

    That is the one of its last start, else the default.
    """
    return tuple(
        f"port {request.candidates[0]} is another program's: the {server} is at {port}, which is "
        f"kept; {flag} chooses another"
        for server, flag, request, port in taken
        if request is not None and port != request.candidates[0]
    )


def port_requests(
    gateway: int | None, s3: int | None, before: UpConfig | None
) -> tuple[PortRequest, PortRequest]:
    """The requests of an `up` with these flags for gateway and store. `before` is its last run."""
    earlier_gateway = before.chosen_gateway_port if before else None
    earlier_s3 = before.chosen_s3_port if before else None
    return (
        PortRequest(requested=gateway, default=GATEWAY_PORT, chosen_before=earlier_gateway),
        PortRequest(requested=s3, default=S3_PORT, chosen_before=earlier_s3),
    )
