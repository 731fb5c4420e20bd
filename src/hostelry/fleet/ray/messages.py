"""Messages between control, the process that speaks to Ray, and an instance's actor.

Control and that process exchange one JSON object per line.
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
        """The failure for `error`. An error of another class is retryable."""
        # In the order of ERRORS, because an InstanceLostError is also a CapacityError, and so on.
        kinds = (kind for kind, it in ERRORS.items() if isinstance(error, it))
        return cls(next(kinds, "retryable"), str(error))

    def error(self) -> HostelryError:
        """Build the error to raise."""
        return ERRORS[self.kind](self.text)


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of control. Its answer has the same `number`."""

    number: int
    name: CallName
    instance: Instance | None = None
    instance_id: str = ""


class DriverAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a call, or with number 0 a report that instances are lost."""

    number: int
    running: tuple[RunningInstance, ...] = ()
    failure: Failure | None = None
    lost: tuple[str, ...] = ()


class NodeOrder(msgspec.Struct, frozen=True):
    """An order for an actor to run an instance on its node.

    `internal_key` is the key of calls to agents on nodes. `files` are written into the node home by
    name. If the node's processes run as root, `root_files` replace files of the same name. Without
    `node_dir` the home is below the node's temporary folder. `tls_files` are the instance's, for
    its node proxy. Without them it has no proxy. `links` names servers of control's host to which
    the proxy leads, each with the field of config.json for its port.
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
    """An actor's answer: the agent's address, or the failure.

    `host` names the kernel and its network. If the caller has the same, loopback reaches an agent
    without a node proxy.
    """

    host: str
    node_address: str
    address: str = ""
    failure: Failure | None = None
