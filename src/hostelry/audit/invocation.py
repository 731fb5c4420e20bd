"""Invocations as gateways report them, and their records. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.audit.record import (
    API_CALL,
    DATA,
    MAX_TEXT,
    VERSION,
    AuditedCaller,
    TrailEvent,
    build_identity,
    build_service_event,
    format_time,
    get_source,
)
from hostelry.audit.resources import build_resources

OPENAI_SOURCE = "openai.hostelry.internal"
MAX_NOTES = 1000  # of a report
LOST = "InvocationRecordsLost"


class InvocationNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One invocation that is over. `operation` is an AWS name, or a path of the OpenAI routes.

    `account` and `region` are those it was signed for. `decision` describes the decision about the
    caller's permissions.
    """

    at: float
    request_id: str
    event_id: str
    caller: AuditedCaller
    account: str
    region: str
    operation: str
    status: int
    endpoint: str = ""
    component: str = ""
    variant: str = ""
    target_model: str = ""
    tenant: str = ""
    address: str = ""
    user_agent: str = ""
    error_code: str = ""
    error_message: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    took_ms: float = 0.0
    decision: Mapping[str, Any] = msgspec.field(default_factory=dict)


class InvocationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report of one gateway worker. `num_lost` counts invocations that no report has.

    A report that is sent again has the same `sequence`.
    """

    worker: str
    started_at: float
    sequence: int
    notes: tuple[InvocationNote, ...]
    num_lost: int = 0


def build_invocation_event(note: InvocationNote) -> TrailEvent:
    """The record of an invocation."""
    is_openai = note.operation.startswith("/")
    named = {
        "endpointName": note.endpoint,
        "inferenceComponentName": note.component,
        "targetVariant": note.variant,
        "targetModel": note.target_model,
        "tenant": note.tenant,
    }
    measured = {
        "status": note.status,
        "bytesIn": note.bytes_in,
        "bytesOut": note.bytes_out,
        "tookMs": round(note.took_ms, 3),
    }
    arns = []
    if note.endpoint:
        place = f"arn:aws:sagemaker:{note.region}:{note.account}"
        arns.append(f"{place}:endpoint/{note.endpoint}")
        if note.component:
            arns.append(f"{place}:inference-component/{note.component}")
    return TrailEvent(
        event_version=VERSION,
        user_identity=build_identity(note.caller),
        event_time=format_time(int(note.at)),
        event_source=OPENAI_SOURCE if is_openai else get_source("sagemaker"),
        event_name=note.operation,
        aws_region=note.region,
        source_ip_address=note.address,
        user_agent=note.user_agent[:MAX_TEXT],
        error_code=note.error_code,
        error_message=note.error_message[:MAX_TEXT],
        request_parameters={name: it for name, it in named.items() if it} or None,
        response_elements=None,
        additional_event_data={**measured, **note.decision},
        request_id=note.request_id,
        event_id=note.event_id,
        read_only=False,
        resources=build_resources(arns, note.account),
        event_type=API_CALL,
        management_event=False,
        recipient_account_id=note.account,
        event_category=DATA,
    )


def build_lost_event(
    report: InvocationReport, owner: tuple[str, str], at: float, event_id: str
) -> TrailEvent:
    """The record of invocations that a gateway worker could not report."""
    account, region = owner
    details = {"count": report.num_lost, "worker": report.worker}
    return build_service_event(LOST, at, account, region, event_id, details)
