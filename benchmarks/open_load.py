"""A load generator in a separate process: different requests, each at its time or in turn.

``python -m benchmarks.open_load`` reads a `Plan` (msgspec JSON) from standard input and prints an
`Outcome`. A request that is due is sent at once, over an idle connection or a new one, even if
earlier ones are not answered yet. With `num_clients`, each client instead sends its next request as
soon as its last one is answered.
"""

import asyncio
import sys
from collections.abc import Iterator

import msgspec
import uvloop

from hostelry.base.clock import monotonic_s
from hostelry.loadtest.requests import LoadConnection


class Due(msgspec.Struct, array_like=True):
    """A whole HTTP request, and when to send it, in seconds from the start."""

    at_s: float
    message: bytes


class Plan(msgspec.Struct, kw_only=True):
    """The requests to send to `port`. With `num_clients` 0, each is sent at its time."""

    port: int
    requests: list[Due]
    num_clients: int = 0


class Answer(msgspec.Struct, array_like=True):
    """One request's start and end in seconds from the plan's start, its status and body.

    `first_s` is when the first part of the body came.
    """

    began_s: float
    ended_s: float
    status: int
    body: bytes
    first_s: float = 0.0


class Outcome(msgspec.Struct, kw_only=True):
    """Every answer, in the order in which they ended."""

    answers: list[Answer]


class Generator:
    """Sends a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._idle: list[LoadConnection] = []
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
        parts: list[bytes] = []
        firsts_s: list[float] = []

        def take(part: bytes) -> None:
            if not firsts_s:
                firsts_s.append(monotonic_s() - self._start_s)
            parts.append(part)

        status = await line.ask(message, take)
        ended_s = monotonic_s() - self._start_s
        first_s = firsts_s[0] if firsts_s else ended_s
        self._answers.append(Answer(began_s, ended_s, status, b"".join(parts), first_s))
        if line.is_open:
            self._idle.append(line)

    async def _connect(self) -> LoadConnection:
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(LoadConnection, "127.0.0.1", self._plan.port)
        return line


def main() -> None:
    """Entry point."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(Generator(plan).run())))


if __name__ == "__main__":
    main()
