"""Routes and garbage collection: many are exempt from it, also as they change one by one."""

import gc
from collections.abc import Iterator

import pytest

from hostelry.gateway.route_memory import LARGE_BYTES, RouteMemory


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.unfreeze()


def is_exempt(made: object) -> bool:
    return not any(it is made for it in gc.get_objects())


@pytest.mark.parametrize(
    ("num_bytes", "is_exempt_after"),
    [
        pytest.param([LARGE_BYTES], True, id="many at once"),
        pytest.param([LARGE_BYTES // 4] * 4, True, id="as many little by little"),
        pytest.param([LARGE_BYTES // 4] * 3, False, id="few"),
    ],
)
def test_many_routes_are_exempt(num_bytes: list[int], is_exempt_after: bool) -> None:
    memory, made = RouteMemory(), list[list[int]]()
    for each in num_bytes:
        with memory.taking(each):
            made.append([each])
    assert [is_exempt(it) for it in made] == [is_exempt_after] * len(made)


def test_collection_goes_on_after_routes_that_cannot_be_decoded() -> None:
    def take() -> None:
        with RouteMemory().taking(LARGE_BYTES):
            assert not gc.isenabled()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        take()
    assert gc.isenabled()
