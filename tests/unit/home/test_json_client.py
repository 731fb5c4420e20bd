"""Calls in JSON without botocore: the sent request, and each answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec
import pytest
from tests.unit.home.scripted_server import Seen, scripted_server

from hostelry.aws.call import parse_call
from hostelry.aws.sigv4 import Secret, Verifier
from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port
from hostelry.home.home import UpConfig, new_credentials
from hostelry.home.json_client import JsonClient

KEYS = new_credentials("111122223333", "eu-west-1")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MISSING = {"__type": "ValidationException", "message": 'Could not find endpoint "e".'}


@contextmanager
def client(
    *answers: tuple[int, object], service: str = "sagemaker"
) -> Iterator[tuple[JsonClient, Seen]]:
    """A client of a server that gives these answers one after another."""
    encoded = [(status, msgspec.json.encode(it)) for status, it in answers]
    with scripted_server(*encoded) as (url, seen):
        port = urlsplit(url).port
        assert port is not None
        yield JsonClient(service, UpConfig(gateway_port=port, control_port=1), KEYS), seen


def test_a_call_is_signed_and_names_its_operation() -> None:
    with client((200, {"EndpointName": "e"})) as (sagemaker, seen):
        assert sagemaker.describe_endpoint(EndpointName="e") == {"EndpointName": "e"}
    call = parse_call(seen[0], "id")
    assert (call.operation, call.params) == ("DescribeEndpoint", {"EndpointName": "e"})
    secret = Secret(secret_access_key=KEYS.secret_access_key, account_id=KEYS.account_id)
    Verifier({KEYS.access_key_id: secret}.get).verify(seen[0], SystemClock().now())


def test_instants_are_datetimes_on_both_sides() -> None:
    answer = {"MetricDataResults": [{"Timestamps": [AT.timestamp()], "Values": [1.0]}]}
    with client((200, answer), service="cloudwatch") as (cloudwatch, seen):
        given = {"StartTime": AT, "EndTime": AT, "MetricDataQueries": []}
        found = cloudwatch.get_metric_data(**given)
    assert found["MetricDataResults"] == [{"Timestamps": [AT], "Values": [1.0]}]
    call = parse_call(seen[0], "id")
    assert (call.service, call.params["StartTime"]) == ("cloudwatch", AT.timestamp())


def test_every_page_of_a_list_is_asked_for() -> None:
    first, last = {"Endpoints": [1], "NextToken": "more"}, {"Endpoints": [2]}
    with client((200, first), (200, last)) as (sagemaker, seen):
        pages = sagemaker.get_paginator("list_endpoints").paginate(NameContains="a")
        assert [page["Endpoints"] for page in pages] == [[1], [2]]
    assert msgspec.json.decode(seen[1].body) == {"NameContains": "a", "NextToken": "more"}


def test_a_resource_that_there_is_not_is_none_and_a_refusal_for_who_needs_it() -> None:
    with client((400, MISSING)) as (sagemaker, _):
        assert sagemaker.find("describe_endpoint", EndpointName="e") is None
        with pytest.raises(TerminalError, match="DescribeEndpoint was refused: Could not find"):
            sagemaker.describe_endpoint(EndpointName="e")


def test_a_platform_that_is_down_is_reported() -> None:
    sagemaker = JsonClient("sagemaker", UpConfig(gateway_port=free_port(), control_port=1), KEYS)
    with pytest.raises(TerminalError, match=r"does not answer at .*: start it with `hostelry up`"):
        sagemaker.list_endpoints()
