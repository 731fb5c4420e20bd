"""Settings of a job's payloads: as asked for, else as the container says, else by default.

setting                   the container's field       default
-----------------------   -------------------------   -----------
MaxConcurrentTransforms   MaxConcurrentTransforms     1
BatchStrategy             BatchStrategy               MultiRecord
MaxPayloadInMB            MaxPayloadInMB              6

A container's value that is not of its field's kind, or outside its limits, counts as none.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hostelry.domain.transform_job import BatchStrategy, TransformJob
from hostelry.domain.transform_rules import MAX_MB_IN_FLIGHT, MAX_PAYLOAD_MB

MB = 1024 * 1024
MAX_CONCURRENT = 1000
STRATEGIES = {
    "MultiRecord": BatchStrategy.MULTI_RECORD,
    "MULTI_RECORD": BatchStrategy.MULTI_RECORD,
    "SingleRecord": BatchStrategy.SINGLE_RECORD,
    "SINGLE_RECORD": BatchStrategy.SINGLE_RECORD,
}


@dataclass(frozen=True, slots=True)
class PayloadSettings:
    """How payloads are made, and how many of them a copy gets at once."""

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


def payload_settings(job: TransformJob, answer: bytes | None) -> PayloadSettings:
    """The settings; `answer` is the container's to GET /execution-parameters, None for none.

    MaxPayloadInMB 0 is a payload of at most 100 MB, as payloads are held in memory.
    """
    reported = _fields(answer)
    payload_mb = job.max_payload_mb
    if payload_mb is None:
        payload_mb = _number(reported, "MaxPayloadInMB", MAX_PAYLOAD_MB)
    payload_mb = 6 if payload_mb is None else payload_mb or MAX_PAYLOAD_MB
    concurrent = (
        job.max_concurrent or _number(reported, "MaxConcurrentTransforms", MAX_CONCURRENT) or 1
    )
    return PayloadSettings(
        max_concurrent=max(1, min(concurrent, MAX_MB_IN_FLIGHT // payload_mb)),
        strategy=job.strategy
        or STRATEGIES.get(str(reported.get("BatchStrategy")), BatchStrategy.MULTI_RECORD),
        max_payload_bytes=payload_mb * MB,
    )


def reported_concurrency(answer: bytes | None) -> int | None:
    """The MaxConcurrentTransforms that a container's answer has; None for none."""
    return _number(_fields(answer), "MaxConcurrentTransforms", MAX_CONCURRENT) or None


def _fields(answer: bytes | None) -> Mapping[str, Any]:
    try:
        found = json.loads(answer or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(reported: Mapping[str, Any], name: str, most: int) -> int | None:
    value = reported.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= most else None
