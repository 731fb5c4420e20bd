import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.dataplane.shared import map as shared_map
from hostelry.dataplane.shared import mapped_file
from hostelry.dataplane.shared.map import SLOT_BYTES, SharedMap
from hostelry.dataplane.shared.mapped_file import HEADER_BYTES

NOW = 1000.0


class Time:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def pair(tmp_path: Path, time: Time) -> tuple[SharedMap, SharedMap]:
    """Two processes' views of one map."""
    return SharedMap(tmp_path / "map", time, 64), SharedMap(tmp_path / "map", time, 64)


def test_what_one_process_keeps_the_other_finds_until_it_expires(
    pair: tuple[SharedMap, SharedMap], time: Time
) -> None:
    one, two = pair
    assert one.put(b"s-1", -5, NOW + 10)
    assert two.get(b"s-1") == (-5, NOW + 10)
    assert two.put(b"s-1", 2**63 - 1, NOW + 20)
    assert one.get(b"s-1") == (2**63 - 1, NOW + 20)
    assert one.num_live() == 1
    time.now = NOW + 20
    assert (one.get(b"s-1"), two.num_live()) == (None, 0)


def test_a_key_is_forgotten_everywhere(pair: tuple[SharedMap, SharedMap]) -> None:
    one, two = pair
    one.put(b"s-1", 1, NOW + 10)
    assert two.remove(b"s-1")
    assert two.remove(b"never there")
    assert one.get(b"s-1") is None


def test_it_is_kept_for_the_next_process(tmp_path: Path, time: Time) -> None:
    first = SharedMap(tmp_path / "map", time, 64)
    first.put(b"s-1", 7, NOW + 10)
    first.close()
    assert SharedMap(tmp_path / "map", time, 64).get(b"s-1") == (7, NOW + 10)


KEYS = st.integers(0, 9).map(lambda number: b"key-%d" % number)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), KEYS, st.integers(-9, 9), st.integers(1, 30)),
            st.tuples(st.just("remove"), KEYS, st.just(0), st.just(0)),
            st.tuples(st.just("wait"), st.just(b""), st.just(0), st.integers(1, 10)),
        ),
        max_size=60,
    )
)
def test_it_answers_as_a_dictionary_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes, int, int]]
) -> None:
    time = Time()
    path = tmp_path_factory.mktemp("map") / "map"
    views = [SharedMap(path, time, 64), SharedMap(path, time, 64)]
    expected: dict[bytes, tuple[int, float]] = {}
    for number, (what, key, value, seconds) in enumerate(steps):
        view = views[number % 2]
        if what == "put":
            view.put(key, value, time.now + seconds)
            expected[key] = (value, time.now + seconds)
        elif what == "remove":
            view.remove(key)
            expected.pop(key, None)
        else:
            time.now += seconds
        live = {k: v for k, v in expected.items() if v[1] > time.now}
        other = views[1 - number % 2]
        assert {k: other.get(k) for k in expected} == {k: live.get(k) for k in expected}
        assert other.num_live() == len(live)


