"""Heads of HTTP/1.1 messages as bytes: they are written and parsed."""

from collections.abc import Mapping
from http import HTTPStatus

import httptools
import msgspec

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


def build_status_line(status: int) -> bytes:
    """Build the first line of an answer."""
    return STATUS_LINES.get(status) or f"HTTP/1.1 {status} Unknown\r\n".encode()


def build_header_lines(headers: Mapping[str, str]) -> bytes:
    """Build header lines. Line breaks in a value would end it, so they become spaces."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers):
        flat = {name: " ".join(value.split()) for name, value in headers.items()}
        text = "".join([f"{name}: {value}\r\n" for name, value in flat.items()])
    return text.encode("latin-1", "replace")


def build_request_head(
    method: str, target: str, headers: Mapping[str, str], num_body_bytes: int
) -> bytes:
    """Build the head of a request, with the length of its body."""
    line = f"{method} {target} HTTP/1.1\r\n".encode("latin-1", "replace")
    lines = build_header_lines({**headers, "Content-Length": str(num_body_bytes)})
    return b"%b%b\r\n" % (line, lines)


def build_answer(
    status: int, headers: Mapping[str, str], body: bytes, *, has_body: bool = True
) -> bytes:
    """Build a whole answer. `has_body` is False for an answer to HEAD, which has only a length."""
    lines = build_header_lines({**headers, "Content-Length": str(len(body))})
    return b"%b%b\r\n%b" % (build_status_line(status), lines, body if has_body else b"")


class MalformedHeadError(ValueError):
    """The bytes are not the head of an HTTP/1.1 message."""


class RequestHead(msgspec.Struct, frozen=True):
    """The parts of a request's head. Header names are as they came."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]


def parse_request_head(raw: bytes) -> RequestHead:
    """Parse a head, which ends with an empty line. Raises MalformedHeadError.

    llhttp parses in its strict mode, as it does for the gateway. A head that could be read in two
    ways is malformed.
    """
    found = _HeadCallbacks()
    parser = httptools.HttpRequestParser(found)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:  # the server does not upgrade
        pass
    except httptools.HttpParserError as error:
        raise MalformedHeadError(str(error)) from None
    if not found.is_whole:
        raise MalformedHeadError("the head is cut off")
    if parser.get_http_version() not in ("1.1", "1.0"):
        raise MalformedHeadError("the version is not HTTP/1.1 or HTTP/1.0")
    method = parser.get_method().decode("ascii")
    return RequestHead(method, found.target.decode("latin-1"), tuple(found.headers))


def parse_answer_head(raw: bytes) -> tuple[int, dict[str, str]]:
    """Parse the head of an answer into its status, and its headers by lower-case name.

    Raises MalformedHeadError. The last of several equal headers counts.
    """
    found = _HeadCallbacks()
    parser = httptools.HttpResponseParser(found)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserError as error:
        raise MalformedHeadError(str(error)) from None
    if not found.is_whole:
        raise MalformedHeadError("the head is cut off")
    return parser.get_status_code(), {name.lower(): value for name, value in found.headers}


class _HeadCallbacks:
    """Collects the parts of one head."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[str, str]] = []
        self.is_whole = False

    def on_url(self, part: bytes) -> None:
        """Add a piece of the target."""
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header."""
        self.headers.append((name.decode("latin-1"), value.decode("latin-1").strip(" \t")))

    def on_headers_complete(self) -> None:
        """End the head."""
        self.is_whole = True
