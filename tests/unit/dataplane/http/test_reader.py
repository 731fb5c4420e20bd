import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.dataplane.http.reader import HttpLimits, HttpRefusedError, Received, RequestReader
from hostelry.dataplane.http.states import ReadState

LIMITS = HttpLimits(max_head_bytes=512, max_headers=8, max_body_bytes=64)
HOST = b"Host: door\r\n"
TWO = (
    b"POST /endpoints/e/invocations?a=b&c HTTP/1.1\r\n" + HOST + b"X-One: a\r\nx-one: b\r\n"
    b"Content-Length: 5\r\n\r\nhello"
    b"POST /v1/x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n"
)


def read(*pieces: bytes) -> list[Received]:
    reader = RequestReader(LIMITS)
    for piece in pieces:
        reader.feed(piece)
    return list(reader.requests)


@pytest.mark.parametrize("cut", range(1, len(TWO)))
def test_requests_are_the_same_however_the_bytes_are_cut(cut: int) -> None:
    received = read(TWO[:cut], TWO[cut:])
    assert received == read(TWO)
    first, second = (it.request for it in received)
    assert (first.method, first.path, first.query) == ("POST", "/endpoints/e/invocations", "a=b&c")
    assert first.headers == {"host": "door", "x-one": "a,b", "content-length": "5"}
    assert (first.body, second.body) == (b"hello", b"abcde")
    assert second.headers == {"host": "door", "transfer-encoding": "chunked"}


def test_as_many_headers_as_the_limit_are_read() -> None:
    (received,) = read(head(H, *[b"X-%d: a" % n for n in range(LIMITS.max_headers - 1)]))
    assert len(received.request.headers) == LIMITS.max_headers


def test_requests_are_the_same_byte_by_byte() -> None:
    assert read(*(TWO[at : at + 1] for at in range(len(TWO)))) == read(TWO)


def head(
    *lines: bytes, method: bytes = b"POST", target: bytes = b"/", version: bytes = b"1.1"
) -> bytes:
    first = method + b" " + target + b" HTTP/" + version
    return b"\r\n".join([first, *lines, b"", b""])


