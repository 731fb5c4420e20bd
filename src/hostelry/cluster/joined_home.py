"""A home that joins, or has joined: whether a token is used for it, and the settings that it keeps.

home                                              with a token
-----------------------------------------------   ---------------------------------------------
empty                                             it joins
a platform's own                                  refused: it cannot join
joined, for another role                          refused
joined, its certificate is not valid now          it joins again
joined, an earlier join again was cut off         it joins again
joined by another token                           it joins again
joined by this very token, or an unknown one      nothing: a unit may name --join at each start
"""

from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.certificates import read_facts
from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import TlsFolder
from hostelry.cluster.host_files import HostFiles
from hostelry.cluster.join_token import JoinToken, get_digest
from hostelry.home.home import Home, load_config

# The host's own settings that it keeps if it joins again, as config.json names them.
OWN_CONFIG = (
    "control_port",
    "jobs_port",
    "peer_port",
    "peer_address",
    "cluster_host",
    "cluster_port",
    "gateway_workers",
    "door_port",
    "chosen_door_port",
)


class HomeBefore(msgspec.Struct, frozen=True, kw_only=True):
    """A home before a join.

    `name` is the name in its certificate, valid or not. `joined_by` is the digest of the token that
    it joined by, empty if unknown.
    """

    home: Home
    has_platform: bool = False
    is_joined: bool = False
    host_id: str = ""
    name: PeerName | None = None
    is_valid: bool = False
    is_cut_off: bool = False
    joined_by: str = ""

    def check(self, role: PeerRole) -> None:
        """Raise TerminalError if no host of `role` joins with this home."""
        if self.has_platform and not self.is_joined:
            raise TerminalError(
                f"{self.home.root} has a platform already; join with another --home"
            )
        if self.has_platform and self.name is not None and self.name.role is not role:
            raise TerminalError(
                f"{self.home.root} has joined as a host of role {self.name.role.value}; join as "
                f"one of role {role.value} with another --home"
            )

    def check_cluster(self, cluster: str) -> None:
        """Raise TerminalError where the home is another cluster's."""
        if self.has_platform and self.name is not None and self.name.cluster != cluster:
            raise TerminalError(
                f"{self.home.root} is of the cluster {self.name.cluster}, and the token of "
                f"{cluster}; join that one with another --home"
            )

    def uses(self, token: JoinToken, role: PeerRole) -> bool:
        """Whether the host joins by the token. Raises TerminalError as `check`."""
        self.check(role)
        if not self.has_platform or not self.is_valid or self.is_cut_off:
            return True
        return self.joined_by not in ("", get_digest(token.secret))


def token_file(home: Home) -> str:
    """The path in the home of the digest of the token that it joined by."""
    return f"{home.tls.name}/joined-by"


def read_home(home: Home, now: float) -> HomeBefore:
    """Read the home before a join. Raises TerminalError for a damaged config.json."""
    if not home.config.exists():
        return HomeBefore(home=home)
    folder = TlsFolder(home.tls)
    try:
        config = load_config(home)
    except (OSError, msgspec.MsgspecError) as error:
        raise TerminalError(
            f"{home.config} cannot be read ({error}): remove it to let the host join again"
        ) from None
    record = home.root / token_file(home)
    try:
        name = PeerName.find_in(read_facts(folder.identity.read_bytes()).uris)
    except (OSError, ValueError):
        name = None
    return HomeBefore(
        home=home,
        has_platform=True,
        is_joined=config.is_gateway_host or config.is_control_host,
        host_id=config.host_id,
        name=name,
        is_valid=HostFiles(folder, "").own(now) is not None,
        is_cut_off=joining_key(folder).exists(),
        joined_by=record.read_text() if record.exists() else "",
    )


def joining_key(folder: TlsFolder) -> Path:
    """The file with the key that a host joins with, while it joins."""
    return folder.root / "joining.pem"


def config_after(home: Home, joined: bytes) -> bytes:
    """The platform's configuration, with the home's own settings from before."""
    if not home.config.exists():
        return joined
    before = decode(home.config.read_bytes(), dict[str, Any])
    own = {name: before[name] for name in OWN_CONFIG if name in before}
    return msgspec.json.encode(decode(joined, dict[str, Any]) | own)
