"""The home of an instance on a Ray node: the agent's files, and the instance's own folder."""

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.processes import is_alive, own_identity
from hostelry.fleet.ray.messages import NodeOrder
from hostelry.fleet.records import plain_name

CONFIG = "config.json"
ID_LETTERS = 8  # of ids in paths, because paths of sockets must be short
PASSAGE = 0o711  # copies of other users pass through, but cannot list it


class NodeHome(msgspec.Struct, frozen=True):
    """Paths of one instance's home on its node."""

    root: Path

    @property
    def instances(self) -> Path:
        """The folder of the instance's own folder, as in a home of the platform."""
        return self.root / "instances"

    @property
    def actor(self) -> Path:
        """The `ProcessIdentity` of the home's actor."""
        return self.root / "actor.json"

    @property
    def tls(self) -> Path:
        """Certificates of the instance, if it has a node proxy (`base.tls.TlsFolder`)."""
        return self.root / "tls"

    @property
    def proxy(self) -> Path:
        """The `ProcessIdentity` of the node proxy."""
        return self.root / "proxy.json"

    @property
    def is_left_over(self) -> bool:
        """Whether its actor ran since the machine's last boot, and is dead."""
        try:
            actor = decode(self.actor.read_bytes(), ProcessIdentity)
        except (OSError, msgspec.DecodeError):
            return False
        return actor.boot_id == own_identity().boot_id and not is_alive(actor)


def make_home(order: NodeOrder, node_id: str) -> NodeHome:
    """Make a home for the actor of this process. Raises TerminalError if that is not possible.

    An actor never uses the home of a killed predecessor, whose copies may still be ending.
    """
    name = f"{plain_name(order.instance.id)}-{secrets.token_hex(3)}"
    home = NodeHome(_node_folder(order, node_id) / name)
    try:
        for folder in (home.root, home.instances):
            folder.mkdir(mode=0o700)
        write_whole(home.actor, msgspec.json.encode(own_identity()), durable=False)
    except OSError as error:
        raise TerminalError(f"the node home {home.root} cannot be made: {error}") from None
    return home


def write_files(home: NodeHome, order: NodeOrder, link_ports: Mapping[str, int]) -> None:
    """Write the files that the agent reads. With root's files the folders let copies pass.

    `link_ports` are the loopback ports that lead to servers, by the servers' names.
    """
    files = order.files
    if os.geteuid() == 0 and order.root_files:
        files = files | order.root_files
        for folder in (home.root, home.instances):
            folder.chmod(PASSAGE)
    if link_ports:
        ports = {order.links[name]: port for name, port in link_ports.items()}
        written = decode(files[CONFIG], dict[str, Any]) | ports
        files = files | {CONFIG: msgspec.json.encode(written)}
    paths = {home.root / plain_name(name): content for name, content in files.items()}
    paths |= {home.tls / plain_name(name): content for name, content in order.tls_files.items()}
    if order.tls_files:
        home.tls.mkdir(mode=0o700, exist_ok=True)
    for path, content in paths.items():
        if not path.exists() or path.read_bytes() != content:
            write_whole(path, content, durable=False)


def find_left_over(order: NodeOrder) -> Iterator[NodeHome]:
    """Homes of this cluster on this machine whose actor is dead."""
    for path in _cluster_folder(order).glob("*/*"):
        if NodeHome(path).is_left_over:
            yield NodeHome(path)


def _node_folder(order: NodeOrder, node_id: str) -> Path:
    """The folder of a node's instances. Several nodes may run on one machine."""
    path = _cluster_folder(order) / node_id[:ID_LETTERS]
    path.mkdir(parents=True, exist_ok=True, mode=PASSAGE)
    return path


def _cluster_folder(order: NodeOrder) -> Path:
    given = Path(tempfile.gettempdir()) / f"hostelry-{os.geteuid()}"
    if order.node_dir is not None:
        given = Path(order.node_dir)
    path = given / order.cluster_id
    try:
        given.parent.mkdir(parents=True, exist_ok=True)
        for folder in (given, path):
            folder.mkdir(exist_ok=True, mode=PASSAGE)
            _check_own(folder)
    except OSError as error:
        raise TerminalError(f"{path} cannot be used for instances: {error}") from None
    return path


def _check_own(folder: Path) -> None:
    """Raise TerminalError if another user could have written into the folder."""
    found = folder.lstat()
    is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or is_open:
        raise TerminalError(
            f"{folder} must be a folder of user {os.geteuid()} that no other user can write: keys "
            "are kept in it; change its owner or mode, or give --node-dir"
        )
