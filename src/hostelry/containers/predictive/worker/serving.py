"""One worker: it loads one model, then answers requests, one batch after the other.

Messages to it, each answered by one:

    {"load": {...}}                       {"loaded": true} or {"failed": "..."}
    {"invoke": [{...}, ...]}, bodies      {"replies": [{...}, ...]}, bodies
    {"parameters": true}                  {"parameters": {...}} (null: no function) or a failure

A load names the folders and the framework; see ModelServing. A request has `headers` and `length`,
a reply `status`, `content_type`, `headers` and `length`: the bodies follow each other.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from hostelry.containers.predictive.worker import frames
from hostelry.containers.predictive.worker.model_serving import ModelReply, ModelServing


def serve(stream: socket.socket) -> int:
    """Serve until the front closes the socket; the exit status."""
    with stream:
        try:
            head, _ = frames.receive(stream)
            model, answer = loaded(head["load"])
            frames.send(stream, answer)
            if model is None:
                return 1
            while True:
                head, body = frames.receive(stream)
                if "parameters" in head:
                    frames.send(stream, model.execution_parameters())
                    continue
                replies = model.invoke(requests_of(head["invoke"], body))
                frames.send(stream, {"replies": [it.head() for it in replies]}, joined(replies))
        except (frames.ClosedError, ConnectionError):
            return 0


def loaded(load: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model and what to say of it; None where it cannot be loaded."""
    os.environ.update(load["environment"])
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()  # each fork would else draw the same numbers
    model = ModelServing(load["model_dir"], load["code_dir"], load["framework"])
    failure = model.load()
    return (None, {"failed": failure}) if failure else (model, {"loaded": True})


def requests_of(heads: list[dict[str, Any]], body: bytes) -> list[tuple[dict[str, str], bytes]]:
    """The headers and the body of each request."""
    found, start = [], 0
    for head in heads:
        end = start + head["length"]
        found.append((head["headers"], body[start:end]))
        start = end
    return found


def joined(replies: list[ModelReply]) -> bytes:
    """The bodies one after the other."""
    return replies[0].body if len(replies) == 1 else b"".join(it.body for it in replies)
