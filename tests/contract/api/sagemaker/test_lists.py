"""Every List operation: filters, order, and complete pages while resources change."""

import base64
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.api.context import CallContext
from hostelry.api.page import list_answer
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

START = ManualClock().now()

LISTS = [
    pytest.param("ListModels", "Models", "ModelName", id="models"),
    pytest.param("ListEndpointConfigs", "EndpointConfigs", "EndpointConfigName", id="configs"),
    pytest.param("ListEndpoints", "Endpoints", "EndpointName", id="endpoints"),
    pytest.param(
        "ListInferenceComponents", "InferenceComponents", "InferenceComponentName", id="components"
    ),
]


@pytest.fixture
def three(api: Api) -> None:
    """Three of each resource, b, a and c in this order, a minute apart."""
    api.make.config("shared")
    api.make.call("CreateEndpoint", EndpointName="host", EndpointConfigName="shared")
    for name in ("b-x", "a-x", "c-y"):
        api.make.model(name)
        api.make.config(name)
        api.make.call("CreateEndpoint", EndpointName=name, EndpointConfigName="shared")
        api.make.component(name, "host")
        api.clock.advance(60.0)


def names(answer: dict[str, Any], member: str, name: str) -> list[str]:
    shared = ("host", "shared")
    return [str(it[name]) for it in answer[member] if it[name] not in shared]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(("operation", "member", "name"), LISTS)
@cases(
    "params, expected",
    case("newest first", {}, ["c-y", "a-x", "b-x"]),
    case("oldest first", {"SortOrder": "Ascending"}, ["b-x", "a-x", "c-y"]),
    case("by name", {"SortBy": "Name", "SortOrder": "Ascending"}, ["a-x", "b-x", "c-y"]),
    case("by name, descending", {"SortBy": "Name"}, ["c-y", "b-x", "a-x"]),
    case("name contains", {"NameContains": "-x"}, ["a-x", "b-x"]),
    case("name contains, in its own case", {"NameContains": "X"}, []),
    case("created after", {"CreationTimeAfter": START + 30}, ["c-y", "a-x"]),
    case("created before, not at the instant", {"CreationTimeBefore": START + 60.0}, ["b-x"]),
    case(
        "created between",
        {"CreationTimeAfter": START + 30, "CreationTimeBefore": START + 90},
        ["a-x"],
    ),
)
def test_filters_and_order(
    api: Api, operation: str, member: str, name: str, params: dict[str, Any], expected: list[str]
) -> None:
    assert names(api.call(operation, **params), member, name) == expected


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(("operation", "member", "name"), LISTS[2:])
def test_status_and_modification_filters(api: Api, operation: str, member: str, name: str) -> None:
    if name == "EndpointName":
        api.change_endpoint(at="c-y", status=EndpointStatus.FAILED, modified_at=START + 999)
    else:
        api.change_component("c-y", status=ComponentStatus.FAILED, modified_at=START + 999)

    def found(**params: Any) -> list[str]:
        return names(api.call(operation, **params), member, name)

    assert found(StatusEquals="Failed") == ["c-y"]
    assert found(StatusEquals="Creating") == ["a-x", "b-x"]
    assert found(StatusEquals="Deleting") == []
    assert found(LastModifiedTimeAfter=START + 500) == ["c-y"]
    assert found(LastModifiedTimeBefore=START + 500) == ["a-x", "b-x"]
    assert found(SortBy="Status", SortOrder="Ascending") == ["a-x", "b-x", "c-y"]
    assert found(SortBy="Status") == ["c-y", "b-x", "a-x"]


def test_components_by_endpoint_and_variant(api: Api) -> None:
    api.make.endpoint("one")
    api.make.endpoint("two", {"VariantName": "second"})
    api.make.component("a", "one")
    api.make.component("b", "two")

    def found(**params: Any) -> list[str]:
        answer = api.call("ListInferenceComponents", **params)
        return names(answer, "InferenceComponents", "InferenceComponentName")

    assert found(EndpointNameEquals="one") == ["a"]
    assert found(VariantNameEquals="second") == ["b"]
    assert found(EndpointNameEquals="one", VariantNameEquals="second") == []
    assert found(EndpointNameEquals="gone") == []


@pytest.mark.parametrize(("operation", "member", "name"), LISTS)
def test_an_empty_list_is_there(api: Api, operation: str, member: str, name: str) -> None:
    assert api.call(operation) == {member: []}


