"""A result that breaks its output shape is a defect of ours, and is not answered."""

from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.aws.call import ApiCall, serialize_result
from hostelry.aws.codecs import CBOR_READERS, CBOR_WRITERS, JSON_WRITERS
from hostelry.aws.models import service_model
from hostelry.aws.tree import check_type, from_base64, read_tree, write_tree

ARN = "arn:aws:sagemaker:us-west-2:111122223333:model/m"
SUMMARY = {"ModelName": "m", "ModelArn": ARN, "CreationTime": 1_700_000_000.5}


def call(service: str, operation: str, protocol: str = "json") -> ApiCall:
    return ApiCall(
        service=service, operation=operation, params={}, protocol=protocol, request_id="id-1"
    )


@cases(
    "result, error, text",
    case("a required member is missing", {}, ValueError, "lacks ['Models']"),
    case("a required None", {"Models": None}, ValueError, "lacks ['Models']"),
    case("unknown", {"Models": [], "More": 1}, ValueError, "unknown ['More']"),
    case("a text for a list", {"Models": "m"}, TypeError, "got 'm'"),
    case("a text inside", {"Models": ["m"]}, TypeError, "is a structure, got str"),
    case(
        "a number for a text",
        {"Models": [{**SUMMARY, "ModelName": 7}]},
        TypeError,
        "ListModels.Models[].ModelName: ModelName is a string, got 7",
    ),
    case(
        "a truth for a time",
        {"Models": [{**SUMMARY, "CreationTime": True}]},
        TypeError,
        "is a timestamp, got True",
    ),
    case(
        "NaN",
        {"Models": [{**SUMMARY, "CreationTime": float("nan")}]},
        ValueError,
        "must be finite, got nan",
    ),
)
def test_a_broken_result_raises(result: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        serialize_result(call("sagemaker", "ListModels"), result)
    assert text in str(caught.value)


def test_a_result_where_none_is_expected_raises() -> None:
    with pytest.raises(ValueError, match="DeleteModel has no output"):
        serialize_result(call("sagemaker", "DeleteModel"), {"ModelName": "m"})


def test_a_broken_result_raises_in_xml_too() -> None:
    with pytest.raises(ValueError, match="lacks"):
        serialize_result(call("iam", "GetRole", "query"), {})


def test_members_that_are_none_are_absent() -> None:
    response = serialize_result(
        call("sagemaker", "ListModels"), {"Models": [SUMMARY], "NextToken": None}
    )
    assert b"NextToken" not in response.body
    assert response.headers["Content-Type"] == "application/x-amz-json-1.1"


def test_xml_carries_no_character_that_xml_forbids() -> None:
    role = {"Account": "a\x00\x1f\ud800<&>\r"}
    response = serialize_result(call("sts", "GetCallerIdentity", "query"), role)
    assert "<Account>a\ufffd\ufffd\ufffd&lt;&amp;&gt;&#13;</Account>" in response.body.decode()


def test_blobs() -> None:
    blob = service_model("cloudwatch").shape_for("MetricWidgetImage")
    assert write_tree(blob, b"\x00\xff", "x", JSON_WRITERS) == "AP8="
    assert write_tree(blob, b"\x00\xff", "x", CBOR_WRITERS) == b"\x00\xff"
    assert read_tree(blob, b"\x00\xff", "x", CBOR_READERS) == b"\x00\xff"
    assert from_base64("AP8=") == b"\x00\xff"
    with pytest.raises(ValueError, match="base64"):
        from_base64("AP8")
    with pytest.raises(TypeError):
        check_type(blob, "text", "x")
    with pytest.raises(Exception, match="byte string"):
        read_tree(blob, "text", "x", CBOR_READERS)
