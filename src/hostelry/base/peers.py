"""Names, versions and epochs of the platform's processes.

Certificates hold SPIFFE names, ``spiffe://CLUSTER/ROLE/NAME``. Standard library only, so that every
process can import it.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

URI = re.compile(r"spiffe://([A-Za-z0-9-]{1,63})/([a-z]{1,16})/([A-Za-z0-9][A-Za-z0-9_.-]{0,127})")


class PeerRole(Enum):
    """The role of a certificate's holder."""

    CONTROL = "control"
    GATEWAY = "gateway"
    AGENT = "agent"


class PeerName(msgspec.Struct, frozen=True):
    """The holder of a certificate."""

    cluster: str
    role: PeerRole
    name: str

    @property
    def uri(self) -> str:
        """The name in the certificate."""
        return f"spiffe://{self.cluster}/{self.role.value}/{self.name}"

    @classmethod
    def find_in(cls, uris: Sequence[str]) -> "PeerName":
        """Find the only name among `uris`. Raises ValueError if there is not exactly one."""
        found = [match for uri in uris if (match := URI.fullmatch(uri))]
        if len(found) != 1:
            wanted = "exactly one URI spiffe://CLUSTER/ROLE/NAME among its alternative names"
            raise ValueError(f"the certificate has not {wanted}, but {list(uris) or 'no URI'}")
        cluster, role, name = found[0].groups()
        try:
            return cls(cluster, PeerRole(role), name)
        except ValueError:
            roles = ", ".join(it.value for it in PeerRole)
            raise ValueError(f"the certificate's role is {role!r}, none of {roles}") from None


# Two versions are neighbours if their minor numbers differ by one at most, or if one of them is the
# first version, X.0, of the next major number. Neighbours understand each other's messages, records
# and schema (`tests/contract/skew/`).


VERSION = re.compile(r"(\d+)\.(\d+)(?:\D.*)?")


def are_neighbours(one: str, other: str) -> bool:
    """True if the two versions may work together, or if one of them is unknown."""
    found = [VERSION.fullmatch(it) for it in (one, other)]
    if found[0] is None or found[1] is None:
        return True
    older, newer = sorted((int(it[1]), int(it[2])) for it in found if it is not None)
    if older[0] == newer[0]:
        return newer[1] - older[1] <= 1
    return newer == (older[0] + 1, 0)


def is_newer(version: str, own: str) -> bool:
    """True if `version` has a greater major or minor number, or if it cannot be compared."""
    found = [VERSION.fullmatch(it) for it in (version, own)]
    if found[0] is None or found[1] is None:
        return version != own
    numbers = [(int(it[1]), int(it[2])) for it in found if it is not None]
    return numbers[0] > numbers[1]


def skew_refusal(what: str, version: str, other: str, others: str) -> str | None:
    """Say why `what` (at `version`) may not work with `other` (at `others`). None if it may."""
    if are_neighbours(version, others):
        return None
    return (
        f"{what} is Hostelry {version} and {other} is {others}: on one platform versions may be one"
        " minor number apart, so upgrade by one at a time"
    )


EPOCH_HEADER = "X-Hostelry-Epoch"
MAX_EPOCH = 2**32 - 1  # the largest number that the key of an epoch's lock can hold
MAX_DIGITS = 10


class LeaderEpoch(msgspec.Struct, frozen=True):
    """The epoch that control sends with its calls.

    `refused` is called with the agent's epoch if the agent knows a newer one.
    """

    number: int
    refused: Callable[[int], None] = lambda _: None


def parse_epoch(text: str) -> int | None:
    """Parse the header's value. None if it is not a valid epoch."""
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        return None
    return int(text) if int(text) <= MAX_EPOCH else None
