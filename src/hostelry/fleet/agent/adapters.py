"""Adapters of one copy: reconciled with the desired adapters while its model server runs."""

import asyncio
import hashlib
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec

from hostelry.base.errors import RetryableError, TerminalError
from hostelry.domain.copy import AdapterPhase, AdapterPlacement, AdapterStatus
from hostelry.fleet.agent.model_server import Answer, ModelServer
from hostelry.fleet.artifacts.protocol import Artifacts, Fetch
from hostelry.fleet.launch.container_order import ADAPTERS_PATH, adapters_folder
from hostelry.fleet.rules.images import ImageRule, Probe

LOG = logging.getLogger(__name__)
MODEL = "model"
MAX_CONCURRENT = 4
MAX_ATTEMPTS = 5
FIRST_RETRY_S = 0.5
MAX_ENDS = 3  # of model server processes while one adapter was being registered


class AdapterMount(msgspec.Struct, frozen=True):
    """The folder of one copy that its container sees at /opt/ml/models from its start on.

    Adapters and models are hard-linked into it. So they take no further disk space, and the
    container sees no artifacts of other copies.
    """

    root: Path

    async def place(self, adapter_id: str, files: Path) -> str:
        """Link the adapter's files. Returns its path in the container. Raises OSError."""
        name = _name(adapter_id)
        await asyncio.to_thread(_place, files, self.root / name)
        return f"{ADAPTERS_PATH}/{name}"

    async def place_model(self, model_id: str, files: Path) -> str:
        """Link a model's files. Returns its path in the container. Raises OSError.

        Triton takes only a path of this form.
        """
        await asyncio.to_thread(_place, files, self.root / model_id / MODEL)
        return f"{ADAPTERS_PATH}/{model_id}/{MODEL}"

    async def remove_model(self, model_id: str) -> None:
        """Remove the model's files, if any."""
        await asyncio.to_thread(shutil.rmtree, self.root / model_id, ignore_errors=True)

    async def remove(self, adapter_id: str) -> None:
        """Remove the adapter's files, if any."""
        await asyncio.to_thread(shutil.rmtree, self.root / _name(adapter_id), ignore_errors=True)


def find_adapter_mount(rule: ImageRule, copy_folder: Path) -> AdapterMount | None:
    """The mount of a copy that is a container. None for a program, which sees the files itself."""
    return AdapterMount(adapters_folder(copy_folder)) if rule.is_container else None


def _name(adapter_id: str) -> str:
    return hashlib.sha256(adapter_id.encode()).hexdigest()[:32]


