"""Uploads: copies of adapters from host memory into the pool, concurrent with steps.

Belongs to the engine's thread. An executor copies page by page, without the interpreter's lock.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import torch

from hostelry.base.clock import Clock
from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.loads import JobExecutor


class Uploader(Protocol):
    """Copies adapters into a pool."""

    def begin(self, adapter: HostAdapter, page_numbers: Sequence[int]) -> Callable[[], None]:
        """A function for another thread. When it returns, the pages hold the adapter."""
        ...


class Placer(Uploader, Protocol):
    """An Uploader that also indexes adapters in the pool. `index` is called before `begin`."""

    def index(self, adapter: HostAdapter, page_numbers: Sequence[int]) -> AdapterIndex:
        """The index of its rows once it is in those pages."""
        ...

    def forget(self, content_id: str) -> None:
        """Forget an adapter whose pages are used for something else from now on."""
        ...


class PoolUploader:
    """A Placer for a pool on a CPU or a GPU. On a GPU it copies on a separate stream."""

    def __init__(self, pool: PoolTensor) -> None:
        self._pool = pool
        device = pool.elements.device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def index(self, adapter: HostAdapter, page_numbers: Sequence[int]) -> AdapterIndex:
        """The index of its rows once it is in those pages."""
        return adapter.index(page_numbers)

    def forget(self, content_id: str) -> None:
        """Do nothing: this placer keeps no record of adapters."""

    def begin(self, adapter: HostAdapter, page_numbers: Sequence[int]) -> Callable[[], None]:
        """A function for another thread. On a GPU it copies after all work queued so far."""
        pages = tuple(page_numbers)
        if self._stream is None:
            return lambda: adapter.write(self._pool, pages)
        queued = torch.cuda.Event()  # type: ignore[no-untyped-call]
        queued.record()  # on the engine's stream: former owners of the pages may still be read
        return lambda: self._copy(adapter, pages, queued)

    def _copy(self, adapter: HostAdapter, pages: Sequence[int], queued: torch.cuda.Event) -> None:
        stream = self._stream
        assert stream is not None
        with torch.cuda.stream(stream):
            queued.wait(stream)
            adapter.write(self._pool, pages)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record(stream)
        done.synchronize()


class UploadOutcome(msgspec.Struct, frozen=True):
    """The end of an upload after `upload_s`. `reason` is empty if it succeeded."""

    content_id: str
    upload_s: float
    reason: str = ""


class Uploads:
    """Uploads in progress, at most one for each content."""

    def __init__(
        self, executor: JobExecutor, uploader: Uploader, clock: Clock, wakeup: threading.Event
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._uploader = uploader
        self._wakeup = wakeup
        self._in_progress: set[str] = set()
        self._done: deque[UploadOutcome] = deque()  # filled by another thread

    def is_in_progress(self, content_id: str) -> bool:
        """Whether the content is being uploaded."""
        return content_id in self._in_progress

    @property
    def num_in_progress(self) -> int:
        """Uploads that are running."""
        return len(self._in_progress)

    def start(self, adapter: HostAdapter, page_numbers: Sequence[int]) -> None:
        """Copy the adapter into those pages."""
        assert adapter.content_id not in self._in_progress, "one upload at a time for each content"
        self._in_progress.add(adapter.content_id)
        job = self._uploader.begin(adapter, page_numbers)
        self._executor.submit(lambda: self._work(adapter.content_id, job))

    def collect(self) -> list[UploadOutcome]:
        """Uploads that ended since the last call."""
        outcomes = []
        while self._done:
            outcome = self._done.popleft()
            self._in_progress.discard(outcome.content_id)
            outcomes.append(outcome)
        return outcomes

    def _work(self, content_id: str, job: Callable[[], None]) -> None:
        """Run in the executor's thread. The upload ends, whatever `job` raises."""
        started_at = self._clock.now()
        reason = ""
        try:
            job()
        except Exception as error:  # noqa: BLE001 - devices raise many types
            reason = f"{type(error).__name__}: {error}"
        self._done.append(UploadOutcome(content_id, self._clock.now() - started_at, reason))
        self._wakeup.set()
