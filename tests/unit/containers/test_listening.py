"""The writes of the model servers' HTTP connections."""

import asyncio

from hostelry.containers.http.listening import MAX_JOINED_BYTES, JoinedWrites
from hostelry.dataplane.fake import FakeTransport


async def test_writes_of_one_pass_are_sent_together_and_much_is_sent_at_once() -> None:
    transport = FakeTransport()
    joined = JoinedWrites(transport)
    joined.write(b"head ")
    joined.write(b"body ")
    assert transport.written == b""
    await asyncio.sleep(0)
    assert transport.written == b"head body "
    joined.write(b"a" * (MAX_JOINED_BYTES + 1))
    assert len(transport.written) == 10 + MAX_JOINED_BYTES + 1


async def test_the_rest_is_sent_before_the_end_and_nothing_after_it() -> None:
    transport = FakeTransport()
    joined = JoinedWrites(transport)
    joined.write(b"rest")
    joined.close()
    assert (transport.written, joined.is_closing()) == (b"rest", True)
    joined.write(b"late")
    await asyncio.sleep(0)
    assert transport.written == b"rest"
