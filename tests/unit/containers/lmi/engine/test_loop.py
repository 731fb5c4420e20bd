"""Registrations in the engine's process: beside the steps, each answered once."""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.containers.lmi.engine.test_process import CompilingEngine, asking, ended, running

from hostelry.containers.lmi.engine import loop
from hostelry.containers.lmi.engine.loop import classify_adapter_error, classify_request_error
from hostelry.containers.lmi.engine.messages import Add, CancelRegistration, Done, RegisterAdapter
from hostelry.engine.engine import (
    AdapterError,
    AdapterTooLargeError,
    PinBudgetError,
    QuotaExceededError,
    ServerFullError,
    UnknownAdapterError,
)
from hostelry.engine.lora.sources import is_remote


class ReadingEngine(CompilingEngine):
    """Its adapters are read when the test says so; none of them is registered."""

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


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        pytest.param(AdapterError("use_dora"), "adapter_refused", id="weights that are wrong"),
        pytest.param(AdapterTooLargeError("too large"), "capacity", id="larger than its place"),
        pytest.param(PinBudgetError("a", 5, 1, 4), "capacity", id="a pin beyond the budget"),
        pytest.param(MemoryError(), "capacity", id="no memory"),
        pytest.param(OSError(errno.ENOSPC, "full"), "capacity", id="the disk is full"),
        pytest.param(FileNotFoundError(errno.ENOENT, "x"), "adapter_refused", id="no file"),
        pytest.param(KeyError("x"), "adapter_refused", id="a fetcher's defect"),
    ],
)
def test_why_an_adapter_is_not_registered(error: Exception, fault: str) -> None:
    assert classify_adapter_error(error) == fault


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        pytest.param(UnknownAdapterError("x"), "adapter_missing", id="no such adapter"),
        pytest.param(QuotaExceededError("t", "tokens", 3, 2.0), "quota", id="a quota"),
        pytest.param(ServerFullError(3, 1.0), "full", id="a full queue"),
        pytest.param(ValueError("x"), "request", id="what it asks for cannot be"),
        pytest.param(OverflowError("x"), "failed", id="a defect of ours"),
    ],
)
def test_why_a_request_is_not_run(error: Exception, fault: str) -> None:
    assert classify_request_error(error) == fault


def test_only_what_is_remote_counts_as_remote(tmp_path: Path) -> None:
    assert is_remote("s3://b/x")
    assert not is_remote(tmp_path.as_uri())
    assert not is_remote(str(tmp_path))
