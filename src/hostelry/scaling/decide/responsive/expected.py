"""The concurrency to be expected, as a metric that ordinary alarms and policies may watch."""

from hostelry.domain.load import LoadKey
from hostelry.domain.metric import OWN_NAMESPACE, Metric, Sample
from hostelry.scaling.decide.responsive.rates import Rates

PER_COPY = "ExpectedConcurrencyPerCopy"
PER_MODEL = "ExpectedConcurrencyPerModel"


def expected_concurrency(rates: Rates, per_s: float | None = None) -> float:
    """Calls under way once the present arrivals (or `per_s`) have lasted; never less than now's.

    By Little's law; zero while nothing is known of what a call takes.
    """
    arriving = rates.per_s if per_s is None else per_s
    return max(arriving * rates.mean_service_s, rates.in_flight)


def expected_metric(key: LoadKey) -> Metric:
    """What the expected concurrency of a component, or of a variant of models, is published as."""
    if key.component_name is not None:
        dimensions = {"InferenceComponentName": key.component_name}
        return Metric.of(OWN_NAMESPACE, PER_COPY, dimensions)
    dimensions = {"EndpointName": key.endpoint_name, "VariantName": key.variant_name}
    return Metric.of(OWN_NAMESPACE, PER_MODEL, dimensions)


def expected_sample(key: LoadKey, expected: float, num_copies: int, second: int) -> Sample | None:
    """One second's sample, of high resolution; None where there is no copy to divide by."""
    if num_copies <= 0:
        return None
    return Sample(
        metric=expected_metric(key),
        at=float(second),
        values=(expected / num_copies,),
        counts=(1.0,),
        resolution_s=1,
    )
