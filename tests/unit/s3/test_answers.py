"""Answers of the object store: the end of each answer, and held bytes."""

import asyncio

from tests.cases import case, cases

from hostelry.s3.answers import Answers, PassedRequest, Settle, StoreAnswer
from hostelry.s3.head import parse_head

GET, HEAD, PUT = (
    PassedRequest(head=parse_head(f"{method} /b/k HTTP/1.1\r\nHost: h\r\n\r\n".encode()))
    for method in ("GET", "HEAD", "PUT")
)
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = OK + b"Content-Length: 2\r\n\r\nok"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nT: v\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
NO_BODY = b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n"
HEAD_ONLY = OK + b"Content-Length: 500\r\n\r\n"
UNBOUNDED = OK + b"\r\nto the end"
REFUSED = b"HTTP/1.1 503 no\r\n\r\n"


class Client:
    """A writer that keeps its input."""

    def __init__(self) -> None:
        self.got = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.got += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


def passed(sent: bytes, *asked: PassedRequest) -> Client:
    """The client's bytes after the store has sent these bytes and ended."""

    async def passing() -> Client:
        reader, client = asyncio.StreamReader(), Client()
        answers = Answers(reader, client)  # type: ignore[arg-type]
        for request in asked:
            answers.note(request)
        reader.feed_data(sent)
        reader.feed_eof()
        await answers.pass_all()
        await answers.all_passed()
        return client

    return asyncio.run(passing())


@cases(
    "sent, asked",
    case("bodies of a length", LENGTH * 2, (GET, GET)),
    case("a body in chunks, with a trailer", CHUNKED + LENGTH, (GET, GET)),
    case("an interim answer", CONTINUE + LENGTH, (PUT,)),
    case("a head alone", HEAD_ONLY + LENGTH, (HEAD, GET)),
    case("a status without a body", NO_BODY + LENGTH, (GET, GET)),
    case("a body that ends with the connection", LENGTH + UNBOUNDED, (GET, GET)),
    case("an answer that nothing asked for", LENGTH, ()),
)
def test_bytes_pass_unchanged(sent: bytes, asked: tuple[PassedRequest, ...]) -> None:
    assert passed(sent, *asked).got == sent


@cases(
    "sent",
    case("no HTTP", b"no answer\r\n\r\n"),
    case("a size of no number", OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
    case("a body that is cut off", LENGTH[:-1]),
)
def test_a_broken_answer_closes_the_clients_connection(sent: bytes) -> None:
    assert passed(sent, GET).is_closed


@cases(
    "sent, other, seen, got",
    case("passed once it is settled", LENGTH, None, b"ok", LENGTH),
    case("its content without chunks", CHUNKED, None, b"hello!", CHUNKED),
    case("another one takes its place", LENGTH, REFUSED, b"ok", REFUSED),
    case("after an interim one", CONTINUE + LENGTH, None, b"ok", CONTINUE + LENGTH),
    case("a failure is not held", REFUSED, None, None, REFUSED),
)
def test_an_answer_is_held_for_its_request(
    sent: bytes, other: bytes | None, seen: bytes | None, got: bytes
) -> None:
    saw: list[StoreAnswer] = []

    async def settle(answer: StoreAnswer) -> bytes | None:
        saw.append(answer)
        return other

    held: Settle = settle
    client = passed(sent, PassedRequest(head=PUT.head, settle=held))
    assert client.got == got
    assert [it.body for it in saw] == ([] if seen is None else [seen])
