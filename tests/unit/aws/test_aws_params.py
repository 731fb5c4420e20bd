"""Requests that break their model, and AWS's words for it."""

import gzip
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import cbor2
import pytest
from tests.cases import case, cases

from hostelry.aws.call import parse_call
from hostelry.aws.target import MAX_UNZIPPED_BYTES
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

NAME_PATTERN = "[a-zA-Z0-9]([\\-a-zA-Z0-9]*[a-zA-Z0-9])?"
ARN = "arn:aws:sagemaker:us-west-2:111122223333:model/m"


def json_request(operation: str, body: bytes | Mapping[str, Any], **headers: str) -> HttpRequest:
    prefix = {"PutScalingPolicy": "AnyScaleFrontendService"}.get(operation, "SageMaker")
    prefix = "GraniteServiceVersion20100801" if operation.startswith("PutMetric") else prefix
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest("POST", "/", "", {"x-amz-target": f"{prefix}.{operation}", **named}, data)


def form_request(fields: Mapping[str, str] | bytes, version: str = "2010-08-01") -> HttpRequest:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    body = fields if isinstance(fields, bytes) else urlencode({"Version": version, **fields})
    return HttpRequest("POST", "/", "", headers, body if isinstance(body, bytes) else body.encode())


def cbor_request(body: bytes, path: str = "PutMetricData") -> HttpRequest:
    path = f"/service/GraniteServiceVersion20100801/operation/{path}"
    return HttpRequest("POST", path, "", {"smithy-protocol": "rpc-v2-cbor"}, body)


def refused(request: HttpRequest) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        parse_call(request, "id-1")
    assert caught.value.http_status == 400
    return caught.value


@cases(
    "operation, params, violations",
    case(
        "a required member is absent",
        "DeleteModel",
        {},
        ["Value null at 'modelName' failed to satisfy constraint: Member must not be null"],
    ),
    case(
        "a null counts as absent",
        "DeleteModel",
        {"ModelName": None},
        ["Value null at 'modelName' failed to satisfy constraint: Member must not be null"],
    ),
    case(
        "a name breaks its pattern",
        "DeleteModel",
        {"ModelName": "no_good"},
        [
            "Value 'no_good' at 'modelName' failed to satisfy constraint: "
            f"Member must satisfy regular expression pattern: {NAME_PATTERN}"
        ],
    ),
    case(
        "a name is too long",
        "DeleteModel",
        {"ModelName": "n" * 64},
        [
            f"Value '{'n' * 64}' at 'modelName' failed to satisfy constraint: "
            "Member must have length less than or equal to 63"
        ],
    ),
    case(
        "everything wrong is listed at once",
        "ListModels",
        {"MaxResults": 0, "SortOrder": "Sideways", "NameContains": "_"},
        [
            "Value '0' at 'maxResults' failed to satisfy constraint: "
            "Member must have value greater than or equal to 1",
            "Value 'Sideways' at 'sortOrder' failed to satisfy constraint: "
            "Member must satisfy enum value set: [Ascending, Descending]",
            "Value '_' at 'nameContains' failed to satisfy constraint: "
            "Member must satisfy regular expression pattern: [a-zA-Z0-9-]+",
        ],
    ),
    case(
        "a maximum that boto3 does not check",
        "ListModels",
        {"MaxResults": 101},
        [
            "Value '101' at 'maxResults' failed to satisfy constraint: "
            "Member must have value less than or equal to 100"
        ],
    ),
    case(
        "inside a list of structures",
        "AddTags",
        {"ResourceArn": ARN, "Tags": [{"Key": "k", "Value": "v"}, {"Key": ""}]},
        [
            "Value null at 'tags.2.member.value' failed to satisfy constraint: "
            "Member must not be null",
            "Value '' at 'tags.2.member.key' failed to satisfy constraint: "
            "Member must have length greater than or equal to 1",
        ],
    ),
    case(
        "a plain element names its list",
        "DeleteTags",
        {"ResourceArn": f"arn:aws:sagemaker:us-west-2:{'1' * 12}:model/m", "TagKeys": ["", "a"]},
        [
            "Value '[, a]' at 'tagKeys' failed to satisfy constraint: Member must satisfy "
            "constraint: [Member must have length less than or equal to 128, Member must have "
            "length greater than or equal to 1, Member must satisfy regular expression "
            "pattern: ([\\p{L}\\p{Z}\\p{N}_.:/=+\\-@]*)]"
        ],
    ),
    case(
        "a key of a map",
        "CreateModel",
        {"ModelName": "m", "PrimaryContainer": {"Environment": {"1A": "v"}}},
        [
            "Value '{1A=v}' at 'primaryContainer.environment' failed to satisfy constraint: "
            "Map keys must satisfy constraint: [Member must have length less than or equal to "
            "1024, Member must have length greater than or equal to 0, Member must satisfy "
            "regular expression pattern: [a-zA-Z_][a-zA-Z0-9_]*]"
        ],
    ),
    case(
        "inside a map of structures",
        "UpdateTrialComponent",
        {"TrialComponentName": "t", "InputArtifacts": {"a": {}}},
        [
            "Value null at 'inputArtifacts.a.member.value' failed to satisfy constraint: "
            "Member must not be null"
        ],
    ),
    case(
        "an empty list",
        "CreateEndpointConfig",
        {"EndpointConfigName": "c", "ProductionVariants": []},
        [
            "Value '[]' at 'productionVariants' failed to satisfy constraint: "
            "Member must have length greater than or equal to 1"
        ],
    ),
)
def test_violations(operation: str, params: dict[str, Any], violations: list[str]) -> None:
    error = refused(json_request(operation, params))
    plural = "error" if len(violations) == 1 else "errors"
    assert error.code == "ValidationException"
    head, _, listed = error.message.partition(" detected: ")
    assert listed.split("; ") == violations
    assert head == f"{len(violations)} validation {plural}"


