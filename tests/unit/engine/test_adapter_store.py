"""The tiers below the pool: who is where, who waits for what, and what is told when it fails."""

import errno
import hashlib
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.models import random_adapter, tiny_llama

from hostelry.base.clock import ManualClock, SystemClock
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.lora.disk_cache import DiskCache
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.events import (
    Dropped,
    Event,
    LeftHost,
    Loaded,
    LoadFailed,
    Uploaded,
    UploadFailed,
)
from hostelry.engine.lora.host_adapter import AdapterSummary, HostAdapter
from hostelry.engine.lora.hub import HubFetcher, parse_hub_uri
from hostelry.engine.lora.image import PageImage
from hostelry.engine.lora.layout import AdapterRanks, AdapterScales, plan_layout
from hostelry.engine.lora.loader import AdapterLoader, Tier
from hostelry.engine.lora.loads import LoadLimits
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.store import AdapterStore, StoreLanes, StoreLimits
from hostelry.engine.lora.targets import Target, Targets, decoder_targets
from hostelry.engine.lora.uploads import PoolUploader
from hostelry.engine.lora.versions import AdapterVersion
from hostelry.engine.models.spec import load_spec

UNIT = 400  # bytes of a small adapter in these tests


def small_adapter(content: str, num_bytes: int = UNIT) -> HostAdapter:
    """An adapter of that content and size, without a model."""
    rank = num_bytes // 8  # rows of one number for A and one for B, in fp32
    targets = Targets(
        linears=(Target("a", 1, 1),),
        embedding=Target("e", 1, 1),
        lm_head=Target("h", 1, 1),
        is_tied=False,
    )
    layout = plan_layout(targets, AdapterRanks(linears=(rank,)), 20)
    image = PageImage(layout, torch.float32)
    summary = AdapterSummary(
        content_id=hashlib.sha256(content.encode()).hexdigest(),
        rank=rank,
        num_parameters=2 * rank,
        target_modules=("a",),
        num_bytes=image.num_bytes,
        num_pages=layout.num_pages,
    )
    scales = AdapterScales(linears=(1.0,))
    return HostAdapter(summary=summary, layout=layout, scales=scales, image=image)


class TextReader:
    """Reads adapters whose only file holds their content and size; counts reads."""

    max_folder_bytes = 1000

    def __init__(self) -> None:
        self.num_reads = 0

    def read(self, folder: Path) -> HostAdapter:
        self.num_reads += 1
        path = folder / "adapter.txt"
        if not path.is_file():
            raise AdapterError("there is no adapter.txt")
        content, _, size = path.read_text(encoding="utf-8").partition(" ")
        return small_adapter(content, int(size or UNIT))


