"""Statistics by their names, against what they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("SampleCount", 10.0, id="how many"),
        pytest.param("Sum", 550.0, id="the sum"),
        pytest.param("Average", 55.0, id="the mean"),
        pytest.param("Minimum", 10.0, id="the smallest"),
        pytest.param("Maximum", 100.0, id="the largest"),
        pytest.param("p0", 10.0, id="p0 is the smallest"),
        pytest.param("p100", 100.0, id="p100 is the largest"),
        pytest.param("p50", 50.0, id="the median"),
        pytest.param("p99.99", 90.0, id="a percentile with decimals"),
        pytest.param("tm90", 50.0, id="without the highest tenth"),
        pytest.param("TM(10%:90%)", 55.0, id="without the lowest and the highest tenth"),
        pytest.param("TM(:90%)", 50.0, id="bounds with one end"),
        pytest.param("TM(35:65)", 50.0, id="the mean of 40, 50, 60"),
        pytest.param("IQM", 55.0, id="the mean of the middle half"),
        pytest.param("TC(35:65)", 3.0, id="how many between"),
        pytest.param("tc20", 2.0, id="how many in the lowest fifth"),
        pytest.param("TS(35:65)", 150.0, id="the sum between"),
        pytest.param("ts20", 30.0, id="the sum of the lowest fifth"),
        pytest.param("PR(:35)", 30.0, id="the share up to a value"),
        pytest.param("PR(35:)", 70.0, id="the share over a value"),
        pytest.param("WM(10%:90%)", 55.0, id="ends moved in"),
        pytest.param("wm90", 54.0, id="the highest tenth moved in"),
    ],
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
