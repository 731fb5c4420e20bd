"""An agent whose disk is full: its refusals, and the processes that keep running."""

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.proc import ProcessIdentity
from hostelry.domain.copy import CopyPhase, CopySpec, CopyStatus
from hostelry.domain.model import Container
from hostelry.fleet.agent.agent import InstanceAgent
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.hosted_copy import HostedCopy
from hostelry.fleet.agent.server import AgentRoutes, EpochGuard
from hostelry.fleet.artifacts.protocol import ArtifactError, Fetch
from hostelry.fleet.host.processes import WatchedProcess, own_identity
from hostelry.fleet.launch.launcher import LaunchOrder
from hostelry.fleet.records import CopyFolder, CopyRecord, InstanceFolder
from hostelry.fleet.shapes import get_shape

FULL = Path("/dev/full")  # every write to it fails as on a full disk
KEY = "the-internal-key"


class NoArtifacts:
    """The artifact store for copies that need no artifacts."""

    async def fetch(self, want: Fetch) -> Path:
        raise ArtifactError(f"{want.source.uri}: there is no object store in this test")

    def retain(self, copy_ids: Collection[str]) -> None:
        del copy_ids

    def release(self, holder: str) -> None:
        del holder


class Endless(WatchedProcess):
    """A process that never ends."""

    async def wait(self) -> int | None:
        await asyncio.Event().wait()
        return None


class NoProcesses:
    """Starts nothing. The "started" process has this test's identity in another boot."""

    async def start(self, order: LaunchOrder) -> WatchedProcess:
        del order
        mine = own_identity()
        return Endless(
            ProcessIdentity(pid=mine.pid, start_ticks=mine.start_ticks, boot_id="another boot")
        )

    def adopt(self, folder: Path, identity: ProcessIdentity) -> WatchedProcess | None:
        del folder, identity
        return None

    async def explain_exit(self, folder: Path, code: int | None) -> str:
        del folder
        return f"exit {code}"

    async def stop(self, folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
        del folder, leader, grace_s


async def pong(
    method: str, address: str, path: str, headers: Mapping[str, str], timeout_s: float
) -> int:
    """Every server answers every ping."""
    del method, address, path, headers, timeout_s
    return 200


def healthy(request: httpx.Request) -> httpx.Response:
    """A model server that answers every invocation."""
    return httpx.Response(200, json={"generated_text": "x", "path": request.url.path})


def spec(copy_id: str, image: str) -> CopySpec:
    return CopySpec(
        id=copy_id,
        owner=f"component/{copy_id}",
        container=Container(image=image),
        requirements=None,
        download_timeout_s=60.0,
        startup_timeout_s=60.0,
    )


def deps(folder: Path, http: httpx.AsyncClient) -> CopyDeps:
    return CopyDeps(
        images_file=folder / "images.toml",
        artifacts=NoArtifacts(),
        launcher=NoProcesses(),
        http=http,
        ask_status=pong,
        region="us-west-2",
        shape=get_shape("ml.m5.large"),
        operator_environment={},
    )


def run(folder: Path, work: Callable[[CopyDeps], Coroutine[Any, Any, None]]) -> None:
    async def with_means() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(healthy)) as http:
            await work(deps(folder, http))

    asyncio.run(with_means())


def fill_disk_for(path: Path) -> None:
    """Let the next whole write of `path` by this process fail half-way."""
    path.with_name(f".{path.name}.{os.getpid()}").symlink_to(FULL)


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_file()]


def test_desired_copies_that_cannot_be_recorded_are_refused_and_change_nothing(
    tmp_path: Path,
) -> None:
    folder = InstanceFolder(tmp_path)
    old, new = (spec("c-1", "nowhere:1"),), (spec("c-2", "nowhere:1"),)

    async def work(given: CopyDeps) -> None:
        agent = InstanceAgent("i-1", folder, given)
        routes = AgentRoutes(agent, lambda: None, EpochGuard(folder))
        transport = httpx.ASGITransport(routes.app(KEY))
        headers = {INTERNAL_KEY_HEADER: KEY}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers
        ) as client:

            async def put(desired: tuple[CopySpec, ...]) -> httpx.Response:
                return await client.put("/copies", content=msgspec.json.encode(desired))

            async def copy_ids() -> list[str]:
                return [it["id"] for it in (await client.get("/observe")).json()["copies"]]

            assert (await put(old)).status_code == 204
            fill_disk_for(folder.desired)
            refused = await put(new)
            assert refused.status_code == 503
            assert "the desired copies cannot be recorded: [Errno 28]" in refused.text
            assert folder.load_desired() == old
            assert files_in(tmp_path) == ["wish.json"]
            assert await copy_ids() == ["c-1"], "the old desired copies stay"
            assert (await put(new)).status_code == 204, "there is room again"
            assert folder.load_desired() == new
        await agent.stop()

    run(tmp_path, work)


class FullFolder(CopyFolder, frozen=True):
    """A copy's folder on a disk that is full."""

    def save(self, record: CopyRecord) -> None:
        raise OSError(28, f"No space left on device for {record.spec_digest}")


def test_a_copy_whose_record_cannot_be_written_serves_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[CopyStatus] = []

    async def work(given: CopyDeps) -> None:
        ready = asyncio.Event()

        def changed() -> None:
            seen.append(copy.status)
            if copy.status.phase in (CopyPhase.READY, CopyPhase.FAILED):
                ready.set()

        copy = HostedCopy(spec("c-1", "lmi:1"), FullFolder(tmp_path / "c-1"), given, changed, tuple)
        running = asyncio.create_task(copy.run())
        await ready.wait()
        running.cancel()
        await asyncio.wait([running])

    run(tmp_path, work)
    assert seen[-1].phase is CopyPhase.READY
    assert "c-1: its record cannot be written" in caplog.text
    assert not (tmp_path / "c-1" / "copy.json").exists()
