"""One copy on its way to READY, with a model server that is not there."""

import asyncio
import dataclasses
import subprocess
import sys
from pathlib import Path

import httpx
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.fleet.agent.test_full_disk import NoProcesses, deps, spec

from hostelry.domain.copy import CopyPhase
from hostelry.fleet.agent.hosted_copy import HostedCopy
from hostelry.fleet.agent.lifecycle import CopyPolicy
from hostelry.fleet.host.processes import MARKER_VARIABLE, WatchedProcess
from hostelry.fleet.launch.launcher import LaunchOrder
from hostelry.fleet.records import CopyFolder

LISTEN = (
    "import socket, sys; there = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
    "print('listens', flush=True); sys.stdin.read()"
)


class PortTaken(NoProcesses):
    """Starts nothing. A process of another copy listens on the port of the copy instead."""

    def __init__(self, other: Path) -> None:
        self._other = other
        self.port = ""
        self.listener: subprocess.Popen[bytes] | None = None

    async def start(self, order: LaunchOrder) -> WatchedProcess:
        self.port = order.environment["SAGEMAKER_BIND_TO_PORT"]
        self._listen()
        return await super().start(order)

    def _listen(self) -> None:
        self.listener = subprocess.Popen(
            [sys.executable, "-c", LISTEN, self.port],
            env={MARKER_VARIABLE: str(self._other)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.listener.stdout is not None
        assert self.listener.stdout.readline() == b"listens\n"

    def close(self) -> None:
        if self.listener is not None:
            self.listener.communicate()


def broken(request: httpx.Request) -> httpx.Response:
    """A model server that answers pings only, which `deps` answer."""
    return httpx.Response(500, text=f"no model at {request.url.path}")


@cases(
    "image, advice",
    case("whose probe is known", "lmi:1", ""),
    case("whose probe is a guess", "mine:1", "HOSTELRY_PROBE_BODY"),
)
def test_why_a_copy_is_not_proven_is_reported_meanwhile(
    tmp_path: Path, image: str, advice: str
) -> None:
    """It may still become ready, for minutes."""

    async def work() -> str:
        shown: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def changed() -> None:
            status = copy.status
            if status.phase is CopyPhase.PROVING and status.reason and not shown.done():
                shown.set_result(status.reason)

        async with httpx.AsyncClient(transport=httpx.MockTransport(broken)) as http:
            given = dataclasses.replace(deps(tmp_path, http), policy=CopyPolicy(ping_every_s=0.01))
            folder = CopyFolder(tmp_path / "c-1")
            copy = HostedCopy(spec("c-1", image), folder, given, changed, tuple)
            running = asyncio.create_task(copy.run())
            try:
                return await asyncio.wait_for(shown, 20)
            finally:
                running.cancel()
                await asyncio.wait([running])

    reason = asyncio.run(work())
    assert "The request that proves readiness failed: " in reason
    assert "500" in reason
    assert advice in reason


def test_a_copy_that_is_too_late_reports_why_it_was_not_proven(tmp_path: Path) -> None:
    """Not that a probe with the little time that was left got no answer."""

    async def work() -> str | None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(broken)) as http:
            given = dataclasses.replace(deps(tmp_path, http), policy=CopyPolicy(ping_every_s=0.2))
            limited = replace(spec("c-1", "lmi:1"), startup_timeout_s=0.3)
            copy = HostedCopy(limited, CopyFolder(tmp_path / "c-1"), given, lambda: None, tuple)
            await asyncio.wait_for(copy.run(), 20)
            return copy.status.reason

    reason = asyncio.run(work())
    assert reason is not None
    assert "not ready within 0.3 s" in reason
    assert "500" in reason


def test_a_copy_that_is_too_late_names_its_port_if_another_copy_listens_there(
    tmp_path: Path,
) -> None:
    """The other copy's answers to pings count for nothing."""
    launcher = PortTaken(tmp_path / "c-2")

    async def work() -> str | None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(broken)) as http:
            given = dataclasses.replace(deps(tmp_path, http), launcher=launcher)
            limited = replace(spec("c-1", "lmi:1"), startup_timeout_s=0.1)
            copy = HostedCopy(limited, CopyFolder(tmp_path / "c-1"), given, lambda: None, tuple)
            await asyncio.wait_for(copy.run(), 20)
            return copy.status.reason

    try:
        reason = asyncio.run(work())
    finally:
        launcher.close()
    assert reason is not None
    assert "not ready within 0.1 s" in reason
    assert f"another copy listens on its port {launcher.port}" in reason
