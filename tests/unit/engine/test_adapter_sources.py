"""Sources of adapters: folders, copies on disk, the hub, and real threads that fetch them."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import case, cases
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.store_bench import UNIT, Bench

from hostelry.base.clock import ManualClock, SystemClock
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.lora.disk_cache import DiskCache
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.hub import HubFetcher, parse_hub_uri
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.loader import (
    AdapterEvent,
    AdapterLoader,
    LoadedToHost,
    LoadFailed,
    StorageTier,
    Uploaded,
)
from hostelry.engine.lora.loads import LoadLimits
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.store import AdapterStore, StoreLimits
from hostelry.engine.lora.targets import decoder_targets
from hostelry.engine.lora.uploads import PoolUploader
from hostelry.engine.models.registry import load_spec


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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
    assert [it.name for it in tmp_path.iterdir()] == ["adapter-a"]


def test_what_else_lies_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holidays").mkdir()
    (tmp_path / "holidays" / "photo").write_bytes(bytes(100))
    (tmp_path / "adapter-notes.txt").write_text("mine", encoding="utf-8")
    cache = DiskCache(tmp_path, 10)
    assert cache.num_bytes == 0
    with cache.partial() as folder:
        (folder / "x").write_bytes(bytes(10))
        assert cache.keep(folder, "a", 10)
    assert DiskCache(tmp_path, 5).num_bytes == 0
    assert sorted(it.name for it in tmp_path.iterdir()) == ["adapter-notes.txt", "holidays"]


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


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


PAGE = PoolLayout(num_layers=2, num_kv_heads=2, head_dim=16, page_tokens=8, dtype=torch.float32)


def reader_of(model_folder: Path) -> AdapterReader:
    targets = decoder_targets(load_spec(model_folder))
    form = PageForm(page_elements=PAGE.page_elements, dtype=PAGE.dtype)
    return AdapterReader(BaseModel(targets=targets), AdapterRules(), form)


def events_until(store: AdapterStore, kind: type[AdapterEvent]) -> list[AdapterEvent]:
    """Events up to one of that kind, from real threads."""
    events: list[AdapterEvent] = []
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
    events_until(store, LoadedToHost)
    num_pages = store.summary(first).num_pages
    numbers = list(range(5, 5 + num_pages))
    store.start_upload(first, numbers)
    assert store.stats.num_running_uploads == 1
    events_until(store, Uploaded)
    start = 5 * PAGE.page_elements
    for ordinal, fill in enumerate(adapter.layout.fills_P):
        offset = ordinal * PAGE.page_elements
        written = pool.elements[start + offset : start + offset + fill]
        assert torch.equal(written, expected[offset : offset + fill])
    store.close()


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
    events = events_until(store, LoadedToHost)
    assert LoadFailed(ids[0], "loading from remote took longer than 5 s") in events
    assert store.host(ids[1]) is not None
    assert store.host(ids[0]) is None
    release.set()
    store.close()


def hub_cache(root: Path, repository: str, adapter: Path, folder: str = "") -> str:
    """A hub cache with one snapshot, as the hub's library makes it. Returns the revision."""
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


@cases(
    "uri, folder",
    case("the newest", "hf://org/lora", ""),
    case("one revision", "hf://org/lora@0123456789abcdef0123456789abcdef01234567", ""),
    case("a folder of the repository", "hf://org/lora/sub/one@main", "sub/one"),
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
    assert prepared.tier is StorageTier.REMOTE
    (copy,) = (tmp_path / "copies").iterdir()
    restored = reader.restore(copy, prepared.adapter.content_id)
    assert torch.equal(restored.image.elements, prepared.adapter.image.elements)


@cases(
    "uri, message",
    case("not in the cache", "hf://org/other", "the hub does not give it"),
    case("another revision", "hf://org/lora@v2", "the hub does not give it"),
    case("no organisation", "hf://lora", "is not of the form hf://organisation"),
    case("a way out", "hf://org/lora/../../x", "is not of the form"),
    case("nothing", "hf://", "is not of the form"),
    case("no valid name", "hf://org/na me", "the hub does not give it"),
)
def test_a_file_missing_on_the_hub_is_an_error(
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


@pytest.fixture
def saved(model_folder: Path, tmp_path: Path) -> tuple[AdapterReader, HostAdapter, Path]:
    """A reader, an adapter, and the folder with its image."""
    reader = reader_of(model_folder)
    fields: dict[str, Any] = {"rank_pattern": {"q_proj": 3}}
    adapter = reader.read(random_adapter(tmp_path / "a", model_folder, 4, ("k_proj",), **fields))
    folder = tmp_path / "image"
    folder.mkdir()
    assert reader.save(adapter, folder) == (folder / "image").stat().st_size
    return reader, adapter, folder


def test_an_image_comes_back_as_it_was(saved: tuple[AdapterReader, HostAdapter, Path]) -> None:
    reader, adapter, folder = saved
    restored = reader.restore(folder, adapter.content_id)
    assert restored.summary == adapter.summary
    assert restored.scales == adapter.scales
    assert restored.warnings == adapter.warnings
    assert restored.layout is adapter.layout
    assert torch.equal(restored.image.elements, adapter.image.elements)


def cut_short(content: bytes) -> bytes:
    return content[:-1]


def a_bit_off(content: bytes) -> bytes:
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


def other_ranks(content: bytes) -> bytes:
    return content.replace(b'"ranks": [[0, 4', b'"ranks": [[0, 5')


@cases(
    "damage, message",
    case("cut short", cut_short, "the image is damaged"),
    case("a bit off", a_bit_off, "the image is damaged"),
    case("ranks of another", other_ranks, "the image is damaged"),
    case("empty", lambda _: b"", "first line is not JSON"),
    case("of another format", lambda _: b"{}\n", "of another format"),
    case("fields gone", lambda _: b'{"format": 1}\n', "is damaged"),
    case("dtype", lambda it: it.replace(b"torch.float32", b"torch.float16"), "content or form"),
)
def test_a_damaged_image_is_refused(
    damage: Callable[[bytes], bytes],
    message: str,
    saved: tuple[AdapterReader, HostAdapter, Path],
) -> None:
    reader, adapter, folder = saved
    path = folder / "image"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(AdapterError, match=message):
        reader.restore(folder, adapter.content_id)


def test_an_image_of_another_content_is_refused(
    saved: tuple[AdapterReader, HostAdapter, Path],
) -> None:
    reader, _, folder = saved
    with pytest.raises(AdapterError, match="another content or form"):
        reader.restore(folder, "0" * 64)
