"""Names behind a node proxy, and the roles that may reach them. Pure.

role of the client's certificate   names it may reach
--------------------------------   ---------------------------------------------------------------
control                            all
gateway                            control, jobs, gateways' counts, agents, copies, certificates
agent                              the object store's S3 port, the gateway, certificates
none (it joins)                    join

Control, jobs and agents ask for the internal key besides, copies for their own.
"""

from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import CERTIFICATES, JOIN

CONTROL, JOBS, GATEWAY_PEER, GATEWAY, S3 = "control", "jobs", "gateway-peer", "gateway", "s3"
INSTANCE, COPY, AGENT_OF_COPY = "i-", "c-", "agent-c-"
OF_GATEWAYS = frozenset({CONTROL, JOBS, GATEWAY_PEER, CERTIFICATES})
OF_AGENTS = frozenset({S3, GATEWAY, CERTIFICATES})


def may_reach(peer: PeerName | None, name: str) -> bool:
    """Whether `peer` (None: it has no certificate) may reach the server called `name`."""
    if peer is None:
        return name == JOIN
    if peer.role is PeerRole.CONTROL:
        return True
    if peer.role is PeerRole.GATEWAY:
        return name in OF_GATEWAYS or name.startswith((INSTANCE, COPY, AGENT_OF_COPY))
    return name in OF_AGENTS
