import os
import shutil
from pathlib import Path

import pytest

from hostelry.fleet.artifacts.cache import ArtifactCache
from hostelry.fleet.artifacts.protocol import ArtifactCacheFullError, ArtifactError


def put(cache: ArtifactCache, key: str, size_bytes: int = 10) -> Path:
    cache.reserve(key, size_bytes)
    made = cache.begin(key)
    (made / "files" / "sub").mkdir(parents=True)
    (made / "files" / "sub" / "weights").write_bytes(b"x" * size_bytes)
    return cache.publish(key, made, f"s3://b/{key}", "archive")


def used(folder: Path, key: str, at: int) -> None:
    """Say that the entry was used last at this instant."""
    os.utime(folder / key / "entry.json", (at, at))


def test_a_published_entry_is_found_again_by_another_cache_object(tmp_path: Path) -> None:
    files = put(ArtifactCache(tmp_path), "k1")
    assert ArtifactCache(tmp_path).find("k1") == files
    assert (files / "sub" / "weights").read_bytes() == b"x" * 10


def test_what_was_never_published_is_not_there(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    made = cache.begin("k1")
    (made / "files").mkdir()
    assert cache.find("k1") is None
    ArtifactCache(tmp_path)
    assert not made.exists(), "what a dead agent left half done is removed"


def test_files_are_read_only(tmp_path: Path) -> None:
    files = put(ArtifactCache(tmp_path), "k1")
    assert (files / "sub" / "weights").stat().st_mode & 0o222 == 0


@pytest.mark.parametrize("damage", ["truncate", "remove", "entry"])
def test_a_damaged_entry_is_not_used(tmp_path: Path, damage: str) -> None:
    cache = ArtifactCache(tmp_path)
    weights = put(cache, "k1") / "sub" / "weights"
    if damage == "truncate":
        weights.chmod(0o644)
        os.truncate(weights, 3)
    elif damage == "remove":
        weights.unlink()
    else:
        (tmp_path / "k1" / "entry.json").write_text("{")
    assert cache.find("k1") is None
    put(cache, "k1")
    assert cache.find("k1") is not None


def test_one_entry_without_a_lease_makes_room_at_a_time(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    for at, key in enumerate(("held", "old", "new"), start=1):
        put(cache, key)
        used(tmp_path, key, at)
    cache.hold("copy-1", "held")
    assert cache.evict_one()
    assert [cache.find(key) is not None for key in ("held", "old", "new")] == [True, False, True]
    assert cache.evict_one()
    assert not cache.evict_one(), "what a copy holds stays"
    assert cache.find("held") is not None


def test_the_least_recently_used_entry_goes_first(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, max_bytes=30)
    for at, key in enumerate(("k1", "k2", "k3")):
        put(cache, key)
        used(tmp_path, key, at)
    cache.find("k1")  # used just now
    put(cache, "k4")
    assert [key for key in ("k1", "k2", "k3", "k4") if cache.find(key)] == ["k1", "k3", "k4"]


def test_what_a_copy_holds_is_not_evicted_even_after_a_restart(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, max_bytes=20)
    cache.hold("c-1/model", "k1")
    put(cache, "k1")
    put(cache, "k2")
    put(ArtifactCache(tmp_path, max_bytes=20), "k3")
    assert cache.find("k1") is not None
    assert cache.find("k2") is None


def test_an_artifact_that_cannot_fit_is_refused_with_the_figures(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, max_bytes=20)
    cache.hold("c-1/model", "k1")
    put(cache, "k1", 15)
    full = r"needs 10 bytes; .* may hold 20 and 15 are in use"
    with pytest.raises(ArtifactCacheFullError, match=full) as raised:
        cache.reserve("k2", 10)
    assert raised.value.lacking_bytes == 5
    cache.release("c-1")
    cache.reserve("k2", 10)
    assert cache.find("k1") is None


def test_a_refused_reservation_takes_no_room(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, max_bytes=20)
    with pytest.raises(ArtifactError):
        cache.reserve("k1", 21)
    put(cache, "k2", 20)


def test_downloads_under_way_count(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, max_bytes=20)
    cache.reserve("k1", 15)
    with pytest.raises(ArtifactError):
        cache.reserve("k2", 10)
    cache.discard("k1", tmp_path / "nothing")
    cache.reserve("k2", 10)


def test_more_than_the_disk_has_is_refused(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, max_bytes=2**70)
    with pytest.raises(ArtifactError, match="bytes of disk"):
        cache.reserve("k1", 2**60)


def test_a_holder_finds_what_it_holds_by_its_source(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    files = put(cache, "k1")
    assert cache.find_held("c-1/model", "s3://b/k1", "archive") is None
    cache.hold("c-1/model", "k1")
    assert cache.find_held("c-1/model", "s3://b/k1", "archive") == files
    assert cache.find_held("c-1/model", "s3://b/k1", "prefix") is None
    assert cache.find_held("c-2/model", "s3://b/k1", "archive") is None


def test_releasing_one_adapter_leaves_the_model(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    put(cache, "k1")
    put(cache, "k2")
    cache.hold("c-1/model", "k1")
    cache.hold("c-1/aa", "k2")
    cache.release("c-1/aa")
    assert cache.find_held("c-1/model", "s3://b/k1", "archive") is not None
    assert cache.find_held("c-1/aa", "s3://b/k2", "archive") is None
    cache.release("c-1")
    assert cache.find_held("c-1/model", "s3://b/k1", "archive") is None
    cache.release("c-1")


def test_room_is_counted_without_reading_the_entries_and_again_where_there_is_none(
    tmp_path: Path,
) -> None:
    cache = ArtifactCache(tmp_path, max_bytes=30)
    for key in ("k1", "k2", "k3"):
        put(cache, key)
        cache.hold("copy", key)
    assert cache.used_bytes() == ArtifactCache(tmp_path).used_bytes() == 30
    shutil.rmtree(tmp_path / "k1")
    assert cache.used_bytes() == 30, "what is deleted by hand is not seen at once"
    put(cache, "k4")
    assert cache.used_bytes() == 30
