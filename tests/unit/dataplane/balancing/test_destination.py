from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.dataplane.routes_sample import COPIES, ELSEWHERE, HERE, OTHER_ACCOUNT, SNAPSHOT

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.balancing.destination import (
    NO_CAPACITY,
    NO_COMPONENT_NAMED,
    find_destination,
)
from hostelry.dataplane.invocation_head import invocation_head
from hostelry.dataplane.route_table import RouteTable
from hostelry.domain.scope import Scope

TABLE = RouteTable(SNAPSHOT)


def asked(endpoint_name: str, **members: Any) -> InvokeRequest:
    return InvokeRequest(endpoint_name=endpoint_name, stream=False, **members)


@pytest.mark.parametrize(
    ("invocation", "draw", "component", "variant"),
    [
        pytest.param(asked("llms", inference_component_name="base"), 0.5, "base", "AllTraffic",
                     id="a component by its header"),
        pytest.param(asked("llms", inference_component_name="base", target_variant="AllTraffic"),
                     0.5, "base", "AllTraffic", id="with the variant it is on named too"),
        pytest.param(asked("models"), 0.2, None, "blue", id="a variant by its weight"),
        pytest.param(asked("models"), 0.3, None, "green", id="the other by the other share"),
        pytest.param(asked("mixed"), 0.9, None, "one", id="a request without a model to the one"),
        pytest.param(asked("mixed", target_model="m"), 0.1, None, "many",
                     id="a request with a model to the variant of many"),
        pytest.param(asked("models", target_variant="blue"), 0.9, None, "blue",
                     id="TargetVariant wins over weights"),
    ],
)  # fmt: skip
def test_where_an_invocation_goes(
    invocation: InvokeRequest, draw: float, component: str | None, variant: str
) -> None:
    found = find_destination(TABLE, HERE, invocation, draw)
    assert (found.component_name, found.variant_name) == (component, variant)


def test_a_container_that_is_named_is_a_destination_of_its_own() -> None:
    found = find_destination(TABLE, HERE, asked("direct", target_container_hostname="b"), 0.5)
    assert (found.variant_name, found.container, found.copies) == ("named", "b", COPIES[1:])
    assert {it.id for it in COPIES} <= TABLE.counted_ids()


@pytest.mark.parametrize(
    ("scope", "invocation", "status", "message"),
    [
        pytest.param(HERE, asked("nope"), 400, "Endpoint nope of account 111122223333 not found.",
                     id="an unknown endpoint"),
        pytest.param(HERE, asked("LLMS"), 400, "Endpoint LLMS of account",
                     id="an endpoint in another case"),
        pytest.param(OTHER_ACCOUNT, asked("llms"), 400, "Endpoint llms of account 999999999999",
                     id="another account's endpoint looks like no endpoint"),
        pytest.param(ELSEWHERE, asked("models"), 400, "not found", id="another region's endpoint"),
        pytest.param(HERE, asked("llms"), 400, NO_COMPONENT_NAMED, id="no component header"),
        pytest.param(HERE, asked("empty"), 400, NO_COMPONENT_NAMED,
                     id="no component header, nor any component yet"),
        pytest.param(HERE, asked("llms", inference_component_name="nope"), 400,
                     "Inference Component nope not found on endpoint llms", id="unknown component"),
        pytest.param(HERE, asked("llms", inference_component_name="broken"), 400,
                     "Inference Component broken is Failed and takes no requests: It ran out of "
                     "memory.", id="a failed component says why"),
        pytest.param(HERE, asked("empty", inference_component_name="broken"), 400, "not found",
                     id="a failed component of another endpoint"),
        pytest.param(HERE, asked("empty", inference_component_name="base"), 400, "not found",
                     id="a component of another endpoint"),
        pytest.param(HERE, asked("llms", inference_component_name="asleep"), 400, NO_CAPACITY,
                     id="a component without copies"),
        pytest.param(HERE, asked("llms", inference_component_name="starting"), 503,
                     "try again", id="a component whose copies are coming"),
        pytest.param(HERE, asked("llms", inference_component_name="unregistered"), 400,
                     NO_CAPACITY, id="an adapter that no copy has is never the base"),
        pytest.param(HERE, asked("llms", inference_component_name="base", target_variant="blue"),
                     400, "Variant blue not found", id="a component on another variant"),
        pytest.param(HERE, asked("models", inference_component_name="base"), 400,
                     "has no inference components", id="a component on a model endpoint"),
        pytest.param(HERE, asked("models", target_variant="red"), 400, "Variant red not found",
                     id="an unknown variant"),
        pytest.param(HERE, asked("models", target_variant="dark"), 503, "No healthy instance",
                     id="a named variant without a ready copy"),
        pytest.param(HERE, asked("down"), 503, "No healthy instance", id="no copy at all"),
        pytest.param(HERE, asked("llms", target_model="m.tar.gz"), 400, "no multi-model container",
                     id="TargetModel on an endpoint of components"),
        pytest.param(HERE, asked("mixed", target_variant="many"), 400, "many is multi-model",
                     id="a variant of many models without one"),
        pytest.param(HERE, asked("mixed", target_variant="one", target_model="m"), 400,
                     "Variant one has no multi-model", id="a variant of one model with one"),
        pytest.param(HERE, asked("many"), 400, "Endpoint many is multi-model", id="no TargetModel"),
        pytest.param(HERE, asked("models", target_model="m.tar.gz"), 400, "multi-model",
                     id="TargetModel on an endpoint of one model"),
        pytest.param(HERE, asked("models", target_container_hostname="c"), 400, "multi-container",
                     id="TargetContainerHostname on an endpoint of one container"),
        pytest.param(HERE, asked("llms", target_container_hostname="c"), 400,
                     "Endpoint llms is not a direct multi-container endpoint",
                     id="TargetContainerHostname on an endpoint of components"),
        pytest.param(HERE, asked("direct"), 400, "TargetContainerHostname: a, b, dark",
                     id="no TargetContainerHostname on a direct endpoint"),
        pytest.param(HERE, asked("direct", target_container_hostname="c"), 400,
                     "c is no container of endpoint direct; its containers are a, b, dark",
                     id="an unknown TargetContainerHostname"),
        pytest.param(HERE, asked("direct", target_container_hostname="dark"), 503,
                     "No healthy instance", id="a container without a ready copy"),
        pytest.param(HERE, asked("direct", target_container_hostname="a", target_variant="red"),
                     400, "Variant red not found", id="a container of an unknown variant"),
        pytest.param(HERE, asked("models", enable_explanations="`true`"), 400,
                     "Endpoint models has no explainer", id="EnableExplanations"),
        pytest.param(HERE, asked("llms", inference_component_name="base", enable_explanations="x"),
                     400, "EnableExplanations", id="EnableExplanations for a component"),
    ],
)  # fmt: skip
def test_invocations_that_go_nowhere(
    scope: Scope, invocation: InvokeRequest, status: int, message: str
) -> None:
    with pytest.raises(ServiceError) as refusal:
        find_destination(TABLE, scope, invocation, 0.5)
    assert refusal.value.http_status == status
    assert refusal.value.code == ("ValidationError" if status == 400 else "ServiceUnavailable")
    assert message in refusal.value.message


