"""Names of models that the gateway serves, for calls while control does not answer.

Calls need control only for what a NAME stands for. The gateway's last routes, which are on disk,
say that too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import typer

from hostelry.cli.named import NoControlAnswerError, api_errors
from hostelry.dataplane.routes import SnapshotError, decode_snapshot
from hostelry.domain.routes import RouteSnapshot
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, Home, UpConfig

T = TypeVar("T")
CONTROL_WITHIN_S = 5.0  # then names are taken from the routes
NOTE = "hostelry: control does not answer; names are those of the gateway's last routes"


@dataclass(frozen=True, slots=True)
class RoutedNames:
    """The calls and paginators of a SageMaker client that `find_named` makes, over routes."""

    routes: RouteSnapshot

    def get_paginator(self, name: str) -> "RoutedPages":
        """The pages of ListEndpoints or ListInferenceComponents."""
        rows = self.endpoints() if name == "list_endpoints" else self.components()
        member = "Endpoints" if name == "list_endpoints" else "InferenceComponents"
        return RoutedPages(member, list(rows))

    def endpoints(self) -> Iterator[dict[str, str]]:
        """A row for each endpoint."""
        yield from ({"EndpointName": it.name} for it in self.routes.endpoints)

    def components(self) -> Iterator[dict[str, str]]:
        """A row for each component, the failed ones included."""
        for endpoint in self.routes.endpoints:
            served = [it.name for it in endpoint.components]
            for name in [*served, *(it.name for it in endpoint.failed)]:
                yield {"InferenceComponentName": name, "EndpointName": endpoint.name}

    def describe_inference_component(self, InferenceComponentName: str) -> dict[str, Any]:
        """The base of a component that is an adapter."""
        every = (it for endpoint in self.routes.endpoints for it in endpoint.components)
        base = next((it.base_name for it in every if it.name == InferenceComponentName), None)
        return {"Specification": {"BaseInferenceComponentName": base} if base else {}}


@dataclass(frozen=True, slots=True)
class RoutedPages:
    """The one page of a list operation."""

    member: str
    rows: list[dict[str, str]]

    def paginate(
        self, NameContains: str = "", EndpointNameEquals: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """The rows that the filters leave."""
        own = "EndpointName" if self.member == "Endpoints" else "InferenceComponentName"
        found = [row for row in self.rows if NameContains.lower() in row[own].lower()]
        if EndpointNameEquals is not None:
            found = [row for row in found if row["EndpointName"] == EndpointNameEquals]
        yield {self.member: found}


def named(home: Home, config: UpConfig, credentials: Credentials, find: Callable[[Any], T]) -> T:
    """The result of `find`, which gets a SageMaker client; from the routes if control is away.

    Raises TerminalError.
    """
    try:
        with api_errors(config):
            client = aws_client("sagemaker", config, credentials, read_timeout_s=CONTROL_WITHIN_S)
            return find(client)
    except NoControlAnswerError:
        try:
            routes = decode_snapshot(home.routes.read_bytes())
        except (OSError, SnapshotError):
            routes = None
        if routes is None:
            raise
        typer.echo(NOTE, err=True)
        return find(RoutedNames(routes))
