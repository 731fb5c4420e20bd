"""The head of an S3 request: parses it, and writes it with other headers. Pure."""

from collections.abc import Iterable, Mapping
from urllib.parse import unquote

import msgspec

from hostelry.base.http import HttpRequest
from hostelry.http1.heads import MalformedHeadError, parse_request_head

MAX_HEAD_BYTES = 64 * 1024
END = b"\r\n\r\n"


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A request's head: its bytes as received, and its parts. Header names keep their case."""

    raw: bytes
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]

    @property
    def request(self) -> HttpRequest:
        """The head as a request without its body."""
        path, _, query = self.target.partition("?")
        return HttpRequest(self.method, path, query, self.values, b"")

    @property
    def values(self) -> Mapping[str, str]:
        """Values by lower-cased name. The values of a repeated header are joined by ``,``."""
        found: dict[str, str] = {}
        for name, value in self.headers:
            key = name.lower()
            found[key] = f"{found[key]},{value}" if key in found else value
        return found

    @property
    def is_signed(self) -> bool:
        """True if the head has a signature, which may be wrong."""
        return "authorization" in self.values or "X-Amz-Signature=" in self.target

    @property
    def body_bytes(self) -> int | None:
        """The length of the body. None if its transfer coding marks its end."""
        values = self.values
        return None if "transfer-encoding" in values else int(values.get("content-length", "0"))


def parse_head(raw: bytes) -> Head:
    """Parse a head, which ends with an empty line.

    Raises MalformedHeadError for an ambiguous head, which the object store might read differently.
    """
    found = parse_request_head(raw)
    if not found.target.startswith("/"):
        raise MalformedHeadError("the target does not start with '/'")
    names = [name.lower() for name, _ in found.headers]
    if names.count("content-length") + names.count("transfer-encoding") > 1:
        raise MalformedHeadError("the length of the body is stated twice")
    return Head(raw=raw, method=found.method, target=found.target, headers=found.headers)


def write_head(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Build the bytes of a head."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode("latin-1") + END


def query_names(head: Head) -> frozenset[str]:
    """Find the names of the query's fields, in lower case."""
    pairs = head.target.partition("?")[2].split("&")
    return frozenset(unquote(it.partition("=")[0]).lower() for it in pairs if it)
