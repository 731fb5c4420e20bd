"""Answers kept by content: bounded in bytes and in time."""

import pytest

from hostelry.base.clock import ManualClock
from hostelry.containers.graph.call import ENTRY_BYTES, AnswerCache, hash_input
from hostelry.graph.progress import StepOutcome
from hostelry.graph.steps import StepFault

ANSWER = StepOutcome(value="x" * 98)  # 100 bytes as JSON


def test_an_answer_is_kept_for_its_time() -> None:
    clock = ManualClock()
    cache = AnswerCache(10, 10_000, clock)
    cache.put(b"k", ANSWER)
    clock.advance(9.9)
    assert cache.get(b"k") is ANSWER
    clock.advance(0.1)
    assert cache.get(b"k") is None
    assert (len(cache), cache.size_bytes, cache.hits, cache.misses) == (0, 0, 1, 1)


def test_the_least_recently_used_leaves_for_room() -> None:
    cache = AnswerCache(10, 2 * (ENTRY_BYTES + 100), ManualClock())
    for key in (b"1", b"2"):
        cache.put(key, ANSWER)
    cache.get(b"1")
    cache.put(b"3", ANSWER)
    assert [cache.get(key) is not None for key in (b"1", b"2", b"3")] == [True, False, True]
    assert cache.size_bytes == 2 * (ENTRY_BYTES + 100)


@pytest.mark.parametrize(
    "outcome",
    [
        pytest.param(StepOutcome(value="x" * 5000), id="larger than the cache"),
        pytest.param(StepOutcome(is_dropped=True), id="dropped"),
        pytest.param(StepOutcome(fault=StepFault(step="s", reason="r", status=424)), id="failed"),
    ],
)
def test_some_outcomes_are_not_kept_and_take_the_place_of_an_older_one(
    outcome: StepOutcome,
) -> None:
    cache = AnswerCache(10, 2000, ManualClock())
    cache.put(b"k", ANSWER)
    cache.put(b"k", outcome)
    assert cache.get(b"k") is None
    assert cache.size_bytes == 0


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        pytest.param({"a": 1, "b": 2}, {"b": 2, "a": 1}, True, id="the order of keys"),
        pytest.param([1, 2], [2, 1], False, id="the order of a list"),
        pytest.param("x", b'"x"', False, id="a text and bytes"),
        pytest.param(1, True, False, id="1 and true"),
    ],
)
def test_a_key_is_the_content(one: object, other: object, *, equal: bool) -> None:
    keys = [hash_input(StepOutcome(value=it)) for it in (one, other)]
    assert (keys[0] == keys[1]) is equal
