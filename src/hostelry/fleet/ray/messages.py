"""Messages between control and the process that speaks to Ray, one JSON object a line.

And those between that process and an instance's actor.
"""

from typing import Literal

import msgspec

from hostelry.base.errors import (
    CapacityError,
    HostelryError,
    InstanceLostError,
    RetryableError,
    TerminalError,
)
from hostelry.domain.copy import Instance
from hostelry.fleet.protocol import RunningInstance

ErrorKind = Literal["lost", "capacity", "retryable", "terminal"]
CallName = Literal["launch", "terminate", "list", "end_all"]
ERRORS: dict[ErrorKind, type[HostelryError]] = {
    "lost": InstanceLostError,
    "capacity": CapacityError,
    "retryable": RetryableError,
    "terminal": TerminalError,
}


class Failure(msgspec.Struct, frozen=True):
    """An error of `ERRORS`."""

    kind: ErrorKind
    text: str

    @classmethod
    def of(cls, error: HostelryError) -> "Failure":
        """The failure that `error` is; one of another class is retryable."""
        # The first match is the narrowest: InstanceLostError is a CapacityError, that retryable.
        kinds = (kind for kind, it in ERRORS.items() if isinstance(error, it))
        return cls(next(kinds, "retryable"), str(error))

    def error(self) -> HostelryError:
        """The error to raise."""
        return ERRORS[self.kind](self.text)


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of control; `number` is in its answer."""

    number: int
    name: CallName
    instance: Instance | None = None
    instance_id: str = ""


class DriverAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a call, or with number 0 that these instances are lost."""

    number: int
    running: tuple[RunningInstance, ...] = ()
    failure: Failure | None = None
    lost: tuple[str, ...] = ()


class NodeOrder(msgspec.Struct, frozen=True):
    """What an actor needs to run an instance on its node.

    `internal_key` is the key of calls to agents on nodes.
    `files` are put into the node home, by name; where the node's processes are root's, those of
    `root_files` in their place. `node_dir` None means a folder below the node's temporary one.
    `tls_files` are the instance's own, for its node proxy; without them there is none. `links` are
    servers of control's host that it leads to, by the fields of config.json that have the ports.
    """

    instance: Instance
    cluster_id: str
    agent_module: str
    internal_key: str
    files: dict[str, bytes]
    root_files: dict[str, bytes]
    node_dir: str | None
    reachable: tuple[str, int]  # the host and port by which the object store is reached
    proxy_module: str = ""
    tls_files: dict[str, bytes] = {}
    links: dict[str, str] = {}


class Started(msgspec.Struct, frozen=True, omit_defaults=True):
    """An actor's answer: the agent's address, or why there is none.

    `host` names the kernel and its network: where it is the caller's, loopback reaches an agent
    that has no node proxy.
    """

    host: str
    node_address: str
    address: str = ""
    failure: Failure | None = None
