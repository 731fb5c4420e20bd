import asyncio
from collections.abc import Collection
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.copy import AdapterPhase, AdapterPlacement, AdapterStatus
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.agent.adapters import (
    MAX_CONCURRENT,
    MAX_ENDS,
    AdapterMount,
    AdapterPlan,
    CopyAdapters,
    adapter_holder,
    find_adapter_mount,
    plan_adapters,
)
from hostelry.fleet.agent.model_server import Answer, ModelServer
from hostelry.fleet.artifacts.protocol import Artifacts, Fetch
from hostelry.fleet.records import SAFE_ID
from hostelry.fleet.rules.images import LMI_RULE, ImageRules, Probe

PROBE = Probe(content_type="application/json", body=b"{}")


class Files(Artifacts):
    """A store in which every artifact exists."""

    async def fetch(self, want: Fetch) -> Path:
        return Path(want.source.uri)

    def retain(self, copy_ids: Collection[str]) -> None:
        pass

    def release(self, holder: str) -> None:
        pass


class FragileServer(ModelServer):
    """The adapter `kills` ends it. Others are registered at once, or stay until it ends."""

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
    """Remembers the adapters that are removed from it."""

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


def placement(adapter_id: str) -> AdapterPlacement:
    source = ArtifactSource(uri=f"s3://b/{adapter_id}.tar.gz", kind=SourceKind.ARCHIVE)
    return AdapterPlacement(id=adapter_id, alias=adapter_id, source=source)


def known(*ids: str, phase: AdapterPhase = AdapterPhase.READY) -> dict[str, AdapterStatus]:
    return {it: AdapterStatus(id=it, phase=phase) for it in ids}


@cases(
    "desired, statuses, registered, expected",
    case("new", ["a"], known(), set(), AdapterPlan(register=(placement("a"),))),
    case("there already", ["a"], known("a"), {"a"}, AdapterPlan()),
    case(
        "one that failed stays failed: a repaired one has a new id",
        ["a"],
        known("a", phase=AdapterPhase.FAILED),
        set(),
        AdapterPlan(),
    ),
    case("not wanted", [], known("a"), {"a"}, AdapterPlan(unregister=("a",))),
    case("left by another agent", [], known(), {"a"}, AdapterPlan(unregister=("a",))),
    case("adopted: proven anew", ["a"], known(), {"a"}, AdapterPlan(register=(placement("a"),))),
    case(
        "taken back while it was under way",
        [],
        known("a", phase=AdapterPhase.PENDING),
        set(),
        AdapterPlan(unregister=("a",)),
    ),
)
def test_plan_adapters(
    desired: list[str],
    statuses: dict[str, AdapterStatus],
    registered: set[str],
    expected: AdapterPlan,
) -> None:
    assert plan_adapters([placement(it) for it in desired], statuses, registered) == expected


@pytest.mark.parametrize("adapter_id", ["es-1", "../../x", "a/b", "ü" * 200])
def test_a_holders_name_is_safe_whatever_the_adapter_is_called(adapter_id: str) -> None:
    holder = adapter_holder("c-1", adapter_id)
    assert all(SAFE_ID.fullmatch(part) for part in holder.split("/"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """An adapter as the cache keeps it: read-only folders."""
    folder = tmp_path / "cache" / "k"
    (folder / "deep").mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "deep" / "weights").write_text("w")
    for path in (folder / "deep", folder):
        path.chmod(0o555)
    return folder


def shelf(tmp_path: Path) -> AdapterMount:
    root = tmp_path / "copy" / "adapters"
    root.mkdir(parents=True)
    return AdapterMount(root)


def test_an_adapter_is_linked_and_named_by_its_path_in_the_container(
    tmp_path: Path, files: Path
) -> None:
    place = shelf(tmp_path)
    inner = asyncio.run(place.place("es@1", files))
    assert inner.startswith("/opt/ml/models/")
    placed = place.root / Path(inner).name
    assert (placed / "deep" / "weights").samefile(files / "deep" / "weights"), "no room is used"
    assert asyncio.run(place.place("es@1", files)) == inner, "again is well"
    assert asyncio.run(place.place("../../etc", files)) != inner
    assert sorted(path.parent for path in place.root.iterdir()) == [place.root] * 2
    asyncio.run(place.remove("es@1"))
    assert not placed.exists()
    assert (files / "deep" / "weights").read_text() == "w", "the cache's files stay"
    asyncio.run(place.remove("es@1"))


def test_a_model_is_at_a_path_of_the_contracts_form(tmp_path: Path, files: Path) -> None:
    place = shelf(tmp_path)
    assert asyncio.run(place.place_model("0af", files)) == "/opt/ml/models/0af/model"
    placed = place.root / "0af" / "model"
    assert (placed / "deep" / "weights").samefile(files / "deep" / "weights")
    asyncio.run(place.place_model("0af", files))
    asyncio.run(place.remove_model("0af"))
    assert list(place.root.iterdir()) == []
    asyncio.run(place.remove_model("0af"))


def test_half_of_an_adapter_is_never_shown(tmp_path: Path, files: Path) -> None:
    place = shelf(tmp_path)
    inner = asyncio.run(place.place("es@1", files))
    placed = place.root / Path(inner).name
    placed.rename(placed.with_name(f"{placed.name}.half"))
    (place.root / f"{placed.name}.half" / "adapter_config.json").unlink()
    asyncio.run(place.place("es@1", files))
    assert (placed / "adapter_config.json").exists()
    assert [path.name for path in place.root.iterdir()] == [placed.name]


def test_a_program_sees_the_files_themselves(tmp_path: Path) -> None:
    container = ImageRules.load(None).resolve("mine:1")
    assert container is not None
    assert find_adapter_mount(container, tmp_path) == AdapterMount(tmp_path / "adapters")
    assert find_adapter_mount(LMI_RULE, tmp_path) is None
