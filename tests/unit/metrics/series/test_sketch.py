"""The percentile sketch: its error against the values themselves, and merges."""

import numpy as np
import pytest
from ddsketch import DDSketch
from hypothesis import given
from hypothesis import strategies as st

from hostelry.metrics.series.bucket import Bucket, merge_buckets
from hostelry.metrics.series.sketch import (
    LARGEST,
    RELATIVE_ERROR,
    SMALLEST,
    build_sketch,
    compute_key,
    get_value,
    weighted_values,
)
from hostelry.metrics.series.sketch import merge as merged_sketches
from hostelry.metrics.series.statistic import percentile, statistic

ERROR = RELATIVE_ERROR * (1 + 1e-9)
VALUES = st.one_of(
    st.floats(-1e6, 1e6, allow_subnormal=False),
    st.floats(1e-3, 1e12),
    st.sampled_from([0.0, 1.0, -1.0, LARGEST, -LARGEST, SMALLEST, 1e-200]),
)
LISTS = st.lists(VALUES, min_size=1, max_size=60)


def bucket(values: list[float]) -> Bucket:
    return Bucket(
        count=float(len(values)),
        sum=sum(values),
        minimum=min(values),
        maximum=max(values),
        sketch=build_sketch(values, [1.0] * len(values)),
    )


@given(VALUES)
def test_a_bucket_is_within_the_error_of_its_values(value: float) -> None:
    stands_for = get_value(compute_key(value))
    if abs(value) < SMALLEST:
        assert stands_for == 0.0
    else:
        assert abs(stands_for - value) <= ERROR * abs(value)


@given(VALUES, VALUES)
def test_the_order_of_keys_is_the_order_of_values(one: float, other: float) -> None:
    assert (compute_key(one) - compute_key(other)) * (one - other) >= 0 or one == pytest.approx(
        other
    )
    assert -32768 <= compute_key(one) <= 32767


# Source: DDSketch: within the relative error of the value at rank q * (n - 1).
@given(LISTS, st.integers(0, 1000))
def test_percentiles_are_within_the_error_of_numpys(values: list[float], permille: int) -> None:
    exact = float(np.quantile(np.array(values), permille / 1000, method="lower"))
    found = percentile(bucket(values), permille / 1000)
    assert found is not None
    assert abs(found - exact) <= ERROR * abs(exact) + SMALLEST


@given(st.lists(st.floats(0.001, 1e9), min_size=1, max_size=200), st.integers(1, 99))
def test_percentiles_are_those_of_the_ddsketch_package(values: list[float], percent: int) -> None:
    package = DDSketch(relative_accuracy=RELATIVE_ERROR)
    for value in values:
        package.add(value)
    theirs = package.get_quantile_value(percent / 100)
    ours = percentile(bucket(values), percent / 100)
    assert ours == pytest.approx(theirs, rel=2.1 * RELATIVE_ERROR)


@given(st.lists(LISTS, min_size=1, max_size=5), st.randoms())
def test_merges_commute_and_lose_nothing(parts: list[list[float]], random: object) -> None:
    whole = build_sketch([it for part in parts for it in part], [1.0] * sum(map(len, parts)))
    sketches = [build_sketch(part, [1.0] * len(part)) for part in parts]
    random.shuffle(sketches)  # type: ignore[attr-defined]
    assert merged_sketches(sketches) == whole
    assert sum(count for _, count in weighted_values(whole)) == sum(map(len, parts))


@given(st.lists(LISTS, min_size=2, max_size=4))
def test_merges_of_buckets_do_not_depend_on_their_order(parts: list[list[float]]) -> None:
    forth = merge_buckets([bucket(part) for part in parts])
    back = merge_buckets([bucket(part) for part in reversed(parts)])
    for name in ("SampleCount", "Minimum", "Maximum", "p50", "p99.9", "TC(10%:90%)"):
        assert statistic(name)(forth) == statistic(name)(back)


def test_a_sketch_of_a_hundred_latencies_is_small() -> None:
    random = np.random.default_rng(1)
    values = random.lognormal(11.0, 0.8, 100).tolist()
    assert len(build_sketch(values, [1.0] * 100)) <= 400
    assert len(build_sketch([1.0, 2.0, 3.0], [1.0] * 3)) == 13


@pytest.mark.parametrize("count", [0.5, 65_535.0, 65_536.0, 1e15])
def test_counts_are_kept_exactly_however_large(count: float) -> None:
    sketch = build_sketch([1.0, 2.0], [count, 1.0])
    assert [it for _, it in weighted_values(sketch)] == [count, 1.0]
    assert [it for _, it in weighted_values(merged_sketches([sketch] * 3))] == [count * 3, 3.0]
