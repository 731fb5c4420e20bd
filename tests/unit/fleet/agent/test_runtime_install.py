"""A runtime that is not there: installed once, reported, refused, ended with its copy."""

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import ProcessStat, processes
from hostelry.base.runtimes import RECORD, VARIABLE, Runtime
from hostelry.fleet.agent import package_install as runtime_install
from hostelry.fleet.agent.package_install import POLICY, ensure_runtime


class Calls:
    """The notes and reports of one call."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.reports: list[str] = []
        self.has_begun = asyncio.Event()

    def note(self, text: str) -> None:
        self.notes.append(text)
        if text.startswith("pid "):
            self.has_begun.set()

    async def ensure(self, folder: Path, environment: Mapping[str, str]) -> None:
        given = {"PATH": os.environ["PATH"], VARIABLE: str(folder), **environment}
        await ensure_runtime("sklearn-1.2", given, self.note, self.reports.append)


@pytest.fixture
def calls() -> Calls:
    return Calls()


def script(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The installation is this script, to which the runtime's name is $0."""
    monkeypatch.setattr(runtime_install, "COMMAND", ("/bin/sh", "-c", text))


def test_the_installation_is_reported_line_by_line(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, f"echo resolving $0; echo error to come >&2; echo in ${VARIABLE}")
    asyncio.run(calls.ensure(tmp_path, {}))
    assert calls.notes == [
        "the runtime sklearn:1.2 is not on this machine: installing it",
        "resolving sklearn:1.2",
        "error to come",
        f"in {tmp_path}",
    ]
    assert calls.reports[0] == "installing the runtime sklearn:1.2 for 0 s: starting"
    assert calls.reports[-1].endswith(f"in {tmp_path}")


def test_a_runtime_that_is_there_is_left_alone(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, "exit 1")
    python = tmp_path / "sklearn-1.2" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(0o755)
    record = Runtime(
        name="sklearn-1.2", device="cpu", python="3.8", packages={}, installed_at="", install_s=1,
        num_bytes=1,
    )  # fmt: skip
    (tmp_path / "sklearn-1.2" / RECORD).write_bytes(msgspec.json.encode(record))
    asyncio.run(calls.ensure(tmp_path, {POLICY: "refuse"}))
    assert calls.notes == calls.reports == []


@cases(
    "text, environment, message",
    case("the operator refuses", "true", {POLICY: "refuse"},
        "hostelry runtimes install sklearn:1.2"),
    case("a wrong policy", "true", {POLICY: "later"}, "must be install or refuse"),
    case("it fails", "for i in $(seq 50); do echo line $i; done; exit 3", {}, "line 31\n"),
    case("it is killed", "kill -9 $$", {}, "cannot be installed"),
    case("a line without end", "head -c 3000000 /dev/zero; exit 1", {}, "cannot be installed"),
)  # fmt: skip
def test_a_failure_has_its_cause(
    calls: Calls,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    environment: dict[str, str],
    message: str,
) -> None:
    script(monkeypatch, text)
    with pytest.raises(TerminalError) as caught:
        asyncio.run(calls.ensure(tmp_path, environment))
    assert message in str(caught.value)
    assert "line 30\n" not in str(caught.value)


def test_the_installation_ends_with_its_copy(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(monkeypatch, "echo pid $$; sleep 100 & wait")

    async def run() -> int:
        asking = asyncio.create_task(calls.ensure(tmp_path, {}))
        await calls.has_begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return int(calls.notes[1].removeprefix("pid "))

    group = asyncio.run(run())

    def members() -> list[ProcessStat]:
        return [it for it in processes() if it.group == group and it.state not in "ZX"]

    # A killed process is there until the kernel has run it once more.
    given_up_at = monotonic_s() + 30
    while members() and monotonic_s() < given_up_at:
        time.sleep(0.01)
    assert not members()
