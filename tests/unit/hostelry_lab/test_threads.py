import threading

import pytest

from hostelry_lab.threads import running_threads


def test_work_goes_on_until_the_block_has_ended() -> None:
    stopping, both = threading.Event(), threading.Barrier(3)
    ended: list[bool] = []

    def work() -> None:
        both.wait(10)
        ended.append(stopping.wait(10))

    with running_threads(stopping, work, work):
        both.wait(10)
        assert ended == []
    assert ended == [True, True]


def test_work_is_ended_too_where_the_block_fails() -> None:
    stopping = threading.Event()
    ended: list[bool] = []

    with (
        pytest.raises(ValueError, match="the block"),
        running_threads(stopping, lambda: ended.append(stopping.wait(10))),
    ):
        raise ValueError("the block")
    assert ended == [True]


def test_work_is_ended_too_where_the_rest_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping = threading.Event()
    ended: list[bool] = []
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def one_only(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", one_only)
    with (
        pytest.raises(RuntimeError, match="new thread"),
        running_threads(stopping, lambda: ended.append(stopping.wait(10)), stopping.set),
    ):
        pytest.fail("the block began without its work")
    assert ended == [True]
