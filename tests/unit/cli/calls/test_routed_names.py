"""Names of models taken from the gateway's routes, while control is away."""

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from hostelry.base.errors import TerminalError
from hostelry.cli.calls.llm_calls import RoutedNames, find_with_fallback
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


def component(name: str, base: str | None = None) -> ComponentRoute:
    return ComponentRoute(
        name=name,
        variant_name="v",
        routing=RoutingStrategy.RANDOM,
        copies=(),
        base_name=base,
        adapter_id=base and name,
    )


WINE = VariantRoute(name="v", weight=1.0, routing=RoutingStrategy.RANDOM, copies=())
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
COMPONENT, ADAPTER = NameKind.COMPONENT, NameKind.ADAPTER


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("wine", NamedModel(kind=NameKind.ENDPOINT, endpoint="wine"), id="a model"),
        pytest.param(
            "chat",
            NamedModel(kind=COMPONENT, endpoint="chat", component="llama"),
            id="the only component of an endpoint",
        ),
        pytest.param(
            "es",
            NamedModel(kind=ADAPTER, endpoint="shop", component="es", base="base"),
            id="an adapter that is a component",
        ),
        pytest.param(
            "base:fr",
            NamedModel(kind=ADAPTER, endpoint="shop", component="base", adapter="fr"),
            id="an adapter inside an archive",
        ),
        pytest.param(
            "broken",
            NamedModel(kind=COMPONENT, endpoint="shop", component="broken"),
            id="a failed component, whose calls get the reason",
        ),
    ],
)
def test_a_name_is_found_in_the_routes(name: str, found: NamedModel) -> None:
    assert called_model(NAMES, name) == found


def test_a_name_that_is_not_in_the_routes_is_refused() -> None:
    with pytest.raises(UnknownModelNameError, match=r"there is no .* wines: did you mean wine"):
        called_model(NAMES, "wines")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        pytest.param("ServiceUnavailable", NoControlAnswerError, id="control is away"),
        pytest.param("ValidationException", TerminalError, id="a refusal"),
    ],
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
