"""Questions for calls to all workers of the gateway, over the sockets that carry their heartbeats.

Each worker has noted its own calls and any of them may be asked: it asks the others. The sockets
are below run/, which only the home's owner reaches, so that they need no key.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from hostelry.base.json import decode
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.dataplane.tracing.question import TraceQuestion, WorkerCalls, answer
from hostelry.home.heartbeat import CALLS_REQUEST, ask_line, line_path
from hostelry.home.home import Home
from hostelry.home.run_file import gateway_name, gateway_names, service_path

TIMEOUT_S = 5.0


class AllWorkers:
    """The workers of this home's gateway. Worker `number` is this process, and answers at once."""

    def __init__(self, home: Home, num_workers: int, number: int, ring: CallRing) -> None:
        self._home = home
        self._name = gateway_name(number)
        self._others = [it for it in gateway_names(num_workers) if it != self._name]
        self._ring = ring

    async def ask(self, question: TraceQuestion) -> tuple[Sequence[WorkerCalls], Sequence[str]]:
        """The answers, and the workers that gave none in time."""
        found = await asyncio.gather(*(self._ask(name, question) for name in self._others))
        others = dict(zip(self._others, found, strict=True))
        own = answer(self._ring, question, self._name)
        answers = [own, *(it for it in others.values() if it is not None)]
        return answers, [name for name, it in others.items() if it is None]

    def answer_line(self, line: bytes) -> bytes:
        """This worker's answer to another worker's line. Raises DecodeError if it is invalid."""
        question = decode(line.removeprefix(CALLS_REQUEST), TraceQuestion)
        return msgspec.json.encode(answer(self._ring, question, self._name))

    async def _ask(self, name: str, question: TraceQuestion) -> WorkerCalls | None:
        path = line_path(service_path(self._home, name))
        line = CALLS_REQUEST + msgspec.json.encode(question)
        try:
            return decode(await ask_line(path, line, TIMEOUT_S), WorkerCalls)
        except (OSError, TimeoutError, msgspec.DecodeError):
            return None


class OneWorker:
    """A gateway of one process without a home."""

    def __init__(self, ring: CallRing) -> None:
        self._ring = ring

    async def ask(self, question: TraceQuestion) -> tuple[Sequence[WorkerCalls], Sequence[str]]:
        """Its own answer."""
        return [answer(self._ring, question, gateway_name(1))], []
