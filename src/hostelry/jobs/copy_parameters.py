"""Settings of payloads: the job's values, else the container's, else defaults.

setting                   the container's field       default
-----------------------   -------------------------   -----------
MaxConcurrentTransforms   MaxConcurrentTransforms     1
BatchStrategy             BatchStrategy               MultiRecord
MaxPayloadInMB            MaxPayloadInMB              6

The container's fields are in its answer to GET /execution-parameters. A value of another type, or
outside the limits, is ignored.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.base.http import HttpRequest
from hostelry.dataplane.balancing.load_balancer import build_key_header
from hostelry.domain.routes import CopyRoute
from hostelry.domain.transform_job import BatchStrategy, TransformJob
from hostelry.domain.transform_rules import MAX_MB_IN_FLIGHT, MAX_PAYLOAD_MB
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, UpstreamPool

MB = 1024 * 1024
MAX_CONCURRENT = 1000
STRATEGIES = {
    "MultiRecord": BatchStrategy.MULTI_RECORD,
    "MULTI_RECORD": BatchStrategy.MULTI_RECORD,
    "SingleRecord": BatchStrategy.SINGLE_RECORD,
    "SINGLE_RECORD": BatchStrategy.SINGLE_RECORD,
}
TIMEOUTS = Timeouts(total_s=4.0, connect_s=1.0)
MAX_BYTES = 16 * 1024


async def get_execution_parameters(pool: UpstreamPool, copy: CopyRoute) -> bytes | None:
    """Read a copy's answer to GET /execution-parameters. None without an answer of 200."""
    request = HttpRequest("GET", "/execution-parameters", "", build_key_header(copy.key))
    try:
        answer = await call(pool, copy.address, request, TIMEOUTS, MAX_BYTES)
    except UpstreamError:
        return None
    return answer.body if answer.status == 200 else None


class PayloadSettings(msgspec.Struct, frozen=True):
    """How payloads are built, and how many payloads a copy gets at once."""

    max_concurrent: int
    strategy: BatchStrategy
    max_payload_bytes: int

    @property
    def text(self) -> str:
        """The settings by their API names."""
        return (
            f"MaxConcurrentTransforms={self.max_concurrent},"
            f" MaxPayloadInMB={self.max_payload_bytes // MB}, BatchStrategy={self.strategy.value}"
        )


def choose_payload_settings(job: TransformJob, answer: bytes | None) -> PayloadSettings:
    """Choose the settings. `answer` is the container's execution parameters, if any.

    With MaxPayloadInMB 0 a payload has at most 100 MB, because payloads are held in memory.
    """
    reported = _parse_fields(answer)
    payload_mb = job.max_payload_mb
    if payload_mb is None:
        payload_mb = _get_number(reported, "MaxPayloadInMB", MAX_PAYLOAD_MB)
    payload_mb = 6 if payload_mb is None else payload_mb or MAX_PAYLOAD_MB
    concurrent = (
        job.max_concurrent or _get_number(reported, "MaxConcurrentTransforms", MAX_CONCURRENT) or 1
    )
    return PayloadSettings(
        max_concurrent=max(1, min(concurrent, MAX_MB_IN_FLIGHT // payload_mb)),
        strategy=job.strategy
        or STRATEGIES.get(str(reported.get("BatchStrategy")), BatchStrategy.MULTI_RECORD),
        max_payload_bytes=payload_mb * MB,
    )


def get_reported_concurrency(answer: bytes | None) -> int | None:
    """MaxConcurrentTransforms in a container's execution parameters. None if it is missing."""
    return _get_number(_parse_fields(answer), "MaxConcurrentTransforms", MAX_CONCURRENT) or None


def _parse_fields(answer: bytes | None) -> Mapping[str, Any]:
    try:
        found = json.loads(answer or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _get_number(reported: Mapping[str, Any], name: str, most: int) -> int | None:
    value = reported.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= most else None
