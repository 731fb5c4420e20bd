import os
from pathlib import Path

import pytest

from hostelry.home.home import MARK_ROOM, SERVICE_VARIABLE, Home
from hostelry.processes.service_forks import fork_interpreter


@pytest.mark.parametrize("room", [None, 0, MARK_ROOM - 1])
def test_a_process_without_room_for_marks_forks_no_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int | None
) -> None:
    monkeypatch.delenv(SERVICE_VARIABLE, raising=False)
    if room is not None:
        monkeypatch.setenv(SERVICE_VARIABLE, "-" * room)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forked"))
    assert fork_interpreter(Home(tmp_path)) is None
    assert SERVICE_VARIABLE not in os.environ


def test_a_process_that_cannot_fork_goes_on_without_an_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setenv(SERVICE_VARIABLE, "-" * MARK_ROOM)
    monkeypatch.setattr(os, "fork", refuse)
    before = set(os.listdir("/proc/self/fd"))
    assert fork_interpreter(Home(tmp_path)) is None
    assert set(os.listdir("/proc/self/fd")) <= before
