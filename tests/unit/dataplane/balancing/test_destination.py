from collections.abc import Mapping
from typing import Any

import pytest
from tests.cases import case, cases
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


@cases(
    "invocation, draw, component, variant",
    case("a component by its header", asked("llms", inference_component_name="base"), 0.5, "base",
        "AllTraffic"),
    case("with the variant it is on named too",
        asked("llms", inference_component_name="base", target_variant="AllTraffic"), 0.5, "base",
        "AllTraffic"),
    case("a variant by its weight", asked("models"), 0.2, None, "blue"),
    case("the other by the other share", asked("models"), 0.3, None, "green"),
    case("a request without a model to the one", asked("mixed"), 0.9, None, "one"),
    case("a request with a model to the variant of many", asked("mixed", target_model="m"), 0.1,
        None, "many"),
    case("TargetVariant wins over weights", asked("models", target_variant="blue"), 0.9, None,
        "blue"),
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


@cases(
    "scope, invocation, status, message",
    case("an unknown endpoint", HERE, asked("nope"), 400,
        "Endpoint nope of account 111122223333 not found."),
    case("an endpoint in another case", HERE, asked("LLMS"), 400, "Endpoint LLMS of account"),
    case("another account's endpoint looks like no endpoint", OTHER_ACCOUNT, asked("llms"), 400,
        "Endpoint llms of account 999999999999"),
    case("another region's endpoint", ELSEWHERE, asked("models"), 400, "not found"),
    case("no component header", HERE, asked("llms"), 400, NO_COMPONENT_NAMED),
    case("no component header, nor any component yet", HERE, asked("empty"), 400,
        NO_COMPONENT_NAMED),
    case("unknown component", HERE, asked("llms", inference_component_name="nope"), 400,
        "Inference Component nope not found on endpoint llms"),
    case("a failed component says why", HERE, asked("llms", inference_component_name="broken"), 400,
        "Inference Component broken is Failed and takes no requests: It ran out of " "memory."),
    case("a failed component of another endpoint", HERE,
        asked("empty", inference_component_name="broken"), 400, "not found"),
    case("a component of another endpoint", HERE, asked("empty", inference_component_name="base"),
        400, "not found"),
    case("a component without copies", HERE, asked("llms", inference_component_name="asleep"), 400,
        NO_CAPACITY),
    case("a component whose copies are coming", HERE,
        asked("llms", inference_component_name="starting"), 503, "try again"),
    case("an adapter that no copy has is never the base", HERE,
        asked("llms", inference_component_name="unregistered"), 400, NO_CAPACITY),
    case("a component on another variant", HERE,
        asked("llms", inference_component_name="base", target_variant="blue"), 400,
        "Variant blue not found"),
    case("a component on a model endpoint", HERE, asked("models", inference_component_name="base"),
        400, "has no inference components"),
    case("an unknown variant", HERE, asked("models", target_variant="red"), 400,
        "Variant red not found"),
    case("a named variant without a ready copy", HERE, asked("models", target_variant="dark"), 503,
        "No healthy instance"),
    case("no copy at all", HERE, asked("down"), 503, "No healthy instance"),
    case("TargetModel on an endpoint of components", HERE, asked("llms", target_model="m.tar.gz"),
        400, "no multi-model container"),
    case("a variant of many models without one", HERE, asked("mixed", target_variant="many"), 400,
        "many is multi-model"),
    case("a variant of one model with one", HERE,
        asked("mixed", target_variant="one", target_model="m"), 400,
        "Variant one has no multi-model"),
    case("no TargetModel", HERE, asked("many"), 400, "Endpoint many is multi-model"),
    case("TargetModel on an endpoint of one model", HERE, asked("models", target_model="m.tar.gz"),
        400, "multi-model"),
    case("TargetContainerHostname on an endpoint of one container", HERE,
        asked("models", target_container_hostname="c"), 400, "multi-container"),
    case("TargetContainerHostname on an endpoint of components", HERE,
        asked("llms", target_container_hostname="c"), 400,
        "Endpoint llms is not a direct multi-container endpoint"),
    case("no TargetContainerHostname on a direct endpoint", HERE, asked("direct"), 400,
        "TargetContainerHostname: a, b, dark"),
    case("an unknown TargetContainerHostname", HERE, asked("direct", target_container_hostname="c"),
        400, "c is no container of endpoint direct; its containers are a, b, dark"),
    case("a container without a ready copy", HERE,
        asked("direct", target_container_hostname="dark"), 503, "No healthy instance"),
    case("a container of an unknown variant", HERE,
        asked("direct", target_container_hostname="a", target_variant="red"), 400,
        "Variant red not found"),
    case("EnableExplanations", HERE, asked("models", enable_explanations="`true`"), 400,
        "Endpoint models has no explainer"),
    case("EnableExplanations for a component", HERE,
        asked("llms", inference_component_name="base", enable_explanations="x"), 400,
        "EnableExplanations"),
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
