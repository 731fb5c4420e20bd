"""AsyncInferenceConfig of an endpoint configuration."""

from dataclasses import dataclass

DEFAULT_CONCURRENT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncInference:
    """Settings of an endpoint whose requests are queued.

    URIs have no trailing slash. `max_concurrent_per_instance` requests are on one copy at most.
    """

    output_uri: str
    failure_uri: str | None = None
    max_concurrent_per_instance: int = DEFAULT_CONCURRENT
    success_topic_arn: str | None = None
    error_topic_arn: str | None = None
    include_response_in: tuple[str, ...] = ()
    kms_key_id: str | None = None
