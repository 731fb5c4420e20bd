"""The lease of the leader among several controls, and the next step of each control. Pure.

A lease's `epoch` grows with each new holder. It is the fencing token of all acts of the holder, so
safety does not depend on clocks. Clocks only decide when a standby tries to acquire the lease, and
the database then compares and sets.

| the lease, as it was just read | decision |
| --- | --- |
| is mine, and I have its epoch, or no epoch (the answer to my acquisition was lost) | Renew |
| is another's or is missing, and I have an epoch | StepDown |
| is missing, or its holder released it | Acquire |
| its holder's session with the database has ended, but not by a restart of the server | Acquire |
| it expired by the database's clock, and the server has run for TTL_S | Acquire |
| I saw no renewal for TTL_S by a steady clock, so the database's clock went back | Acquire |
| otherwise | StandBy |

The session of a killed holder ends at once. The session of a frozen or partitioned holder does not
end, but its lease expires. A restart of the server ends every session, and no control can renew
meanwhile. Then the holder has TTL_S from the start of the server to renew.
"""

import msgspec

NAME = "control"
RENEW_S = 1.0
POLL_S = 0.25  # pause of a standby between two looks
TTL_S = 5.0


class LeaderLease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease in the database. Times are seconds of the database's clock.

    `holder` names one process and is never used again. `renewals` counts within an epoch.
    `expires_at` is 0 after a release.
    """

    holder: str
    epoch: int
    renewals: int
    renewed_at: float
    expires_at: float


class LeaseLook(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look at the lease.

    Args:
        lease: None if no control has ever led.
        now: time of the database's clock.
        session_lives: whether the holder has a session with the database.
        server_started_at: start of the server, by the database's clock.
    """

    lease: LeaderLease | None
    now: float
    session_lives: bool
    server_started_at: float


class Acquire(msgspec.Struct, frozen=True):
    """Take the lease with the next epoch, if the lease has not changed since it was seen."""

    reason: str


class Renew(msgspec.Struct, frozen=True):
    """Renew my lease of this epoch."""

    epoch: int


class StepDown(msgspec.Struct, frozen=True):
    """Stop acting for good, because my epoch is over."""

    reason: str


class StandBy(msgspec.Struct, frozen=True):
    """Another control leads."""


Decision = Acquire | Renew | StepDown | StandBy


def decide(me: str, epoch: int | None, look: LeaseLook, unchanged_s: float) -> Decision:
    """Decide the next step of the control `me`. `epoch` is its epoch as leader, None on standby.

    For `unchanged_s` every look succeeded and found the same lease. This time is measured by a
    monotonic clock.
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
    """Why another control's lease may be acquired. None if it may not."""
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