def test_a_union_has_exactly_one_member() -> None:
    alarm = {
        "AlarmName": "a",
        "EvaluationCriteria": {},
    }
    error = refused(json_request("PutMetricAlarm", alarm))
    assert error.message == (
        "1 validation error detected: Value '{}' at 'evaluationCriteria' failed to satisfy "
        "constraint: Exactly one member of the union must be set"
    )


def test_long_lists_and_values_are_cut_in_messages() -> None:
    tags = [{"Key": "k"}] * 3000
    error = refused(json_request("AddTags", {"ResourceArn": ARN, "Tags": tags}))
    assert error.message.startswith("3001 validation errors detected: ")
    assert error.message.count("; ") == 99
    assert len(error.message) < 20_000


def test_an_instance_type_of_ones_own_is_a_fair_request() -> None:
    variant = {"VariantName": "v", "InstanceType": "ml.mine.xlarge", "InitialInstanceCount": 1}
    params = {"EndpointConfigName": "c", "ProductionVariants": [variant]}
    assert parse_call(json_request("CreateEndpointConfig", params), "id-1").params == params


def test_unknown_members_are_left_out() -> None:
    call = parse_call(json_request("DeleteModel", {"ModelName": "m", "New": {"a": 1}}), "id-1")
    assert call.params == {"ModelName": "m"}


def test_whole_numbers_may_be_written_as_floats() -> None:
    call = parse_call(json_request("ListModels", b'{"MaxResults": 5.0}'), "id-1")
    assert call.params == {"MaxResults": 5}


DEEP = b'{"a":' * 200 + b"1" + b"}" * 200
FAR_TOO_DEEP = b"[" * 200_000


