import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.dataplane.shared import mapped_file
from hostelry.dataplane.shared.count_table import CountTable
from hostelry.dataplane.shared.counts import SharedCounts
from hostelry.dataplane.shared.mapped_file import HEADER_BYTES


def workers(path: Path, num: int, num_rows: int = 8) -> list[SharedCounts]:
    return [SharedCounts(CountTable(path, num, num_rows), worker) for worker in range(num)]


def test_every_worker_sees_what_all_have_under_way(tmp_path: Path) -> None:
    one, two = workers(tmp_path / "counts", 2)
    give_back = one.reserve("c-1")
    two.reserve("c-1")
    two.reserve("c-2")
    assert [(it.of("c-1"), it.of("c-2"), it.total) for it in (one, two)] == [(2, 1, 3)] * 2
    give_back()
    give_back()
    assert (one.of("c-1"), two.of("c-1"), two.total) == (1, 1, 2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans()), max_size=60),
    st.integers(0, 2),
)
def test_the_counts_are_those_of_the_places_that_are_held(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool]], dies: int
) -> None:
    path = tmp_path_factory.mktemp("counts") / "counts"
    everyone = workers(path, 3)
    held: list[tuple[int, str, Any]] = []
    for worker, number, takes in steps:
        copy_id = f"c-{number}"
        if takes or not held:
            held.append((worker, copy_id, everyone[worker].reserve(copy_id)))
        else:
            held.pop(number % len(held))[2]()
        expected = Counter(copy for _, copy, _ in held)
        assert all(it.of(f"c-{n}") == expected[f"c-{n}"] for it in everyone for n in range(5))
    everyone[dies] = SharedCounts(CountTable(path, 3, 8), dies)
    left = Counter(copy for worker, copy, _ in held if worker != dies)
    assert all(it.of(f"c-{n}") == left[f"c-{n}"] for it in everyone for n in range(5))


def test_a_dead_workers_requests_count_until_its_column_is_cleared(tmp_path: Path) -> None:
    one, two = workers(tmp_path / "counts", 2)
    two.reserve("c-1")
    two.reserve("c-1")
    one.reserve("c-1")
    assert one.of("c-1") == 3
    CountTable(tmp_path / "counts", 2, 8).clear(1)
    assert (one.of("c-1"), one.total) == (1, 1)


def test_rows_of_copies_that_left_the_routes_are_used_again(tmp_path: Path) -> None:
    one, two = workers(tmp_path / "counts", 2, num_rows=2)
    place = one.reserve("old-1")
    assert (two.of("old-1"), two.of("old-2")) == (1, 0)
    for each in (one, two):
        each.retain(["new"])
    two.reserve("new")
    assert one.of("new") == 1  # the row of old-2, as the request on old-1 still holds its row
    assert two.of("old-1") == 1
    place()
    for each in (one, two):
        each.retain([])
        each.retain(["another"])
    assert (one.of("another"), two.of("another")) == (0, 0)
    one.reserve("another")
    assert (one.of("another"), two.of("another")) == (1, 1)


def test_a_full_table_lets_a_worker_count_alone_until_the_routes_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = workers(tmp_path / "counts", 2, num_rows=1)
    one.of("c-1")
    give_back = one.reserve("c-2")
    assert (one.of("c-2"), two.of("c-2"), one.total) == (1, 0, 1)
    assert "counted by this worker alone: all 1 rows are taken" in caplog.text
    give_back()
    for each in (one, two):
        each.retain(["c-2"])
    one.reserve("c-2")
    assert two.of("c-2") == 1


def test_a_hung_worker_that_holds_the_lock_does_not_block_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_file, "LOCK_PAUSE_S", 0.0)
    one, two = workers(tmp_path / "counts", 2)
    one.of("known")
    with two._table._file.alone():
        one.reserve("known")
        one.reserve("c-1")
        assert (one.of("known"), one.of("c-1")) == (1, 1)
    assert "for too long" in caplog.text
    one.retain(["c-1", "known"])
    one.reserve("c-1")
    assert two.of("c-1") == 1


@cases(
    "content",
    case("an empty file", b""),
    case("something else", b"x" * 4096),
    case("a table for another number of workers", None),
)
def test_a_file_that_is_no_such_table_is_replaced(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "counts"
    if content is None:
        workers(path, 3)[2].reserve("c-1")
    else:
        path.write_bytes(content)
    one, two = workers(path, 2)
    one.reserve("c-1")
    assert (two.of("c-1"), two.total) == (1, 1)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_found_when_the_table_is_made_not_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        CountTable(tmp_path / "counts", 2)
    assert {it.name for it in tmp_path.iterdir()} == {"counts.lock"}


def test_words_are_aligned_so_that_none_is_seen_half_written(tmp_path: Path) -> None:
    for num_workers in (1, 3, 64):
        table = CountTable(tmp_path / str(num_workers), num_workers, 5)
        assert all((table.row(f"c-{n}", 0) or 1) % 8 == 0 for n in range(5))
        assert HEADER_BYTES % 8 == 0
        table.close()


@pytest.mark.parametrize("worker", [-1, 2])
def test_a_worker_that_the_table_has_no_column_for_is_refused(tmp_path: Path, worker: int) -> None:
    with pytest.raises(ValueError, match="columns 0 to 1"):
        SharedCounts(CountTable(tmp_path / "counts", 2), worker)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40), st.integers(1, 4))
def test_workers_together_never_claim_more_than_the_limit(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]], limit: int
) -> None:
    everyone = workers(tmp_path_factory.mktemp("counts") / "counts", 3)
    held: list[Any] = []
    for worker, takes in steps:
        if takes:
            give_back = everyone[worker].claim("c-1", limit)
            assert (give_back is None) == (len(held) == limit)
            held += [] if give_back is None else [give_back]
        elif held:
            held.pop(worker % len(held))()
        assert {it.of("c-1") for it in everyone} == {len(held)}
