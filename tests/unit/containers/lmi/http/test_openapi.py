"""The description of the routes: each is in it, with the statuses that it may answer."""

from typing import Any

from starlette.routing import Route
from tests.unit.containers.lmi.tiny import ask, config, server

from hostelry.containers.lmi.http.app import build_app


def test_every_route_is_described() -> None:
    served = server()
    described = ask(served, "/openapi.json", method="GET").json["paths"]
    for route in build_app(served).routes:
        assert isinstance(route, Route)
        if route.path == "/openapi.json":
            continue
        path = route.path.replace(":path}", "}")
        methods = {it.lower() for it in (route.methods or set()) - {"HEAD"}}
        assert methods <= described[path].keys(), path


def test_statuses_that_a_deployment_changes_are_described() -> None:
    served = server(settings=config("throttle_error_http_code=430"))
    paths: dict[str, Any] = ask(served, "/openapi.json", method="GET").json["paths"]
    assert "430" in paths["/invocations"]["post"]["responses"]
    assert set(paths["/health"]["get"]["responses"]) == {"200", "503"}


def test_the_names_in_a_path_are_described() -> None:
    paths = ask(server(), "/openapi.json", method="GET").json["paths"]
    names = paths["/models/{model}/adapters/{name}"]["delete"]["parameters"]
    assert [it["name"] for it in names] == ["model", "name"]
    assert "requestBody" in paths["/v1/responses"]["post"]