@cases(
    "request_, text",
    case("half an object", json_request("ListModels", b"{"), "not JSON"),
    case("a list at top", json_request("ListModels", b"[]"), "the top of the body"),
    case("null at the top", json_request("ListModels", b"null"), "NULL_VALUE"),
    case("two objects", json_request("ListModels", b"{} {}"), "not JSON"),
    case("no UTF-8", json_request("ListModels", b"\xff"), "not JSON"),
    case("NaN", json_request("ListModels", b'{"a": NaN}'), "not JSON"),
    case("infinity", json_request("ListModels", b'{"a": 1e999}'), "not JSON"),
    case("deep nesting", json_request("ListModels", DEEP), "deeper than 100"),
    case("deepest", json_request("ListModels", FAR_TOO_DEEP), "deeper than 100"),
    case(
        "a text for a number",
        json_request("ListModels", b'{"MaxResults": "5"}'),
        "STRING_VALUE can not be converted to an Integer at 'MaxResults'",
    ),
    case(
        "a fraction for a whole number",
        json_request("ListModels", b'{"MaxResults": 5.5}'),
        "NUMBER_VALUE can not be converted to an Integer at 'MaxResults'",
    ),
    case(
        "a number too large",
        json_request("ListModels", b'{"MaxResults": 99999999999}'),
        "99999999999 does not fit 32 bits at 'MaxResults'",
    ),
    case(
        "a truth for a time",
        json_request("ListModels", b'{"CreationTimeAfter": true}'),
        "TRUE_VALUE can not be converted to a Number",
    ),
    case(
        "a number for a text",
        json_request("DeleteModel", {"ModelName": 7}),
        "NUMBER_VALUE can not be converted to a String at 'ModelName'",
    ),
    case(
        "a structure for a list",
        json_request("AddTags", {"Tags": {"Key": "k"}}),
        "START_OBJECT can not be converted to a list at 'Tags'",
    ),
    case(
        "a null in a list",
        json_request("AddTags", {"Tags": [None]}),
        "NULL_VALUE can not be converted to a structure at 'Tags.1'",
    ),
    case(
        "a text for a truth",
        json_request("CreateModel", {"EnableNetworkIsolation": "yes"}),
        "STRING_VALUE can not be converted to a Boolean",
    ),
    case(
        "a list for a structure",
        json_request("CreateModel", {"PrimaryContainer": []}),
        "START_ARRAY can not be converted to a structure",
    ),
    case("not gzip", json_request("ListModels", b"{}", content_encoding="br"), "'br'"),
    case("unzipped", json_request("ListModels", b"{}", content_encoding="gzip"), "not gzip"),
    case(
        "half a gzip stream",
        json_request("ListModels", gzip.compress(b"{}")[:-4], content_encoding="gzip"),
        "one whole gzip stream",
    ),
    case(
        "a gzip bomb",
        json_request(
            "ListModels", gzip.compress(bytes(MAX_UNZIPPED_BYTES + 1)), content_encoding="gzip"
        ),
        f"over {MAX_UNZIPPED_BYTES} bytes",
    ),
    case("a form that is no UTF-8", form_request(b"\xff"), "not a form"),
    case("a form of many fields", form_request(b"&a=b" * 20_001), "not a form"),
    case("an escape that is no UTF-8", form_request(b"a=%ff"), "not a form"),
    case("deep form", form_request({"Action": "ListMetrics", "a" + ".a" * 40: "x"}), "32 levels"),
    case(
        "a list index that is no number",
        form_request({"Action": "DeleteAlarms", "AlarmNames.member.x": "a"}),
        "'x' is not a list index at 'AlarmNames'",
    ),
    case(
        "a structure for a text in a form",
        form_request({"Action": "SetAlarmState", "AlarmName.x": "a"}),
        "A value is missing at 'AlarmName'",
    ),
    case(
        "digits that are not ASCII",
        form_request({"Action": "DescribeAlarms", "MaxRecords": "\u0665"}),
        "can not be converted to an Integer at 'MaxRecords'",
    ),
    case(
        "a truth in a form",
        form_request({"Action": "PutMetricAlarm", "ActionsEnabled": "yes"}),
        "'yes' can not be converted to a Boolean",
    ),
    case(
        "NaN in a form",
        form_request({"Action": "PutMetricAlarm", "Threshold": "NaN"}),
        "'NaN' can not be converted to a Number",
    ),
    case(
        "infinity in a form",
        form_request({"Action": "PutMetricAlarm", "Threshold": "1e999"}),
        "inf is not a finite number",
    ),
    case(
        "a time in a form",
        form_request({"Action": "GetMetricStatistics", "StartTime": "noon"}),
        "'noon' can not be converted to a Timestamp",
    ),
    case("a CBOR break", cbor_request(b"\xff"), "not CBOR"),
    case("two CBOR items", cbor_request(b"\xa0\xa0"), "bytes are left"),
    case("deep CBOR", cbor_request(b"\x81" * 200 + b"\x01"), "not CBOR"),
    case("a shared value", cbor_request(b"\xd8\x1c\x81\xd8\x1d\x00"), "only tag 1"),
    case("an unknown tag", cbor_request(b"\xd9\xff\xff\xa0"), "only tag 1"),
    case("a time that is NaN", cbor_request(b"\xc1\xf9\x7e\x00"), "not CBOR"),
    case(
        "NaN in CBOR",
        cbor_request(cbor2.dumps({"MetricData": [{"Value": float("nan")}]})),
        "nan is not a finite number at 'MetricData.1.Value'",
    ),
    case(
        "bytes for a text",
        cbor_request(cbor2.dumps({"Namespace": b"x"})),
        "VALUE can not be converted to a String",
    ),
    case(
        "a big number",
        cbor_request(cbor2.dumps({"MetricData": [{"Values": [1 << 70]}]})),
        "only tag 1",
    ),
)
def test_bodies_that_cannot_be_read(request_: HttpRequest, text: str) -> None:
    error = refused(request_)
    assert error.code == "SerializationException"
    assert text in error.message


