import asyncio

import pytest

from hostelry.base.concurrency import for_each


def test_items_are_worked_on_within_the_bound_and_a_failure_cuts_no_other_off() -> None:
    ended: list[int] = []
    at_once: list[int] = []
    running: set[int] = set()

    async def act(item: int) -> None:
        running.add(item)
        at_once.append(len(running))
        await asyncio.sleep(0)
        running.discard(item)
        if item == 1:
            raise ValueError(item)
        ended.append(item)

    with pytest.raises(ValueError, match="1"):
        asyncio.run(for_each(range(6), act, 3))
    assert (ended, max(at_once)) == ([0, 2, 3, 4, 5], 3)
