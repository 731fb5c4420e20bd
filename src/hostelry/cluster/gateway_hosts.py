"""The hosts with gateways: the report of each host, and control's list of them.

The list is in memory. Each host reports itself every second, so a new leader soon knows all hosts.
A host remembers the other hosts for `KNOWN_S`, so a change of the leader leaves no gap.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry import __version__
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse, refuse_invalid
from hostelry.base.peers import skew_refusal

LOG = logging.getLogger(__name__)
REPORT_S = 1.0
KNOWN_S = 5.0
SHOWN_S = 3600.0  # for so long `hostelry status` lists a silent host
MAX_HOSTS = 1024


class GatewayHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host with gateways: its id, its version, and the address that takes its peers' counts."""

    host_id: str
    address: str
    version: str = ""


class GatewayHostList(msgspec.Struct, frozen=True, kw_only=True):
    """Every host with gateways that control knows."""

    hosts: tuple[GatewayHost, ...] = ()


class KnownHosts(msgspec.Struct):
    """Hosts by id, each for `KNOWN_S` after it was last named. `now_s` never goes back."""

    now_s: Callable[[], float]
    _hosts: dict[str, tuple[GatewayHost, float]] = msgspec.field(default_factory=dict)

    def add(self, hosts: tuple[GatewayHost, ...]) -> None:
        """Note that these hosts were named now. Above `MAX_HOSTS` no new host is added."""
        now = self.now_s()
        is_full = len(self._hosts) + len(hosts) > MAX_HOSTS
        self._forget(now - (KNOWN_S if is_full else SHOWN_S))
        for host in hosts:
            if host.host_id in self._hosts or len(self._hosts) < MAX_HOSTS:
                self._hosts[host.host_id] = (host, now)

    def hosts(self) -> Mapping[str, str]:
        """The addresses of the hosts by id."""
        return {it.host_id: it.address for it in self.all()}

    def all(self) -> tuple[GatewayHost, ...]:
        """All known hosts, sorted by id."""
        since = self.now_s() - KNOWN_S
        return tuple(host for _, (host, at) in sorted(self._hosts.items()) if at >= since)

    def shown(self) -> list[dict[str, Any]]:
        """Each host that was named within `SHOWN_S`, and how many seconds ago, by their ids."""
        now = self.now_s()
        return [
            {**msgspec.structs.asdict(host), "seen_ago_s": round(now - at, 3)}
            for _, (host, at) in sorted(self._hosts.items())
            if now - at <= SHOWN_S
        ]

    def get_version(self, host_id: str) -> str | None:
        """The version that a host had when it was last named, or None if it never was."""
        known = self._hosts.get(host_id)
        return None if known is None else known[0].version

    def _forget(self, since: float) -> None:
        self._hosts = {it: known for it, known in self._hosts.items() if known[1] >= since}


class GatewayHostRoutes:
    """POST /internal/gateway-hosts: a host reports itself, and gets the list of all hosts."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._known = KnownHosts(now_s)
        self._since = now_s()
        self.shown = self._known.shown  # for `hostelry status`

    def routes(self) -> tuple[Route, ...]:
        """The route, for control's application."""
        return (Route("/internal/gateway-hosts", self.report, methods=["POST"]),)

    def live(self) -> Collection[str] | None:
        """The ids of the running hosts, or None until each has had the time to report itself."""
        is_new = self._known.now_s() - self._since < KNOWN_S
        return None if is_new else self._known.hosts().keys()

    async def report(self, request: Request) -> Response:
        """Add the reporting host, and return all hosts. 400 if the body is invalid."""
        with refuse_invalid("host"):
            host = decode(await request.body(), GatewayHost)
        before = self._known.get_version(host.host_id)
        self._known.add((host,))
        if host.version != before:
            name = f"the host {host.host_id} with gateways"
            if warning := skew_refusal(name, host.version, "control", __version__):
                LOG.warning("%s; it serves on", warning)
        return JsonResponse(GatewayHostList(hosts=self._known.all()))
