"""Client of the multi-model routes of a container.

Source: SageMaker's contract for multi-model containers. `memoryBytes` in the description of a
model is ours: what its process takes. Loads and unloads name the TargetModel in the header of
invocations: Triton knows its models by it, and waits 350 s for the end of one that it cannot find.
"""

import asyncio
import contextlib
import re
from collections.abc import Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from hostelry.base.json import decode
from hostelry.fleet.agent.model_server import Answer, ModelServer
from hostelry.fleet.agent.models.values import model_id

TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"
OUR_ID = re.compile(r"[0-9a-f]{40}")  # of `model_id`; a server may have models of its own
MAX_PAGES = 1000
UNLOAD_TIMEOUT_S = 60.0
MAX_UNLOADS = 8  # at once, of what an earlier agent has left
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
        """POST /models; a model that is loaded already (409) is a success."""
        answer, _ = await self._server.call(
            "POST",
            "/models",
            timeout_s=timeout_s,
            headers={"Content-Type": "application/json", **_named(target)},
            body=msgspec.json.encode({"model_name": model_id(target), "url": str(folder)}),
        )
        return Answer(status=409) if answer.status == 409 else answer

    async def unload(self, target: str) -> Answer:
        """DELETE /models/ID; succeeds if it is not there."""
        return await self._delete(model_id(target), _named(target))

    async def unload_left(self, known: Collection[str]) -> set[str]:
        """Unload what an earlier agent had loaded: the `known` targets, and all ids like ours.

        Several at once, until all are, MAX_ADOPTION_S have passed, or no unload has ended for a
        while: a server that hangs is used with what it has left. Returns those of `known` that it
        may still have.
        """
        left = set(known)
        turns = asyncio.Semaphore(MAX_UNLOADS)

        async def unloaded(target: str) -> None:
            async with turns:
                if (await self.unload(target)).fault is None:
                    left.discard(target)

        async def deleted(found: str) -> None:
            async with turns:
                await self._delete(found, {})

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_ADOPTION_S):
                if await self._ended(map(unloaded, known)):
                    ours = [it for it in await self._listed() if OUR_ID.fullmatch(it)]
                    await self._ended(map(deleted, ours))
        return left

    async def _ended(self, unloads: Iterable[Coroutine[Any, Any, None]]) -> bool:
        """Whether all have ended; they are given up when none does for `idle_s`."""
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

    async def _listed(self) -> list[str]:
        """The ids of the loaded models, of every page of GET /models."""
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
        """`memoryBytes` of GET /models/ID; None where there is none."""
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


def _named(target: str) -> dict[str, str]:
    return {TARGET_MODEL: target.encode("latin-1", "replace").decode("latin-1")}
