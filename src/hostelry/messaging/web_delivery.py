"""Requests to web addresses that callers choose, with checks, limits and timeouts.

    address                                              is connected to
    one that the operator's actions.toml does not allow  no
    a port of this platform, on an address of this host  no
    a link-local or multicast address                    no
    any other                                            yes, at the address that was checked

A name is resolved once per attempt, and the connection goes to the checked address, so the name
cannot lead elsewhere afterwards. Redirects are not followed. The body of an answer is read up to a
limit, or not at all.
"""

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx

TIMEOUT_S = 15.0
MAX_LOOKUPS = 32  # threads. Each is busy until the resolver answers

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], list[str]]


class AddressRefusedError(Exception):
    """Connecting to the address is not allowed. The message says why."""


class GuardedClient:
    """HTTP client for subscribers and identity providers, for one event loop.

    Args:
        refusal: why the operator does not allow an address. None if it is allowed.
        own_ports: the ports on which the platform listens now.
        resolve: the addresses of a host.
        timeout_s: limit of a whole attempt.
    """

    def __init__(
        self,
        refusal: Callable[[str], str | None],
        own_ports: Callable[[], frozenset[int]],
        resolve: Resolve | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._refusal = refusal
        self._own_ports = own_ports
        self._resolve = resolve or resolve_host
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(MAX_LOOKUPS, "lookup")
        self._client: httpx.AsyncClient | None = None

    async def post(self, address: str, headers: Mapping[str, str], body: bytes) -> int:
        """Post a message, and return the status of the answer. The body is not read.

        Raises AddressRefusedError. Without an answer in time, raises httpx.HTTPError,
        httpx.InvalidURL, TimeoutError or OSError.
        """
        async with self._send("POST", address, headers, body) as answer:
            return answer.status_code

    async def get(self, address: str, max_bytes: int) -> bytes:
        """The body of an answer 200 to a GET. Raises as `post`, OSError for another answer."""
        body = bytearray()
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with self._send("GET", address, headers, b"") as answer:
            if answer.status_code != 200:
                raise OSError(f"{address} answers {answer.status_code}")
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > max_bytes:
                    raise OSError(f"{address} answers more than {max_bytes} bytes")
        return bytes(body)

    @contextlib.asynccontextmanager
    async def _send(
        self, method: str, address: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[httpx.Response]:
        async with asyncio.timeout(self._timeout_s):
            reason = self._refusal(address)
            if reason is not None:
                raise AddressRefusedError(reason)
            url = httpx.URL(address)
            found = await self._resolve_checked(url)
            named = {**headers, "Host": url.netloc.decode("ascii")}
            extensions = {"sni_hostname": url.host} if url.scheme == "https" else {}
            async with self._get_client().stream(
                method,
                url.copy_with(host=found),
                headers=named,
                content=body,
                extensions=extensions,
            ) as answer:
                yield answer

    async def close(self) -> None:
        """Close the connections. A later post opens them again."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _resolve_checked(self, url: httpx.URL) -> str:
        """Resolve the host to an address that may be connected to."""
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, self._resolve, url.host, port)
        own_ports = await loop.run_in_executor(self._threads, self._own_ports)
        for text in found:
            reason = refused_target(ipaddress.ip_address(text.partition("%")[0]), port, own_ports)
            if reason is not None:
                raise AddressRefusedError(f"{url.host}: {reason}")
        if not found:
            raise OSError(f"{url.host} has no address")
        return found[0]

    def _get_client(self) -> httpx.AsyncClient:
        if self._client is None:
            limits = httpx.Limits(max_keepalive_connections=0, max_connections=None)
            self._client = httpx.AsyncClient(
                verify=httpx.create_ssl_context(),  # by SSL_CERT_FILE, if it is set
                trust_env=False,
                follow_redirects=False,
                timeout=self._timeout_s,
                limits=limits,
            )
        return self._client


def refused_target(
    address: Address,
    port: int,
    own_ports: frozenset[int],
    is_of_host: Callable[[Address], bool] | None = None,
) -> str | None:
    """Say why a connection to this address and port is not allowed, or None if it is."""
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    if address.is_link_local or address.is_multicast:
        return f"{address} is a link-local or multicast address"
    if port in own_ports and (is_of_host or is_own_address)(address):
        return f"port {port} belongs to this platform"
    return None


def is_own_address(address: Address) -> bool:
    """Whether connections to the address end on this machine, or might."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL  # other errors leave it open
    return True


def resolve_host(host: str, port: int) -> list[str]:
    """Resolve a host to addresses, in the system's order of preference. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(it[4][0]) for it in found]
