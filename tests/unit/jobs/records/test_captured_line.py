"""The line of a captured request."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.capture.capture_sample import CAPTURE, record_head

from hostelry.dataplane.capture.spool_file import CapturedRecord
from hostelry.jobs.capture_uploads import build_captured_line


def line_of(record: CapturedRecord, **more: Any) -> dict[str, Any]:
    text = build_captured_line(record, replace(CAPTURE, **more), "s3://b/k 0")
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_has_awss_form() -> None:
    head = record_head(
        inference_id="i-1",
        custom_attributes="a=1",
        input_type="text/csv; header=absent",
        output_type="application/json",
    )
    assert line_of(CapturedRecord(head=head, input=b"1,2\n", output=b'{"a": 1}')) == {
        "captureData": {
            "endpointInput": {
                "observedContentType": "text/csv; header=absent",
                "mode": "INPUT",
                "data": "1,2\n",
                "encoding": "CSV",
            },
            "endpointOutput": {
                "observedContentType": "application/json",
                "mode": "OUTPUT",
                "data": '{"a": 1}',
                "encoding": "JSON",
            },
        },
        "eventMetadata": {
            "eventId": "6d703d09-6eab-5627-afb0-da282a0c7e93",
            "customAttributes": ["a=1"],
            "inferenceId": "i-1",
            "inferenceTime": "2023-11-14T22:13:20Z",
        },
        "eventVersion": "0",
    }


def test_a_line_has_the_event_id_of_its_record() -> None:
    event_id = "0b7f3c52-8d54-4c0e-9d7b-3f0f4f6b1a11"
    found = line_of(CapturedRecord(head=record_head(event_id=event_id), input=b"", output=b""))
    assert found["eventMetadata"]["eventId"] == event_id


@cases(
    "content_type, body, encoding, data",
    case("a type in capitals", "TEXT/CSV", b"1", "CSV", "1"),
    case("a parameter", "application/json;charset=utf-8", b"{}", "JSON", "{}"),
    case("a type that is not given", "application/x-npy", b"\x00", "BASE64", "AA=="),
    case("text that is no UTF-8", "text/csv", b"\xff", "BASE64", "/w=="),
    case("no type", None, b"a", "BASE64", "YQ=="),
    case("nothing", "application/json", b"", "JSON", ""),
    case("controls", "application/json", b"\x00\n\x7f", "JSON", "\x00\n\x7f"),
)
def test_a_body_is_encoded_by_its_type(
    content_type: str | None, body: bytes, encoding: str, data: str
) -> None:
    more = {} if content_type is None else {"input_type": content_type}
    record = CapturedRecord(head=record_head(**more), input=body, output=b"")
    side = line_of(record)["captureData"]["endpointInput"]
    assert (side["encoding"], side["data"]) == (encoding, data)
    assert side.get("observedContentType") == content_type


@pytest.mark.parametrize(
    ("takes", "sides"),
    [((True, False), ["endpointInput"]), ((False, True), ["endpointOutput"])],
)
def test_a_side_that_is_not_captured_is_left_out(
    takes: tuple[bool, bool], sides: list[str]
) -> None:
    record = CapturedRecord(head=record_head(), input=b"", output=b"")
    found = line_of(record, takes_input=takes[0], takes_output=takes[1])
    assert list(found["captureData"]) == sides
    assert list(found["eventMetadata"]) == ["eventId", "inferenceTime"]
