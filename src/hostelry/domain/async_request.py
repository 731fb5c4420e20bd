"""Asynchronous inference: its configuration, a request, and the samples that jobs report."""

import re
from urllib.parse import unquote

import msgspec

from hostelry.domain.metric import Sample
from hostelry.domain.scope import Scope

DEFAULT_CONCURRENT = 4


class AsyncInference(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an endpoint whose requests are queued.

    URIs have no trailing slash. A copy runs at most `max_concurrent_per_instance` requests.
    """

    output_uri: str
    failure_uri: str | None = None
    max_concurrent_per_instance: int = DEFAULT_CONCURRENT
    success_topic_arn: str | None = None
    error_topic_arn: str | None = None
    include_response_in: tuple[str, ...] = ()
    kms_key_id: str | None = None


class ScopedMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A sample, and the scope that it is published in."""

    scope: Scope
    sample: Sample


class AsyncMetricsReport(msgspec.Struct, frozen=True, kw_only=True):
    """Samples, which may be reported repeatedly. Process start and report number identify a report.

    `host` is the host of the process, if there are several hosts.
    """

    started_at: float
    sequence: int
    samples: tuple[ScopedMetric, ...]
    host: str = ""


class AsyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted request. Exactly one of `input_uri` and `body` is set.

    `inference_id` is the client's, or a new id. The request's end writes the object `output_uri` or
    `failure_uri`. Times are seconds since the epoch. After `expires_at` the request does not begin.
    `timeout_s` limits one attempt. `principal` is the caller, "" for the account itself.
    `endpoint_created_at` distinguishes the endpoint from later endpoints with its name. 0.0 matches
    any of them.
    """

    id: str
    inference_id: str
    scope: Scope
    endpoint_name: str
    input_uri: str | None = None
    body: bytes | None = None
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None
    output_uri: str
    failure_uri: str
    success_topic_arn: str | None = None
    error_topic_arn: str | None = None
    include_response_in: tuple[str, ...] = ()
    kms_key_id: str | None = None
    accepted_at: float
    expires_at: float
    timeout_s: float
    principal: str = ""
    endpoint_created_at: float = 0.0


# Source: S3's user guide, "Virtual hosting of buckets", "Dual-stack endpoints", "Legacy endpoints".
S3_HOST = re.compile(
    r"((?P<bucket>[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9])\.)?"
    r"s3(\.dualstack)?([.\-][a-z]{2}(-[a-z]{1,16}){1,3}-[0-9]{1,2})?\.amazonaws\.com(\.cn)?"
)


def from_web_address(uri: str) -> str | None:
    """Convert an https address of S3 (path-style, or bucket as host) to ``s3://bucket/key``.

    None for another address. Nothing is fetched.
    """
    host, _, rest = uri.removeprefix("https://").partition("/")
    found, key = S3_HOST.fullmatch(host), unquote(rest)
    if found is None or not key.isprintable() or set(rest) & set("?#"):
        return None
    return f"s3://{found['bucket']}/{key}" if found["bucket"] else f"s3://{key}"


def object_uri(uri: str) -> str | None:
    """Return `uri` as ``s3://bucket/key``, or None if it does not name an object."""
    found = from_web_address(uri) if uri.startswith("https://") else uri
    if found is None or not found.startswith("s3://"):
        return None
    bucket, _, key = found.removeprefix("s3://").partition("/")
    return found if bucket and key else None