def test_expired_entries_make_room_without_a_word(
    tmp_path: Path, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    table = SharedMap(tmp_path / "map", time, 16)
    for round_number in range(10):
        for number in range(16):
            table.put(b"%d-%d" % (round_number, number), number, time.now + 1)
        assert table.num_live() == 16
        time.now += 2
    assert not caplog.records


def test_in_a_full_map_what_expires_first_makes_way_with_a_warning(
    tmp_path: Path, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    table = SharedMap(tmp_path / "map", time, 16)
    for number in range(16):
        table.put(b"%d" % number, number, NOW + 100 - number)
    for number in range(16, 20):
        table.put(b"%d" % number, number, NOW + 200)
    left = [number for number in range(20) if table.get(b"%d" % number) is not None]
    assert left == [*range(12), *range(16, 20)]
    assert [it.message for it in caplog.records] == [
        "map is full (16 entries): the largest owners' that expire first are evicted"
    ]
    table.put(b"3", 33, NOW + 300)  # one that is there drives no other out
    assert (table.get(b"3"), table.num_live()) == ((33, NOW + 300), 16)


def test_no_owner_drives_another_out_of_its_share(tmp_path: Path, time: Time) -> None:
    table = SharedMap(tmp_path / "map", time, 4096)
    quiet = [b"calm-%d" % number for number in range(500)]
    for key in quiet:
        table.put(key, 1, NOW + 10)
    for number in range(20_000):
        table.put(b"loud-%d" % number, 2, NOW + 10_000)
    assert all(table.get(key) for key in quiet)
    table.put(b"late-1", 3, NOW + 5)  # and there is room for a third
    assert table.get(b"late-1") == (3, NOW + 5)


def test_two_buckets_for_a_key_leave_room_almost_to_the_end(
    tmp_path: Path, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    table = SharedMap(tmp_path / "map", time, 4096)
    for number in range(3600):
        table.put(b"session-%d" % number, number, NOW + 10)
    assert table.num_live() == 3600
    assert not caplog.records


def test_a_process_killed_between_any_two_steps_of_a_write_loses_nothing(
    tmp_path: Path, time: Time
) -> None:
    """Each write of memory that a `put` makes is the last one of its process once."""
    steps = writes_of_a_put(tmp_path / "trial", time)
    assert len(steps) > 4
    for survived in range(len(steps) + 1):
        path = tmp_path / f"map-{survived}"
        table = prepared(path, time)
        table.close()
        with path.open("r+b") as file:
            for at, data in steps[:survived]:
                file.seek(at)
                file.write(data)
        after = SharedMap(path, time, 32)
        assert after.get(b"s-1") in ((1, NOW + 10), (2, NOW + 20))
        assert [after.get(b"other-%d" % n) for n in range(8)] == [(n, NOW + 50) for n in range(8)]
        assert after.put(b"s-1", 3, NOW + 30)
        assert after.put(b"s-2", 4, NOW + 30)
        assert (after.get(b"s-1"), after.get(b"s-2")) == ((3, NOW + 30), (4, NOW + 30))
        assert after.num_live() == 10


def prepared(path: Path, time: Time) -> SharedMap:
    table = SharedMap(path, time, 32)
    for number in range(8):
        table.put(b"other-%d" % number, number, NOW + 50)
    table.put(b"s-1", 1, NOW + 10)
    return table


class Recorder:
    """Memory that notes each write in bytes from the file's beginning."""

    def __init__(self, memory: object, width: int, steps: list[tuple[int, bytes]]) -> None:
        self._memory, self._width, self._steps = memory, width, steps

    def __getattr__(self, name: str) -> object:
        return getattr(self._memory, name)

    def __getitem__(self, place: object) -> object:
        return self._memory[place]  # type: ignore[index]

    def __setitem__(self, place: int | slice, value: int | bytes) -> None:
        if isinstance(place, slice):
            assert isinstance(value, bytes)
            # Bytes may reach the memory in any portions: half of them is the worst.
            half = len(value) // 2
            self._steps += [(place.start, value[:half]), (place.start + half, value[half:])]
        else:
            assert isinstance(value, int)
            self._steps.append((place * self._width, struct.pack("@q", value)))
        self._memory[place] = value  # type: ignore[index]


def writes_of_a_put(path: Path, time: Time) -> list[tuple[int, bytes]]:
    table = prepared(path, time)
    steps: list[tuple[int, bytes]] = []
    table._bytes = Recorder(table._bytes, 1, steps)  # type: ignore[assignment]
    table._words = Recorder(table._words, 8, steps)  # type: ignore[assignment]
    table.put(b"s-1", 2, NOW + 20)
    return steps


def test_an_entry_with_any_bit_changed_is_not_there(tmp_path: Path, time: Time) -> None:
    path = tmp_path / "map"
    table = SharedMap(path, time, 16)
    table.put(b"s-1", 7, NOW + 10)
    content = path.read_bytes()
    slot = next(
        at for at in range(HEADER_BYTES, len(content), SLOT_BYTES) if any(content[at : at + 64])
    )
    for bit in range(48 * 8):
        with path.open("r+b") as file:
            file.seek(slot + bit // 8)
            file.write(bytes([content[slot + bit // 8] ^ 1 << bit % 8]))
        assert table.get(b"s-1") is None
        with path.open("r+b") as file:
            file.seek(slot)
            file.write(content[slot : slot + 64])
    assert table.get(b"s-1") == (7, NOW + 10)


@cases(
    "content",
    case("an empty file", b""),
    case("something else", b"\xff" * 5000),
    case("half a header", b"hstrymap"),
)
def test_a_damaged_file_is_replaced(
    tmp_path: Path, time: Time, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "map"
    path.write_bytes(content)
    table = SharedMap(path, time, 64)
    assert table.num_live() == 0
    assert table.put(b"s-1", 1, NOW + 1)
    assert "is damaged; it is replaced" in caplog.text


def test_a_hung_process_that_holds_the_lock_costs_a_write_but_no_read(
    pair: tuple[SharedMap, SharedMap],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mapped_file, "LOCK_PAUSE_S", 0.0)
    one, two = pair
    one.put(b"s-1", 1, NOW + 1)
    with two._file.alone():
        two._words[shared_map.STAMP_WORD] |= 1  # in the middle of a write
        assert not one.put(b"s-2", 2, NOW + 1)
        assert not one.remove(b"s-1")
        assert (one.get(b"s-1"), one.get(b"s-2")) == ((1, NOW + 1), None)
    assert "for too long" in caplog.text
    assert one.put(b"s-2", 2, NOW + 1)
    assert two.get(b"s-2") == (2, NOW + 1)
