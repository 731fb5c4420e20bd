"""An object's event as S3 sends it to topics and queues, and as EventBridge has it. PURE.

Source: "Event message structure" and "EventBridge event message structure" in the S3 user guide.
"""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

from hostelry.domain.object_event import ObjectEvent
from hostelry.domain.scope import Scope

SOURCE = "aws.s3"
REASONS = {
    "Put": "PutObject",
    "Copy": "CopyObject",
    "CompleteMultipartUpload": "CompleteMultipartUpload",
}


def bus_event(event: ObjectEvent) -> dict[str, Any]:
    """The event as rules see it."""
    shown: dict[str, Any] = {
        "key": event.key,
        "size": event.size_bytes,
        "etag": event.etag,
        "version-id": event.version_id,
        "sequencer": event.sequencer,
    }
    return {
        "version": "0",
        "id": event.id,
        "detail-type": "Object Created",
        "source": SOURCE,
        "account": event.scope.account,
        "time": _time(event.at, "seconds"),
        "region": event.scope.region,
        "resources": [bucket_arn(event.bucket)],
        "detail": {
            "version": "0",
            "bucket": {"name": event.bucket},
            "object": {name: it for name, it in shown.items() if it not in (None, "")},
            "request-id": event.request_id,
            "requester": event.scope.account,
            "source-ip-address": event.source_address,
            "reason": REASONS[event.kind],
        },
    }


def records_text(event: ObjectEvent, configuration_id: str) -> str:
    """The message to a topic or queue: one record."""
    shown: dict[str, Any] = {
        "key": quote_plus(event.key, safe="/"),
        "size": event.size_bytes,
        "eTag": event.etag,
        "versionId": event.version_id,
        "sequencer": event.sequencer,
    }
    owner = {"principalId": event.scope.account}
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": event.scope.region,
        "eventTime": _time(event.at, "milliseconds"),
        "eventName": f"ObjectCreated:{event.kind}",
        "userIdentity": owner,
        "requestParameters": {"sourceIPAddress": event.source_address},
        "responseElements": {"x-amz-request-id": event.request_id},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": configuration_id,
            "bucket": {
                "name": event.bucket,
                "ownerIdentity": owner,
                "arn": bucket_arn(event.bucket),
            },
            "object": {name: it for name, it in shown.items() if it not in (None, "")},
        },
    }
    return json.dumps({"Records": [record]})


def trial_text(bucket: str, request_id: str, at: float) -> str:
    """The message that S3 sends once to the targets of a new configuration."""
    return json.dumps(
        {
            "Service": "Amazon S3",
            "Event": "s3:TestEvent",
            "Time": _time(at, "milliseconds"),
            "Bucket": bucket,
            "RequestId": request_id,
        }
    )


def bucket_arn(bucket: str) -> str:
    """The ARN of a bucket."""
    return f"arn:aws:s3:::{bucket}"


def has_scope(arn: str, scope: Scope) -> bool:
    """Whether a topic's or queue's ARN is of this account and region."""
    parts = arn.split(":")
    return len(parts) == 6 and parts[3:5] == [scope.region, scope.account]


def _time(at: float, precision: str) -> str:
    shown = datetime.fromtimestamp(at, UTC).isoformat(timespec=precision)
    return shown.replace("+00:00", "Z")
