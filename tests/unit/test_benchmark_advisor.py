"""The benchmark of the advisor: a mix is drawn again by its seed, and its pick is judged."""

import random

from benchmarks.advisor import compare, draw_mix, list_findings
from msgspec.structs import replace


def test_a_pick_is_judged_against_all_plans() -> None:
    mix = draw_mix(random.Random(20), 0)
    row = compare(replace(mix, models=mix.models[:1], hours=0.05))
    assert row["verdict"] in ("good", "not good")
    assert row["share"] > 0.0
    share, least = list_findings([row])
    assert share.value in (0.0, 1.0)
    assert least.value == row["share"]


def test_a_seed_gives_one_mix() -> None:
    assert draw_mix(random.Random(3), 0) == draw_mix(random.Random(3), 0)
