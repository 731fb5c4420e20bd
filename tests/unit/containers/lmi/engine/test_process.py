"""The engine's process: structures, registrations, and faults."""

import errno
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import case, cases
from tests.models import tiny_llama

from hostelry.containers.lmi.engine import loop
from hostelry.containers.lmi.engine.loop import (
    classify_adapter_error,
    classify_request_error,
    lacks_memory,
)
from hostelry.containers.lmi.engine.messages import (
    FROM_ENGINE,
    Abort,
    Add,
    CancelRegistration,
    Done,
    FromEngine,
    Refused,
    RegisterAdapter,
    Stepped,
    ToEngine,
    Unframer,
    frame,
)
from hostelry.containers.lmi.engine.process import (
    EngineChannel,
    ParentGoneError,
    choose_own_ranks,
    run_engine,
)
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.engine.config import PooledTask
from hostelry.engine.engine import (
    AdapterError,
    AdapterTooLargeError,
    PinBudgetError,
    QuotaExceededError,
    ServerFullError,
    UnknownAdapterError,
    UnsupportedModelError,
)
from hostelry.engine.lora.sources import is_remote
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams, Structure
from hostelry.engine.runner.parallel import ParallelError
from hostelry.engine.sampling.grammar import GrammarError


def failure_of(size: int) -> RuntimeError:
    with pytest.raises(RuntimeError) as failure:
        torch.empty(size, dtype=torch.int8)
    return failure.value


@cases(
    "error, lacks",
    case("the CPU's allocator gives up", failure_of(1 << 62), True),
    case("an accelerator's memory is full", torch.OutOfMemoryError("CUDA"), True),
    case("Python's own memory is full", MemoryError(), True),
    case("any other failure of torch", failure_of(-1), False),
)
def test_what_is_a_lack_of_memory(error: BaseException, lacks: bool) -> None:
    assert lacks_memory(error) is lacks


@cases(
    "fields, degree, ranks, words",
    case("tried on CPUs", {"cpu_ranks": True, "accelerators": 2}, None, 2, "2 ranks"),
    case("two on CPUs", {"accelerators": 2}, 2, 1, "one process on CPUs"),
    case("a merged adapter", {"cpu_ranks": True, "accelerators": 2, "enable_lora": True,
        "fuse_adapter": "es"}, None, 1, "fuse_adapter is es"),
    case("int8", {"cpu_ranks": True, "accelerators": 2, "weight_dtype": "int8"}, "max", 1,
        "int8 are computed by one process"),
    case("vectors", {"cpu_ranks": True, "accelerators": 2, "pooled": PooledTask(task="embed")},
        None, 1, "vectors is computed by one process"),
)  # fmt: skip
def test_the_ranks_of_our_engine(
    fields: dict[str, Any], degree: Any, ranks: int, words: str, tmp_path: Path
) -> None:
    settings = EngineSettings(degree=degree, **fields)
    choice = choose_own_ranks(tiny_llama(tmp_path), settings)
    assert choice.ranks == ranks
    assert words in choice.reason


def test_our_engine_has_no_stages(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="pipeline_parallel_degree is 2, and this"):
        choose_own_ranks(tmp_path, EngineSettings(pipeline_parallel=2))


class CompilingEngine:
    """Ends every request at its first step. Structures are compiled when the test says so."""

    failure: str | None = None

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


def test_the_loop_ends_after_the_requests_of_an_engine_that_lost_a_rank() -> None:
    engine = CompilingEngine()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        parent, channel = Parent(ours), EngineChannel(theirs)
        parent.say(Add((asking("last"),)))
        engine.failure = "rank 1 was ended by SIGKILL"
        with pytest.raises(ParallelError, match="rank 1 was ended by SIGKILL"):
            run_engine(engine, channel)  # type: ignore[arg-type]
        assert ended(parent.receive()) == ["last"]


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


class ReadingEngine(CompilingEngine):
    """Adapters are read when the test says so. None of them is registered."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.adapters: list[Any] = []

    def prepare_adapter(self, place: str) -> Any:
        self.reading.release()
        if place.startswith("hang"):
            self.go_on.wait(60)
        raise AdapterError(f"{place} is bad")


def test_steps_go_on_while_an_adapter_is_read_and_a_late_one_is_given_up() -> None:
    engine = ReadingEngine()
    with running(engine) as parent:
        parent.say(RegisterAdapter(1, "a", "hang"))
        engine.reading.acquire(timeout=60)
        parent.say(Add((asking("beside"),)))
        assert ended(parent.receive()) == ["beside"]
        parent.say(RegisterAdapter(2, "b", "quick"))
        assert parent.receive() == Done(2, "adapter_refused", "quick is bad")
        parent.say(CancelRegistration(1))
        given_up = parent.receive()
        assert isinstance(given_up, Done)
        assert (given_up.call, given_up.fault) == (1, "adapter_refused")
        assert "not read from hang in time" in given_up.message
        parent.say(CancelRegistration(1))
        engine.go_on.set()
        parent.say(RegisterAdapter(3, "c", "quick"))
        assert parent.receive() == Done(3, "adapter_refused", "quick is bad")


def test_sources_that_hang_leave_room_once_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_LOCAL", 1)
    monkeypatch.setattr(loop, "MAX_WAITING", 2)
    engine = ReadingEngine()
    with running(engine) as parent:
        parent.say(RegisterAdapter(1, "a", "hang"))
        engine.reading.acquire(timeout=60)
        parent.say(RegisterAdapter(2, "b", "hang too"))
        parent.say(RegisterAdapter(3, "c", "quick"))
        parent.say(RegisterAdapter(4, "d", "one too many"))
        refused = parent.receive()
        assert isinstance(refused, Done)
        assert (refused.call, refused.fault) == (4, "full")
        parent.say(RegisterAdapter(5, "e", "s3://b/another lane"))
        assert isinstance(parent.receive(), Done)
        parent.say(CancelRegistration(1))
        parent.say(CancelRegistration(2))
        answered = [parent.receive() for _ in range(3)]
        assert {it.call for it in answered if isinstance(it, Done)} == {1, 2, 3}
        engine.go_on.set()


@cases(
    "error, fault",
    case("weights that are wrong", AdapterError("use_dora"), "adapter_refused"),
    case("larger than its place", AdapterTooLargeError("too large"), "capacity"),
    case("a pin beyond the budget", PinBudgetError("a", 5, 1, 4), "capacity"),
    case("no memory", MemoryError(), "capacity"),
    case("the disk is full", OSError(errno.ENOSPC, "full"), "capacity"),
    case("no file", FileNotFoundError(errno.ENOENT, "x"), "adapter_refused"),
    case("a fetcher's defect", KeyError("x"), "adapter_refused"),
)
def test_why_an_adapter_is_not_registered(error: Exception, fault: str) -> None:
    assert classify_adapter_error(error) == fault


@cases(
    "error, fault",
    case("no such adapter", UnknownAdapterError("x"), "adapter_missing"),
    case("a quota", QuotaExceededError("t", "tokens", 3, 2.0), "quota"),
    case("a full queue", ServerFullError(3, 1.0), "full"),
    case("what it asks for cannot be", ValueError("x"), "request"),
    case("a defect of ours", OverflowError("x"), "failed"),
)
def test_why_a_request_is_not_run(error: Exception, fault: str) -> None:
    assert classify_request_error(error) == fault


def test_only_what_is_remote_counts_as_remote(tmp_path: Path) -> None:
    assert is_remote("s3://b/x")
    assert not is_remote(tmp_path.as_uri())
    assert not is_remote(str(tmp_path))