H = b"Host: door"
HOSTILE = [
    pytest.param(
        head(H, b"Content-Length: 3", b"Transfer-Encoding: chunked"), 400, "both framings"
    ),
    pytest.param(
        head(H, b"Transfer-Encoding: chunked", b"Content-Length: 3"), 400, "both, other order"
    ),
    pytest.param(head(H, b"Content-Length: 3", b"Content-Length: 3"), 400, "two lengths"),
    pytest.param(head(H, b"Content-Length: 3", b"Content-Length: 4"), 400, "lengths that differ"),
    pytest.param(head(H, b"Content-Length: 3, 3"), 400, "a list of lengths"),
    pytest.param(head(H, b"Content-Length: +3"), 400, "a signed length"),
    pytest.param(head(H, b"Content-Length: -3"), 400, "a negative length"),
    pytest.param(head(H, b"Content-Length: 0x3"), 400, "a hexadecimal length"),
    pytest.param(head(H, b"Content-Length:"), 400, "an empty length"),
    pytest.param(head(H, b"Content-Length: 1" + b"0" * 40), 400, "an overflowing length"),
    pytest.param(head(H, b"Content-Length : 3"), 400, "a space before the colon"),
    pytest.param(head(H, b"Transfer-Encoding: gzip, chunked"), 400, "a coding we do not speak"),
    pytest.param(head(H, b"Transfer-Encoding: identity"), 400, "identity coding"),
    pytest.param(head(H, b"Transfer-Encoding: chunked, identity"), 400, "chunked not last"),
    pytest.param(
        head(H, b"Transfer-Encoding: chunked", version=b"1.0"), 400, "chunked in HTTP/1.0"
    ),
    pytest.param(head(H, b"X-A: b", b" folded"), 400, "a folded header line"),
    pytest.param(head(H, b"Transfer-Encoding:", b" chunked"), 400, "a folded framing header"),
    pytest.param(head(H, b"X-A: b\x00c"), 400, "a NUL in a value"),
    pytest.param(head(H, b"X A: b"), 400, "a space in a name"),
    pytest.param(b"GET / HTTP/1.1\nHost: door\n\n", 400, "bare line feeds"),
    pytest.param(head(b"X-A: b"), 400, "no Host"),
    pytest.param(head(H, b"Host: other"), 400, "two Hosts"),
    pytest.param(head(H, version=b"2.0"), 400, "HTTP/2.0"),
    pytest.param(b"GET /\r\n\r\n", 400, "HTTP/0.9"),
    pytest.param(head(H, target=b"http://door/"), 400, "an absolute target"),
    pytest.param(head(H, target=b"*", method=b"OPTIONS"), 400, "the asterisk target"),
    pytest.param(head(H, target=b"door:1", method=b"CONNECT"), 400, "CONNECT"),
    pytest.param(head(H, b"Connection: upgrade", b"Upgrade: h2c"), 400, "an upgrade"),
    pytest.param(head(H, target=b"/a b"), 400, "a space in the target"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", 400, "a TLS hello"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "the HTTP/2 preface"),
    pytest.param(head(H, b"Transfer-Encoding: chunked") + b"zz\r\n", 400, "a bad chunk size"),
    pytest.param(
        head(H, b"Transfer-Encoding: chunked") + b"3\r\nabcXX", 400, "a chunk that overruns"
    ),
    pytest.param(head(H, b"X-A: " + b"a" * 600), 431, "a long header"),
    pytest.param(head(H, target=b"/" + b"a" * 600), 431, "a long target"),
    pytest.param(head(H, *[b"X-%d: a" % n for n in range(8)]), 431, "too many headers"),
    pytest.param(
        head(H, b"Transfer-Encoding: chunked")
        + b"0\r\n"
        + b"".join(b"T: " + b"a" * 100 + b"\r\n" for _ in range(6)),
        431,
        "endless trailers",
    ),
    pytest.param(head(H, b"Content-Length: 65"), 413, "a body over the limit, before it is sent"),
    pytest.param(
        head(H, b"Transfer-Encoding: chunked") + b"41\r\n" + b"a" * 65 + b"\r\n",
        413,
        "a chunked body over the limit",
    ),
]


@pytest.mark.parametrize(
    ("bytes_", "status"),
    [it.values[:2] for it in HOSTILE],
    ids=[str(it.values[2]) for it in HOSTILE],
)
def test_what_is_not_served_is_refused(bytes_: bytes, status: int) -> None:
    reader = RequestReader(LIMITS)
    with pytest.raises(HttpRefusedError) as refusal:
        reader.feed(bytes_)
    assert refusal.value.status == status
    assert not reader.requests


def test_the_refusal_of_a_body_has_its_request() -> None:
    with pytest.raises(HttpRefusedError) as refusal:
        read(head(H, b"Content-Length: 65", target=b"/endpoints/e/invocations"))
    request = refusal.value.request
    assert request is not None
    assert request.path == "/endpoints/e/invocations"
    assert "64 bytes" in refusal.value.reason


@cases(
    "bytes_, keep_alive, chunked",
    case("HTTP/1.1 keeps the connection", head(H), True, True),
    case("unless it is asked not to", head(H, b"Connection: close"), False, True),
    case("HTTP/1.0 does not, nor knows chunks", head(version=b"1.0"), False, False),
)
def test_what_the_sender_expects(bytes_: bytes, keep_alive: bool, chunked: bool) -> None:
    (received,) = read(bytes_)
    assert (received.keep_alive, received.chunked_answer) == (keep_alive, chunked)


def test_the_states_of_a_request_that_waits_for_100_continue() -> None:
    reader = RequestReader(LIMITS)
    states = [(reader.state, reader.wants_continue)]
    for piece in (
        b"POST / HTTP/1.1\r\n",
        b"Host: a\r\nContent-Length: 2\r\nExpect: 100-Continue\r\n\r\n",
        b"ab",
    ):
        reader.feed(piece)
        states.append((reader.state, reader.wants_continue))
    assert states == [
        (ReadState.IDLE, False),
        (ReadState.HEAD, False),
        (ReadState.BODY, True),
        (ReadState.IDLE, False),
    ]


def test_a_head_that_never_ends_is_refused_before_it_fills_the_memory() -> None:
    reader = RequestReader(LIMITS)
    reader.feed(b"GET / HTTP/1.1\r\nX-A: ")
    reader.feed(b"a" * 512)
    with pytest.raises(HttpRefusedError) as refusal:
        reader.feed(b"a")
    assert refusal.value.status == 431


def test_a_body_of_tiny_chunks_takes_no_more_room_than_its_bytes() -> None:
    num_bytes = 20_000
    reader = RequestReader(HttpLimits())
    reader.feed(head(H, b"Transfer-Encoding: chunked"))
    tracemalloc.start()
    reader.feed(b"1\r\nx\r\n" * num_bytes)
    grown_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown_bytes < 3 * num_bytes
    reader.feed(b"0\r\n\r\n")
    assert reader.requests.popleft().request.body == b"x" * num_bytes


def test_only_so_many_requests_may_wait() -> None:
    reader = RequestReader(HttpLimits(max_waiting_requests=3))
    with pytest.raises(HttpRefusedError) as refusal:
        reader.feed(head(H) * 4)
    assert (refusal.value.status, len(reader.requests)) == (429, 3)


@given(st.lists(st.tuples(st.integers(0, len(TWO) - 1), st.binary(max_size=3)), max_size=4))
def test_mutated_requests_are_read_or_refused_and_nothing_else(
    edits: list[tuple[int, bytes]],
) -> None:
    mutated = bytearray(TWO)
    for at, piece in edits:
        mutated[at : at + 1] = piece
    reader = RequestReader(LIMITS)
    with contextlib.suppress(HttpRefusedError):
        for at in range(0, len(mutated), 37):
            reader.feed(bytes(mutated[at : at + 37]))
    for received in reader.requests:
        assert received.request.path.startswith("/")
        assert len(received.request.body) <= LIMITS.max_body_bytes
