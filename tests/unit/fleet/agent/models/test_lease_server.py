"""Leases of models: the clients that get a lease, protected models, and ends of leases."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cases import case, cases
from tests.unit.fleet.agent.models.multi_model_fakes import LIMITS, FakeFiles

from hostelry.base.clock import ManualClock
from hostelry.base.guards import COPY_KEY_HEADER
from hostelry.cli.explain import model_lines
from hostelry.domain.copy import CopySpec
from hostelry.domain.model import ArtifactSource, Container, ModelCacheSetting, SourceKind
from hostelry.fleet.agent.model_server import ModelServer
from hostelry.fleet.agent.models.copy_models import CopyModels, LeaseRoutes
from hostelry.fleet.agent.models.routes import TARGET_MODEL, LoadedRecord, ServedRoutes

KEY = "secret"
ADDRESS = "/target-models/c-1"
Ask = Callable[..., Awaitable[httpx.Response]]


class ContainerServer:
    """A container's model routes. `left` has the models that an earlier agent has loaded."""

    def __init__(self, left: tuple[str, ...] = ()) -> None:
        self.loaded = set(left)
        self.refusal: httpx.Response | None = None
        self.lists = self.reports = True
        self.named: dict[str, str] = {}  # TargetModel of the last call for an id
        self.calls: list[str] = []
        self.is_silent = False  # to unloads

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.calls.append(f"{request.method} {request.url.path}")
        if request.method == "POST":
            if self.refusal is not None:
                return self.refusal
            self.loaded.add(json.loads(request.content)["model_name"])
            return httpx.Response(200)
        name = request.url.path.removeprefix("/models").strip("/")
        if request.method == "DELETE" and self.is_silent:
            raise httpx.ReadTimeout("no answer")
        if request.method == "DELETE":
            self.loaded.discard(name)
            self.named[name] = request.headers.get(TARGET_MODEL, "")
            return httpx.Response(200)
        if name:
            memory = {"memoryBytes": 1024} if self.reports else {}
            return httpx.Response(200, json={"modelName": name, **memory})
        if not self.lists:
            return httpx.Response(200, json={"models": [{} for _ in self.loaded]})
        first, *more = sorted(self.loaded) or [""]
        page = request.url.params.get("next_page_token")
        names = more if page else [first][: len(self.loaded)]
        following = "more" if more and not page else None
        return httpx.Response(
            200,
            json={"models": [{"modelName": it} for it in names], "nextPageToken": following},
        )


def routes_of(folder: Path, used_bytes: Callable[[], int] = lambda: 0) -> ServedRoutes:
    async def used() -> int:
        await asyncio.sleep(0)
        return used_bytes()

    return ServedRoutes(LoadedRecord(folder / "loaded"), used)


@asynccontextmanager
async def played(
    folder: Path,
    server: ContainerServer,
    setting: ModelCacheSetting = ModelCacheSetting.ENABLED,
    *,
    adopted: bool = True,
) -> AsyncIterator[tuple[Ask, CopyModels]]:
    source = ArtifactSource(uri="s3://b/p/", kind=SourceKind.MODELS)
    container = Container(image="i", source=source, model_cache=setting)
    spec = CopySpec(
        id="c-1", owner="variant/v", container=container, requirements=None,
        download_timeout_s=60, startup_timeout_s=60,
    )  # fmt: skip
    clock = ManualClock(1000.0)
    models = CopyModels(
        spec, FakeFiles(folder, clock), clock, LIMITS, lambda _: None, routes_of(folder)
    )
    find = {"c-1": (models, KEY)}.get
    app = LeaseRoutes(find, lambda text: text.replace("/srv/h/", "")).app()
    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(server)) as to_container,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://agent",
            headers={COPY_KEY_HEADER: KEY},
        ) as client,
    ):
        await models.use_server(ModelServer("http://copy", to_container), None, adopted=adopted)

        async def ask(path: str, body: Any, **more: Any) -> httpx.Response:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            asking = asyncio.create_task(client.post(path, content=content, **more))
            while not asking.done():
                await asyncio.sleep(0)
                clock.advance(0.1)
            return asking.result()

        yield ask, models
        await models.close()


async def test_a_model_stays_until_its_lease_is_given_back(tmp_path: Path) -> None:
    server = ContainerServer()
    async with played(tmp_path, server) as (ask, _):
        first = (await ask(f"{ADDRESS}/acquire", {"target": "a.tar.gz"})).json()
        second = (await ask(f"{ADDRESS}/acquire", {"target": "a.tar.gz"})).json()
        assert (first["hit"], second["hit"]) == (False, True)
        assert first["waited_s"] > 0
        assert server.loaded == {first["model_id"]} == {second["model_id"]}
        for lease in (first["lease"], second["lease"], second["lease"]):
            answer = await ask(f"{ADDRESS}/release", {"lease": lease})
            assert answer.status_code == 204, "also for a lease that has ended"


async def test_an_account_has_what_is_loaded_and_what_that_took(tmp_path: Path) -> None:
    async with played(tmp_path, ContainerServer()) as (ask, models):
        lease = (await ask(f"{ADDRESS}/acquire", {"target": "a"})).json()
        assert {name for name, _ in lease["times"]} == {"downloading", "loading"}
        again = (await ask(f"{ADDRESS}/acquire", {"target": "a"})).json()
        assert again["times"] == [], "each is reported once"
        await ask(f"{ADDRESS}/release", {"lease": lease["lease"]})
        (model,) = models.account()["models"]
        assert (model["target"], model["loaded"], model["in_flight"]) == ("a", True, 1)
        assert (model["memory_bytes"], model["hits"]) == (1024, 1)
        assert models.num_loaded == 1
        assert "\n".join(model_lines("c-1", models.account())).count(" a ") == 1
        await ask(f"{ADDRESS}/release", {"lease": again["lease"], "uses": 5})
        (model,) = models.account()["models"]
        assert (model["in_flight"], model["hits"]) == (0, 5), "all requests of the lease count"


@pytest.mark.parametrize("setting", list(ModelCacheSetting))
async def test_a_gateway_may_keep_leases_where_models_stay(
    tmp_path: Path, setting: ModelCacheSetting
) -> None:
    async with played(tmp_path, ContainerServer(), setting) as (ask, _):
        lease = (await ask(f"{ADDRESS}/acquire", {"target": "a"})).json()
        assert lease["keep"] == (setting is ModelCacheSetting.ENABLED)


async def test_a_lost_model_is_loaded_again(tmp_path: Path) -> None:
    server = ContainerServer()
    async with played(tmp_path, server) as (ask, _):
        lease = (await ask(f"{ADDRESS}/acquire", {"target": "a"})).json()
        server.loaded.clear()
        await ask(f"{ADDRESS}/release", {"lease": lease["lease"], "lost": True})
        again = (await ask(f"{ADDRESS}/acquire", {"target": "a"})).json()
        assert not again["hit"]
        assert server.loaded == {again["model_id"]}


OLD = ("1" * 40, "2" * 40, "3" * 40)


@cases(
    "adopted, left, pages",
    case("by an earlier agent: unloaded, but for the server's own", True, {"own"}, 2),
    case("by the server itself, which has just started", False, {"own", *OLD}, 0),
)
async def test_what_a_server_has_loaded_already(
    tmp_path: Path, adopted: bool, left: set[str], pages: int
) -> None:
    server = ContainerServer(left=("own", *OLD))
    async with played(tmp_path, server, adopted=adopted) as (_, _):
        assert server.loaded == left
    assert server.calls.count("GET /models") == pages


async def test_the_next_agent_unloads_by_name_what_was_recorded(tmp_path: Path) -> None:
    """Triton lists models without their names, and unloads them by their TargetModel alone."""
    server = ContainerServer()
    server.lists = False
    async with played(tmp_path, server) as (ask, _):
        answers = [await ask(f"{ADDRESS}/acquire", {"target": target}) for target in ("a", "b")]
        known = [it.json()["model_id"] for it in answers]
    assert server.loaded == set(known)
    async with played(tmp_path, server):
        assert server.loaded == set()
        assert {server.named[it] for it in known} == {"a", "b"}
    calls = len(server.calls)
    async with played(tmp_path, server):
        assert server.loaded == set()
    assert [it for it in server.calls[calls:] if "DELETE" in it] == [], "once is enough"


async def test_a_model_that_the_next_agent_could_not_unload_is_named_and_unloaded_when_asked_for(
    tmp_path: Path,
) -> None:
    server = ContainerServer()

    async with played(tmp_path, server) as (ask, _):
        await ask(f"{ADDRESS}/acquire", {"target": "a"})
    server.is_silent = True
    async with played(tmp_path, server) as (ask, models):
        (found,) = models.account()["stuck"]
        assert found["target"] == "a"
        assert any(f"a may be in the server still: {found['reason']}" in line
                   for line in model_lines("c-1", models.account()))  # fmt: skip
        server.is_silent = False
        assert (await ask(f"{ADDRESS}/acquire", {"target": "a"})).status_code == 200
        assert models.account()["stuck"] == []
        assert server.calls[-3].startswith("DELETE")
        assert server.calls[-2] == "POST /models"


async def test_a_lease_that_fails_after_its_load_keeps_no_model(tmp_path: Path) -> None:
    server = ContainerServer()
    async with played(tmp_path, server) as (ask, models):
        await ask(f"{ADDRESS}/acquire", {"target": "other"})  # in use: it cannot make room
        await ask(f"{ADDRESS}/acquire", {"target": "a"})
        waiting = asyncio.create_task(models.acquire("a", more_room=True))
        for _ in range(20):
            await asyncio.sleep(0)
        in_flight = {it["target"]: it["in_flight"] for it in models.account()["models"]}
        assert in_flight["a"] == 2
        waiting.cancel()
        await asyncio.wait({waiting})
        in_flight = {it["target"]: it["in_flight"] for it in models.account()["models"]}
        assert in_flight["a"] == 1


MB = 1024**2


@cases(
    "grown_mb, files_mb, expected_mb",
    case("what the processes take more", 30, 1, 30),
    case("at least the files: the server reuses what a model has left", 1, 8, 8),
    case("nothing that could be measured", 0, 8, None),
    case("less than before", -5, 8, None),
)
async def test_a_server_that_reports_no_memory_is_measured(
    tmp_path: Path, grown_mb: int, files_mb: int, expected_mb: int | None
) -> None:
    server = ContainerServer()
    server.reports = False
    routes = routes_of(tmp_path, lambda: (100 + grown_mb * len(server.loaded)) * MB)
    async with httpx.AsyncClient(transport=httpx.MockTransport(server)) as http:
        await routes.use(ModelServer("http://copy", http), None, adopted=False)
        await routes.load("a", tmp_path, 5.0)
        measured = await routes.memory_bytes("a", files_mb * MB)
        assert measured == (None if expected_mb is None else expected_mb * MB)
        await asyncio.gather(routes.load("b", tmp_path, 5.0), routes.load("c", tmp_path, 5.0))
        for target in "bc":
            assert await routes.memory_bytes(target, MB) is None, "not which of them it was"


@cases(
    "path, body, more, status, message",
    case("another copy", "/target-models/c-2/acquire", {"target": "a"}, {}, 404,
        "no multi-model copy"),
    case("a wrong key", f"{ADDRESS}/acquire", {"target": "a"},
        {"headers": {COPY_KEY_HEADER: "guess"}}, 403, "missing or wrong"),
    case("a path that leads out", f"{ADDRESS}/acquire", {"target": "../a"}, {}, 400,
        "no path below"),
    case("a number", f"{ADDRESS}/acquire", {"target": 7}, {}, 400, "target"),
    case("no JSON", f"{ADDRESS}/acquire", b"{", {}, 400, ""),
    case("deep JSON", f"{ADDRESS}/release", b"[" * 9000, {}, 400, ""),
    case("too much", f"{ADDRESS}/acquire", b"x" * 20_000, {}, 413, "bytes"),
)  # fmt: skip
async def test_refusals(
    tmp_path: Path, path: str, body: Any, more: dict[str, Any], status: int, message: str
) -> None:
    async with played(tmp_path, ContainerServer()) as (ask, _):
        answer = await ask(path, body, **more)
        assert answer.status_code == status
        assert message in answer.text


async def test_a_load_that_fails_has_the_containers_status(tmp_path: Path) -> None:
    server = ContainerServer()
    server.refusal = httpx.Response(500, text="torn: /srv/h/model")
    async with played(tmp_path, server) as (ask, _):
        answer = await ask(f"{ADDRESS}/acquire", {"target": "a"})
        assert answer.status_code == 424
        assert answer.json()["status"] == 500
        assert answer.json()["message"].endswith("torn: model"), "no path of the machine"


async def test_no_model_is_loaded_before_the_server_is_ready(tmp_path: Path) -> None:
    container = Container(image="i", source=ArtifactSource(uri="s3://b/p/", kind=SourceKind.MODELS))
    spec = CopySpec(
        id="c-1", owner="variant/v", container=container, requirements=None,
        download_timeout_s=60, startup_timeout_s=60,
    )  # fmt: skip
    clock = ManualClock()
    models = CopyModels(
        spec, FakeFiles(tmp_path, clock), clock, LIMITS, lambda _: None, routes_of(tmp_path)
    )
    asking = asyncio.create_task(models.acquire("a"))
    while not asking.done():
        await asyncio.sleep(0)
        clock.advance(0.1)
    error = asking.exception()
    assert "not ready" in str(error)
    await models.close()
