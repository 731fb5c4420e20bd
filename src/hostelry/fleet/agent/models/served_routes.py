"""The model routes of the copy's process that serves now, as the copy's own server needs them.

A server that does not report what a model takes, as all but ours do not, is measured: what its
processes take together, before and after the load.
"""

import contextlib
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from hostelry.fleet.agent.adapter_mount import AdapterMount
from hostelry.fleet.agent.model_server import Answer, ModelServer
from hostelry.fleet.agent.models.routes import HttpModelRoutes
from hostelry.fleet.agent.models.values import model_id

NOT_SERVING = Answer(fault="the model server is not ready", status=503)


class LoadedRecord:
    """The targets that the copy's process may have loaded, for the next agent: a file for each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def targets(self) -> list[str]:
        """All of them."""
        found = []
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    found.append(path.read_text(encoding="utf-8"))
        return found

    def add(self, target: str) -> None:
        """Record a load that begins. A full disk stops no load: a server can list its models."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / model_id(target)).write_text(target, encoding="utf-8")

    def remove(self, target: str) -> None:
        """Record an unload."""
        with contextlib.suppress(OSError):
            (self._folder / model_id(target)).unlink()


class ServedRoutes:
    """Implements `ModelRoutes`. `used_bytes` is the memory of the copy's processes."""

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
        """Use a server that is ready; what an `adopted` one has loaded before is unloaded.

        Returns the targets of which it has not answered that they are.
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
        """What the server reports of the model, else what was measured of a load that was alone.

        A server reuses memory that an earlier model has left: so it is at least `files_bytes`.
        """
        grown_bytes = self._grown.pop(target, 0)
        if self._routes is None:
            return None
        reported_bytes = await self._routes.memory_bytes(target)
        if reported_bytes is not None:
            self._reports = True
            return reported_bytes
        return max(grown_bytes, files_bytes) if grown_bytes > 0 else None
