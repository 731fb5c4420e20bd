"""Many metrics in few calls of GetMetricData."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from hostelry.advisor.live.records import SHARES, PeriodTimes, Series
from hostelry.cli.declared.aws import Aws
from hostelry.cli.declared.document import CLOUDWATCH

MAX_QUERIES = 500  # in one call
MODELS, OWN = "AWS/SageMaker", "Hostelry"
MICROSECONDS = 1e6
Dimensions = Mapping[str, str]


class Asked(msgspec.Struct, frozen=True):
    """A metric with a statistic."""

    namespace: str
    name: str
    dimensions: Dimensions
    statistic: str


def read_series(
    aws: Aws, asked: Sequence[Asked], since: float, until: float, period_s: float
) -> list[Series]:
    """The values of each metric by the start of their period. A period without data is absent."""
    found: list[dict[float, float]] = [{} for _ in asked]
    for first in range(0, len(asked), MAX_QUERIES):
        for place, at, value in _read_part(
            aws, asked[first : first + MAX_QUERIES], (since, until), period_s
        ):
            found[first + place][at] = value
    return [*found]


def _read_part(
    aws: Aws, asked: Sequence[Asked], between: tuple[float, float], period_s: float
) -> Iterator[tuple[int, float, float]]:
    since, until = (datetime.fromtimestamp(it, UTC) for it in between)
    params: dict[str, Any] = {
        "MetricDataQueries": [_query(place, it, period_s) for place, it in enumerate(asked)],
        "StartTime": since,
        "EndTime": until,
    }
    while True:
        page = aws.call(CLOUDWATCH, "GetMetricData", params)
        for result in page["MetricDataResults"]:
            place = int(result["Id"][1:])
            for at, value in zip(result["Timestamps"], result["Values"], strict=True):
                if between[0] <= at.timestamp() < between[1]:
                    yield place, at.timestamp(), value
        if not page.get("NextToken"):
            return
        params["NextToken"] = page["NextToken"]


def _query(place: int, asked: Asked, period_s: float) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": it} for name, it in asked.dimensions.items()]
    metric = {"Namespace": asked.namespace, "MetricName": asked.name, "Dimensions": dimensions}
    stat = {"Metric": metric, "Period": round(period_s), "Stat": asked.statistic}
    return {"Id": f"q{place}", "MetricStat": stat}


def read_times(
    aws: Aws, names: Sequence[tuple[str, Dimensions]], between: tuple[float, float], period_s: float
) -> list[Mapping[float, PeriodTimes]]:
    """The distribution of each latency in each period with samples. Values are microseconds."""
    statistics = ["SampleCount", *(f"p{share * 100:g}" for share in SHARES)]
    asked = [Asked(MODELS, name, one, it) for name, one in names for it in statistics]
    series = read_series(aws, asked, *between, period_s)
    width = len(statistics)
    return [_build_times(series[first : first + width]) for first in range(0, len(series), width)]


def _build_times(series: Sequence[Series]) -> Mapping[float, PeriodTimes]:
    counts, *values = series
    return {
        at: PeriodTimes(num, tuple(it[at] / MICROSECONDS for it in values))
        for at, num in counts.items()
        if num and all(at in it for it in values)
    }
