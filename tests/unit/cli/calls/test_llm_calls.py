"""Times of answers, and names that are found in routes if control does not answer."""

from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.calls.llm_calls import AnswerTimes, RoutedNames, find_with_fallback
from hostelry.cli.named import (
    NamedModel,
    NameKind,
    NoControlAnswerError,
    UnknownModelNameError,
    api_errors,
    called_model,
)
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import (
    ComponentRoute,
    EndpointRoute,
    FailedComponent,
    RouteSnapshot,
    VariantRoute,
)
from hostelry.domain.scope import Scope
from hostelry.home.home import Home, UpConfig, new_credentials

SCOPE = Scope("111122223333", "us-east-1")
WINE = VariantRoute(name="v", weight=1.0, routing=RoutingStrategy.RANDOM, copies=())
COMPONENT, ADAPTER = NameKind.COMPONENT, NameKind.ADAPTER


@cases(
    "times, text",
    case("several tokens", AnswerTimes(num_tokens=11, first_s=0.5, total_s=1.0),
        "11 tokens, first after 500 ms, 20.0 tokens/s"),
    case("one token has no rate", AnswerTimes(num_tokens=1, first_s=0.1, total_s=0.1),
        "1 token, first after 100 ms"),
    case("no token", AnswerTimes(num_tokens=0, first_s=None, total_s=0.25),
        "no text, after 0.25 s"),
)  # fmt: skip
def test_times(times: AnswerTimes, text: str) -> None:
    assert times.text() == text


def component(name: str, base: str | None = None) -> ComponentRoute:
    return ComponentRoute(
        name=name,
        variant_name="v",
        routing=RoutingStrategy.RANDOM,
        copies=(),
        base_name=base,
        adapter_id=base and name,
    )


NAMES = RoutedNames(
    RouteSnapshot(
        version="1",
        endpoints=(
            EndpointRoute(scope=SCOPE, name="wine", takes_components=False, variants=(WINE,)),
            EndpointRoute(
                scope=SCOPE, name="chat", takes_components=True, components=(component("llama"),)
            ),
            EndpointRoute(
                scope=SCOPE,
                name="shop",
                takes_components=True,
                components=(component("base"), component("es", "base")),
                failed=(FailedComponent(name="broken", reason="it ended"),),
            ),
        ),
    )
)


@cases(
    "name, found",
    case("a model", "wine", NamedModel(kind=NameKind.ENDPOINT, endpoint="wine")),
    case(
        "the only component of an endpoint",
        "chat",
        NamedModel(kind=COMPONENT, endpoint="chat", component="llama"),
    ),
    case(
        "an adapter that is a component",
        "es",
        NamedModel(kind=ADAPTER, endpoint="shop", component="es", base="base"),
    ),
    case(
        "an adapter inside an archive",
        "base:fr",
        NamedModel(kind=ADAPTER, endpoint="shop", component="base", adapter="fr"),
    ),
    case(
        "a failed component, whose calls get the reason",
        "broken",
        NamedModel(kind=COMPONENT, endpoint="shop", component="broken"),
    ),
)
def test_a_name_is_found_in_the_routes(name: str, found: NamedModel) -> None:
    assert called_model(NAMES, name) == found


def test_a_name_that_is_not_in_the_routes_is_refused() -> None:
    with pytest.raises(UnknownModelNameError, match=r"there is no .* wines: did you mean wine"):
        called_model(NAMES, "wines")


@cases(
    "code, error",
    case("control is away", "ServiceUnavailable", NoControlAnswerError),
    case("a refusal", "ValidationException", TerminalError),
)
def test_without_routes_the_cause_is_raised(
    code: str, error: type[TerminalError], tmp_path: Path
) -> None:
    def fails(_: object) -> None:
        refused = {"Error": {"Code": code, "Message": "not now"}}
        raise ClientError(refused, "ListEndpoints")

    config, credentials = UpConfig(control_port=1), new_credentials("111122223333", "us-east-1")
    with pytest.raises(TerminalError, match="ListEndpoints was refused: not now") as raised:
        find_with_fallback(Home(tmp_path), config, credentials, fails)
    assert type(raised.value) is error
    with pytest.raises(error), api_errors(config):
        fails(None)
