"""Files and batches in requests and answers of OpenAI's API. PURE.

Source: OpenAI API reference, Files and Batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.json import decode
from hostelry.domain.llm_batch import BatchStatus, LlmBatch, StoredFile
from hostelry.jobs.records.batch_lines import ENDPOINTS

WINDOW = "24h"
WINDOW_S = 24 * 3600.0
UPLOAD_PURPOSE = "batch"
LEAST_KEPT_S, MOST_KEPT_S = 3600, 30 * 24 * 3600
MAX_METADATA, MAX_KEY_CHARS, MAX_VALUE_CHARS = 16, 64, 512
UPLOADED, PROCESSED = "uploaded", "processed"


class ExpiresAfter(msgspec.Struct):
    """The lifetime of a file, which begins at its creation."""

    anchor: str
    seconds: int


class BatchAsked(msgspec.Struct):
    """The body of POST /v1/batches. Other members have no effect."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None


def build_refusal(
    message: str, param: str | None = None, code: str = "", status: int = 400
) -> ServiceError:
    """Build the error of a request that is refused."""
    return ServiceError(code, message, status, {} if param is None else {"param": param})


def build_no_file_error(id: str) -> ServiceError:
    """Build the error for an id without a file in the caller's account."""
    return build_refusal(f"No such File object: {id:.100}", "id", status=404)


def build_no_batch_error(id: str) -> ServiceError:
    """Build the error for an id without a batch in the caller's account."""
    return build_refusal(f"No batch found with id '{id:.100}'.", "id", status=404)


def parse_batch_request(body: bytes) -> BatchAsked:
    """Parse and check the body of a request for a batch. Raises ServiceError 400."""
    try:
        asked = decode(body, BatchAsked)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise build_refusal(f"The body is no request for a batch: {error}.") from None
    if asked.endpoint not in ENDPOINTS:
        known = ", ".join(ENDPOINTS)
        message = f"Invalid value: '{asked.endpoint:.100}'. Supported values are: {known}."
        raise build_refusal(message, "endpoint", "invalid_value")
    if asked.completion_window != WINDOW:
        raise build_refusal(
            f"Invalid value: '{asked.completion_window:.100}'. Supported values are: '{WINDOW}'.",
            "completion_window",
            "invalid_value",
        )
    _check_metadata(asked.metadata or {})
    if asked.output_expires_after is not None:
        check_kept(asked.output_expires_after, "output_expires_after")
    return asked


def check_kept(asked: ExpiresAfter, param: str) -> int:
    """Return the seconds that a file is kept. Raises ServiceError 400."""
    if asked.anchor != "created_at":
        raise build_refusal(f"The anchor must be 'created_at', not '{asked.anchor:.50}'.", param)
    if not LEAST_KEPT_S <= asked.seconds <= MOST_KEPT_S:
        raise build_refusal(
            f"seconds must be from {LEAST_KEPT_S} to {MOST_KEPT_S}, not {asked.seconds}.", param
        )
    return asked.seconds


def get_upload_kept_s(fields: Mapping[str, str]) -> int:
    """Return the seconds that an uploaded file is kept: 30 days by default."""
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return MOST_KEPT_S
    try:
        asked = ExpiresAfter(anchor or "", int(seconds or ""))
    except ValueError:
        raise build_refusal("expires_after needs whole seconds.", "expires_after") from None
    return check_kept(asked, "expires_after")


def check_purpose(fields: Mapping[str, str]) -> None:
    """Raise ServiceError 400 if the purpose is not batches."""
    purpose = fields.get("purpose")
    if purpose is None:
        raise build_refusal("Missing required parameter: 'purpose'.", "purpose")
    if purpose != UPLOAD_PURPOSE:
        raise build_refusal(
            f"'{purpose:.50}' is not one of ['{UPLOAD_PURPOSE}'] - 'purpose': files are for batches"
            " here.",
            "purpose",
        )


def build_file_answer(stored: StoredFile) -> dict[str, Any]:
    """Build the answer about a file."""
    return {
        "id": stored.id,
        "object": "file",
        "bytes": stored.num_bytes,
        "created_at": int(stored.created_at),
        "filename": stored.filename,
        "purpose": stored.purpose,
        "status": PROCESSED,
        "expires_at": None if stored.expires_at is None else int(stored.expires_at),
    }


def build_batch_answer(batch: LlmBatch) -> dict[str, Any]:
    """Build the answer about a batch."""
    since = {name: int(at) for name, at in batch.since.items()}
    faults = [
        {"code": fault.code, "message": fault.message, "param": fault.param, "line": fault.line}
        for fault in batch.faults
    ]
    counts, usage = batch.counts, batch.usage
    times = {f"{status.value}_at": since.get(status.value) for status in TIMED}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": {"object": "list", "data": faults} if faults else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status.value,
        "output_file_id": batch.output_file_id if batch.has_output else None,
        "error_file_id": batch.error_file_id if batch.has_errors else None,
        "created_at": int(batch.created_at),
        "expires_at": int(batch.expires_at),
        **times,
        "request_counts": {
            "total": counts.total,
            "completed": counts.completed,
            "failed": counts.failed,
        },
        "usage": {
            "input_tokens": usage.input,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input + usage.output,
        },
        "metadata": batch.metadata,
    }


TIMED = tuple(it for it in BatchStatus if it is not BatchStatus.VALIDATING)


def build_page(data: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    """Build a page. `data` has an entry more than `limit` if there are more pages."""
    shown = list(data[:limit])
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(data) > limit,
    }


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > MAX_METADATA:
        raise build_refusal(
            f"metadata may have {MAX_METADATA} keys, not {len(metadata)}.", "metadata"
        )
    for key, value in metadata.items():
        if len(key) > MAX_KEY_CHARS or len(value) > MAX_VALUE_CHARS:
            raise build_refusal(
                f"A key of metadata may have {MAX_KEY_CHARS} characters and its value"
                f" {MAX_VALUE_CHARS}: '{key:.70}'.",
                "metadata",
            )
