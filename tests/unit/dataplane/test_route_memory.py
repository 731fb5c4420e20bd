"""Routes and garbage collection: many are exempt from it, also as they change one by one."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from tests.cases import case, cases

from hostelry.dataplane.routes import LARGE_BYTES, MANY, THOROUGH_EVERY, RouteMemory


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.unfreeze()


def is_exempt(made: object) -> bool:
    return not any(it is made for it in gc.get_objects())


@cases(
    "num_bytes, num_kept, is_exempt_after",
    case("many at once", [LARGE_BYTES], 0, True),
    case("as many changes, of many", [LARGE_BYTES // 4] * 4, MANY, True),
    case("few changes, of many", [LARGE_BYTES // 4] * 3, MANY, False),
    case("many changes, of few", [LARGE_BYTES // 4] * 8, MANY - 1, False),
)
def test_many_routes_are_exempt(num_bytes: list[int], num_kept: int, is_exempt_after: bool) -> None:
    memory, made = RouteMemory(), list[list[int]]()
    for each in num_bytes:
        with memory.taking(each, num_kept):
            made.append([each])
    assert [is_exempt(it) for it in made] == [is_exempt_after] * len(made)


class InCycle:
    """An object that refers to itself: only a collection can free it."""

    def __init__(self) -> None:
        self.itself = self


def test_what_was_exempt_and_is_in_a_cycle_is_freed_in_the_end() -> None:
    memory, kept = RouteMemory(), [InCycle()]
    freed = weakref.ref(kept[0])
    with memory.taking(LARGE_BYTES):
        pass
    kept.clear()
    for _ in range(THOROUGH_EVERY):
        with memory.taking(LARGE_BYTES):
            pass
    assert freed() is None


def test_collection_goes_on_after_routes_that_cannot_be_decoded() -> None:
    def take() -> None:
        with RouteMemory().taking(LARGE_BYTES):
            assert not gc.isenabled()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        take()
    assert gc.isenabled()
