"""A store of adapters whose clock, threads and remote places a test controls."""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from hostelry.base.clock import ManualClock
from hostelry.engine.lora.disk_cache import DiskCache
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import AdapterSummary, HostAdapter, PageImage
from hostelry.engine.lora.layout import AdapterRanks, AdapterScales, plan_layout
from hostelry.engine.lora.loader import AdapterEvent, AdapterLoader
from hostelry.engine.lora.loads import LoadLimits
from hostelry.engine.lora.store import AdapterStore, StoreExecutors, StoreLimits
from hostelry.engine.lora.targets import TargetModule, TargetModules

UNIT = 400  # size of a small adapter in bytes


def small_adapter(content: str, num_bytes: int = UNIT) -> HostAdapter:
    """An adapter with this content and size, without a model."""
    rank = num_bytes // 8  # a row of one fp32 number for A and for B
    targets = TargetModules(
        linears=(TargetModule("a", 1, 1),),
        embedding=TargetModule("e", 1, 1),
        lm_head=TargetModule("h", 1, 1),
        is_tied=False,
    )
    layout = plan_layout(targets, AdapterRanks(linears=(rank,)), 20)
    image = PageImage(layout, torch.float32)
    summary = AdapterSummary(
        content_id=hashlib.sha256(content.encode()).hexdigest(),
        rank=rank,
        target_modules=("a",),
        num_bytes=image.num_bytes,
        num_pages=layout.num_pages,
    )
    scales = AdapterScales(linears=(1.0,))
    return HostAdapter(summary=summary, layout=layout, scales=scales, image=image)


class TextReader:
    """Reads adapters whose only file has their content and size. Counts reads."""

    max_folder_bytes = 1000
    form_name = "text"

    def __init__(self) -> None:
        self.num_reads = 0

    def read(self, folder: Path) -> HostAdapter:
        self.num_reads += 1
        path = folder / "adapter.txt"
        if not path.is_file():
            raise AdapterError("there is no adapter.txt")
        content, _, size = path.read_text(encoding="utf-8").partition(" ")
        return small_adapter(content, int(size or UNIT))

    def save(self, adapter: HostAdapter, folder: Path) -> int:
        (folder / "image").write_text(f"{adapter.num_bytes:09d}\n", encoding="utf-8")
        return 10

    def restore(self, folder: Path, content_id: str) -> HostAdapter:
        text = (folder / "image").read_text(encoding="utf-8")
        if not text.strip().isdigit():
            raise AdapterError("the image is damaged")
        adapter = small_adapter("", int(text))
        return replace(adapter, summary=replace(adapter.summary, content_id=content_id))


class ManualExecutor:
    """Runs jobs only in `run`."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()
        self.num_added_threads = 0

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def add_thread(self) -> None:
        self.num_added_threads += 1

    def close(self) -> None:
        self.jobs.clear()

    def run(self) -> int:
        """Run all started jobs in order, and return their number."""
        jobs, self.jobs = self.jobs, deque()
        for job in jobs:
            job()
        return len(jobs)


@dataclass
class RemoteShelf:
    """Fetches from a table. Exceptions in the table are raised."""

    places: dict[str, str | Exception] = field(default_factory=dict)
    num_fetches: int = 0

    def fetch(self, uri: str, into: Path) -> None:
        self.num_fetches += 1
        found = self.places.get(uri, AdapterError("there is no such place"))
        if isinstance(found, Exception):
            (into / "half").write_text("of it", encoding="utf-8")
            raise found
        (into / "adapter.txt").write_text(found, encoding="utf-8")


class CountingUploader:
    """Records copies and their targets. Raises `error` if it is set."""

    def __init__(self) -> None:
        self.copied: list[tuple[str, tuple[int, ...]]] = []
        self.error: Exception | None = None

    def begin(self, adapter: HostAdapter, page_numbers: Sequence[int]) -> Callable[[], None]:
        def copy() -> None:
            if self.error is not None:
                raise self.error
            self.copied.append((adapter.content_id, tuple(page_numbers)))

        return copy


class Bench:
    """A store, and everything around it under a test's control."""

    def __init__(self, folder: Path, *, host_units: int = 3, disk_units: int = 3, **loads: Any):
        self.folder = folder
        self.clock = ManualClock(1000.0)
        self.reader = TextReader()
        self.shelf = RemoteShelf()
        self.cache = DiskCache(folder / "cache", disk_units * 10)
        self.disk, self.remote, self.upload = ManualExecutor(), ManualExecutor(), ManualExecutor()
        self.uploader = CountingUploader()
        loader = AdapterLoader(
            self.reader, self.clock, fetchers={"far": self.shelf}, cache=self.cache
        )
        self.store = AdapterStore(
            loader,
            self.uploader,
            self.clock,
            StoreLimits(host_bytes=host_units * UNIT, loads=LoadLimits(**loads)),
            StoreExecutors(self.disk, self.remote, self.upload),
        )

    def local(self, name: str, text: str | None = None) -> Path:
        """A folder with an adapter."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "adapter.txt").write_text(text or name, encoding="utf-8")
        return folder

    def register(self, name: str, text: str | None = None) -> str:
        """Register a local adapter, and return its content id."""
        prepared = self.store.prepare(self.local(name, text))
        return self.store.register(name, prepared).content_id

    def register_far(self, name: str, text: str | None = None) -> str:
        """Register a remote adapter, and return its content id."""
        self.shelf.places[f"far://{name}"] = text or name
        prepared = self.store.prepare(f"far://{name}")
        return self.store.register(name, prepared).content_id

    def uncache(self, content_id: str) -> None:
        """Delete the copy on disk."""
        self.cache.drop(f"{content_id}-{self.reader.form_name}")

    def run(self) -> list[AdapterEvent]:
        """Run all executors and poll, until nothing changes."""
        events = self.store.poll()
        while self.disk.run() + self.remote.run() + self.upload.run():
            events += self.store.poll()
        self.store.check_integrity()
        return events

    def reload(self, content_id: str) -> list[AdapterEvent]:
        """Request content that is not in host memory, and wait until it is loaded."""
        assert self.store.host(content_id) is None
        self.store.request(content_id)
        return self.run()
