"""Messages to and from the worker program; worker/serving.py has the format."""

import asyncio
import struct
from typing import Any

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.json import decode

LENGTHS = struct.Struct(">II")
MAX_HEAD_BYTES = 1 << 20
MAX_BODY_BYTES = 1 << 31


class WorkerMessageError(HostelryError):
    """What came is no message; the other end cannot be trusted any more."""


class FromZygote(msgspec.Struct, frozen=True):
    """What the zygote says; see worker/zygote.py."""

    ready: bool = False
    failed: str | None = None
    number: int | None = None
    forked: int | None = None
    ended: int | None = None
    code: int = 0
    versions: dict[str, str] = {}
    python: str = ""
    pid: int = 0


class ReplyHead(msgspec.Struct, frozen=True):
    """The head of the answer to one request; its body has `length` bytes."""

    status: int
    content_type: str
    headers: dict[str, str]
    length: int


class FromWorker(msgspec.Struct, frozen=True):
    """What a worker says; see worker/serving.py."""

    loaded: bool = False
    failed: str | None = None
    replies: tuple[ReplyHead, ...] = ()
    parameters: dict[str, Any] | None = None


def packed(head: dict[str, Any], *bodies: bytes) -> list[bytes]:
    """A message as pieces to be written one after the other."""
    text = msgspec.json.encode(head)
    return [LENGTHS.pack(len(text), sum(map(len, bodies))) + text, *bodies]


async def received(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of the next message.

    Raises IncompleteReadError at the end, WorkerMessageError for lengths beyond the limits.
    """
    head, body = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
    if head > MAX_HEAD_BYTES or body > MAX_BODY_BYTES:
        raise WorkerMessageError(f"a head of {head} and a body of {body} bytes")
    text = await reader.readexactly(head)
    return text, await reader.readexactly(body) if body else b""


def worker_answer(head: bytes) -> FromWorker:
    """A worker's head; raises WorkerMessageError."""
    try:
        return decode(head, FromWorker)
    except msgspec.DecodeError as error:
        raise WorkerMessageError(str(error)) from error
