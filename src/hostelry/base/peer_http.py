"""HTTP clients (httpx) of the platform's servers: plain, or over the cluster's TLS."""

import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any

import anyio
import httpx

from hostelry.base import tls
from hostelry.base.address import Address

MAX_KEPT = 64
LOOPBACK = "127.0.0.1"  # the Host of requests to a server behind a node proxy, which checks it


class NamedTransport(httpx.AsyncHTTPTransport):
    """Asks the servers it connects to for `name`."""

    def __init__(self, name: str | None, **options: Any) -> None:
        super().__init__(**options)
        self._name = name

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request under the name."""
        if self._name is not None:
            request.headers["Host"] = LOOPBACK
            request.extensions = {**request.extensions, "sni_hostname": self._name}
        return await super().handle_async_request(request)


def warm_up() -> None:
    """Load the modules that a client's first call needs, before this process forks."""
    httpx.Client(verify=False, trust_env=False).close()
    anyio.run(anyio.sleep, 0)


def loopback_client(
    timeout_s: float, mounts: Mapping[str, httpx.AsyncBaseTransport] | None = None
) -> httpx.AsyncClient:
    """A client of this machine's own servers over plain HTTP, apart from what `mounts` carry.

    It loads no authorities, which would take 8 MB.
    """
    return httpx.AsyncClient(timeout=timeout_s, trust_env=False, verify=False, mounts=mounts)


def peer_client(address: str) -> httpx.AsyncClient:
    """A client whose paths are below `address`: no proxies, no user's netrc.

    Raises ValueError for an invalid address, and TerminalError if this process has no certificate.
    """
    target = Address.parse(address)
    transport = NamedTransport(
        target.name,
        verify=_verification(target),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=MAX_KEPT),
    )
    return httpx.AsyncClient(transport=transport, base_url=target.url, trust_env=False)


def peer_get(address: str, path: str, **options: Any) -> httpx.Response:
    """The answer of the server at `address` to a GET. Raises as `peer_client`, and as httpx."""
    target = Address.parse(address)
    named = {} if target.name is None else {"sni_hostname": target.name}
    if target.name is not None:
        options["headers"] = {**options.get("headers", {}), "Host": LOOPBACK}
    with httpx.Client(verify=_verification(target), trust_env=False) as client:
        request = client.build_request("GET", target.url + path, **options)
        request.extensions = {**request.extensions, **named}
        return client.send(request)


def _verification(target: Address) -> ssl.SSLContext:
    return _without_tls() if target.name is None else tls.in_use().http_client()


@cache
def _without_tls() -> ssl.SSLContext:
    """The context of all clients of plain HTTP: httpx takes a millisecond to make each."""
    return httpx.create_ssl_context(verify=False)
