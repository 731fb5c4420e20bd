"""Metrics of serverless variants, and their usage, as samples.

Source: SageMaker developer guide, "Monitor a serverless endpoint". A request is spillover if, as it
arrives, more requests are in flight on all gateway workers than the provisioned environments take.

Usage is in Hostelry's namespace, a sum for each minute: the store keeps it as any metric, counts a
repeated report once, and bounds it.
"""

from collections.abc import Iterator, Mapping

from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.metric import MODEL_NAMESPACE, OWN_NAMESPACE, Metric, Sample
from hostelry.domain.serverless import ServerlessConfig
from hostelry.metrics.sagemaker.census import Census, ScopedSample
from hostelry.metrics.sagemaker.load_metrics import (
    MICROSECONDS,
    InFlight,
    concurrency_sample,
    list_dimensions,
)

INVOCATIONS = "ServerlessProvisionedConcurrencyInvocations"
SPILLOVER = "ServerlessProvisionedConcurrencySpilloverInvocations"
# The name and unit of usage in answers, by metric.
USAGE: Mapping[str, str] = {
    "ServerlessRequests": "requests",
    "ServerlessThrottles": "throttled",
    "ServerlessBilledTime": "billed_ms",
    "ServerlessMemoryTime": "memory_mb_ms",
    "ServerlessBytesIn": "bytes_in",
    "ServerlessBytesOut": "bytes_out",
    "ServerlessProvisionedTime": "provisioned_mb_s",
}
Setups = Mapping[LoadKey, frozenset[tuple[str, int]]]


def sample_second(load: SecondLoad, census: Census) -> Iterator[ScopedSample]:
    """Counts of one second of a serverless variant: usage, and requests beyond the provisioned."""
    config = find_serverless_config(load.key, census)
    if config is None:
        return
    used = {
        "ServerlessRequests": load.finished,
        "ServerlessThrottles": load.throttled,
        "ServerlessBilledTime": load.billed_ms,
        "ServerlessMemoryTime": load.billed_ms * config.memory_mb,
        "ServerlessBytesIn": load.bytes_in,
        "ServerlessBytesOut": load.bytes_out,
    }
    for name, value in used.items():
        if value:
            yield load.key.scope, usage_sample(name, load.key, load.second, float(value))
    if config.provisioned_concurrency and load.arrivals:
        beyond = min(load.spilled, load.arrivals)
        for dimensions in list_dimensions(load.key, census):
            for name, count in ((INVOCATIONS, load.arrivals - beyond), (SPILLOVER, beyond)):
                yield load.key.scope, _sample(name, dimensions, load.second, float(count))


def sample_period(
    period: int, num_seconds: int, seen: InFlight, key: LoadKey, census: Census
) -> Iterator[ScopedSample]:
    """Concurrency over a period of `num_seconds`, zeros too, and the provisioned memory of it."""
    config = find_serverless_config(key, census)
    if config is None:
        return
    ready = config.provisioned_concurrency
    within = InFlight(
        mean=min(seen.mean, ready), least=min(seen.least, ready), most=min(seen.most, ready)
    )
    gauges = {"ServerlessConcurrentExecutionsUtilization": (seen, config.max_concurrency)}
    if ready:
        gauges["ServerlessProvisionedConcurrencyUtilization"] = (within, ready)
        gauges["ServerlessProvisionedConcurrencyExecutions"] = (within, 1)
        held = float(ready * config.memory_mb * num_seconds)
        yield key.scope, usage_sample("ServerlessProvisionedTime", key, period, held)
    for dimensions in list_dimensions(key, census):
        for name, (gauge, divisor) in gauges.items():
            metric = Metric(namespace=MODEL_NAMESPACE, name=name, dimensions=dimensions)
            yield key.scope, concurrency_sample(metric, period, gauge, divisor)
        if ready and not seen.most:
            for name in (INVOCATIONS, SPILLOVER):
                yield key.scope, _sample(name, dimensions, period, 0.0)


def setups(census: Census) -> Setups:
    """The processes of each serverless variant that have been proven."""
    return {
        key: frozenset((it.copy_id, it.setup[0]) for it in variant.copies if it.setup is not None)
        for key, variant in census.variants.items()
        if variant.serverless is not None
    }


def setup_times(at: int, known: Setups, census: Census) -> Iterator[ScopedSample]:
    """ModelSetupTime of the processes that were not `known`, in microseconds."""
    for key, variant in census.variants.items():
        if variant.serverless is None:
            continue
        before = known.get(key, frozenset())
        for copy in variant.copies:
            if copy.setup is None or (copy.copy_id, copy.setup[0]) in before:
                continue
            for dimensions in list_dimensions(key, census):
                taken_us = copy.setup[1] * 1e6
                yield (
                    key.scope,
                    _sample("ModelSetupTime", dimensions, at, taken_us, MICROSECONDS),
                )


def find_serverless_config(key: LoadKey, census: Census) -> ServerlessConfig | None:
    """The configuration of a serverless variant in service. None for any other name."""
    variant = census.variants.get(key)
    return None if variant is None else variant.serverless


def usage_sample(name: str, key: LoadKey, at: int, value: float) -> Sample:
    """A sample of usage."""
    dimensions = list_dimensions(key, Census())[0]
    return _sample(name, dimensions, at, value, namespace=OWN_NAMESPACE)


def _sample(
    name: str,
    dimensions: tuple[tuple[str, str], ...],
    at: int,
    value: float,
    unit: str = "Count",
    namespace: str = MODEL_NAMESPACE,
) -> Sample:
    metric = Metric(namespace=namespace, name=name, dimensions=dimensions)
    return Sample(metric=metric, at=at, values=(value,), counts=(1.0,), unit=unit)
