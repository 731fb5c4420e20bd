"""The server's side of the engine process's socket."""

import asyncio
import gc
import socket
from typing import Any, cast

import msgspec
from tests.cases import case, cases

from hostelry.containers.lmi.engine.backend import EngineFailedError, ModelFacts
from hostelry.containers.lmi.engine.child import EngineChild
from hostelry.containers.lmi.engine.messages import LENGTH, ModelLoaded, StartEngine, frame
from hostelry.containers.lmi.engine.process_backend import ProcessBackend
from hostelry.containers.lmi.settings.engine_settings import EngineSettings


class LivingChild:
    """A child that ends when it is asked to."""

    pid = 1

    def wait(self, timeout: float | None = None) -> int:
        return 0


LOADED = frame(
    ModelLoaded(ModelFacts(vocab_size=9, max_model_len=9, eos_token_ids=(1,), dtype="float32"))
)


def frame_bytes(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


@cases(
    "sent",
    case("no message", LOADED + frame_bytes(b"\xff\x00")),
    case("a text that is not UTF-8", LOADED + frame_bytes(b"\x81\xa4type\xa1\xff")),
    case("an unknown message", LOADED + frame_bytes(msgspec.msgpack.encode({"type": "X"}))),
    case("the facts of a model a second time", LOADED + LOADED),
)
def test_an_invalid_message_ends_the_requests(sent: bytes) -> None:
    async def ask() -> tuple[BaseException | None, bool]:
        ours, theirs = socket.socketpair()
        backend = ProcessBackend(lambda _: (cast(EngineChild, LivingChild()), ours))
        await backend.start(StartEngine("/model", EngineSettings(), ()))
        asked = asyncio.create_task(backend.stats())
        await asyncio.sleep(0)
        theirs.sendall(sent)
        try:
            async with asyncio.timeout(2):
                found = (await asyncio.gather(asked, return_exceptions=True))[0]
            return cast(BaseException | None, found), backend.died.is_set()
        finally:
            theirs.close()
            await backend.close()

    found, has_died = asyncio.run(ask())
    assert isinstance(found, EngineFailedError)
    assert "invalid message" in str(found)
    assert has_died


def test_an_engine_that_is_closed_before_its_model_is_loaded_is_no_unhandled_error() -> None:
    """A template that cannot be used ends a server while its engine loads."""
    unhandled: list[dict[str, Any]] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, it: unhandled.append(it))
        ours, theirs = socket.socketpair()
        backend = ProcessBackend(lambda _: (cast(EngineChild, LivingChild()), ours))
        await backend.start(StartEngine("/model", EngineSettings(), ()))
        theirs.close()
        await backend.close()
        del backend
        gc.collect()

    asyncio.run(work())
    gc.collect()
    assert unhandled == []
