"""Messages between the front and the processes here: a JSON head and a raw body.

4 bytes  length of the head, big-endian      then the head, UTF-8 JSON, an object
4 bytes  length of the body                  then the body
"""

from __future__ import annotations

import array
import json
import socket
import struct
from typing import Any

LENGTHS = struct.Struct(">II")
MAX_HEAD_BYTES = 1 << 20
RECEIVE_BYTES = 1 << 18


class ClosedError(Exception):
    """The other end is closed."""


def packed(head: dict[str, Any], body: bytes = b"") -> bytes:
    """A message as bytes."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def send(stream: socket.socket, head: dict[str, Any], body: bytes = b"") -> None:
    """Send one message."""
    stream.sendall(packed(head, body))


def receive(stream: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The next message. Raises ClosedError."""
    head_length, body_length = LENGTHS.unpack(exactly(stream, LENGTHS.size))
    if head_length > MAX_HEAD_BYTES:
        raise ClosedError(f"a head of {head_length} bytes")
    head = json.loads(exactly(stream, head_length).decode())
    return head, exactly(stream, body_length)


def exactly(stream: socket.socket, count: int) -> bytes:
    """The next `count` bytes. Raises ClosedError."""
    found = bytearray()
    while len(found) < count:
        piece = stream.recv(min(RECEIVE_BYTES, count - len(found)))
        if not piece:
            raise ClosedError(f"after {len(found)} of {count} bytes")
        found += piece
    return bytes(found)


def receive_with_sockets(stream: socket.socket) -> tuple[dict[str, Any], list[socket.socket]]:
    """The next message, without a body, and the sockets that came with its first byte."""
    descriptors = array.array("i")
    room = socket.CMSG_LEN(4 * descriptors.itemsize)
    first, ancillary, _, _ = stream.recvmsg(LENGTHS.size, room)
    if not first:
        raise ClosedError("between two messages")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    lengths = first + exactly(stream, LENGTHS.size - len(first))
    head_length, body_length = LENGTHS.unpack(lengths)
    if head_length > MAX_HEAD_BYTES or body_length:
        raise ClosedError(f"a message of {head_length} and {body_length} bytes")
    head = json.loads(exactly(stream, head_length).decode())
    return head, [socket.socket(fileno=it) for it in descriptors]
