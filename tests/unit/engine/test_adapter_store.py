"""The tiers below the pool: their contents, their waits, and reports of failures."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.unit.engine.store_bench import UNIT, Bench

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.loader import (
    AdapterEvent,
    Dropped,
    LeftHost,
    LoadedToHost,
    LoadFailed,
    StorageTier,
    Uploaded,
    UploadFailed,
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def kinds(events: Sequence[AdapterEvent], content_id: str) -> list[str]:
    return [type(event).__name__ for event in events if event.content_id == content_id]


def reason(events: Sequence[AdapterEvent]) -> str:
    (event,) = [it for it in events if isinstance(it, LoadFailed)]
    return event.reason


def test_a_registered_adapter_is_in_host_memory_at_once(bench: Bench) -> None:
    a = bench.register("a")
    assert bench.store.host(a) is not None
    assert kinds(bench.run(), a) == ["LoadedToHost"]
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
    assert kinds(bench.reload(left[0]), left[0]) == ["LoadedToHost"]
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
    assert kinds(bench.run(), a) == ["LoadedToHost"]
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


def test_nothing_leaves_host_memory_between_two_polls(bench: Bench) -> None:
    ids = [bench.register(name) for name in "abcd"]
    bench.run()
    (absent,) = [it for it in ids if bench.store.host(it) is None]
    present = [it for it in ids if it != absent]
    bench.store.request(absent)
    assert all(bench.store.host(it) is not None for it in present)
    assert bench.store.wait(0.0)
    bench.store.start_upload(present[0], (1,))
    left = [event.content_id for event in bench.store.poll() if isinstance(event, LeftHost)]
    assert len(left) == 1
    assert left[0] in present[1:]
    assert kinds(bench.run(), absent) == ["LoadedToHost"]


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
    came = [event.content_id for event in bench.run() if isinstance(event, LoadedToHost)]
    assert came == ids[:3]
    bench.store.start_upload(ids[1], (1,))
    events = bench.run()
    assert [event.content_id for event in events if isinstance(event, LoadedToHost)] == [ids[3]]
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


def test_a_content_that_is_registered_again_at_once_stays_as_it_was(bench: Bench) -> None:
    a = bench.register("a")
    bench.run()
    bench.store.evict(a)
    bench.run()
    bench.store.request(a)
    bench.store.retire("a")
    assert bench.register("b", "a") == a
    assert kinds(bench.run(), a) == ["LoadedToHost"]
    assert bench.store.host(a) is not None


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


def test_the_error_has_the_reason_of_every_source(bench: Bench) -> None:
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
    assert kinds(bench.reload(a), a) == ["LoadedToHost"]


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
    assert kinds(bench.reload(a), a) == ["LoadedToHost"]
    path.unlink()
    bench.uncache(a)
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
    assert kinds(bench.reload(a), a) == ["LoadedToHost"]
    assert bench.shelf.num_fetches == 1
    metrics = bench.store.metrics("a")
    assert metrics is not None
    assert metrics.num_loads == {StorageTier.DISK: 1}


def test_a_local_adapter_that_came_back_once_comes_from_its_copy_then(bench: Bench) -> None:
    a = bench.register("a")
    bench.run()
    for num_reads in (2, 2, 2):
        bench.store.evict(a)
        bench.run()
        assert kinds(bench.reload(a), a) == ["LoadedToHost"]
        assert bench.reader.num_reads == num_reads
        bench.store.start_upload(a, (1,))
        bench.run()


def test_a_disk_that_fails_is_no_reason_to_fail(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bench.reader, "save", full)
    a = bench.register_far("a")
    assert bench.store.host(a) is not None
    assert bench.cache.num_bytes == 0
    assert list((bench.folder / "cache").iterdir()) == []


def test_a_remote_place_that_changed_is_not_served_as_what_was_registered(bench: Bench) -> None:
    a = bench.register_far("a")
    bench.run()
    bench.store.evict(a)
    bench.uncache(a)
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
    (copy,) = (bench.folder / "cache").iterdir()
    (copy / "image").write_text("rot", encoding="utf-8")
    assert kinds(bench.reload(a), a) == ["LoadedToHost"]
    assert bench.shelf.num_fetches == 2
    assert (copy / "image").read_text(encoding="utf-8") != "rot"


@cases(
    "error, message",
    case("refused", AdapterError("no right to read it"), "no right to read it"),
    case("a full disk", OSError(errno.ENOSPC, "No space left on device"), "No space left"),
    case("a broken connection", ConnectionResetError("gone"), "gone"),
    case("a faulty fetcher", ZeroDivisionError("oops"), "ZeroDivisionError: oops"),
)
def test_a_failed_fetch_reports_its_reason_and_leaves_nothing_behind(
    error: Exception, message: str, bench: Bench
) -> None:
    a = bench.register_far("a")
    bench.run()
    bench.store.evict(a)
    bench.uncache(a)
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


@cases(
    "write, message",
    case("garbage", garbage, "UnicodeDecodeError"),
    case("far too much", endless, "files have 2000 bytes; at most 1000"),
    case("a link out of the folder", link, "adapter.txt is no regular file"),
    case("nothing of use", nothing, "there is no adapter.txt"),
)
def test_what_a_fetch_brings_is_checked(
    write: Callable[[Path], None], message: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = bench.register_far("a")
    bench.run()
    bench.store.evict(a)
    bench.uncache(a)
    monkeypatch.setattr(bench.shelf, "fetch", lambda _, into: write(into))
    assert message in reason(bench.reload(a))
    assert list((bench.folder / "cache").iterdir()) == []


def test_a_fetch_that_hangs_times_out_and_blocks_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, remote_timeout_s=30.0, disk_timeout_s=300.0, num_remote=1, max_stuck=2)
    ids = [bench.register_far(name) for name in "abc"]
    near = bench.register("near")
    bench.run()
    for content_id in (*ids, near):
        bench.store.evict(content_id)
        bench.uncache(content_id)
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
    assert bench.remote.num_added_threads == 2
    assert LoadFailed(ids[2], "2 loads from remote hang; another is not started") in events
    assert bench.store.stats.host_bytes <= 3 * UNIT
    assert kinds(bench.run(), near) == ["LoadedToHost"]
    assert bench.store.host(ids[2]) is None
    for job in hung:
        job()
    assert [it for it in bench.run() if it.content_id in ids[:2]] == []
    bench.clock.advance(100)
    assert kinds(bench.reload(ids[0]), ids[0])[-1] == "LoadedToHost"


def test_a_failed_upload_is_reported_and_can_be_repeated(bench: Bench) -> None:
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
    assert kinds(bench.run(), a) == ["Uploaded"]
    bench.store.start_upload(a, (2,))
    bench.store.retire("a")
    bench.store.poll()
    bench.register("a")
    assert kinds(bench.run(), a) == ["LoadedToHost", "Uploaded"]


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
    assert metrics.hits == {StorageTier.HOST: 1, StorageTier.POOL: 2, StorageTier.DISK: 1}
    assert metrics.num_loads == {StorageTier.DISK: 1}
    assert (metrics.num_uploads, metrics.num_host_evictions) == (1, 1)
    assert (metrics.num_bytes, metrics.is_in_host) == (UNIT, True)
    bench.store.retire("a")
    assert bench.store.metrics("a") is None
    bench.store.release(held, num_prompt_tokens=1)


def test_the_cost_of_having_it_again_depends_on_where_it_is(bench: Bench) -> None:
    a = bench.register("a")
    prepared = bench.store.prepare(bench.folder / "a")
    bench.store.register(
        "a", type(prepared)(prepared.adapter, prepared.source, StorageTier.DISK, 0.5)
    )
    in_host = bench.store.reload_cost_s(a)
    bench.run()
    bench.store.evict(a)
    assert in_host < 0.01
    assert bench.store.reload_cost_s(a) == pytest.approx(in_host + 0.5)
