"""Statistics by name, compared with their definitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.metrics.series.bucket import Bucket, merge_buckets
from hostelry.metrics.series.sketch import build_sketch
from hostelry.metrics.series.statistic import is_simple, statistic


def bucket(*values: float) -> Bucket:
    return Bucket(
        count=float(len(values)),
        sum=sum(values),
        minimum=min(values),
        maximum=max(values),
        sketch=build_sketch(values, [1.0] * len(values)),
    )


TEN = bucket(*(float(it) for it in range(10, 110, 10)))
SUMMARY = Bucket(count=4.0, sum=20.0, minimum=2.0, maximum=9.0)


# Source: user guide, "CloudWatch statistics definitions".
@cases(
    "name, expected",
    case("how many", "SampleCount", 10.0),
    case("the sum", "Sum", 550.0),
    case("the mean", "Average", 55.0),
    case("the smallest", "Minimum", 10.0),
    case("the largest", "Maximum", 100.0),
    case("p0 is the smallest", "p0", 10.0),
    case("p100 is the largest", "p100", 100.0),
    case("the median", "p50", 50.0),
    case("a percentile with decimals", "p99.99", 90.0),
    case("without the highest tenth", "tm90", 50.0),
    case("without the lowest and the highest tenth", "TM(10%:90%)", 55.0),
    case("bounds with one end", "TM(:90%)", 50.0),
    case("the mean of 40, 50, 60", "TM(35:65)", 50.0),
    case("the mean of the middle half", "IQM", 55.0),
    case("how many between", "TC(35:65)", 3.0),
    case("how many in the lowest fifth", "tc20", 2.0),
    case("the sum between", "TS(35:65)", 150.0),
    case("the sum of the lowest fifth", "ts20", 30.0),
    case("the share up to a value", "PR(:35)", 30.0),
    case("the share over a value", "PR(35:)", 70.0),
    case("ends moved in", "WM(10%:90%)", 55.0),
    case("the highest tenth moved in", "wm90", 54.0),
)
def test_a_statistic_of_ten_values(name: str, expected: float) -> None:
    assert statistic(name)(TEN) == pytest.approx(expected, rel=0.011)


@pytest.mark.parametrize("name", ["p50", "p100", "tm99", "IQM", "PR(:3)", "TC(1:2)"])
def test_what_needs_the_values_is_unknown_of_a_summary(name: str) -> None:
    assert statistic(name)(SUMMARY) is None
    assert statistic(name)(merge_buckets([SUMMARY, TEN])) is None
    assert not is_simple(name)


@pytest.mark.parametrize("name", ["p50", "tm99", "IQM", "Average", "WM(10%:90%)"])
def test_samples_of_one_value_have_it_exactly(name: str) -> None:
    alike = Bucket(count=3.0, sum=21.3, minimum=7.1, maximum=7.1)
    assert statistic(name)(merge_buckets([alike, alike])) == pytest.approx(7.1, rel=1e-12)


@pytest.mark.parametrize(
    "name",
    ["", "sum", "p", "p101", "p-1", "99", "TM", "TM()", "TM(:)", "TM(5%)", "TM(0%:101%)", "p1e3",
     "Median", "p" + "9" * 400, "TM(" + "1" * 99 + ":)"],
)  # fmt: skip
def test_what_is_no_statistic_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"not a statistic|percent|share"):
        statistic(name)


@given(
    st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_parts_of_the_samples_are_parts_of_the_count(
    values: list[float], low: int, high: int
) -> None:
    whole = bucket(*values)
    low, high = min(low, high), max(low, high)
    counted = statistic(f"TC({low}%:{high}%)")(whole)
    assert counted == pytest.approx(len(values) * (high - low) / 100, abs=1e-6)
    mean = statistic(f"TM({low}%:{high}%)")(whole)
    assert mean is None or whole.minimum * 0.999 <= mean <= whole.maximum * 1.001
    assert (mean is None) == (low == high)
