"""Every operation served, in every protocol: botocore and we understand each other."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.selection import runs_all

from hostelry.api.operations import OPERATIONS
from hostelry.aws.call import ApiCall, parse_call, serialize_result
from hostelry.aws.models import operation_model, service_model

JSON, QUERY, EC2, CBOR = "json", "query", "ec2", "smithy-rpc-v2-cbor"
# Operations that are not served, but have features that served ones lack: blobs, maps, recursion.
EXTRA = [
    ("cloudwatch", "GetMetricWidgetImage", JSON),
    ("cloudwatch", "GetMetricWidgetImage", QUERY),
    ("cloudwatch", "GetMetricWidgetImage", CBOR),
    ("iam", "CreateRole", QUERY),
    ("iam", "GetAccountSummary", QUERY),
    ("sagemaker", "Search", JSON),
    ("ec2", "DescribeInstanceTypes", EC2),
    ("ec2", "RunInstances", EC2),
]
SERVED = [
    *(
        (service, operation, protocol)
        for service, operation in OPERATIONS
        for protocol in service_model(service).metadata["protocols"]
    ),
    *EXTRA,
]
ANY_SERVICE = pytest.mark.parametrize(
    ("service", "protocol"), sorted({(service, protocol) for service, _, protocol in SERVED})
)
Drawn = tuple[str, Random, bool]


def drawn(service: str, protocol: str, config: pytest.Config) -> Iterator[Drawn]:
    """Operations of a service with sources of values: of all members, or of some."""
    for seed in range(6 if runs_all(config) else 2):
        for served, operation, spoken in SERVED:
            if (served, spoken) == (service, protocol):
                for full in (True, False):
                    yield operation, Random(f"{operation} {seed}"), full


def in_form(value: Any, protocol: str) -> Any:
    """A value as a query protocol transports it: empty structures, and ec2's lists, are lost."""
    if isinstance(value, dict):
        return {k: in_form(it, protocol) for k, it in value.items() if not is_void(it, protocol)}
    if isinstance(value, list):
        return [in_form(it, protocol) for it in value if not is_void(it, protocol)]
    return value


def is_void(value: Any, protocol: str) -> bool:
    if isinstance(value, dict):
        return all(is_void(item, protocol) for item in value.values())
    if not isinstance(value, list) or (protocol == QUERY and not value):
        return False
    return all(is_void(item, protocol) for item in value)


@ANY_SERVICE
def test_what_botocore_sends_is_what_is_read(
    service: str,
    protocol: str,
    any_value: Any,
    client: Any,
    in_seconds: Any,
    pytestconfig: pytest.Config,
) -> None:
    for operation, random, full in drawn(service, protocol, pytestconfig):
        shape = operation_model(service, operation).input_shape
        params = any_value(random=random, full=full, constrained=True).of(shape) if shape else {}
        botocore = client(service=service, operation=operation, protocol=protocol)
        assert parse_call(botocore.request(params), "id-1") == ApiCall(
            service=service,
            operation=operation,
            params=in_seconds(in_form(params, protocol) if protocol in (QUERY, EC2) else params),
            protocol=protocol,
            request_id="id-1",
        )


@ANY_SERVICE
def test_what_is_answered_is_what_botocore_reads(
    service: str,
    protocol: str,
    any_value: Any,
    client: Any,
    in_seconds: Any,
    pytestconfig: pytest.Config,
) -> None:
    for operation, random, full in drawn(service, protocol, pytestconfig):
        shape = operation_model(service, operation).output_shape
        result = any_value(random=random, full=full, constrained=False).of(shape) if shape else {}
        call = ApiCall(
            service=service, operation=operation, params={}, protocol=protocol, request_id="id-1"
        )
        response = serialize_result(call, in_seconds(result))
        parsed = client(service=service, operation=operation, protocol=protocol).read(response)
        metadata = parsed.pop("ResponseMetadata")
        assert metadata["HTTPHeaders"]["x-amzn-requestid"] == "id-1"
        assert in_seconds(parsed) == in_seconds(result), operation