@cases(
    "request_, text",
    case("an unknown operation", json_request("Fly", b"{}"), "SageMaker.Fly"),
    case(
        "a service that is not served",
        HttpRequest("POST", "/", "", {"x-amz-target": "AWSPriceListService.GetProducts"}),
        "AWSPriceListService.GetProducts",
    ),
    case("no dot", HttpRequest("POST", "/", "", {"x-amz-target": "ListModels"}), "ListModels"),
    case("no operation named", HttpRequest("GET", "/some/path"), "GET /some/path"),
    case("a form", form_request({"Action": "Fly"}), "Fly of version 2010-08-01"),
    case("a version", form_request({"Action": "Fly"}, "1999"), "Fly of version 1999"),
    case("a Smithy operation", cbor_request(b"", "Fly"), "Fly"),
    case("half a Smithy path", HttpRequest("POST", "/service/x"), "/service/x"),
    case(
        "an operation in a protocol its service does not speak",
        HttpRequest("POST", "/service/SageMaker/operation/ListModels"),
        "not served in protocol smithy-rpc-v2-cbor",
    ),
)
def test_unknown_operations_are_named(request_: HttpRequest, text: str) -> None:
    error = refused(request_)
    assert error.code == "UnknownOperationException"
    assert text in error.message


def test_bodies_may_be_zipped_and_empty() -> None:
    zipped = json_request("ListModels", gzip.compress(b'{"MaxResults":3}'), content_encoding="gzip")
    assert parse_call(zipped, "id-1").params == {"MaxResults": 3}
    assert parse_call(json_request("ListModels", b""), "id-1").params == {}
    assert parse_call(cbor_request(b"", "ListMetrics"), "id-1").params == {}
    same = json_request("ListModels", b"{}", content_encoding="identity")
    assert parse_call(same, "id-1").params == {}


def test_a_form_may_come_in_the_query_of_a_get() -> None:
    request = HttpRequest("GET", "/", "Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Date=x")
    call = parse_call(request, "id-1")
    assert (call.service, call.operation, call.params) == ("sts", "GetCallerIdentity", {})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-21T08:30:00Z", 1795249800.0),
        ("2026-11-21T08:30:00", 1795249800.0),
        ("2026-11-21T09:30:00.5+01:00", 1795249800.5),
        ("1795249800.25", 1795249800.25),
    ],
)
def test_times_in_forms(text: str, seconds: float) -> None:
    fields = {
        "Action": "GetMetricStatistics",
        "Namespace": "n",
        "MetricName": "m",
        "StartTime": text,
        "EndTime": text,
        "Period": "+60",
    }
    params = parse_call(form_request(fields), "id-1").params
    assert (params["StartTime"], params["Period"]) == (seconds, 60)


def test_list_indices_in_forms_need_no_order_and_no_gapless_count() -> None:
    fields = {"AlarmNames.member.10": "c", "AlarmNames.member.2": "b", "AlarmNames.": "x"}
    params = parse_call(form_request({"Action": "DescribeAlarms", **fields}), "id-1").params
    assert params == {"AlarmNames": ["b", "c"]}


def test_a_text_far_too_long_is_refused_without_being_matched() -> None:
    body = {"ModelName": "a" + " " * 1_000_000 + "b"}
    error = refused(json_request("DeleteModel", body))
    assert error.message.startswith("2 validation errors detected: ")
    assert len(error.message) < 4096
