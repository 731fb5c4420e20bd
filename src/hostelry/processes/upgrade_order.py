"""The order in which a platform's hosts are upgraded: standbys, then the leader. Pure.

A leader that is replaced releases its lease, and a standby leads: of the new version, where all
standbys were upgraded before. It is the leader that starts agents again, so they come last.
"""

import msgspec


class ControlMember(msgspec.Struct, frozen=True, kw_only=True):
    """A control that runs."""

    id: str
    address: str = ""
    version: str = ""
    leads: bool = False


class ControlsThatRun(msgspec.Struct, frozen=True, kw_only=True):
    """GET /internal/leader of the control `me`. Without members it is the only control."""

    me: str = ""
    members: tuple[ControlMember, ...] = ()

    @property
    def own(self) -> ControlMember | None:
        """The control that answered."""
        return next((it for it in self.members if it.id == self.me), None)

    @property
    def has_leader(self) -> bool:
        """Whether one leads."""
        return not self.members or any(it.leads for it in self.members)

    @property
    def own_leads(self) -> bool:
        """Whether the one that answered leads."""
        return not self.members or (self.own is not None and self.own.leads)


def why_later(found: ControlsThatRun, version: str) -> str | None:
    """Why a host must not be upgraded to `version` yet, or None if it may be."""
    if not found.own_leads:
        return None
    others = [it for it in found.members if not it.leads and it.version != version]
    if not others:
        return None
    named = ", ".join(f"{it.id} at {it.address} ({it.version or 'unknown'})" for it in others)
    return (
        f"the control of this host leads, and is upgraded last, so that one of version {version}"
        f" follows it: first run `hostelry upgrade` on the hosts of {named}, or end those controls"
        " by `hostelry down` there"
    )


def has_joined(found: ControlsThatRun, version: str) -> bool:
    """Whether the control that answered leads or stands by with `version`, and one leads."""
    if not found.members:
        return True
    return found.own is not None and found.own.version == version and found.has_leader