def sent_headers(
    invocation: InvokeRequest, given: Mapping[str, str] | None = None
) -> dict[str, str]:
    destination = find_destination(TABLE, HERE, invocation, 0.5)
    request = HttpRequest(method="POST", path="/", headers=given or {}, body=b"7 bytes")
    first, *lines = invocation_head(invocation, destination, request, "r-1").decode().split("\r\n")
    assert first == "POST /invocations HTTP/1.1"
    return dict(line.split(": ", 1) for line in lines if line)


def test_a_copy_is_sent_the_contracts_headers_and_nothing_else() -> None:
    invocation = asked(
        "llms",
        inference_component_name="base",
        content_type="application/json",
        accept="text/plain",
        custom_attributes="c=1",
        inference_id="id-1",
        session_id="s-1",
        prefix_aware_id="a-hint",
    )
    assert sent_headers(invocation) == {
        "Host": "localhost",
        "Content-Length": "7",
        "X-Amzn-SageMaker-Forwarded-Api": "InvokeEndpoint",
        "Content-Type": "application/json",
        "Accept": "text/plain",
        "X-Amzn-SageMaker-Custom-Attributes": "c=1",
        "X-Amzn-SageMaker-Inference-Id": "id-1",
        "X-Amzn-SageMaker-Session-Id": "s-1",
        "x-request-id": "r-1",
    }


def test_an_adapter_component_adds_its_adapter() -> None:
    headers = sent_headers(asked("llms", inference_component_name="pirate"))
    assert headers["X-Amzn-SageMaker-Adapter-Identifier"] == "pirate-3"
    assert headers["X-Amzn-SageMaker-Adapter-Alias"] == "pirate"


def test_the_callers_terms_go_with_it_and_nothing_else_of_theirs() -> None:
    given = {
        "x-hostelry-tenant": "blue",
        "x-hostelry-first-token-deadline-s": "2",
        "x-hostelry-model": "stolen",
        "x-amzn-sagemaker-adapter-identifier": "stolen",
    }
    headers = sent_headers(asked("llms", inference_component_name="base"), given)
    assert headers["X-Hostelry-Tenant"] == "blue"
    assert headers["X-Hostelry-First-Token-Deadline-S"] == "2"
    assert "stolen" not in headers.values()
