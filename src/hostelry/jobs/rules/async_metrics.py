"""CloudWatch's metrics of an asynchronous endpoint's queue, as samples. PURE.

metric                              value
---------------------------------   ---------------------------------------------------------------
ApproximateBacklogSize              requests that wait or run
ApproximateBacklogSizePerInstance   the same, divided by the serving instances. By 1 if there are
                                    no instances, so that a policy on it scales from zero, too
HasBacklogWithoutCapacity           1 while a request waits and no instance serves, else 0
ApproximateAgeOfOldestRequest       age in seconds of the oldest waiting request, else 0

Source: SageMaker developer guide, "Monitoring asynchronous inference endpoints".
"""

from collections.abc import Iterator, Mapping

from hostelry.domain.metric import MODEL_NAMESPACE, Metric, Sample

COUNT, SECONDS = "Count", "Seconds"


def build_backlog_samples(
    endpoint_name: str,
    waiting: int,
    running: int,
    oldest_at: float | None,
    instances: int,
    now: float,
) -> Iterator[Sample]:
    """Build the metrics of a queue at `now`. The oldest waiting request came at `oldest_at`."""
    size = waiting + running
    without_capacity = waiting > 0 and instances == 0
    age_s = 0.0 if oldest_at is None else max(0.0, now - oldest_at)
    for name, value, unit in (
        ("ApproximateBacklogSize", float(size), COUNT),
        ("ApproximateBacklogSizePerInstance", size / max(1, instances), COUNT),
        ("HasBacklogWithoutCapacity", float(without_capacity), COUNT),
        ("ApproximateAgeOfOldestRequest", age_s, SECONDS),
    ):
        yield _sample(name, (("EndpointName", endpoint_name),), {value: 1}, unit, now)


def build_variant_sample(
    name: str, place: tuple[str, str], values: Mapping[float, int], unit: str, now: float
) -> Sample:
    """Build a sample of a variant's metric. `place` has the names of endpoint and variant."""
    endpoint_name, variant_name = place
    dimensions = (("EndpointName", endpoint_name), ("VariantName", variant_name))
    return _sample(name, dimensions, values, unit, now)


def round_value(value: float) -> float:
    """Round to three significant digits, so that times have few distinct values."""
    return float(f"{max(0.0, value):.3g}")


def _sample(
    name: str,
    dimensions: tuple[tuple[str, str], ...],
    values: Mapping[float, int],
    unit: str,
    now: float,
) -> Sample:
    metric = Metric(namespace=MODEL_NAMESPACE, name=name, dimensions=dimensions)
    return Sample(
        metric=metric,
        at=now,
        values=tuple(values),
        counts=tuple(float(it) for it in values.values()),
        unit=unit,
    )
