"""Contestants that hold many models: the interface for requests, and their answers."""

import http.client
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

ROW = [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]]
BODY = msgspec.json.encode(ROW)
JSON = "application/json"
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer of a model. `hit` says whether the model was loaded, or is `None` if unknown."""

    predicted: float
    took_s: float
    hit: bool | None = None


class ModelShelf(Protocol):
    """A contestant that holds many models."""

    name: str

    def call(self, target: str) -> Answered:
        """Send one request for a model, from any thread. Raises RuntimeError for a refusal."""


class Connections:
    """A connection to a port for each thread, kept open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._of_thread = threading.local()

    def send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """The body of a 200. Raises RuntimeError for other statuses, OSError without a status."""
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
            self._of_thread.connection = connection
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            content: bytes = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:900]!r}")
        return content


def timed_answer(
    connections: Connections, path: str, body: bytes, headers: Mapping[str, str]
) -> tuple[bytes, float]:
    """The answer to a POST, and the seconds that it took."""
    began_s = time.perf_counter()
    content = connections.send("POST", path, body, headers)
    return content, time.perf_counter() - began_s
