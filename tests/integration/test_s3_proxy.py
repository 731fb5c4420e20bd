"""The S3 proxy in this process, in front of a store that records its requests."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.unit.s3.signed_heads import CREDENTIALS, passage

from hostelry.base.clock import SystemClock
from hostelry.base.ports import free_ports
from hostelry.home.home import UpConfig
from hostelry.s3.admission import S3Refusal
from hostelry.s3.event_file import EventFile
from hostelry.s3.head import Head
from hostelry.s3.passage import PassedHead, Passes, own_key
from hostelry.s3.proxy import start_proxy
from hostelry.s3.store_client import StoreClient
from hostelry.s3.watch import Watch

pytestmark = pytest.mark.integration

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET /b/k HTTP/1.1\r\nHost: h\r\n\r\n"


@dataclass
class RecordingStore:
    """Answers each head with `ANSWER`, and keeps all bytes."""

    received: bytearray = field(default_factory=bytearray)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65_536):
            self.received += chunk
            for _ in range(chunk.count(b"HTTP/1.1\r\n")):
                writer.write(ANSWER)
        writer.close()


async def unchanged(head: Head, *_: object) -> PassedHead:
    return PassedHead(raw=head.raw)


async def refused(head: Head, *_: object) -> PassedHead:
    if head.method == "PUT":
        raise S3Refusal(400, "KMS.NotFoundException", "Key <x> does not exist")
    return PassedHead(raw=head.raw)


async def ended() -> None:
    """Every connection of the servers has ended, and is closed."""
    async with asyncio.timeout(10.0):
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        await asyncio.sleep(0.01)


def talk(
    sent: bytes,
    passes: Passes = unchanged,
    watch: Watch | None = None,
) -> tuple[bytes, bytes]:
    """Send bytes and half-close. Returns the client's answer and the store's requests."""

    async def talking() -> tuple[bytes, bytes]:
        target, front = free_ports(2)
        store = RecordingStore()
        async with (
            await asyncio.start_server(store.connected, "127.0.0.1", target),
            await start_proxy(("127.0.0.1", front), target, passes, watch),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", front)
            writer.write(sent)
            await writer.drain()
            writer.write_eof()
            answer = await reader.read(-1)
            writer.close()
            await writer.wait_closed()
            await ended()
            return answer, bytes(store.received)

    return asyncio.run(talking())


BODY = bytes(range(256)) * 10_000
PUT = b"PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(BODY)
CHUNKED = b"PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


@cases(
    "sent, num_answers",
    case("a request without a body", GET, 1),
    case("two on one connection", GET + GET, 2),
    case("one behind a large body", PUT + BODY + GET, 2),
    case("a body in chunks", CHUNKED, 1),
)
def test_bytes_pass_unchanged_and_a_half_closed_client_gets_its_answers(
    sent: bytes, num_answers: int
) -> None:
    answer, received = talk(sent)
    assert answer == ANSWER * num_answers
    assert received == sent


def test_a_refusal_is_s3s_error_and_reaches_no_store() -> None:
    answer, received = talk(PUT + BODY, refused)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"<Code>KMS.NotFoundException</Code><Message>Key &lt;x&gt; does not exist" in answer
    assert received == b""


def test_a_refusal_behind_a_request_comes_after_its_answer() -> None:
    answer, received = talk(GET + PUT, refused)
    assert b"KMS.NotFoundException" in answer
    assert received == GET


@cases(
    "sent",
    case("no version", b"GET /b\r\n\r\n"),
    case("no path", b"GET b HTTP/1.1\r\n\r\n"),
    case("no length", b"PUT /b HTTP/1.1\r\nContent-Length: x\r\n\r\n"),
    case("a negative length", b"PUT /b HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
    case(
        "two lengths", b"PUT /b HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    ),
    case("a blank in a name", b"PUT /b HTTP/1.1\r\nContent-Length : 1\r\n\r\n"),
    case("a bare line feed", b"GET /b HTTP/1.1\r\nA: b\nc: d\r\n\r\n"),
    case("a head cut off", b"GET /b HTTP/1.1\r\nA: b"),
    case("a huge head", b"GET /b HTTP/1.1\r\nA: " + b"x" * 70_000 + b"\r\n\r\n"),
)
def test_what_two_readers_may_read_in_two_ways_is_refused(sent: bytes) -> None:
    answer, received = talk(sent)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert received == b""


def test_a_store_that_is_not_there_ends_the_connection() -> None:
    async def talking() -> bytes:
        target, front = free_ports(2)
        async with await start_proxy(("127.0.0.1", front), target, unchanged):
            reader, writer = await asyncio.open_connection("127.0.0.1", front)
            answer = await reader.read(-1)
            writer.close()
            await writer.wait_closed()
            await ended()
            return answer

    assert asyncio.run(talking()) == b""


def test_a_defect_is_answered() -> None:
    async def broken(*_: object) -> PassedHead:
        raise ZeroDivisionError

    answer, received = talk(GET, broken)
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert received == b""


def test_idle_connections_leave_room_for_who_has_a_key() -> None:
    signed = GET.replace(b"Host", b"Authorization: a\r\nHost")

    async def talking() -> list[bytes]:
        target, front = free_ports(2)
        store, answers = RecordingStore(), []
        async with (
            await asyncio.start_server(store.connected, "127.0.0.1", target),
            await start_proxy(("127.0.0.1", front), target, unchanged, max_connections=8),
        ):
            kept, *others = [await asyncio.open_connection("127.0.0.1", front) for _ in range(2)]
            for number in range(20):  # the limit of one address is four
                kept[1].write(signed)
                answers.append(await kept[0].readexactly(len(ANSWER)))
                others.append(await asyncio.open_connection("127.0.0.1", front))
                if number > 4:
                    assert await others[number - 4][0].read(-1) == b""
            for _, writer in (kept, *others):
                writer.close()
            await ended()
            return answers

    assert asyncio.run(talking()) == [ANSWER] * 20


def test_an_unsigned_configuration_is_refused_before_its_body_is_read(tmp_path: Path) -> None:
    clock, config = SystemClock(), UpConfig(control_port=9)
    store = StoreClient("http://127.0.0.1:9", own_key(CREDENTIALS), clock)
    file = EventFile(tmp_path / "events")
    watch = Watch(config, CREDENTIALS, passage(clock), store, file, clock, {})
    sent = b"PUT /b?notification HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"
    answer, received = talk(sent, watch=watch)
    file.close()
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert received == b""


def test_a_store_that_ends_leaves_no_client_waiting() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def talking() -> bytes:
        target, front = free_ports(2)
        async with (
            await asyncio.start_server(hang_up, "127.0.0.1", target),
            await start_proxy(("127.0.0.1", front), target, unchanged),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", front)
            writer.write(GET)
            answer = await reader.read(-1)
            writer.close()
            await writer.wait_closed()
            await ended()
            return answer

    assert asyncio.run(talking()) == b""
