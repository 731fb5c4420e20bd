"""Names of the holders of a cluster's certificates: ``spiffe://CLUSTER/ROLE/NAME``.

The standard library only, so that every process can read it at once. Source: SPIFFE's form of URIs.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

URI = re.compile(r"spiffe://([A-Za-z0-9-]{1,63})/([a-z]{1,16})/([A-Za-z0-9][A-Za-z0-9_.-]{0,127})")


class PeerRole(Enum):
    """The role of a holder of a certificate."""

    CONTROL = "control"
    GATEWAY = "gateway"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class PeerName:
    """The holder of a certificate."""

    cluster: str
    role: PeerRole
    name: str

    @property
    def uri(self) -> str:
        """The name, as certificates have it."""
        return f"spiffe://{self.cluster}/{self.role.value}/{self.name}"

    @classmethod
    def of_uris(cls, uris: Sequence[str]) -> "PeerName":
        """The one name among `uris`; raises ValueError where there is none, or more than one."""
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
