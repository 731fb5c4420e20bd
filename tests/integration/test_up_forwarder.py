import asyncio

import pytest

from hostelry.base.ports import free_ports
from hostelry.server.forwarder import start_forwarder

pytestmark = pytest.mark.integration


async def answer_backwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer all that was sent, in reverse, once the sender has ended."""
    writer.write((await reader.read(-1))[::-1])
    await writer.drain()
    writer.close()


def test_bytes_pass_both_ways_and_a_half_closed_side_still_gets_its_answer() -> None:
    async def talk() -> bytes:
        target, front = free_ports(2)
        sent = bytes(range(256)) * 10_000
        async with (
            await asyncio.start_server(answer_backwards, "127.0.0.1", target),
            await start_forwarder("127.0.0.1", front, target),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", front)
            writer.write(sent)
            writer.write_eof()
            answer = await reader.read(-1)
            writer.close()
            await writer.wait_closed()
            assert answer == sent[::-1]
            return answer

    assert len(asyncio.run(talk())) == 2_560_000


def test_a_target_that_is_not_there_ends_the_connection() -> None:
    async def talk() -> bytes:
        target, front = free_ports(2)
        async with await start_forwarder("127.0.0.1", front, target):
            reader, writer = await asyncio.open_connection("127.0.0.1", front)
            answer = await reader.read(-1)
            writer.close()
            await writer.wait_closed()
            return answer

    assert asyncio.run(talk()) == b""


def test_a_target_that_ends_leaves_no_client_waiting() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async def talk() -> bytes:
        target, front = free_ports(2)
        async with (
            await asyncio.start_server(hang_up, "127.0.0.1", target),
            await start_forwarder("127.0.0.1", front, target),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", front)
            writer.write(b"x")
            answer = await reader.read(-1)
            writer.close()
            await writer.wait_closed()
            return answer

    assert asyncio.run(talk()) == b""
