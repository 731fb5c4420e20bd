"""Addresses of HTTP servers, as strings that all others pass on unread.

``http://HOST:PORT``          plain HTTP, on this host's loopback
``https://NAME@HOST:PORT``    the cluster's mutual TLS to HOST:PORT, with the server name NAME
``https://HOST[:PORT]``       the web's TLS, to a server outside the platform
"""

import re
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")  # a label: a server name is one
DEFAULT_PORTS = {"http": 80, "https": 443}
MAX_CACHED = 16 * 1024


class Address(msgspec.Struct, frozen=True):
    """A server. `name` is its name at the host's node proxy, or None for any other server."""

    scheme: str
    host: str
    port: int
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse an address. A repeated text is parsed once. Raises ValueError."""
        return _parse(text)

    @property
    def url(self) -> str:
        """The address without the name, for clients that get the name apart."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __str__(self) -> str:
        """The text that `parse` reads."""
        scheme, rest = self.url.split("://")
        return self.url if self.name is None else f"{scheme}://{self.name}@{rest}"


def on_host(host_address: str, name: str) -> str:
    """The address of `name` behind the node proxy of `host_address`.

    A plain address has no other servers behind it: it is returned itself.
    """
    proxy = Address.parse(host_address)
    if proxy.name is None:
        return host_address
    return str(Address(proxy.scheme, proxy.host, proxy.port, name))


@lru_cache(maxsize=MAX_CACHED)
def _parse(text: str) -> Address:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is no address: {error}") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"{text!r} is no address: http://HOST:PORT or https://NAME@HOST:PORT")
    name = parts.username
    if name is None:
        return Address(parts.scheme, parts.hostname, port or DEFAULT_PORTS[parts.scheme])
    if parts.scheme != "https" or parts.password is not None or not NAME.fullmatch(name):
        raise ValueError(
            f"{text!r} is no address: before the @ is a name of 1 to 63 of A-Z a-z 0-9 _ -, "
            f"after https://"
        )
    if not port:
        raise ValueError(f"{text!r} is no address: https://NAME@HOST needs a port")
    return Address(parts.scheme, parts.hostname, port, name)
