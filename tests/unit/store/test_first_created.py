"""After any change, the first records found in parts are the first of all records in order."""

import random
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import pytest

from hostelry.store.first_created import FirstCreated


@dataclass(frozen=True)
class Made:
    """A record. Several records have the same time."""

    name: str
    created_at: float


def drawn_part(source: random.Random, name: str, most: int) -> Mapping[str, Made]:
    names = [f"{name}-{number}" for number in range(source.randrange(1, most))]
    return {it: Made(it, float(source.randrange(30))) for it in names}


@pytest.mark.parametrize("descending", [True, False], ids=["newest first", "oldest first"])
@pytest.mark.parametrize("most", [2, 12], ids=["parts of one record", "parts of several"])
@pytest.mark.parametrize("seed", range(5))
def test_the_first_records_are_among_those_found(seed: int, most: int, descending: bool) -> None:
    source = random.Random(seed)
    first, group = FirstCreated(), "one"
    parts: dict[Hashable, Mapping[str, Made]] = {}
    for _ in range(30):
        parts = dict(parts)
        for _ in range(source.randrange(4)):
            name = f"p{source.randrange(40)}"
            if source.random() < 0.3:
                parts.pop(name, None)
            else:
                parts[name] = drawn_part(source, name, most)
        num = source.choice([1, 5, 200])
        found = first.among([(group, parts)], num, descending=descending)
        every = [it for part in parts.values() for it in part.values()]
        ordered = sorted(every, key=lambda it: (it.created_at, it.name), reverse=descending)
        again = sorted(found, key=lambda it: (it.created_at, it.name), reverse=descending)
        assert again[:num] == ordered[:num]


def test_parts_that_come_late_are_not_looked_through() -> None:
    made = {f"p{it:03}": Made(f"n{it:03}", float(it)) for it in range(500)}
    parts: Mapping[Hashable, Mapping[str, Made]] = {
        name: {it.name: it} for name, it in made.items()
    }
    found = FirstCreated().among([("late", parts)], 3, descending=True)
    assert {it.created_at for it in found} == {497.0, 498.0, 499.0}
