"""Memory that a fork finds free."""

import subprocess
import sys

import pytest

# In a fresh interpreter: a process with more gaps than `fill_gaps` fills has some left.
PROGRAM = """
import sys
from hostelry.base.system import SMALL_SIZES, fill_gaps

PAGE_BYTES, HEAD_BYTES, size = 4096, sys.getsizeof(b""), int(sys.argv[1])
scattered = [bytes(size - HEAD_BYTES) for _ in range(60 * PAGE_BYTES // size)]
del scattered[::9]
fillers = fill_gaps()
made = [bytes(size - HEAD_BYTES) for _ in range(PAGE_BYTES // size)]
assert len({id(it) // PAGE_BYTES for it in made}) <= 3, "without it 8 to 10"
assert {len(it) + HEAD_BYTES for it in fillers} == set(SMALL_SIZES)
assert sum(map(len, fillers)) < 16 * 1024 * 1024
assert scattered
"""


@pytest.mark.parametrize("size", [48, 64, 256, 512])
def test_objects_made_after_the_gaps_are_filled_lie_side_by_side(size: int) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(size)], check=True)
