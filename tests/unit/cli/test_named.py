"""The endpoint, component or adapter that a typed NAME stands for."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from tests.cases import case, cases

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


@cases(
    "name, prefer, found",
    case("an endpoint alone", "wine", NameKind.COMPONENT, endpoint("wine")),
    case("a component", "llama", NameKind.ENDPOINT, component("llama", "shop")),
    case("with spaces", " llama\n", NameKind.COMPONENT, component("llama", "shop")),
    case("both: a component preferred", "chat", NameKind.COMPONENT, component("chat", "chat")),
    case("both: an endpoint preferred", "chat", NameKind.ENDPOINT, endpoint("chat")),
    case("an endpoint as written", "endpoint/stray", NameKind.COMPONENT, endpoint("stray")),
    case(
        "a component as written", "component/stray", NameKind.ENDPOINT, component("stray", "shop")
    ),
    case(
        "an adapter inside an archive",
        "llama:es",
        NameKind.COMPONENT,
        NamedModel(kind=NameKind.ADAPTER, endpoint="shop", component="llama", adapter="es"),
    ),
    case(
        "an adapter component by its base",
        "llama:llama-pirate",
        NameKind.COMPONENT,
        NamedModel(kind=NameKind.ADAPTER, endpoint="shop", component="llama-pirate"),
    ),
    case(
        "a component of another endpoint is not the adapter",
        "llama:far",
        NameKind.COMPONENT,
        NamedModel(kind=NameKind.ADAPTER, endpoint="shop", component="llama", adapter="far"),
    ),
)
def test_a_name_stands_for(name: str, prefer: NameKind, found: NamedModel) -> None:
    assert resolve(name, LISTED, prefer) == found


@cases(
    "name, listed, text",
    case("a letter left out", "lama", LISTED, "did you mean llama"),
    case("capitals", "WINE", LISTED, "did you mean wine?"),
    case("a part of the name", "pirate", LISTED, "did you mean llama-pirate?"),
    case("its base", "llma:es", LISTED, "no component llma: did you mean llama"),
    case("adapter of an endpoint", "wine:es", LISTED, "there is no component wine"),
    case("nothing like it", "zzz", LISTED, "`hostelry ls` shows all names"),
    case("no names yet", "x", ListedNames(), "`hostelry deploy SOURCE` makes one"),
    case("another kind is not taken", "endpoint/llama", LISTED, "no endpoint llama"),
    case("nor the other way round", "component/wine", LISTED, "no component wine"),
)  # fmt: skip
def test_an_unknown_name_is_refused_with_what_comes_near(
    name: str, listed: ListedNames, text: str
) -> None:
    with pytest.raises(UnknownModelNameError) as failure:
        resolve(name, listed)
    assert text in str(failure.value)


@cases(
    "name, text",
    case("two resources", "stray", "write endpoint/stray or component/stray"),
    case("an empty name", "", "is not a valid name"),
    case("an adapter without a name", "llama:", "is not a valid name"),
    case("an adapter without a component", ":es", "is not a valid name"),
    case("a prefix alone", "endpoint/", "is not a valid name"),
    case("a letter that no name has", "ü", "'ü' is not a valid name: a name has up to 63 letters"),
    case("an underscore", "my_model", "'my_model' is not a valid name"),
    case("a hyphen at the end", "model-", "'model-' is not a valid name"),
    case("64 letters", "a" * 64, "is not a valid name"),
    case("a control character", "a\x1b[2J", "is not a valid name"),
    case("a million letters", "a" * 1_000_000, "'a{77}...' is not a valid name"),
    case("an endpoint's adapter", "endpoint/chat:es", "belongs to a component"),
)
def test_a_name_without_one_meaning_is_refused(name: str, text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        resolve(name, LISTED)


def test_suggestions_are_few_and_the_likeliest_is_first() -> None:
    names = [f"model-{number}" for number in range(1000)]
    assert suggestions("model-77x", names)[0] == "model-77"
    assert len(suggestions("model", names)) == 3
    assert suggestions("zz", names) == []


@cases(
    "model, openai_model",
    case("an endpoint", endpoint("wine"), "wine"),
    case("a component", component("llama", "shop"), "llama"),
    case("an adapter of an archive", resolve("llama:es", LISTED), "llama:es"),
    case("an adapter's own", resolve("llama:llama-pirate", LISTED), "llama-pirate"),
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


@cases(
    "name, kind, base",
    case("a base", "llama", NameKind.COMPONENT, None),
    case("an adapter component", "llama-pirate", NameKind.ADAPTER, "llama"),
    case("an adapter by its base", "llama:llama-pirate", NameKind.ADAPTER, "llama"),
    case("an endpoint", "wine", NameKind.ENDPOINT, None),
)
def test_a_name_is_found_without_listing_everything(
    name: str, kind: NameKind, base: str | None
) -> None:
    sagemaker = _Listing()
    found = find_named(sagemaker, name)
    assert (found.kind, found.base) == (kind, base)
    assert sagemaker.whole_lists == 0


@cases(
    "name, model",
    case("an endpoint of one model", "wine", endpoint("wine")),
    case("its only component", "stray-one", component("lonely", "stray-one")),
    case("an adapter of an archive", "llama:es", resolve("llama:es", LISTED)),
    case("one with any name", "llama:my_es", resolve("llama:my_es", LISTED)),
)
def test_calls_go_to(name: str, model: NamedModel) -> None:
    assert called_model(_Listing(), name) == model


def test_calls_of_an_endpoint_with_several_models_need_a_name() -> None:
    with pytest.raises(TerminalError, match="name one: llama, llama-pirate, stray"):
        called_model(_Listing(), "shop")


def test_near_misses_are_sought_among_all_names() -> None:
    with pytest.raises(UnknownModelNameError, match="did you mean llama"):
        find_named(_Listing(), "LLAMA")


@cases(
    "error, text",
    case(
        "a refusal",
        ClientError({"Error": {"Code": "E", "Message": "no\n such"}}, "DescribeEndpoint"),
        "DescribeEndpoint was refused: no such",
    ),
    case("no answer", EndpointConnectionError(endpoint_url="u"), "start it with `hostelry up`"),
)
def test_errors_of_the_api_are_one_line(error: Exception, text: str) -> None:
    with pytest.raises(TerminalError) as failure, api_errors(UpConfig(control_port=1)):
        raise error
    assert text in str(failure.value)
    assert "\n" not in str(failure.value)