def test_a_page_has_ten_unless_asked(api: Api) -> None:
    for number in range(11):
        api.make.model(f"m{number}")
    first = api.call("ListModels")
    assert len(first["Models"]) == 10
    second = api.call("ListModels", NextToken=first["NextToken"])
    assert len(second["Models"]) == 1
    assert "NextToken" not in second
    assert len(api.call("ListModels", MaxResults=100)["Models"]) == 11


def test_a_page_that_is_just_full_has_no_next(api: Api) -> None:
    for number in range(2):
        api.make.model(f"m{number}")
    assert "NextToken" not in api.call("ListModels", MaxResults=2)


def test_pages_stay_whole_while_models_come_and_go(api: Api) -> None:
    for number in range(6):
        api.make.model(f"m{number}")
        api.clock.advance(1.0)
    first = api.call("ListModels", MaxResults=3)
    assert names(first, "Models", "ModelName") == ["m5", "m4", "m3"]
    api.make.model("newer")
    api.call("DeleteModel", ModelName="m3")
    api.call("DeleteModel", ModelName="m5")
    second = api.call("ListModels", MaxResults=3, NextToken=first["NextToken"])
    assert names(second, "Models", "ModelName") == ["m2", "m1", "m0"]


def altered(token: str, **parts: Any) -> str:
    key, name, check = json.loads(base64.urlsafe_b64decode(token))
    content = [parts.get("key", key), parts.get("name", name), parts.get("check", check)]
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


@cases(
    "garble, more",
    case("a word", lambda token: "x", {}),
    case("not base64", lambda token: "ünlesbar", {}),
    case("cut off", lambda token: token[:-4], {}),
    case("without its head", lambda token: token[4:], {}),
    case("another position", lambda token: altered(token, name="zzz"), {}),
    case("a position of another type", lambda token: altered(token, key="zzz"), {}),
    case("no digest", lambda token: altered(token, check=None), {}),
    case("deeply nested", lambda token: base64.urlsafe_b64encode(b"[" * 6000).decode(), {}),
    case(
        "another JSON",
        lambda token: base64.urlsafe_b64encode(b'{"a": 1, "b": 2, "c": 3}').decode(),
        {},
    ),
    case("of another order", lambda token: token, {"SortBy": "Name"}),
    case("of another filter", lambda token: token, {"NameContains": "m"}),
)
def test_a_token_that_is_not_this_lists_is_refused(
    api: Api, garble: Callable[[str], str], more: dict[str, Any]
) -> None:
    for number in range(3):
        api.make.model(f"m{number}")
    token = api.call("ListModels", MaxResults=1)["NextToken"]
    text = api.refusal("ListModels", NextToken=garble(token), **more)
    assert text.startswith("NextToken is not valid for this request")


def test_a_token_of_another_list_or_account_is_refused(api: Api) -> None:
    for number in range(3):
        api.make.model(f"m{number}")
    token = api.call("ListModels", MaxResults=1)["NextToken"]
    assert "NextToken" in api.refusal("ListEndpoints", NextToken=token)
    other = Scope("210987654321", "us-west-2")
    with pytest.raises(ServiceError, match="NextToken"):
        api.call_as(other, "ListModels", NextToken=token)


@dataclass(frozen=True)
class Listed:
    """A record as lists see it."""

    name: str
    created_at: float
    status: ComponentStatus


@settings(max_examples=60, deadline=None)
@given(
    moments=st.lists(st.integers(0, 4), max_size=12),
    size=st.integers(1, 5),
    sort_by=st.sampled_from(["Name", "CreationTime", "Status"]),
    order=st.sampled_from(["Ascending", "Descending"]),
)
def test_the_pages_together_are_the_list(
    moments: list[int], size: int, sort_by: str, order: str
) -> None:
    statuses = list(ComponentStatus)
    rows = [Listed(f"n{n:02}", at / 3, statuses[at]) for n, at in enumerate(moments)]
    context = CallContext(
        scope=Scope("123456789012", "us-west-2"),
        state=open_state(MemoryStore()),
        now=0.0,
        get_shape=lambda _: Shape(cpus=1, memory_bytes=1),
        role_arn="",
        role_name="",
        metrics=MemoryMetrics(ManualClock()),
    )
    asked: dict[str, Any] = {"SortBy": sort_by, "SortOrder": order}

    def listed(params: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        answer = list_answer(context, "ListX", {**asked, **params}, "Rows", rows, asdict)
        return answer.pop("Rows"), answer

    whole, following = listed({"MaxResults": 100})
    assert following == {}
    pages: list[dict[str, Any]] = []
    token: dict[str, Any] = {}
    while True:
        page, token = listed({"MaxResults": size, **token})
        pages += page
        if not token:
            break
    assert pages == whole
    assert len(pages) == len(rows)
