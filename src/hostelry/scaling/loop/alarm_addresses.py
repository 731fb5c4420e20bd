"""Web addresses to notify of alarms: the operator's actions.toml, and those that alarms name.

    [topics]
    alerts = "http://127.0.0.1:9000/alerts"
    "arn:aws:sns:us-west-2:123456789012:pages" = ["https://a.example/", "https://b.example/"]

    [webhooks]
    allow = ["https://hooks.example", "http://127.0.0.1:9000"]
    confirmed = ["https://hooks.example"]

    [files]
    folder = "topics"

A topic is named by its ARN, or by its last part for every account and region. Without `allow`, an
alarm or a subscription may name any address. A subscription of an origin of `confirmed` needs no
confirmation. `folder`, in the home, has the files that subscribe to topics.
"""

import logging
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hostelry.base.errors import TerminalError
from hostelry.base.file_stamp import Stamp, stamp_of
from hostelry.scaling.decide.alarm_target import TargetKind, target_kind

LOG = logging.getLogger(__name__)
DEFAULT_PORTS = {"http": 80, "https": 443}
DEFAULT_FOLDER = "topics"
FOLDER = re.compile(r"[A-Za-z0-9_-]{1,100}")
TAKEN_FOLDERS = frozenset({"client", "instances", "logs", "metrics", "objects", "run"})

Origin = tuple[str, str, int]  # scheme, host, port


class AddressError(Exception):
    """No address can be notified; the message is for the alarm's history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Content of actions.toml; `allowed` None allows every address."""

    topics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    allowed: frozenset[Origin] | None = None
    confirmed: frozenset[Origin] = frozenset()
    folder: str = DEFAULT_FOLDER

    @classmethod
    def load(cls, path: Path) -> "Addresses":
        """Read a file, empty where there is none; raises TerminalError with what is wrong."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError) as error:
            raise TerminalError(f"{path} cannot be read: {error}") from error
        try:
            return cls(
                topics=_topics(content),
                allowed=_origins(content, "allow"),
                confirmed=_origins(content, "confirmed") or frozenset(),
                folder=_folder(content),
            )
        except ValueError as error:
            raise TerminalError(f"{path}: {error}") from error

    def of(self, action: str) -> Sequence[str]:
        """The addresses behind a topic or address; raises AddressError where there are none."""
        if target_kind(action) is TargetKind.ADDRESS:
            reason = self.refusal(action)
            if reason is not None:
                raise AddressError(reason)
            return (action,)
        found = self.topics.get(action) or self.topics.get(action.rpartition(":")[2])
        if not found:
            raise AddressError("the topic has no address under [topics] of actions.toml")
        return found

    def refusal(self, address: str) -> str | None:
        """Why a web address must not be posted to; None where it may."""
        if self.allowed is None or _origin(address) in self.allowed:
            return None
        return "actions.toml does not allow this address under [webhooks]"

    def is_confirmed(self, address: str) -> bool:
        """Whether subscriptions of the address need no confirmation."""
        return _origin(address) in self.confirmed


class AddressFile:
    """The addresses of one actions.toml, read again at a use that finds the file changed.

    A file that cannot be read is logged once a change; until it is mended the last good content
    holds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._addresses = Addresses()
        self._seen: Stamp | None = None

    def of(self, action: str) -> Sequence[str]:
        """As `Addresses.of`, as the file is now."""
        return self.present().of(action)

    def present(self) -> Addresses:
        """The addresses, as the file is now."""
        seen = stamp_of(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._addresses = Addresses.load(self._path)
            except TerminalError as error:
                LOG.warning("the addresses of alarm actions stay as they were: %s", error)
        return self._addresses


def _topics(content: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    topics: dict[str, Sequence[str]] = {}
    for name, given in _table(content, "topics").items():
        addresses = [given] if isinstance(given, str) else given
        if not isinstance(addresses, list) or not addresses:
            raise ValueError(f"[topics] {name} must be an address or a list of addresses")
        for address in addresses:
            if not isinstance(address, str) or target_kind(address) is not TargetKind.ADDRESS:
                raise ValueError(f"[topics] {name}: {address!r} is not an http(s) address")
        topics[name] = tuple(addresses)
    return topics


def _origins(content: Mapping[str, Any], name: str) -> frozenset[Origin] | None:
    given = _table(content, "webhooks").get(name)
    if given is None:
        return None
    if not isinstance(given, list):
        raise ValueError(f"[webhooks] {name} must be a list of addresses")  # noqa: TRY004 - a file's
    for address in given:
        if not isinstance(address, str) or target_kind(address) is not TargetKind.ADDRESS:
            raise ValueError(f"[webhooks] {name}: {address!r} is not an http(s) address")
    return frozenset(_origin(it) for it in given)


def _folder(content: Mapping[str, Any]) -> str:
    given = _table(content, "files").get("folder", DEFAULT_FOLDER)
    if not isinstance(given, str) or not FOLDER.fullmatch(given) or given in TAKEN_FOLDERS:
        raise ValueError(f"[files] folder: {given!r} is not a name for a folder of its own")
    return given


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be a table")  # noqa: TRY004 - a fault of the file
    return found


def _origin(address: str) -> Origin:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
