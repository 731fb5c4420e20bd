"""The part of a connection that a container's proxy forwards, by the key in its requests."""

import pytest
from tests.cases import case, cases

from hostelry.fleet.launch.container_proxy import MAX_HEAD_BYTES, KeyedRequests, KeyRefusedError

KEY = "c0ffee" * 10
SHOWN = f"X-Hostelry-Copy-Key: {KEY}\r\n"
INVOKE = "POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nx-Mine: a b \r\n"
PING = "GET /ping HTTP/1.1\r\nhost: h\r\n"


def request(first: str, shown: str = SHOWN, body: str = "") -> bytes:
    return f"{first}{shown}\r\n{body}".encode("latin-1")


def passed(*pieces: bytes) -> bytes:
    requests = KeyedRequests(KEY)
    return b"".join(requests.feed(piece) for piece in pieces)


CONVERSATION = request(INVOKE, body="12345") + request(PING) + request(INVOKE, body="\r\n\r\n\0")
INSIDE = request(INVOKE, "", "12345") + request(PING, "") + request(INVOKE, "", "\r\n\r\n\0")


def without_space(text: bytes) -> bytes:
    return text.replace(b"a b \r\n", b"a b\r\n")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 60, 61, 4096])
def test_what_shows_the_key_goes_on_without_it_however_it_is_cut(size: int) -> None:
    pieces = [CONVERSATION[at : at + size] for at in range(0, len(CONVERSATION), size)]
    assert without_space(passed(*pieces)) == without_space(INSIDE)


@cases(
    "sent, status",
    case("no key", request(PING, ""), 403),
    case("another", request(PING, "X-Hostelry-Copy-Key: c0ffee\r\n"), 403),
    case("twice", request(PING, SHOWN * 2), 403),
    case("no key, and a body", request(INVOKE, "", "12345"), 403),
    case("none on the second request", request(PING) + request(PING, ""), 403),
    case("chunks", request(PING, SHOWN + "Transfer-Encoding: chunked\r\n"), 411),
    case("another protocol", b"\x16\x03\x01\x02", 400),
    case("a broken head", b"GET / HTTP/1.1\r\nNo colon here\r\n\r\n", 400),
    case("an upgrade", request(PING, SHOWN + "Upgrade: websocket\r\nConnection: upgrade\r\n"), 400),
    case("a head without end", b"GET /" + b"x" * MAX_HEAD_BYTES, 431),
)
def test_what_does_not_is_refused(sent: bytes, status: int) -> None:
    with pytest.raises(KeyRefusedError) as refused:
        passed(sent)
    head, _, body = refused.value.answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in head
    assert b"Content-Length: %d" % len(body) in head
    assert KEY.encode() not in refused.value.answer
