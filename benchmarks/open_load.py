"""A load generator in a process of its own: different requests, each at its time or in turn.

``python -m benchmarks.open_load`` reads a `Plan` (msgspec JSON) from standard input and prints an
`Outcome`. A request that is due is sent at once, over an idle connection or a new one, whether or
not earlier ones have been answered; with `num_clients` each client sends the next one instead, as
soon as its last one is answered.
"""

import asyncio
import sys
from collections.abc import Iterator
from typing import cast

import httptools
import msgspec
import uvloop

from hostelry.base.clock import monotonic_s


class Due(msgspec.Struct, array_like=True):
    """A whole HTTP request, and when to send it, in seconds from the start."""

    at_s: float
    message: bytes


class Plan(msgspec.Struct, kw_only=True):
    """What to send to `port`; `num_clients` 0 means each request at its time."""

    port: int
    requests: list[Due]
    num_clients: int = 0


class Answer(msgspec.Struct, array_like=True):
    """One request's start and end in seconds from the plan's start, its status and body."""

    began_s: float
    ended_s: float
    status: int
    body: bytes


class Outcome(msgspec.Struct, kw_only=True):
    """Every answer, in the order in which they ended."""

    answers: list[Answer]


class Line(asyncio.Protocol):
    """One connection, carrying one request at a time."""

    def __init__(self) -> None:
        self._answered: asyncio.Future[tuple[int, bytes]] | None = None
        self._body = b""
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to send."""
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, message: bytes) -> tuple[int, bytes]:
        """Status and body of the answer; status 0 where the connection broke."""
        self._answered = asyncio.get_running_loop().create_future()
        self._body = b""
        self._transport.write(message)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._parser.feed_data(data)

    def on_body(self, part: bytes) -> None:
        """Keep it."""
        self._body += part

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self._answer(self._parser.get_status_code(), self._body)

    def connection_lost(self, exc: Exception | None) -> None:
        """No answer will come."""
        self._answer(0, b"")

    def close(self) -> None:
        """Cut the connection."""
        self._transport.abort()

    def _answer(self, status: int, body: bytes) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result((status, body))


class Generator:
    """Sends a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._idle: list[Line] = []
        self._answers: list[Answer] = []
        self._start_s = 0.0

    async def run(self) -> Outcome:
        """Send everything, and wait for the last answer."""
        self._start_s = monotonic_s()
        async with asyncio.TaskGroup() as tasks:
            if self._plan.num_clients:
                left = iter(self._plan.requests)
                for _ in range(self._plan.num_clients):
                    tasks.create_task(self._client(left))
            else:
                for due in self._plan.requests:
                    await asyncio.sleep(max(0.0, self._start_s + due.at_s - monotonic_s()))
                    tasks.create_task(self._send(due.message))
        for line in self._idle:
            line.close()
        return Outcome(answers=self._answers)

    async def _client(self, left: Iterator[Due]) -> None:
        for due in left:
            await self._send(due.message)

    async def _send(self, message: bytes) -> None:
        began_s = monotonic_s() - self._start_s
        line = self._idle.pop() if self._idle else await self._connect()
        status, body = await line.ask(message)
        ended_s = monotonic_s() - self._start_s
        self._answers.append(Answer(began_s, ended_s, status, body))
        if status:
            self._idle.append(line)

    async def _connect(self) -> Line:
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(Line, "127.0.0.1", self._plan.port)
        return line


def main() -> None:
    """Entry point."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(Generator(plan).run())))


if __name__ == "__main__":
    main()
