"""The lease of the leader among control processes: decides the next step of a process. Pure.

A lease's `epoch` grows with each new holder. It is the fencing token of everything that the holder
does, so that safety needs no clock. Clocks only decide when a standby tries, and then the database
compares and sets.

| the lease, as it was just read | decision |
| --- | --- |
| is mine, and I have its epoch or none (the answer to my acquisition was lost) | Renew |
| is another's, or none, and I have an epoch | StepDown |
| the lease is missing, or its holder released it | Acquire |
| its holder's session with the database has ended, and not by the server's restart | Acquire |
| it expired by the database's clock, and the server runs for TTL_S | Acquire |
| I looked for TTL_S by a steady clock, and it was not renewed | Acquire: that clock went back |
| otherwise | StandBy |

A killed holder's session ends at once. The session of a frozen or partitioned holder does not end,
but its lease expires. A server that restarts ends every session, and no control renews while it is
away. Then the holder has TTL_S from the server's start to come back.
"""

from dataclasses import dataclass

NAME = "control"
RENEW_S = 1.0
POLL_S = 0.25  # of standbys
TTL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLease:
    """The lease in the database. Times are seconds of the database's clock.

    `holder` names one process, never two. `renewals` counts within an epoch. `expires_at` is 0
    after a release.
    """

    holder: str
    epoch: int
    renewals: int
    renewed_at: float
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLook:
    """What one look found.

    Args:
        lease: None if no control ever led.
        now: the database's clock.
        session_lives: whether the holder has a session with the database.
        server_started_at: on the database's clock.
    """

    lease: LeaderLease | None
    now: float
    session_lives: bool
    server_started_at: float


@dataclass(frozen=True, slots=True)
class Acquire:
    """Take the lease, with the next epoch, if it is as it was seen."""

    reason: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the lease of this epoch, which is mine."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StepDown:
    """Stop acting for good: my epoch is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class StandBy:
    """Another control leads."""


Decision = Acquire | Renew | StepDown | StandBy


def decide(me: str, epoch: int | None, look: LeaseLook, unchanged_s: float) -> Decision:
    """Decide the next step of the control `me`. `epoch` is its epoch as leader, None on standby.

    `unchanged_s` says for how long every look succeeded and found the same lease, by a clock that
    only goes forward.
    """
    lease = look.lease
    if epoch is not None and (lease is None or (lease.holder, lease.epoch) != (me, epoch)):
        return StepDown(describe_superseded(epoch, lease))
    if lease is None:
        return Acquire("no control led before")
    if lease.holder == me:
        return Renew(lease.epoch)
    reason = why_free(lease, look, unchanged_s)
    return StandBy() if reason is None else Acquire(reason)


def why_free(lease: LeaderLease, look: LeaseLook, unchanged_s: float) -> str | None:
    """Why another control's lease may be taken. None while it may not."""
    if lease.expires_at == 0.0:
        return f"{lease.holder} released it"
    if not look.session_lives and look.server_started_at < lease.renewed_at:
        return f"the session of {lease.holder} ended"
    if look.now >= max(lease.expires_at, look.server_started_at + TTL_S):
        return f"{lease.holder} did not renew it for {look.now - lease.renewed_at:.1f} s"
    if unchanged_s >= TTL_S:
        return f"{lease.holder} did not renew it for {unchanged_s:.1f} s"
    return None


def describe_superseded(epoch: int, lease: LeaderLease | None) -> str:
    """Say why `epoch` is over."""
    if lease is None:
        return f"epoch {epoch} is over: the database has no lease any more"
    return f"epoch {epoch} is over: {lease.holder} has the lease with epoch {lease.epoch}"
