"""Head of an S3 request: parsed, and written again with other headers. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hostelry.base.http import HttpRequest

MAX_HEAD_BYTES = 64 * 1024
END = b"\r\n\r\n"


class MalformedHeadError(ValueError):
    """The bytes are not the head of an HTTP request that is spoken here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A request's head: `raw` as it came, and its parts; header names as they came."""

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
        """Values by lower-cased name; a repeated header's values joined by ``,``."""
        found: dict[str, str] = {}
        for name, value in self.headers:
            key = name.lower()
            found[key] = f"{found[key]},{value}" if key in found else value
        return found

    @property
    def is_signed(self) -> bool:
        """Whether the head shows a signature, which may be wrong."""
        return "authorization" in self.values or "X-Amz-Signature=" in self.target

    @property
    def body_bytes(self) -> int | None:
        """The length of the body; None where its transfer coding has its end."""
        values = self.values
        return None if "transfer-encoding" in values else int(values.get("content-length", "0"))


def parse_head(raw: bytes) -> Head:
    """The parts of a head, which ends with an empty line.

    Raises MalformedHeadError for what may be read in two ways: the object store reads it, too.
    """
    line, *lines = raw[: -len(END)].decode("latin-1").split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise MalformedHeadError("the request line is not 'METHOD TARGET HTTP/1.1'")
    if not parts[1].startswith("/"):
        raise MalformedHeadError("the target does not start with '/'")
    headers = tuple(parse_header(it) for it in lines)
    names = [name.lower() for name, _ in headers]
    if names.count("content-length") + names.count("transfer-encoding") > 1:
        raise MalformedHeadError("the length of the body is stated twice")
    head = Head(raw=raw, method=parts[0], target=parts[1], headers=headers)
    length = head.values.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        raise MalformedHeadError(f"Content-Length {length!r:.40} is no number")
    return head


def parse_header(line: str) -> tuple[str, str]:
    """Name and value of one header line."""
    name, found, value = line.partition(":")
    if not found or not name or name != name.strip() or "\n" in line or "\0" in line:
        raise MalformedHeadError(f"a header line is malformed: {line!r:.100}")
    return name, value.strip(" \t")


def write_head(method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """The bytes of a head."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode("latin-1") + END
