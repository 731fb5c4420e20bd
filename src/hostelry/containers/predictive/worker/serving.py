"""Messages between the front and the processes here, and a worker that answers them.

A message is a JSON head and a raw body:

4 bytes  length of the head, big-endian      then the head, UTF-8 JSON, an object
4 bytes  length of the body                  then the body

A worker loads one model, then answers requests, one batch after the other. Each message to it has
one answer:

    {"load": {...}}                       {"loaded": true} or {"failed": "..."}
    {"invoke": [{...}, ...]}, bodies      {"replies": [{...}, ...]}, bodies
    {"parameters": true}                  {"parameters": {...}} (null: no function) or a failure

`load` names the folders and the framework (see ModelServing). A request has `headers` and `length`.
A reply has `status`, `content_type`, `headers` and `length`. The bodies follow each other.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import sys
from typing import Any

from hostelry.containers.predictive.worker.model_serving import ModelServing

LENGTHS = struct.Struct(">II")
MAX_HEAD_BYTES = 1 << 20
RECEIVE_BYTES = 1 << 18


class ClosedError(Exception):
    """The other end is closed."""


def pack_message(head: dict[str, Any], body: bytes = b"") -> bytes:
    """A message as bytes."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def send(stream: socket.socket, head: dict[str, Any], body: bytes = b"") -> None:
    """Send one message."""
    stream.sendall(pack_message(head, body))


def receive(stream: socket.socket) -> tuple[dict[str, Any], bytes]:
    """The head and body of the next message. Raises ClosedError."""
    head_length, body_length = LENGTHS.unpack(receive_exactly(stream, LENGTHS.size))
    if head_length > MAX_HEAD_BYTES:
        raise ClosedError(f"a head of {head_length} bytes")
    head = json.loads(receive_exactly(stream, head_length).decode())
    return head, receive_exactly(stream, body_length)


def receive_exactly(stream: socket.socket, count: int) -> bytes:
    """The next `count` bytes. Raises ClosedError."""
    received = bytearray()
    while len(received) < count:
        piece = stream.recv(min(RECEIVE_BYTES, count - len(received)))
        if not piece:
            raise ClosedError(f"after {len(received)} of {count} bytes")
        received += piece
    return bytes(received)


def receive_with_sockets(stream: socket.socket) -> tuple[dict[str, Any], list[socket.socket]]:
    """The head of the next message, and the sockets sent with its first byte.

    Raises ClosedError, also if the message has a body.
    """
    descriptors = array.array("i")
    room = socket.CMSG_LEN(4 * descriptors.itemsize)
    first, ancillary, _, _ = stream.recvmsg(LENGTHS.size, room)
    if not first:
        raise ClosedError("between two messages")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    lengths = first + receive_exactly(stream, LENGTHS.size - len(first))
    head_length, body_length = LENGTHS.unpack(lengths)
    if head_length > MAX_HEAD_BYTES or body_length:
        raise ClosedError(f"a message of {head_length} and {body_length} bytes")
    head = json.loads(receive_exactly(stream, head_length).decode())
    return head, [socket.socket(fileno=number) for number in descriptors]


def serve(stream: socket.socket) -> int:
    """Serve as a worker until the front closes the socket. Returns the exit status."""
    with stream:
        try:
            head, _ = receive(stream)
            model, answer = load_model(head["load"])
            send(stream, answer)
            if model is None:
                return 1
            while True:
                head, body = receive(stream)
                if "parameters" in head:
                    send(stream, model.get_execution_parameters())
                    continue
                replies = model.invoke(split_requests(head["invoke"], body))
                bodies = b"".join(reply.body for reply in replies)
                send(stream, {"replies": [reply.head() for reply in replies]}, bodies)
        except (ClosedError, ConnectionError):
            return 0


def load_model(load: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model (None if it cannot be loaded) and the answer to the message."""
    os.environ.update(load["environment"])
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()  # otherwise every fork draws the same numbers
    model = ModelServing(load["model_dir"], load["code_dir"], load["framework"])
    failure = model.load()
    return (None, {"failed": failure}) if failure else (model, {"loaded": True})


def split_requests(heads: list[dict[str, Any]], body: bytes) -> list[tuple[dict[str, str], bytes]]:
    """The headers and the body of each request."""
    requests, start = [], 0
    for head in heads:
        end = start + head["length"]
        requests.append((head["headers"], body[start:end]))
        start = end
    return requests
