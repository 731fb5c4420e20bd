"""JSON as typed values, also when several threads use a type first, which crashes msgspec."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from hostelry.base.json import decode, get_decoder

COMPILES = re.compile(r"msgspec\S*decode\(.*type=|json\.Decoder\(|msgspec\.convert\(")
SOURCE = Path(__file__).parents[3] / "src" / "hostelry"
# With a plain decoder the process dies of a segmentation fault within a few of these rounds.
AT_ONCE = """
import dataclasses, sys, threading
from hostelry.base.json import decode

sys.setswitchinterval(1e-6)
for number in range(30):
    leaves = [dataclasses.make_dataclass(f"Leaf{number}_{i}", [("x", int)]) for i in range(20)]
    outer = dataclasses.make_dataclass(
        f"Outer{number}", [(f"f{i}", leaf, None) for i, leaf in enumerate(leaves)]
    )
    start, seen = threading.Barrier(8), []

    def meet():
        start.wait()
        seen.append(decode(b'{"f19": {"x": 2}}', outer).f19.x)

    threads = [threading.Thread(target=meet) for _ in range(8)]
    for it in threads: it.start()
    for it in threads: it.join()
    assert seen == [2] * 8
"""


def test_many_threads_may_meet_a_type_for_the_first_time_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", AT_ONCE], capture_output=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_type_has_one_decoder() -> None:
    assert get_decoder(dict[str, int]) is get_decoder(dict[str, int])


def test_a_body_of_another_type_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        decode(b'{"a": "x"}', dict[str, int])


def test_nothing_else_compiles_a_type_where_threads_may_meet_it() -> None:
    allowed = {SOURCE / "base" / "json.py", SOURCE / "processes" / "background.py"}
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path not in allowed
        for line in path.read_text().splitlines()
        if COMPILES.search(line)
    ]
    assert found == []
