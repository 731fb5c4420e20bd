"""Metrics of requests that asynchronous endpoints publish: errors by status, and ModelLatency.

Those of their queues come from the jobs process. Source: SageMaker developer guide, "Monitoring
asynchronous inference endpoints".
"""

from collections.abc import Iterable, Iterator

from hostelry.domain.metric import MODEL_NAMESPACE
from hostelry.metrics.sagemaker.census import Census
from hostelry.metrics.sagemaker.high_resolution import ScopedSample

OF_REQUESTS = frozenset({"Invocation4XXErrors", "Invocation5XXErrors", "ModelLatency"})


def published(samples: Iterable[ScopedSample], census: Census) -> Iterator[ScopedSample]:
    """The samples without what asynchronous endpoints do not publish."""
    queued = {
        (key.scope, ("EndpointName", key.endpoint_name))
        for key, variant in census.variants.items()
        if variant.is_async
    }
    if not queued:
        yield from samples
        return
    for scope, sample in samples:
        metric = sample.metric
        is_kept = metric.namespace != MODEL_NAMESPACE or metric.name in OF_REQUESTS
        if is_kept or not any((scope, it) in queued for it in metric.dimensions):
            yield scope, sample
