"""The line of an object of data capture, from a record as the gateway kept it.

Source: "Capture data from real-time endpoint" in the SageMaker developer guide.
"""

import base64
import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec

from hostelry.dataplane.capture.spool_file import CapturedRecord, RecordHead
from hostelry.domain.data_capture import CaptureEncoding, DataCapture

EVENT_VERSION = "0"
_encode = msgspec.json.Encoder().encode


def captured_line(record: CapturedRecord, capture: DataCapture, name: str) -> bytes:
    """One line of JSON, with its line break; it has the sides that are captured.

    `name` is the record's own: an event id follows from it where the record has none.
    """
    head = record.head
    data: dict[str, Any] = {}
    if capture.takes_input:
        data["endpointInput"] = _side("INPUT", record.input, head.input_type, capture)
    if capture.takes_output:
        data["endpointOutput"] = _side("OUTPUT", record.output, head.output_type, capture)
    line = {"captureData": data, "eventMetadata": _event(head, name), "eventVersion": EVENT_VERSION}
    return _encode(line) + b"\n"


def _side(mode: str, body: bytes, content_type: str | None, capture: DataCapture) -> dict[str, str]:
    """One body; text that is no UTF-8 is stored in base64 whatever its type."""
    encoding, data = capture.get_encoding(content_type), ""
    if encoding is not CaptureEncoding.BASE64:
        try:
            data = body.decode()
        except UnicodeDecodeError:
            encoding = CaptureEncoding.BASE64
    if encoding is CaptureEncoding.BASE64:
        data = base64.b64encode(body).decode()
    observed = {} if content_type is None else {"observedContentType": content_type}
    return {**observed, "mode": mode, "data": data, "encoding": encoding.value}


def _event(head: RecordHead, name: str) -> dict[str, Any]:
    event_id = head.event_id or str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    found: dict[str, Any] = {"eventId": event_id}
    if head.custom_attributes is not None:
        found["customAttributes"] = [head.custom_attributes]
    if head.inference_id is not None:
        found["inferenceId"] = head.inference_id
    found["inferenceTime"] = f"{datetime.fromtimestamp(head.at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return found
