"""Metrics of data capture, in the platform's own namespace."""

from collections.abc import Iterator

from hostelry.domain.data_capture import CaptureCounts
from hostelry.domain.load import LoadKey
from hostelry.domain.metric import OWN_NAMESPACE, Metric, Sample


def capture_samples(key: LoadKey, counts: CaptureCounts, at: float) -> Iterator[Sample]:
    """The samples of one report on a variant; each with its zeros, so that alarms have data."""
    dimensions = {"EndpointName": key.endpoint_name, "VariantName": key.variant_name}
    found: list[tuple[str, float, str]] = []
    if counts.captured or counts.dropped:
        found += [
            ("CapturedRequests", counts.captured, "Count"),
            ("CapturedBytes", counts.captured_bytes, "Bytes"),
            ("CaptureDroppedRequests", counts.dropped, "Count"),
        ]
    if counts.objects or counts.upload_failures:
        found += [
            ("CaptureObjects", counts.objects, "Count"),
            ("CaptureUploadFailures", counts.upload_failures, "Count"),
        ]
    for name, value, unit in found:
        metric = Metric.of(OWN_NAMESPACE, name, dimensions)
        yield Sample(metric=metric, at=at, values=(float(value),), counts=(1.0,), unit=unit)
