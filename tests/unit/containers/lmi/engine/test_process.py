"""Decisions of the engine's process."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from hostelry.containers.lmi.engine.loop import lacks_memory
from hostelry.containers.lmi.engine.messages import (
    FROM_ENGINE,
    Abort,
    Add,
    FromEngine,
    Refused,
    Stepped,
    ToEngine,
    Unframer,
    frame,
)
from hostelry.containers.lmi.engine.process import EngineChannel, ParentGoneError, run_engine
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams, Structure
from hostelry.engine.sampling.grammar import GrammarError


def failure_of(size: int) -> RuntimeError:
    with pytest.raises(RuntimeError) as failure:
        torch.empty(size, dtype=torch.int8)
    return failure.value


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        pytest.param(failure_of(1 << 62), True, id="the CPU's allocator gives up"),
        pytest.param(torch.OutOfMemoryError("CUDA"), True, id="an accelerator's memory is full"),
        pytest.param(MemoryError(), True, id="Python's own memory is full"),
        pytest.param(failure_of(-1), False, id="any other failure of torch"),
    ],
)
def test_what_is_a_lack_of_memory(error: BaseException, lacks: bool) -> None:
    assert lacks_memory(error) is lacks


class CompilingEngine:
    """Ends every request at its first step; its structures are compiled when the test says so."""

    def __init__(self) -> None:
        self.structures: dict[Structure, Future[Any]] = {}
        self.asked = threading.Event()
        self.waiting: list[str] = []
        self.added: list[str] = []

    @property
    def has_work(self) -> bool:
        return bool(self.waiting)

    def compile_structure(self, structure: Structure) -> Future[Any]:
        if structure.text == "wrong at a glance":
            raise GrammarError("wrong at a glance")
        self.asked.set()
        return self.structures.setdefault(structure, Future())

    def add(self, request: Request) -> None:
        if request.sampling.structure is not None:
            self.structures[request.sampling.structure].result()
        self.waiting.append(request.id)
        self.added.append(request.id)

    def prepare_adapter(self, place: str) -> Any:
        raise AssertionError(f"unexpected place {place}")

    def abort(self, request_id: str) -> None:
        if request_id in self.waiting:
            self.waiting.remove(request_id)

    def step(self) -> list[Output]:
        ended, self.waiting = self.waiting, []
        return [
            Output(request_id=each, token_id=1, finish_reason=FinishReason.LENGTH) for each in ended
        ]


class Parent:
    """The other end of an engine's channel."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._unframer = Unframer()
        self._received: list[FromEngine] = []

    def say(self, message: ToEngine) -> None:
        self._stream.sendall(frame(message))

    def receive(self) -> FromEngine:
        while not self._received:
            bodies = self._unframer.feed(self._stream.recv(1 << 16))
            self._received += [FROM_ENGINE.decode(body) for body in bodies]
        return self._received.pop(0)


@contextmanager
def running(engine: Any) -> Iterator[Parent]:
    ours, theirs = socket.socketpair()
    ours.settimeout(30)

    def run() -> None:
        with pytest.raises(ParentGoneError):
            run_engine(engine, EngineChannel(theirs))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield Parent(ours)
    finally:
        ours.close()
        thread.join()
        theirs.close()


def asking(name: str, structure: str | None = None) -> Request:
    sampling = SamplingParams(structure=Structure("regex", structure) if structure else None)
    return Request(id=name, prompt_token_ids=(1,), sampling=sampling)


def ended(message: FromEngine) -> list[str]:
    assert isinstance(message, Stepped)
    return [output.request_id for output in message.outputs]


def test_requests_wait_for_their_structures_and_others_do_not() -> None:
    engine = CompilingEngine()
    with running(engine) as parent:
        parent.say(Add((asking("slow", "a"), asking("beside"))))
        parent.say(Add((asking("plain"),)))
        assert ended(parent.receive()) == ["plain"]
        engine.structures[Structure("regex", "a")].set_result(None)
        assert ended(parent.receive()) == ["slow", "beside"]


def test_a_wrong_structure_refuses_the_whole_call() -> None:
    engine = CompilingEngine()
    with running(engine) as parent:
        parent.say(Add((asking("a"), asking("b", "wrong at a glance"))))
        assert parent.receive() == Refused(("a", "b"), "request", "wrong at a glance")
        parent.say(Add((asking("c"), asking("d", "late"))))
        engine.asked.wait()
        engine.structures[Structure("regex", "late")].set_exception(GrammarError("no such text"))
        assert parent.receive() == Refused(("c", "d"), "request", "no such text")
        assert engine.waiting == []


def test_an_aborted_request_is_not_added_when_its_structure_is_ready() -> None:
    engine = CompilingEngine()
    with running(engine) as parent:
        parent.say(Add((asking("gone", "a"), asking("stays", "a"))))
        parent.say(Abort(("gone",)))
        parent.say(Add((asking("plain"),)))
        assert ended(parent.receive()) == ["plain"]
        engine.structures[Structure("regex", "a")].set_result(None)
        assert ended(parent.receive()) == ["stays"]
    assert engine.added == ["plain", "stays"]
