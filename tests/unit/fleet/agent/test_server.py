import asyncio
import os
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from tests.cases import case, cases

from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.peers import EPOCH_HEADER
from hostelry.domain.copy import CopySpec
from hostelry.fleet.agent.agent import InstanceAgent
from hostelry.fleet.agent.server import AgentRoutes, EpochGuard, loopback_socket
from hostelry.fleet.records import InstanceFolder

KEY = "internal"


class RecordingAgent:
    """An agent that only counts the desired copies that it was given."""

    def __init__(self) -> None:
        self.applied = 0

    def find_models(self, copy_id: str) -> None:
        return None

    def hide_paths(self, text: str) -> str:
        return text

    async def apply(self, copies: Sequence[CopySpec]) -> None:
        self.applied += 1


class Rig:
    """The routes of an agent, started again by `restart`."""

    def __init__(self, root: Path) -> None:
        self.folder = InstanceFolder(root)
        self.agent = RecordingAgent()
        self.restart()

    def restart(self) -> None:
        guard = EpochGuard(self.folder)
        routes = AgentRoutes(cast(InstanceAgent, self.agent), lambda: None, guard)
        transport = httpx.ASGITransport(routes.app(KEY))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def put(self, epoch: str | None, body: Any = b"[]") -> httpx.Response:
        headers = {INTERNAL_KEY_HEADER: KEY} | ({} if epoch is None else {EPOCH_HEADER: epoch})
        return await self.http.put("/copies", content=body, headers=headers)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_an_older_epoch_is_refused_for_good_and_no_epoch_passes(rig: Rig) -> None:
    assert (await rig.put("3")).status_code == 204
    assert (await rig.put("4")).status_code == 204
    rig.restart()
    for refused in (await rig.put("3"), await rig.put("0")):
        assert (refused.status_code, refused.headers[EPOCH_HEADER]) == (409, "4")
    assert "epoch 3 is over: the leader with epoch 4" in (await rig.put("3")).text
    assert (await rig.put("4")).status_code == 204
    assert (await rig.put(None)).status_code == 204
    assert rig.agent.applied == 4


async def test_a_body_that_comes_after_the_next_leaders_call_is_refused(rig: Rig) -> None:
    next_leader_has_called = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"["
        await next_leader_has_called.wait()
        yield b"]"

    frozen = asyncio.create_task(rig.put("3", slow()))
    await asyncio.sleep(0)
    assert (await rig.put("4")).status_code == 204
    next_leader_has_called.set()
    assert (await frozen).status_code == 409
    assert rig.agent.applied == 1


@cases(
    "epoch",
    case("an empty one", ""),
    case("a negative one", "-1"),
    case("no integer", "1e3"),
    case("a huge one", "9" * 5000),
    case("one beyond the limit", "4294967296"),
)
async def test_what_is_no_epoch_is_refused_and_changes_nothing(rig: Rig, epoch: str) -> None:
    assert (await rig.put(epoch)).status_code == 400
    assert (await rig.put("1")).status_code == 204


async def test_an_epoch_that_cannot_be_recorded_is_not_obeyed(rig: Rig) -> None:
    scratch = rig.folder.epoch.with_name(f".{rig.folder.epoch.name}.{os.getpid()}")
    scratch.symlink_to("/dev/full")
    refused = await rig.put("2")
    assert (refused.status_code, rig.agent.applied) == (503, 0)
    assert "the epoch 2 cannot be recorded: [Errno 28]" in refused.text
    assert (await rig.put("2")).status_code == 204, "there is room again"


def test_answers_to_gateways_are_not_held_back_until_the_last_one_is_acknowledged() -> None:
    """Asyncio sets TCP_NODELAY for sockets of that protocol number only."""
    with loopback_socket() as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP
