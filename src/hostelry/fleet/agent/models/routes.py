"""Client of a container's multi-model routes, and the routes of the process that serves now.

Source: SageMaker's contract for multi-model containers. `memoryBytes`, the memory of a model's
process, is our addition to a model's description. Loads and unloads have the TargetModel in the
header of invocations, because Triton finds its models by it, and waits 350 s for the end of a model
that it cannot find.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from hostelry.base.json import decode
from hostelry.fleet.agent.adapters import AdapterMount
from hostelry.fleet.agent.model_server import Answer, ModelServer
from hostelry.fleet.agent.models.values import model_id

TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"
OUR_ID = re.compile(r"[0-9a-f]{40}")  # of `model_id`. A server may have further models
MAX_PAGES = 1000
UNLOAD_TIMEOUT_S = 60.0
MAX_UNLOADS = 8  # at once, of models that an earlier agent has left
MAX_ADOPTION_S = 60.0
ADOPTION_IDLE_S = 10.0  # without the end of any unload
DESCRIBE_TIMEOUT_S = 10.0


class _Described(msgspec.Struct):
    """The part of GET /models/ID that is read."""

    memory_bytes: int | None = msgspec.field(default=None, name="memoryBytes")


class _ListedModel(msgspec.Struct):
    """A model in GET /models."""

    model_name: str = msgspec.field(default="", name="modelName")  # Triton lists some without


class _Listing(msgspec.Struct):
    """The part of GET /models that is read."""

    models: list[_ListedModel]
    next_page_token: str | None = msgspec.field(default=None, name="nextPageToken")


class HttpModelRoutes:
    """Implements `ModelRoutes` over a copy's HTTP."""

    def __init__(self, server: ModelServer, idle_s: float = ADOPTION_IDLE_S) -> None:
        self._server = server
        self._idle_s = idle_s

    async def load(self, target: str, folder: Path | str, timeout_s: float) -> Answer:
        """POST /models. Succeeds if the model is loaded already (409)."""
        answer, _ = await self._server.call(
            "POST",
            "/models",
            timeout_s=timeout_s,
            headers={"Content-Type": "application/json", **_build_target_header(target)},
            body=msgspec.json.encode({"model_name": model_id(target), "url": str(folder)}),
        )
        return Answer(status=409) if answer.status == 409 else answer

    async def unload(self, target: str) -> Answer:
        """DELETE /models/ID. Succeeds if the model is not loaded."""
        return await self._delete(model_id(target), _build_target_header(target))

    async def unload_left(self, known: Collection[str]) -> set[str]:
        """Unload an earlier agent's models: the `known` targets, and all models with ids like ours.

        Unloads several at once. Gives up after MAX_ADOPTION_S, or if no unload has ended for a
        while, and then uses the server with the models that it has left. Returns the `known`
        targets that it may still have.
        """
        left = set(known)
        turns = asyncio.Semaphore(MAX_UNLOADS)

        async def unload_target(target: str) -> None:
            async with turns:
                if (await self.unload(target)).fault is None:
                    left.discard(target)

        async def delete_model(found: str) -> None:
            async with turns:
                await self._delete(found, {})

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_ADOPTION_S):
                if await self._await_unloads(map(unload_target, known)):
                    ours = [it for it in await self._list_models() if OUR_ID.fullmatch(it)]
                    await self._await_unloads(map(delete_model, ours))
        return left

    async def _await_unloads(self, unloads: Iterable[Coroutine[Any, Any, None]]) -> bool:
        """Whether all have ended. Gives up if none ends for `idle_s`."""
        under_way = {asyncio.create_task(it) for it in unloads}
        try:
            while under_way:
                done, under_way = await asyncio.wait(
                    under_way, timeout=self._idle_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    return False
            return True
        finally:
            for each in under_way:
                each.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _delete(self, found: str, headers: Mapping[str, str]) -> Answer:
        answer, _ = await self._server.call(
            "DELETE", f"/models/{found}", timeout_s=UNLOAD_TIMEOUT_S, headers=headers
        )
        return Answer(status=404) if answer.status == 404 else answer

    async def _list_models(self) -> list[str]:
        """The ids of the loaded models, from every page of GET /models."""
        found: list[str] = []
        page = ""
        for _ in range(MAX_PAGES):
            answer, body = await self._server.call(
                "GET", f"/models{page}", timeout_s=DESCRIBE_TIMEOUT_S
            )
            if answer.fault is not None:
                break
            try:
                listed = decode(body, _Listing)
            except msgspec.DecodeError:
                break
            found += [it.model_name for it in listed.models]
            if not listed.next_page_token:
                break
            page = f"?next_page_token={quote(listed.next_page_token, safe='')}"
        return found

    async def memory_bytes(self, target: str) -> int | None:
        """`memoryBytes` of GET /models/ID, or None."""
        answer, body = await self._server.call(
            "GET", f"/models/{model_id(target)}", timeout_s=DESCRIBE_TIMEOUT_S
        )
        if answer.fault is not None:
            return None
        try:
            found = decode(body, _Described).memory_bytes
        except msgspec.DecodeError:
            return None
        return found if found is not None and found > 0 else None


def _build_target_header(target: str) -> dict[str, str]:
    return {TARGET_MODEL: target.encode("latin-1", "replace").decode("latin-1")}


NOT_SERVING = Answer(fault="the model server is not ready", status=503)


class LoadedRecord:
    """The targets that the copy's process may have loaded, in one file each, for the next agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def targets(self) -> list[str]:
        """All recorded targets."""
        found = []
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    found.append(path.read_text(encoding="utf-8"))
        return found

    def add(self, target: str) -> None:
        """Record the start of a load. A full disk stops no load, as a server lists its models."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / model_id(target)).write_text(target, encoding="utf-8")

    def remove(self, target: str) -> None:
        """Record an unload."""
        with contextlib.suppress(OSError):
            (self._folder / model_id(target)).unlink()


class ServedRoutes:
    """Implements `ModelRoutes` for the copy's process that serves now.

    `used_bytes` gets the memory of the copy's processes. Its growth during a load is the memory of
    a model that the server does not report, as only our servers do.
    """

    def __init__(self, record: LoadedRecord, used_bytes: Callable[[], Awaitable[int]]) -> None:
        self._record = record
        self._used_bytes = used_bytes
        self._routes: HttpModelRoutes | None = None
        self._mount: AdapterMount | None = None
        self._reports = False  # once it has reported the memory of a model
        self._calls = 0  # loads and unloads that have begun or ended
        self._grown: dict[str, int] = {}  # bytes by target, between load and memory_bytes

    async def use(
        self, server: ModelServer, mount: AdapterMount | None, *, adopted: bool
    ) -> Collection[str]:
        """Use a ready server. Unloads the earlier models of an `adopted` server.

        Returns the targets whose unload the server has not confirmed.
        """
        routes = HttpModelRoutes(server)
        recorded = self._record.targets
        left = await routes.unload_left(recorded) if adopted else set[str]()
        for target in recorded:
            if target not in left:
                self._record.remove(target)
        self._routes, self._mount = routes, mount
        return left

    async def load(self, target: str, folder: Path, timeout_s: float) -> Answer:
        """POST /models."""
        if self._routes is None:
            return NOT_SERVING
        path = str(folder)
        if self._mount is not None:
            try:
                path = await self._mount.place_model(model_id(target), folder)
            except OSError as error:
                return Answer(fault=f"its files cannot be given to the container: {error}")
        self._record.add(target)
        calls = self._calls = self._calls + 1
        before_bytes = None if self._reports else await self._used_bytes()
        answer = await self._routes.load(target, path, timeout_s)
        if before_bytes is not None and calls == self._calls and answer.status == 200:
            grown_bytes = await self._used_bytes() - before_bytes
            if calls == self._calls:
                self._grown[target] = grown_bytes
        self._calls += 1
        return answer

    async def unload(self, target: str) -> Answer:
        """DELETE /models/ID."""
        if self._routes is None:
            return NOT_SERVING
        self._calls += 1
        answer = await self._routes.unload(target)
        self._calls += 1
        if answer.fault is None:
            self._record.remove(target)
        if self._mount is not None:
            await self._mount.remove_model(model_id(target))
        return answer

    async def memory_bytes(self, target: str, files_bytes: int) -> int | None:
        """The memory that the server reports for the model, or the growth if no other load ran.

        The growth counts as at least `files_bytes`, because a server reuses memory that an earlier
        model has left.
        """
        grown_bytes = self._grown.pop(target, 0)
        if self._routes is None:
            return None
        reported_bytes = await self._routes.memory_bytes(target)
        if reported_bytes is not None:
            self._reports = True
            return reported_bytes
        return max(grown_bytes, files_bytes) if grown_bytes > 0 else None