def _place(files: Path, target: Path) -> None:
    """Link all the files or none. A target that exists has them already."""
    if target.exists():
        return
    half = target.with_name(f"{target.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(files.resolve(), half, copy_function=_link)
    for folder, _, _ in os.walk(half):
        os.chmod(folder, 0o755)  # read-only in the cache, but must be removable here
    half.rename(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)  # another file system, or too many links


class AdapterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that bring a model server to the desired adapters."""

    register: tuple[AdapterPlacement, ...] = ()
    unregister: tuple[str, ...] = ()


def plan_adapters(
    desired: Sequence[AdapterPlacement], known: Mapping[str, AdapterStatus], registered: set[str]
) -> AdapterPlan:
    """The changes to make.

    desired, without a status             -> register
    desired, with a status (even FAILED)  -> leave: a failure is final for this process
    not desired, registered or known      -> unregister
    """
    names = {adapter.id for adapter in desired}
    return AdapterPlan(
        register=tuple(adapter for adapter in desired if adapter.id not in known),
        unregister=tuple(sorted((set(known) | registered) - names)),
    )


def adapter_holder(copy_id: str, adapter_id: str) -> str:
    """The name under which the artifact cache holds this adapter for this copy."""
    return f"{copy_id}/{hashlib.sha256(adapter_id.encode()).hexdigest()[:32]}"


def describe_adapter_timeout(adapter: AdapterPlacement) -> str:
    """The fault of an adapter that the model server did not load in its own time limit."""
    return (
        f"it did not answer within {adapter.startup_timeout_s:g} s of its download"
        " (ContainerStartupHealthCheckTimeoutInSeconds)"
    )


class CopyAdapters:
    """The adapters of one copy, across the lives of its processes.

    A failed adapter never fails its copy. Registered ids are in the copy's record, so that the next
    agent knows which adapters to remove.
    """

    def __init__(
        self,
        copy_id: str,
        artifacts: Artifacts,
        download_timeout_s: float,
        note: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self._copy_id = copy_id
        self._download_timeout_s = download_timeout_s
        self._artifacts = artifacts
        self._note = note
        self._on_change = on_change
        self._desired: tuple[AdapterPlacement, ...] = ()
        self._known: dict[str, AdapterStatus] = {}
        self._registered: set[str] = set()
        self._found: frozenset[str] = frozenset()
        self._under_way: set[str] = set()  # those being registered now
        self._ends: dict[str, int] = {}  # processes that ended meanwhile, by adapter
        self._one_by_one = asyncio.Lock()
        self._desired_changed = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._mount: AdapterMount | None = None

    def set_desired(self, desired: Sequence[AdapterPlacement]) -> None:
        """Replace the desired adapters."""
        self._desired = tuple(desired)
        self._desired_changed.set()

    def on_process_start(
        self, registered: Sequence[str], mount: AdapterMount | None = None
    ) -> None:
        """Start over with a process that has at most `registered` loaded.

        `mount` is where a container sees adapter files. An adapter has failed once `MAX_ENDS`
        processes ended during its registration. After the first such end adapters are registered
        singly, so that the culprit is known.
        """
        for adapter_id in self._under_way:
            self._ends[adapter_id] = self._ends.get(adapter_id, 0) + 1
        self._under_way.clear()
        self._mount = mount
        self._known.clear()
        self._registered = set(registered)
        self._found = frozenset(registered)
        for adapter in self._desired:
            if self._ends.get(adapter.id, 0) >= MAX_ENDS:
                self._fail(
                    adapter, f"the model server ended {MAX_ENDS} times while it was registered"
                )

    @property
    def registered(self) -> tuple[str, ...]:
        """The ids the model server has, or may have, loaded."""
        return tuple(sorted(self._registered))

    @property
    def settled(self) -> bool:
        """Whether every desired adapter of an adopted process is proven, or has failed."""
        found = [status for status in self.statuses if status.id in self._found]
        return all(status.phase is not AdapterPhase.PENDING for status in found)

    @property
    def statuses(self) -> tuple[AdapterStatus, ...]:
        """The status of every desired adapter, in their order."""
        return tuple(
            self._known.get(wanted.id, AdapterStatus(id=wanted.id, phase=AdapterPhase.PENDING))
            for wanted in self._desired
        )

    async def serve(self, server: ModelServer, probe: Probe, probe_timeout_s: float) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            running: dict[str, asyncio.Task[None]] = {}
            while True:
                self._desired_changed.clear()
                plan = plan_adapters(self._desired, self._known, self._registered)
                for adapter_id in plan.unregister:
                    await self._remove(server, adapter_id, running.pop(adapter_id, None))
                for adapter in plan.register:
                    self._set(adapter.id, AdapterPhase.PENDING)
                    running[adapter.id] = group.create_task(
                        self._add(server, probe, probe_timeout_s, adapter)
                    )
                await self._desired_changed.wait()

    async def _add(
        self, server: ModelServer, probe: Probe, probe_timeout_s: float, adapter: AdapterPlacement
    ) -> None:
        async with self._slots:
            limit_s = adapter.download_timeout_s or self._download_timeout_s
            try:
                async with asyncio.timeout(limit_s):
                    folder = await self._fetch(adapter)
            except TimeoutError:
                self._fail(adapter, f"not downloaded within {limit_s:g} s")
                return
            except (TerminalError, RetryableError, OSError) as error:
                self._fail(adapter, str(error))
                return
            self._registered.add(adapter.id)
            self._on_change()
            async with self._one_by_one if self._ends else nullcontext():
                self._under_way.add(adapter.id)  # stays if the server ends, which cancels this task
                try:
                    async with asyncio.timeout(adapter.startup_timeout_s):
                        answer = await self._load(server, probe, probe_timeout_s, adapter, folder)
                except TimeoutError:
                    await server.unregister(adapter.id)
                    answer = Answer(fault=describe_adapter_timeout(adapter))
                self._forget_ends(adapter.id)
            self._settle(adapter, answer)

    async def _load(
        self,
        server: ModelServer,
        probe: Probe,
        probe_timeout_s: float,
        adapter: AdapterPlacement,
        folder: str,
    ) -> Answer:
        """Register and prove the adapter. Retries while the server is busy or unreachable."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            again = attempt > 1 or adapter.id in self._found
            answer = await server.register(adapter, folder, again=again)
            if answer.fault is None:
                answer = await server.prove(probe, probe_timeout_s, adapter)
            if answer.fault is None or not answer.retryable or attempt == MAX_ATTEMPTS:
                break
            self._note(f"adapter {adapter.id}: {answer.fault}; trying again")
            await asyncio.sleep(FIRST_RETRY_S * 2.0**attempt)
        if answer.fault is not None and not answer.name_taken:
            await server.unregister(adapter.id)
        return answer

    def _forget_ends(self, adapter_id: str) -> None:
        self._under_way.discard(adapter_id)
        self._ends.pop(adapter_id, None)

    def _settle(self, adapter: AdapterPlacement, answer: Answer) -> None:
        if answer.fault is None:
            self._note(f"Registered adapter {adapter.alias} ({adapter.id})")
            self._set(adapter.id, AdapterPhase.READY)
        else:
            self._registered.discard(adapter.id)
            self._fail(adapter, answer.fault)

    def _fail(self, adapter: AdapterPlacement, cause: str) -> None:
        reason = f"Failed to register adapter {adapter.alias} from {adapter.source.uri}: {cause}"
        self._note(reason)
        self._set(adapter.id, AdapterPhase.FAILED, reason)

    async def _fetch(self, adapter: AdapterPlacement) -> str:
        """The adapter's folder. Retries a few times while the object store is unavailable."""
        want = Fetch(
            source=adapter.source,
            holder=adapter_holder(self._copy_id, adapter.id),
            note=self._note,
        )
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                files = await self._artifacts.fetch(want)
                if self._mount is None:
                    return str(files)
                return await self._mount.place(adapter.id, files)
            except RetryableError as error:
                if attempt == MAX_ATTEMPTS:
                    raise
                self._note(f"{error}; trying again")
                await asyncio.sleep(FIRST_RETRY_S * 2.0**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _remove(
        self, server: ModelServer, adapter_id: str, running: "asyncio.Task[None] | None"
    ) -> None:
        if running is not None:
            running.cancel()
            await asyncio.wait([running])
        self._forget_ends(adapter_id)
        if adapter_id in self._registered:
            answer = await server.unregister(adapter_id)
            self._note(answer.fault or f"Unregistered adapter {adapter_id}")
        self._registered.discard(adapter_id)
        if self._mount is not None:
            await self._mount.remove(adapter_id)
        self._known.pop(adapter_id, None)
        self._artifacts.release(adapter_holder(self._copy_id, adapter_id))
        self._on_change()

    def _set(self, adapter_id: str, phase: AdapterPhase, reason: str | None = None) -> None:
        self._known[adapter_id] = AdapterStatus(id=adapter_id, phase=phase, reason=reason)
        self._on_change()
