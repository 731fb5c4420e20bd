"""An adapter that ends its model server again and again fails, and the others are served."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import httpx
from tests.unit.fleet.agent.test_adapter_plan import placement

from hostelry.domain.copy import AdapterPhase, AdapterPlacement
from hostelry.fleet.agent.adapters import MAX_CONCURRENT, MAX_ENDS, CopyAdapters
from hostelry.fleet.agent.model_server import Answer, ModelServer
from hostelry.fleet.artifacts.protocol import Artifacts, Fetch
from hostelry.fleet.rules.images import Probe

PROBE = Probe(content_type="application/json", body=b"{}")


class Files(Artifacts):
    """Every artifact lies here."""

    async def fetch(self, want: Fetch) -> Path:
        return Path(want.source.uri)

    def retain(self, copy_ids: Collection[str]) -> None:
        pass

    def release(self, holder: str) -> None:
        pass


class FragileServer(ModelServer):
    """Dies of the adapter `kills`; others are registered at once, or stay with it until it dies."""

    def __init__(self, kills: str, slow: Collection[str] = ()) -> None:
        super().__init__("http://nowhere", httpx.AsyncClient())
        self._kills = kills
        self._slow = slow
        self.died = asyncio.Event()
        self.registered: list[str] = []

    async def register(
        self, adapter: AdapterPlacement, folder: str, *, again: bool = False
    ) -> Answer:
        if adapter.id == self._kills:
            self.died.set()
        if adapter.id in (self._kills, *self._slow):
            await asyncio.Event().wait()
        self.registered.append(adapter.id)
        return Answer(status=200)

    async def prove(
        self, probe: Probe, timeout_s: float, adapter: AdapterPlacement | None = None
    ) -> Answer:
        return Answer(status=200)


async def one_life(adapters: CopyAdapters, server: FragileServer, changed: asyncio.Event) -> None:
    """Serve until the server dies, or every adapter is settled."""
    adapters.on_process_start(())
    serving = asyncio.create_task(adapters.serve(server, PROBE, 1.0))
    while not server.died.is_set():
        if all(it.phase is not AdapterPhase.PENDING for it in adapters.statuses):
            break
        changed.clear()
        died, moved = (asyncio.create_task(it.wait()) for it in (server.died, changed))
        await asyncio.wait((died, moved), return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        moved.cancel()
    serving.cancel()
    await asyncio.wait([serving])


async def lives() -> tuple[dict[str, AdapterPhase], str, int]:
    changed = asyncio.Event()
    adapters = CopyAdapters("c-1", Files(), 10.0, lambda _: None, changed.set)
    names = [f"a{number}" for number in range(MAX_CONCURRENT - 1)] + ["killer", "late"]
    adapters.set_desired([placement(it) for it in names])
    count = 0
    for count in range(1, 3 * MAX_ENDS):
        # In its first life the killer has company, which must not be blamed for good.
        server = FragileServer("killer", slow=names[:-2] if count == 1 else ())
        await one_life(adapters, server, changed)
        if not server.died.is_set():
            break
    reasons = [it.reason for it in adapters.statuses if it.reason is not None]
    return {it.id: it.phase for it in adapters.statuses}, "".join(reasons), count


def test_an_adapter_that_ends_its_server_again_and_again_fails_and_others_are_served() -> None:
    phases, reason, count = asyncio.run(lives())
    assert phases.pop("killer") is AdapterPhase.FAILED
    assert f"the model server ended {MAX_ENDS} times while it was registered" in reason
    assert set(phases.values()) == {AdapterPhase.READY}
    assert count == MAX_ENDS + 1


class NoFiles(Files):
    """No download ends."""

    async def fetch(self, want: Fetch) -> Path:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")


class StuckServer(FragileServer):
    """Remembers what is taken from it."""

    unregistered: str | None = None

    async def unregister(self, adapter_id: str) -> Answer:
        self.unregistered = adapter_id
        return Answer(status=200)


async def reason_of(adapter: AdapterPlacement, files: Artifacts, server: FragileServer) -> str:
    changed = asyncio.Event()
    adapters = CopyAdapters("c-1", files, 10.0, lambda _: None, changed.set)
    adapters.set_desired([adapter])
    await one_life(adapters, server, changed)
    (status,) = adapters.statuses
    return f"{status.phase.value}: {status.reason}"


def test_an_adapter_that_is_not_downloaded_in_its_own_time_fails() -> None:
    adapter = replace(placement("slow"), download_timeout_s=0.01)
    reason = asyncio.run(reason_of(adapter, NoFiles(), FragileServer("none")))
    assert reason.startswith("failed: ")
    assert reason.endswith("not downloaded within 0.01 s")


def test_an_adapter_that_is_not_loaded_in_its_own_time_fails_and_leaves_the_server() -> None:
    adapter = replace(placement("slow"), startup_timeout_s=0.01)
    server = StuckServer("none", slow=["slow"])
    reason = asyncio.run(reason_of(adapter, Files(), server))
    assert "it did not answer within 0.01 s of its download" in reason
    assert server.unregistered == "slow"
