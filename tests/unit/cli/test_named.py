"""The endpoint, component or adapter that a typed NAME stands for."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from hostelry.base.errors import TerminalError
from hostelry.cli.named import (
    ListedComponent,
    ListedNames,
    NamedModel,
    NameKind,
    UnknownModelNameError,
    api_errors,
    called_model,
    find_named,
    resolve,
    suggestions,
)
from hostelry.home.home import UpConfig

LISTED = ListedNames(
    endpoints=("shop", "chat", "wine", "stray", "stray-one"),
    components=(
        ListedComponent("llama", "shop"),
        ListedComponent("llama-pirate", "shop"),
        ListedComponent("chat", "chat"),
        ListedComponent("stray", "shop"),
        ListedComponent("far", "chat"),
        ListedComponent("lonely", "stray-one"),
    ),
)


def component(name: str, endpoint: str) -> NamedModel:
    return NamedModel(kind=NameKind.COMPONENT, endpoint=endpoint, component=name)


def endpoint(name: str) -> NamedModel:
    return NamedModel(kind=NameKind.ENDPOINT, endpoint=name)


@pytest.mark.parametrize(
    ("name", "prefer", "found"),
    [
        pytest.param("wine", NameKind.COMPONENT, endpoint("wine"), id="an endpoint alone"),
        pytest.param("llama", NameKind.ENDPOINT, component("llama", "shop"), id="a component"),
        pytest.param(" llama\n", NameKind.COMPONENT, component("llama", "shop"), id="with spaces"),
        pytest.param(
            "chat", NameKind.COMPONENT, component("chat", "chat"), id="both: a component preferred"
        ),
        pytest.param("chat", NameKind.ENDPOINT, endpoint("chat"), id="both: an endpoint preferred"),
        pytest.param(
            "endpoint/stray", NameKind.COMPONENT, endpoint("stray"), id="an endpoint as written"
        ),
        pytest.param(
            "component/stray",
            NameKind.ENDPOINT,
            component("stray", "shop"),
            id="a component as written",
        ),
        pytest.param(
            "llama:es",
            NameKind.COMPONENT,
            NamedModel(kind=NameKind.ADAPTER, endpoint="shop", component="llama", adapter="es"),
            id="an adapter inside an archive",
        ),
        pytest.param(
            "llama:llama-pirate",
            NameKind.COMPONENT,
            NamedModel(kind=NameKind.ADAPTER, endpoint="shop", component="llama-pirate"),
            id="an adapter component by its base",
        ),
        pytest.param(
            "llama:far",
            NameKind.COMPONENT,
            NamedModel(kind=NameKind.ADAPTER, endpoint="shop", component="llama", adapter="far"),
            id="a component of another endpoint is not the adapter",
        ),
    ],
)
def test_a_name_stands_for(name: str, prefer: NameKind, found: NamedModel) -> None:
    assert resolve(name, LISTED, prefer) == found


@pytest.mark.parametrize(
    ("name", "listed", "text"),
    [
        pytest.param("lama", LISTED, "did you mean llama", id="a letter left out"),
        pytest.param("WINE", LISTED, "did you mean wine?", id="capitals"),
        pytest.param("pirate", LISTED, "did you mean llama-pirate?", id="a part of the name"),
        pytest.param("llma:es", LISTED, "no component llma: did you mean llama", id="its base"),
        pytest.param("wine:es", LISTED, "there is no component wine", id="adapter of an endpoint"),
        pytest.param("zzz", LISTED, "`hostelry ls` shows all names", id="nothing like it"),
        pytest.param("x", ListedNames(), "`hostelry deploy SOURCE` makes one", id="no names yet"),
        pytest.param("endpoint/llama", LISTED, "no endpoint llama", id="another kind is not taken"),
        pytest.param("component/wine", LISTED, "no component wine", id="nor the other way round"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_refused_with_what_comes_near(
    name: str, listed: ListedNames, text: str
) -> None:
    with pytest.raises(UnknownModelNameError) as failure:
        resolve(name, listed)
    assert text in str(failure.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("stray", "write endpoint/stray or component/stray", id="two resources"),
        pytest.param("", "is not a valid name", id="an empty name"),
        pytest.param("llama:", "is not a valid name", id="an adapter without a name"),
        pytest.param(":es", "is not a valid name", id="an adapter without a component"),
        pytest.param("endpoint/", "is not a valid name", id="a prefix alone"),
        pytest.param("endpoint/chat:es", "belongs to a component", id="an endpoint's adapter"),
    ],
)
def test_a_name_without_one_meaning_is_refused(name: str, text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        resolve(name, LISTED)


def test_suggestions_are_few_and_the_likeliest_is_first() -> None:
    names = [f"model-{number}" for number in range(1000)]
    assert suggestions("model-77x", names)[0] == "model-77"
    assert len(suggestions("model", names)) == 3
    assert suggestions("zz", names) == []


@pytest.mark.parametrize(
    ("model", "openai_model"),
    [
        pytest.param(endpoint("wine"), "wine", id="an endpoint"),
        pytest.param(component("llama", "shop"), "llama", id="a component"),
        pytest.param(resolve("llama:es", LISTED), "llama:es", id="an adapter of an archive"),
        pytest.param(resolve("llama:llama-pirate", LISTED), "llama-pirate", id="an adapter's own"),
    ],
)
def test_openai_clients_name_it(model: NamedModel, openai_model: str) -> None:
    assert model.openai_model == openai_model


class _Listing:
    """A sagemaker client that has LISTED, and notes how often all was listed."""

    def __init__(self) -> None:
        self.whole_lists = 0

    def get_paginator(self, operation: str) -> "_Pages":
        return _Pages(self, operation)

    def describe_inference_component(self, InferenceComponentName: str) -> dict[str, Any]:
        name = InferenceComponentName
        base = {"BaseInferenceComponentName": "llama"} if name == "llama-pirate" else {}
        return {"InferenceComponentName": name, "Specification": base}


class _Pages:
    def __init__(self, of: _Listing, operation: str) -> None:
        self._of, self._operation = of, operation

    def paginate(self, NameContains: str = "", EndpointNameEquals: str = "") -> Any:
        self._of.whole_lists += not NameContains and not EndpointNameEquals
        if self._operation == "list_endpoints":
            names = [it for it in LISTED.endpoints if NameContains in it]
            return [{"Endpoints": [{"EndpointName": it}]} for it in names]
        mine = [it for it in LISTED.components if EndpointNameEquals in ("", it.endpoint)]
        found = [it for it in mine if NameContains in it.name]
        rows = [{"InferenceComponentName": it.name, "EndpointName": it.endpoint} for it in found]
        return [{"InferenceComponents": [row]} for row in rows]


@pytest.mark.parametrize(
    ("name", "kind", "base"),
    [
        pytest.param("llama", NameKind.COMPONENT, None, id="a base"),
        pytest.param("llama-pirate", NameKind.ADAPTER, "llama", id="an adapter component"),
        pytest.param("llama:llama-pirate", NameKind.ADAPTER, "llama", id="an adapter by its base"),
        pytest.param("wine", NameKind.ENDPOINT, None, id="an endpoint"),
    ],
)
def test_a_name_is_found_without_listing_everything(
    name: str, kind: NameKind, base: str | None
) -> None:
    sagemaker = _Listing()
    found = find_named(sagemaker, name)
    assert (found.kind, found.base) == (kind, base)
    assert sagemaker.whole_lists == 0


@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param("wine", endpoint("wine"), id="an endpoint of one model"),
        pytest.param("stray-one", component("lonely", "stray-one"), id="its only component"),
        pytest.param("llama:es", resolve("llama:es", LISTED), id="an adapter of an archive"),
    ],
)
def test_calls_go_to(name: str, model: NamedModel) -> None:
    assert called_model(_Listing(), name) == model


def test_calls_of_an_endpoint_with_several_models_need_a_name() -> None:
    with pytest.raises(TerminalError, match="name one: llama, llama-pirate, stray"):
        called_model(_Listing(), "shop")


def test_near_misses_are_sought_among_all_names() -> None:
    with pytest.raises(UnknownModelNameError, match="did you mean llama"):
        find_named(_Listing(), "LLAMA")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(
            ClientError({"Error": {"Code": "E", "Message": "no\n such"}}, "DescribeEndpoint"),
            "DescribeEndpoint was refused: no such",
            id="a refusal",
        ),
        pytest.param(
            EndpointConnectionError(endpoint_url="u"), "start it with `hostelry up`", id="no answer"
        ),
    ],
)
def test_errors_of_the_api_are_one_line(error: Exception, text: str) -> None:
    with pytest.raises(TerminalError) as failure, api_errors(UpConfig(control_port=1)):
        raise error
    assert text in str(failure.value)
    assert "\n" not in str(failure.value)
