"""Records of the audit trail, in the form of CloudTrail's records. Pure.

Source: AWS CloudTrail user guide, "CloudTrail record contents" and "userIdentity element".
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

VERSION = "1.11"
MANAGEMENT, DATA = "Management", "Data"
API_CALL, SERVICE_EVENT, ACT = "AwsApiCall", "AwsServiceEvent", "AwsConsoleAction"
ROOT, IAM_USER, ASSUMED_ROLE, SERVICE = "Root", "IAMUser", "AssumedRole", "AWSService"
UNKNOWN, WEB_IDENTITY = "Unknown", "WebIdentityUser"
OWN_SOURCE = "hostelry.internal"  # of acts and of events of the platform itself
MAX_TEXT = 1024  # characters of an error, a user agent
SOURCES = {"cloudwatch": "monitoring", "application-autoscaling": "autoscaling"}
NAMES = {
    "aws_region": "awsRegion",
    "source_ip_address": "sourceIPAddress",
    "request_id": "requestID",
    "event_id": "eventID",
}
READS = (
    "Describe", "List", "Get", "Filter", "Simulate", "Test", "BatchGet", "Lookup", "AssumeRole",
)  # fmt: skip
# As AWS has them: they change nothing, whatever their names say.
FURTHER_READS = frozenset({"Encrypt", "Decrypt", "ReEncrypt", "GenerateRandom"})
# Calls about content, which AWS records as data events.
DATA_CALLS: Mapping[str, tuple[str, ...]] = {
    "sqs": ("SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"),
    "sns": ("Publish",),
    "events": ("PutEvents",),
    "logs": ("PutLogEvents", "GetLogEvents", "FilterLogEvents"),
    "cloudwatch": ("PutMetricData", "GetMetricData", "GetMetricStatistics"),
}


def _rename(name: str) -> str:
    first, *others = name.split("_")
    return NAMES.get(name, first + "".join(map(str.capitalize, others)))


class SessionIssuer(msgspec.Struct, frozen=True, kw_only=True, rename=_rename):
    """The role or user whose temporary keys a session has."""

    type: str
    principal_id: str
    arn: str
    account_id: str
    user_name: str


class SessionContext(msgspec.Struct, frozen=True, kw_only=True, rename=_rename, omit_defaults=True):
    """The session of temporary keys."""

    attributes: Mapping[str, str]
    session_issuer: SessionIssuer | None = None
    source_identity: str = ""


class UserIdentity(msgspec.Struct, frozen=True, kw_only=True, rename=_rename, omit_defaults=True):
    """The caller: the element userIdentity."""

    type: str
    principal_id: str = ""
    arn: str = ""
    account_id: str = ""
    access_key_id: str = ""
    user_name: str = ""
    session_context: SessionContext | None = None
    invoked_by: str = ""


class EventResource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that a call is about."""

    ARN: str
    accountId: str
    type: str


class TrailEvent(msgspec.Struct, frozen=True, kw_only=True, rename=_rename, omit_defaults=True):
    """A record. Members without a default are always present, as null if they have no value."""

    event_version: str
    user_identity: UserIdentity
    event_time: str
    event_source: str
    event_name: str
    aws_region: str
    source_ip_address: str
    user_agent: str
    request_parameters: Mapping[str, Any] | None
    response_elements: Mapping[str, Any] | None
    request_id: str
    event_id: str
    read_only: bool
    event_type: str
    management_event: bool
    recipient_account_id: str
    event_category: str
    error_code: str = ""
    error_message: str = ""
    additional_event_data: Mapping[str, Any] | None = None
    resources: Sequence[EventResource] = ()
    service_event_details: Mapping[str, Any] | None = None


class AuditedCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Who called. `kind` is one of ROOT, IAM_USER, ASSUMED_ROLE, SERVICE, UNKNOWN, WEB_IDENTITY.

    `issuer_arn`, `issuer_id` and `issuer_name` are of the role whose session this is. `issued_at`
    is set for temporary keys. `invoked_by` is the service that called in the caller's name.
    """

    kind: str
    account: str
    arn: str
    principal_id: str
    access_key_id: str = ""
    user_name: str = ""
    issuer_arn: str = ""
    issuer_id: str = ""
    issuer_name: str = ""
    issued_at: float | None = None
    source_identity: str = ""
    invoked_by: str = ""


class AuditedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is over. `params` and `result` have no secrets any more (`redaction`).

    `account` and `region` own the resources. `decision` describes the decision about the caller's
    permissions.
    """

    at: float
    caller: AuditedCaller
    account: str
    region: str
    service: str
    operation: str
    request_id: str
    event_id: str
    address: str = ""
    user_agent: str = ""
    params: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    error_code: str = ""
    error_message: str = ""
    resources: Sequence[EventResource] = ()
    decision: Mapping[str, Any] = msgspec.field(default_factory=dict)


def build_call_event(call: AuditedCall) -> TrailEvent:
    """The record of a call of a client or a service."""
    reads = is_read(call.service, call.operation)
    category = get_category(call.service, call.operation)
    return TrailEvent(
        event_version=VERSION,
        user_identity=build_identity(call.caller),
        event_time=format_time(int(call.at)),
        event_source=get_source(call.service),
        event_name=call.operation,
        aws_region=call.region,
        source_ip_address=call.address or call.caller.invoked_by or OWN_SOURCE,
        user_agent=call.user_agent[:MAX_TEXT],
        error_code=call.error_code,
        error_message=call.error_message[:MAX_TEXT],
        request_parameters=call.params,
        response_elements=None if reads or category == DATA else call.result,
        additional_event_data=call.decision or None,
        request_id=call.request_id,
        event_id=call.event_id,
        read_only=reads,
        resources=call.resources,
        event_type=API_CALL,
        management_event=category == MANAGEMENT,
        recipient_account_id=call.account,
        event_category=category,
    )


def build_identity(caller: AuditedCaller) -> UserIdentity:
    """The element userIdentity of a caller."""
    session = None
    if caller.issued_at is not None or caller.issuer_arn:
        attributes = {"mfaAuthenticated": "false"}
        if caller.issued_at is not None:
            attributes["creationDate"] = format_time(int(caller.issued_at))
        issuer = None
        if caller.issuer_arn:
            issuer = SessionIssuer(
                type="Role",
                principal_id=caller.issuer_id,
                arn=caller.issuer_arn,
                account_id=caller.account,
                user_name=caller.issuer_name,
            )
        session = SessionContext(
            attributes=attributes, session_issuer=issuer, source_identity=caller.source_identity
        )
    return UserIdentity(
        type=caller.kind,
        principal_id=caller.principal_id,
        arn=caller.arn,
        account_id=caller.account,
        access_key_id=caller.access_key_id,
        user_name=caller.user_name,
        session_context=session,
        invoked_by=caller.invoked_by,
    )


def build_service_event(
    name: str, at: float, account: str, region: str, event_id: str, details: Mapping[str, Any]
) -> TrailEvent:
    """The record of an event of the platform itself, which no caller requested."""
    return TrailEvent(
        event_version=VERSION,
        user_identity=UserIdentity(type=SERVICE, account_id=account, invoked_by=OWN_SOURCE),
        event_time=format_time(int(at)),
        event_source=OWN_SOURCE,
        event_name=name,
        aws_region=region,
        source_ip_address=OWN_SOURCE,
        user_agent=OWN_SOURCE,
        request_parameters=None,
        response_elements=None,
        request_id=event_id,
        event_id=event_id,
        read_only=False,
        event_type=SERVICE_EVENT,
        management_event=True,
        recipient_account_id=account,
        event_category=MANAGEMENT,
        service_event_details=details,
    )


def is_read(service: str, operation: str) -> bool:
    """Whether an operation changes nothing, as CloudTrail counts it."""
    is_secret_read = service == "kms" and operation.startswith("GenerateDataKey")
    return operation.startswith(READS) or operation in FURTHER_READS or is_secret_read


def get_category(service: str, operation: str) -> str:
    """Whether a call is a management event or a data event."""
    return DATA if operation.startswith(DATA_CALLS.get(service, ())) else MANAGEMENT


def get_source(service: str) -> str:
    """The event source of a service (a boto3 name)."""
    return f"{SOURCES.get(service, service)}.amazonaws.com"


@lru_cache(64)
def format_time(at: int) -> str:
    """Seconds since the epoch as CloudTrail writes times."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
