"""The cluster's authority: issues certificates, and is itself replaced with an overlap. Pure.

since a rotation                       signs      is trusted
------------------------------------   --------   ----------------------------------------
until every peer has asked for it       the old    old and new
then                                   the new    old and new, while old certificates last
once the last of the old has ended     the new    the new

Peers ask for the trusted certificates every few minutes, see `keeper`.
"""

import msgspec

from hostelry.base.certificates import (
    LEAF_S,
    Pair,
    bundle,
    issue,
    new_authority,
    new_key,
    read_facts,
    signing_request,
)
from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.peers import PeerName, PeerRole

SIGNS_AFTER_S = 1800.0  # six times as long as a peer's pause


class Keyed(msgspec.Struct, frozen=True, kw_only=True):
    """An authority's certificate and key, PEM."""

    certificate: str
    key: str

    @property
    def pair(self) -> Pair:
        """The same, as bytes."""
        return Pair(self.certificate.encode(), self.key.encode())

    @classmethod
    def of(cls, pair: Pair) -> "Keyed":
        """The same, as texts."""
        return cls(certificate=pair.certificate.decode(), key=pair.key.decode())


class Retired(msgspec.Struct, frozen=True, kw_only=True):
    """An authority that signs no more, trusted until `until`."""

    certificate: str
    until: float


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """authority.json, on hosts of role control. `version` grows with each rotation.

    `coming` signs from `signs_at` on.
    """

    cluster: str
    version: int
    current: Keyed
    coming: Keyed | None = None
    signs_at: float = 0.0
    retired: tuple[Retired, ...] = ()

    @classmethod
    def make(cls, cluster: str, now: float) -> "Authority":
        """A new authority."""
        return cls(cluster=cluster, version=1, current=Keyed.of(new_authority(cluster, now)))

    @classmethod
    def parse(cls, data: bytes) -> "Authority":
        """Parse the stored authority. Raises TerminalError if it is damaged."""
        try:
            return decode(data, Authority)
        except msgspec.DecodeError as error:
            raise TerminalError(
                f"authority.json is damaged ({error}): restore it, or copy it from another host "
                "of control"
            ) from None

    def rotate(self, now: float) -> "Authority":
        """The authority with a successor. Raises TerminalError if one is coming already."""
        if self.coming is not None:
            left_s = max(0.0, self.signs_at - now)
            raise TerminalError(
                f"a rotation is under way: the new authority signs in {left_s / 60:.0f} minutes"
            )
        return msgspec.structs.replace(
            self,
            version=self.version + 1,
            coming=Keyed.of(new_authority(self.cluster, now)),
            signs_at=now + SIGNS_AFTER_S,
        )

    def settle(self, now: float) -> "Authority":
        """The authority at `now`: the coming one signs if it is due, and ended ones are removed."""
        kept = tuple(it for it in self.retired if it.until > now)
        if self.coming is None or now < self.signs_at:
            if len(kept) == len(self.retired):
                return self
            return msgspec.structs.replace(self, retired=kept)
        last = Retired(certificate=self.current.certificate, until=self.signs_at + LEAF_S)
        return msgspec.structs.replace(
            self, current=self.coming, coming=None, signs_at=0.0, retired=(*kept, last)
        )

    @property
    def trusted(self) -> bytes:
        """The certificates, PEM, that peers may be signed by. The first is the one that signs."""
        coming = [] if self.coming is None else [self.coming.certificate]
        every = [self.current.certificate, *coming, *(it.certificate for it in self.retired)]
        return bundle([it.encode() for it in every])

    def sign(self, request: bytes, peer: PeerName, now: float) -> bytes:
        """Sign a certificate for `peer`, PEM. Raises ValueError for an invalid request."""
        return issue(self.current.pair, request, peer, now)

    def identity(self, role: PeerRole, name: str, now: float) -> bytes:
        """A new key and its certificate, as `TlsFolder.identity` has them."""
        key = new_key()
        return key + self.sign(signing_request(key), PeerName(self.cluster, role, name), now)

    def has_signed(self, certificate: bytes) -> bool:
        """Whether the authority that signs now has signed it."""
        return (
            read_facts(certificate).issuer == read_facts(self.current.certificate.encode()).subject
        )

    def files(self, role: PeerRole, name: str, now: float) -> dict[str, bytes]:
        """The files of a new host's `TlsFolder` by name, for one that is started from here."""
        return {"identity.pem": self.identity(role, name, now), "ca.pem": self.trusted}