class ManualLane:
    """Runs jobs only when told to."""

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()
        self.num_widened = 0

    def start(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def widen(self) -> None:
        self.num_widened += 1

    def run(self) -> int:
        """Run what was started, in order; how many."""
        jobs, self.jobs = self.jobs, deque()
        for job in jobs:
            job()
        return len(jobs)


@dataclass
class RemoteShelf:
    """Fetches from a table; what is an exception is raised."""

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
    """Remembers what was copied where; fails where told to."""

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
    """A store with everything around it in hand."""

    def __init__(self, folder: Path, *, host_units: int = 3, disk_units: int = 3, **loads: Any):
        self.folder = folder
        self.clock = ManualClock(1000.0)
        self.reader = TextReader()
        self.shelf = RemoteShelf()
        self.cache = DiskCache(folder / "cache", disk_units * 10)
        self.disk, self.remote, self.upload = ManualLane(), ManualLane(), ManualLane()
        self.uploader = CountingUploader()
        loader = AdapterLoader(
            self.reader, self.clock, fetchers={"far": self.shelf}, cache=self.cache
        )
        self.store = AdapterStore(
            loader,
            self.uploader,
            self.clock,
            StoreLimits(host_bytes=host_units * UNIT, loads=LoadLimits(**loads)),
            StoreLanes(self.disk, self.remote, self.upload),
        )

    def local(self, name: str, text: str | None = None) -> Path:
        """A folder with an adapter."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "adapter.txt").write_text(text or name, encoding="utf-8")
        return folder

    def register(self, name: str, text: str | None = None) -> str:
        """Register a local adapter; its content id."""
        prepared = self.store.prepare(self.local(name, text))
        return self.store.register(name, prepared).content_id

    def register_far(self, name: str, text: str | None = None) -> str:
        """Register a remote adapter; its content id."""
        self.shelf.places[f"far://{name}"] = text or name
        prepared = self.store.prepare(f"far://{name}")
        return self.store.register(name, prepared).content_id

    def run(self) -> list[Event]:
        """Let every lane work, then poll; until nothing moves."""
        events = self.store.poll()
        while self.disk.run() + self.remote.run() + self.upload.run():
            events += self.store.poll()
        self.store.check_integrity()
        return events

    def reload(self, content_id: str) -> list[Event]:
        """Ask for a content that is not in host memory and let it come."""
        assert self.store.host(content_id) is None
        self.store.request(content_id)
        return self.run()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def kinds(events: Sequence[Event], content_id: str) -> list[str]:
    return [type(event).__name__ for event in events if event.content_id == content_id]


def reason(events: Sequence[Event]) -> str:
    (event,) = [it for it in events if isinstance(it, LoadFailed)]
    return event.reason


def test_a_registered_adapter_is_in_host_memory_at_once(bench: Bench) -> None:
    a = bench.register("a")
    assert bench.store.host(a) is not None
    assert kinds(bench.run(), a) == ["Loaded"]
    assert bench.store.get("a") is not None
    assert bench.store.stats.host_bytes == UNIT


def test_names_of_the_same_content_share_one_copy(bench: Bench) -> None:
    a = bench.register("a", "same")
    assert bench.register("b", "same") == a
    assert bench.store.stats.host_bytes == UNIT
    assert bench.store.stats.num_contents == 1
    assert bench.store.stats.num_adapters == 2
    bench.store.retire("a")
    assert Dropped(a) not in bench.run()
    assert bench.store.host(a) is not None
    bench.store.retire("b")
    assert kinds(bench.run(), a) == ["LeftHost", "Dropped"]
    assert bench.store.stats.host_bytes == 0


def test_the_least_worth_leaves_host_memory_first_and_comes_back_from_its_folder(
    bench: Bench,
) -> None:
    a, b, c = (bench.register(name) for name in "abc")
    for name in "bca":
        held = bench.store.acquire(name, in_pool=False)
        assert held is not None
        bench.store.release(held)
    held = bench.store.acquire("c", in_pool=False)
    bench.register("d")
    left = [event.content_id for event in bench.run() if isinstance(event, LeftHost)]
    assert len(left) == 1
    assert left[0] in (a, b)
    assert kinds(bench.reload(left[0]), left[0]) == ["Loaded"]
    assert bench.store.stats.host_bytes == 3 * UNIT
    assert bench.store.host(c) is not None


def test_many_requests_for_one_content_are_one_load(bench: Bench) -> None:
    a = bench.register("a")
    bench.run()
    assert bench.store.evict(a)
    num_reads = bench.reader.num_reads
    for _ in range(5):
        bench.store.request(a)
        bench.store.poll()
    assert len(bench.disk.jobs) == 1
    assert kinds(bench.run(), a) == ["Loaded"]
    assert bench.reader.num_reads == num_reads + 1


def test_what_was_asked_for_stays_until_it_is_in_the_pool(bench: Bench) -> None:
    a = bench.register("a")
    bench.store.request(a)
    bench.run()
    for name in "bcde":
        bench.register(name)
    assert bench.store.host(a) is not None
    assert not bench.store.evict(a)
    bench.store.start_upload(a, (4, 5))
    assert not bench.store.evict(a)
    assert kinds(bench.run(), a) == ["Uploaded"]
    assert bench.uploader.copied == [(a, (4, 5))]
    assert bench.store.evict(a)


def test_what_was_asked_for_in_vain_may_leave_after_a_while(bench: Bench) -> None:
    a = bench.register("a")
    bench.store.request(a)
    bench.run()
    bench.clock.advance(4.9)
    bench.run()
    assert not bench.store.evict(a)
    bench.clock.advance(0.2)
    bench.run()
    assert bench.store.evict(a)


def test_loads_wait_for_room_that_held_contents_take_and_keep_their_order(bench: Bench) -> None:
    ids = [bench.register(name) for name in "abcdef"]
    bench.run()
    for content_id in ids:
        bench.store.evict(content_id)
    for content_id in ids:
        bench.store.request(content_id)
    came = [event.content_id for event in bench.run() if isinstance(event, Loaded)]
    assert came == ids[:3]
    bench.store.start_upload(ids[1], (1,))
    events = bench.run()
    assert [event.content_id for event in events if isinstance(event, Loaded)] == [ids[3]]
    assert LeftHost(ids[1]) in events
    assert bench.store.stats.num_waiting_loads == 2


def test_an_adapter_larger_than_host_memory_is_refused(bench: Bench) -> None:
    with pytest.raises(AdapterError, match="takes 1600 bytes of host memory; all adapters have"):
        bench.register("big", "big 1600")
    assert bench.store.adapters == []


def test_a_new_version_is_taken_at_once_and_the_old_one_drains(bench: Bench) -> None:
    old = bench.register("a", "old")
    held = bench.store.acquire("a", in_pool=False)
    assert held is not None
    new = bench.register("a", "new")
    later = bench.store.acquire("a", in_pool=False)
    assert later is not None
    assert (held.content_id, later.content_id) == (old, new)
    assert held.number < later.number
    assert Dropped(old) not in bench.run()
    assert bench.store.host(old) is not None
    bench.store.release(held)
    assert Dropped(old) in bench.run()
    bench.store.release(later)
    assert Dropped(new) not in bench.run()


def test_registering_what_is_registered_changes_nothing(bench: Bench) -> None:
    bench.register("a")
    first = bench.store.get("a")
    bench.register("a")
    assert bench.store.get("a") == first


def test_a_name_that_comes_back_with_the_same_content_is_not_dropped(bench: Bench) -> None:
    a = bench.register("a")
    bench.run()
    bench.store.retire("a")
    assert bench.register("a") == a
    assert kinds(bench.run(), a) == ["LeftHost", "Loaded"]


def test_unknown_names_and_contents(bench: Bench) -> None:
    assert bench.store.acquire("a", in_pool=False) is None
    assert not bench.store.retire("a")
    assert bench.store.get("a") is None
    assert bench.store.metrics("a") is None
    bench.store.request("0" * 64)
    assert "no adapter of that content" in reason(bench.run())
    with pytest.raises(KeyError):
        bench.store.start_upload("0" * 64, (1,))
    with pytest.raises(AdapterError, match="name is empty"):
        bench.store.register("", bench.store.prepare(bench.local("a")))


def test_a_folder_that_changed_since_registration_is_never_served(bench: Bench) -> None:
    a = bench.register("a")
    bench.run()
    bench.store.evict(a)
    bench.local("a", "other")
    message = reason(bench.reload(a))
    assert "changed since it was registered" in message
    assert str(bench.folder / "a") in message
    assert bench.store.host(a) is None


def test_the_reason_of_every_source_is_told(bench: Bench) -> None:
    a = bench.register("a", "same")
    bench.register("b", "same")
    bench.run()
    bench.store.evict(a)
    bench.local("a", "other")
    (bench.folder / "b" / "adapter.txt").unlink()
    message = reason(bench.reload(a))
    assert "changed since" in message
    assert "there is no adapter.txt" in message


def test_a_second_source_serves_where_the_first_is_gone(bench: Bench) -> None:
    a = bench.register("a", "same")
    bench.register("b", "same")
    bench.run()
    bench.store.evict(a)
    bench.run()
    (bench.folder / "a" / "adapter.txt").unlink()
    assert kinds(bench.reload(a), a) == ["Loaded"]


def test_a_failed_load_is_tried_again_by_a_later_request_only(bench: Bench) -> None:
    a = bench.register("a")
    bench.run()
    bench.store.evict(a)
    path = bench.folder / "a" / "adapter.txt"
    path.unlink()
    pauses = []
    for _ in range(8):
        assert "there is no adapter.txt" in reason(bench.reload(a))
        num_reads = bench.reader.num_reads
        pause = 0.0
        while bench.reader.num_reads == num_reads:
            bench.clock.advance(0.5)
            pause += 0.5
            bench.run()
            assert bench.reader.num_reads == num_reads, "nobody asked for it"
            bench.store.request(a)
            if bench.disk.jobs:
                break
            assert "next try in" in reason(bench.run())
        pauses.append(pause)
        bench.run()
        bench.clock.advance(1000)
    assert pauses[:3] == [1.0, 4.0, 16.0]
    assert pauses[-1] == 60.0
    bench.local("a")
    assert kinds(bench.reload(a), a) == ["Loaded"]
    path.unlink()
    bench.store.start_upload(a, (1,))
    bench.run()
    bench.store.evict(a)
    bench.reload(a)
    bench.clock.advance(1.0)
    bench.store.request(a)
    assert len(bench.disk.jobs) == 1, "a success made the pauses short again"


def test_a_remote_adapter_is_fetched_once_and_then_read_from_its_copy(bench: Bench) -> None:
    a = bench.register_far("a")
    bench.run()
    bench.store.evict(a)
    bench.run()
    assert kinds(bench.reload(a), a) == ["Loaded"]
    assert bench.shelf.num_fetches == 1
    metrics = bench.store.metrics("a")
    assert metrics is not None
    assert metrics.num_loads == {Tier.DISK: 1}


def test_a_remote_place_that_changed_is_not_served_as_what_was_registered(bench: Bench) -> None:
    a = bench.register_far("a")
    bench.run()
    bench.store.evict(a)
    bench.cache.drop(a)
    bench.shelf.places["far://a"] = "other"
    assert "far://a: it changed since it was registered" in reason(bench.reload(a))
    b = bench.register_far("a", "other")
    assert b != a
    assert bench.store.host(b) is not None


def test_a_damaged_copy_is_fetched_again(bench: Bench) -> None:
    a = bench.register_far("a")
    bench.run()
    bench.store.evict(a)
    bench.run()
    (bench.folder / "cache" / a / "adapter.txt").write_text("rot", encoding="utf-8")
    assert kinds(bench.reload(a), a) == ["Loaded"]
    assert bench.shelf.num_fetches == 2
    assert (bench.folder / "cache" / a / "adapter.txt").read_text(encoding="utf-8") == "a"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param(AdapterError("no right to read it"), "no right to read it", id="refused"),
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device"), "No space left", id="a full disk"
        ),
        pytest.param(ConnectionResetError("gone"), "gone", id="a broken connection"),
        pytest.param(ZeroDivisionError("oops"), "ZeroDivisionError: oops", id="a faulty fetcher"),
    ],
)
def test_a_fetch_that_fails_tells_why_and_leaves_nothing_behind(
    error: Exception, message: str, bench: Bench
) -> None:
    a = bench.register_far("a")
    bench.run()
    bench.store.evict(a)
    bench.cache.drop(a)
    bench.shelf.places["far://a"] = error
    assert message in reason(bench.reload(a))
    assert list((bench.folder / "cache").iterdir()) == []
    assert bench.store.stats.host_bytes == 0
    assert bench.store.stats.num_failed_loads == 1


def garbage(into: Path) -> None:
    (into / "adapter.txt").write_bytes(b"\xff\xfe")


def endless(into: Path) -> None:
    (into / "adapter.txt").write_text("a" * 2000, encoding="utf-8")


def link(into: Path) -> None:
    (into / "adapter.txt").symlink_to("/etc/hostname")


def nothing(into: Path) -> None:
    (into / "checkpoint-3").mkdir()


@pytest.mark.parametrize(
    ("write", "message"),
    [
        pytest.param(garbage, "UnicodeDecodeError", id="garbage"),
        pytest.param(endless, "files have 2000 bytes; at most 1000", id="far too much"),
        pytest.param(link, "adapter.txt is no regular file", id="a link out of the folder"),
        pytest.param(nothing, "there is no adapter.txt", id="nothing of use"),
    ],
)
def test_what_a_fetch_brings_is_checked(
    write: Callable[[Path], None], message: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = bench.register_far("a")
    bench.run()
    bench.store.evict(a)
    bench.cache.drop(a)
    monkeypatch.setattr(bench.shelf, "fetch", lambda _, into: write(into))
    assert message in reason(bench.reload(a))
    assert list((bench.folder / "cache").iterdir()) == []


def test_a_fetch_that_hangs_fails_in_time_and_blocks_nobody(tmp_path: Path) -> None:
    bench = Bench(tmp_path, remote_timeout_s=30.0, disk_timeout_s=300.0, num_remote=1, max_stuck=2)
    ids = [bench.register_far(name) for name in "abc"]
    near = bench.register("near")
    bench.run()
    for content_id in (*ids, near):
        bench.store.evict(content_id)
        bench.cache.drop(content_id)
    for content_id in ids:
        bench.store.request(content_id)
    bench.store.request(near)
    hung = []
    for content_id in ids[:2]:
        hung.append(bench.remote.jobs.popleft())
        bench.clock.advance(29)
        assert LoadFailed not in {type(event) for event in bench.store.poll()}
        bench.clock.advance(2)
        events = bench.store.poll()
        assert LoadFailed(content_id, "loading from remote took longer than 30 s") in events
    assert bench.remote.num_widened == 2
    assert LoadFailed(ids[2], "2 loads from remote hang; another is not started") in events
    assert bench.store.stats.host_bytes <= 3 * UNIT
    assert kinds(bench.run(), near) == ["Loaded"]
    assert bench.store.host(ids[2]) is None
    for job in hung:
        job()
    assert [it for it in bench.run() if it.content_id in ids[:2]] == []
    bench.clock.advance(100)
    assert kinds(bench.reload(ids[0]), ids[0])[-1] == "Loaded"


def test_an_unknown_scheme_names_those_there_are(bench: Bench) -> None:
    with pytest.raises(AdapterError, match="has scheme 's3'; known here: far, file"):
        bench.store.prepare("s3://bucket/key")
    with pytest.raises(AdapterError, match="names the machine host; only local"):
        bench.store.prepare("file://host/a")
    bench.local("a b", "x")
    path = str(bench.folder / "a b").replace(" ", "%20")
    assert bench.store.prepare(f"file://{path}").adapter.num_bytes == UNIT


def test_a_copy_appears_whole_or_not_at_all_and_outlives_the_process(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 30)
    with cache.partial() as folder:
        (folder / "x").write_text("0123456789", encoding="utf-8")
        assert not cache.has("a")
        assert cache.keep(folder, "a", 10)
    assert DiskCache(tmp_path, 30).has("a")
    with cache.partial():
        pass
    assert [it.name for it in tmp_path.iterdir()] == ["a"]


def test_the_disk_bound_is_kept_and_what_is_read_is_not_deleted(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 30)

    def keep(name: str, num_bytes: int = 10) -> bool:
        with cache.partial() as folder:
            (folder / "x").write_text("y" * num_bytes, encoding="utf-8")
            return cache.keep(folder, name, num_bytes)

    assert all(keep(name) for name in "abc")
    with cache.open("a") as folder:
        assert folder is not None
        assert keep("d")
        assert not cache.has("b")
        assert keep("e")
        assert keep("f")
        assert cache.has("a")
        assert not keep("g", 21)
        assert (folder / "x").is_file()
    assert not keep("h", 31)
    assert cache.num_bytes <= 30
    assert keep("i", 25)
    assert cache.num_bytes == 25
    assert DiskCache(tmp_path, 20).num_bytes == 0


def test_a_failed_upload_is_told_and_can_be_repeated(bench: Bench) -> None:
    a = bench.register("a")
    bench.run()
    bench.uploader.error = RuntimeError("out of device memory")
    bench.store.start_upload(a, (1,))
    assert UploadFailed(a, "RuntimeError: out of device memory") in bench.run()
    bench.uploader.error = None
    bench.store.start_upload(a, (1,))
    assert Uploaded(a) in bench.run()


def test_pages_are_not_given_back_while_they_are_written(bench: Bench) -> None:
    a = bench.register("a")
    bench.run()
    bench.store.start_upload(a, (1,))
    bench.store.retire("a")
    assert kinds(bench.store.poll(), a) == ["LeftHost"]
    bench.upload.run()
    assert kinds(bench.run(), a) == ["Dropped"]


def test_an_upload_serves_a_name_that_came_back_meanwhile(bench: Bench) -> None:
    a = bench.register("a")
    bench.run()
    bench.store.start_upload(a, (1,))
    bench.store.retire("a")
    bench.register("a")
    assert kinds(bench.run(), a) == ["LeftHost", "Loaded", "Uploaded"]


def test_counts_by_name(bench: Bench) -> None:
    a = bench.register("a")
    for in_pool in (False, True, True):
        held = bench.store.acquire("a", in_pool=in_pool)
        assert held is not None
        bench.store.release(held, num_prompt_tokens=10, num_generated_tokens=3)
    bench.run()
    bench.store.evict(a)
    held = bench.store.acquire("a", in_pool=False)
    assert held is not None
    bench.reload(a)
    bench.store.start_upload(a, (2,))
    bench.run()
    metrics = bench.store.metrics("a")
    assert metrics is not None
    assert metrics.num_requests == 4
    assert (metrics.num_prompt_tokens, metrics.num_generated_tokens) == (30, 9)
    assert metrics.hits == {Tier.HOST: 1, Tier.POOL: 2, Tier.DISK: 1}
    assert metrics.num_loads == {Tier.DISK: 1}
    assert (metrics.num_uploads, metrics.num_host_evictions) == (1, 1)
    assert (metrics.num_bytes, metrics.is_in_host) == (UNIT, True)
    bench.store.retire("a")
    assert bench.store.metrics("a") is None
    bench.store.release(held, num_prompt_tokens=1)


def test_the_cost_of_having_it_again_depends_on_where_it_is(bench: Bench) -> None:
    a = bench.register("a")
    prepared = bench.store.prepare(bench.folder / "a")
    bench.store.register("a", type(prepared)(prepared.adapter, prepared.source, Tier.DISK, 0.5))
    in_host = bench.store.reload_cost_s(a)
    bench.run()
    bench.store.evict(a)
    assert in_host < 0.01
    assert bench.store.reload_cost_s(a) == pytest.approx(in_host + 0.5)


class RandomUse(RuleBasedStateMachine):
    """Any order of everything: bounds kept, nothing held is lost, every request is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.root = Path(self.directory.name)
        self.bench = Bench(self.root, num_remote=2)
        self.held: list[AdapterVersion] = []
        self.asked: dict[str, int] = {}

    def teardown(self) -> None:
        self.bench.clock.advance(10_000)
        for _ in range(20):
            self.take(self.bench.run())
            self.bench.clock.advance(10)
        assert all(count == 0 for count in self.asked.values()), "a request was never answered"
        self.directory.cleanup()

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Loaded | LoadFailed):
                self.asked[event.content_id] = 0
            elif isinstance(event, Dropped):
                self.asked.pop(event.content_id, None)
                assert event.content_id not in {it.content_id for it in self.held}

    @rule(name=st.sampled_from("abcde"), text=st.sampled_from(["p", "q", "r", "s 800", "t 1200"]))
    def register(self, name: str, text: str) -> None:
        self.bench.register(name, text)

    @rule(name=st.sampled_from("fgh"), text=st.sampled_from(["p", "u", "v 800"]))
    def register_far(self, name: str, text: str) -> None:
        self.bench.register_far(name, text)

    @rule(name=st.sampled_from("abcdefgh"))
    def retire(self, name: str) -> None:
        self.bench.store.retire(name)

    @rule(name=st.sampled_from("abcdefgh"), in_pool=st.booleans())
    def acquire(self, name: str, in_pool: bool) -> None:
        version = self.bench.store.acquire(name, in_pool=in_pool)
        if version is not None:
            self.held.append(version)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        version = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.bench.store.release(version)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def request(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(self.held))
        self.asked[version.content_id] = 1
        self.bench.store.request(version.content_id)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def upload(self, data: st.DataObject) -> None:
        content_id = data.draw(st.sampled_from(self.held)).content_id
        is_running = self.bench.store.is_uploading(content_id)
        if self.bench.store.host(content_id) is not None and not is_running:
            self.bench.store.start_upload(content_id, (1, 2))

    @rule(name=st.sampled_from("abcdefgh"))
    def change_or_lose(self, name: str) -> None:
        path = self.root / name / "adapter.txt"
        if path.is_file():
            path.unlink()
        self.bench.shelf.places[f"far://{name}"] = OSError("lost")

    @rule(seconds=st.sampled_from([0.1, 3.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.bench.clock.advance(seconds)

    @rule()
    def disk(self) -> None:
        self.bench.disk.run()

    @rule()
    def remote(self) -> None:
        self.bench.remote.run()

    @rule()
    def uploads(self) -> None:
        self.bench.upload.run()

    @rule()
    def poll(self) -> None:
        self.take(self.bench.store.poll())

    @invariant()
    def counts_agree(self) -> None:
        self.bench.store.check_integrity()
        assert self.bench.cache.num_bytes <= self.bench.cache.max_bytes


TestRandomUse = RandomUse.TestCase
TestRandomUse.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


PAGE = PoolLayout(num_layers=2, num_kv_heads=2, head_dim=16, page_tokens=8, dtype=torch.float32)


def reader_of(model_folder: Path) -> AdapterReader:
    targets = decoder_targets(load_spec(model_folder))
    form = PageForm(page_elements=PAGE.page_elements, dtype=PAGE.dtype)
    return AdapterReader(BaseModel(targets=targets), AdapterRules(), form)


def events_until(store: AdapterStore, kind: type[Event]) -> list[Event]:
    """Events up to one of that kind, from real threads."""
    events: list[Event] = []
    while not any(isinstance(event, kind) for event in events):
        assert store.wait(60.0), "no news"
        events += store.poll()
    return events


def test_threads_bring_adapters_from_disk_into_the_pool(model_folder: Path, tmp_path: Path) -> None:
    loader = AdapterLoader(reader_of(model_folder), SystemClock())
    pool = PoolTensor(PAGE, 40, torch.device("cpu"))
    limits = StoreLimits(host_bytes=1 << 22)
    store = AdapterStore(loader, PoolUploader(pool), SystemClock(), limits)
    folders = [random_adapter(tmp_path / str(seed), model_folder, 4, seed=seed) for seed in (1, 2)]
    first, second = (
        store.register(folder.name, store.prepare(folder)).content_id for folder in folders
    )
    assert first != second
    adapter = store.host(first)
    assert adapter is not None
    expected = adapter.image.elements.clone()
    store.poll()
    store.evict(first)
    store.request(first)
    events_until(store, Loaded)
    num_pages = store.summary(first).num_pages
    numbers = list(range(5, 5 + num_pages))
    store.start_upload(first, numbers)
    assert store.is_uploading(first)
    events_until(store, Uploaded)
    start = 5 * PAGE.page_elements
    for ordinal, fill in enumerate(adapter.layout.fills_P):
        offset = ordinal * PAGE.page_elements
        written = pool.elements[start + offset : start + offset + fill]
        assert torch.equal(written, expected[offset : offset + fill])


def test_a_stuck_thread_does_not_stop_the_others(model_folder: Path, tmp_path: Path) -> None:
    started, release = threading.Event(), threading.Event()
    hanging: set[str] = set()

    class Shelf:
        def fetch(self, uri: str, into: Path) -> None:
            if uri in hanging:
                started.set()
                assert release.wait(60.0)
            random_adapter(into, model_folder, 4, seed=len(uri))

    clock = ManualClock()
    loader = AdapterLoader(reader_of(model_folder), clock, fetchers={"far": Shelf()})
    limits = StoreLimits(host_bytes=1 << 22, loads=LoadLimits(num_remote=1, remote_timeout_s=5.0))
    pool = PoolTensor(PAGE, 1, torch.device("cpu"))
    store = AdapterStore(loader, PoolUploader(pool), clock, limits)
    ids = [
        store.register(name, store.prepare(f"far://{name}")).content_id for name in ("b", "second")
    ]
    store.poll()
    for content_id in ids:
        assert store.evict(content_id)
    hanging.add("far://b")
    for content_id in ids:
        store.request(content_id)
    assert started.wait(60.0)
    clock.advance(6.0)
    events = events_until(store, Loaded)
    assert LoadFailed(ids[0], "loading from remote took longer than 5 s") in events
    assert store.host(ids[1]) is not None
    assert store.host(ids[0]) is None
    release.set()


def hub_cache(root: Path, repository: str, adapter: Path, folder: str = "") -> str:
    """A hub cache as the hub's library leaves it, with one snapshot; its revision."""
    revision = "0123456789abcdef0123456789abcdef01234567"
    home = root / f"models--{repository.replace('/', '--')}"
    snapshot = home / "snapshots" / revision / folder
    snapshot.mkdir(parents=True)
    (home / "blobs").mkdir()
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(revision, encoding="utf-8")
    for path in adapter.iterdir():
        blob = home / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        blob.write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(blob)
    return revision


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        pytest.param("hf://org/lora", "", id="the newest"),
        pytest.param(
            "hf://org/lora@0123456789abcdef0123456789abcdef01234567", "", id="one revision"
        ),
        pytest.param("hf://org/lora/sub/one@main", "sub/one", id="a folder of the repository"),
    ],
)
def test_adapters_come_from_a_local_hub_cache_offline(
    uri: str, folder: str, model_folder: Path, tmp_path: Path
) -> None:
    adapter = random_adapter(tmp_path / "adapter", model_folder, 4)
    hub_cache(tmp_path / "hub", "org/lora", adapter, folder)
    fetcher = HubFetcher(tmp_path / "hub", is_offline=True)
    reader = reader_of(model_folder)
    cache = DiskCache(tmp_path / "copies", 1 << 20)
    loader = AdapterLoader(reader, ManualClock(), fetchers={"hf": fetcher}, cache=cache)
    prepared = loader.prepare(uri)
    assert prepared.adapter.content_id == reader.read(adapter).content_id
    assert prepared.tier is Tier.REMOTE
    copies = list((tmp_path / "copies" / prepared.adapter.content_id).iterdir())
    assert not any(path.is_symlink() for path in copies)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        pytest.param("hf://org/other", "the hub does not give it", id="not in the cache"),
        pytest.param("hf://org/lora@v2", "the hub does not give it", id="another revision"),
        pytest.param("hf://lora", "is not of the form hf://organisation", id="no organisation"),
        pytest.param("hf://org/lora/../../x", "is not of the form", id="a way out"),
        pytest.param("hf://", "is not of the form", id="nothing"),
        pytest.param("hf://org/na me", "the hub does not give it", id="no valid name"),
    ],
)
def test_what_the_hub_does_not_have_is_told(
    uri: str, message: str, model_folder: Path, tmp_path: Path
) -> None:
    hub_cache(tmp_path / "hub", "org/lora", random_adapter(tmp_path / "a", model_folder, 4))
    fetcher = HubFetcher(tmp_path / "hub", is_offline=True)
    loader = AdapterLoader(reader_of(model_folder), ManualClock(), fetchers={"hf": fetcher})
    with pytest.raises(AdapterError, match=message):
        loader.prepare(uri)


def test_a_hub_uri_has_three_parts() -> None:
    assert parse_hub_uri("hf://a/b") == ("a/b", "", None)
    assert parse_hub_uri("hf://a/b/c/d@refs/pr/1") == ("a/b", "c/d", "refs/pr/1")
