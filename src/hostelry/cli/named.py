"""Resolve a NAME argument to an endpoint, component or adapter.

A NAME is an endpoint, an inference component, or COMPONENT:ADAPTER. `endpoint/NAME` and
`component/NAME` choose if both exist. `resolve` decides over listed names. `find_named` lists them.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from http import HTTPStatus
from typing import Any

import msgspec
import typer
from msgspec.structs import replace

from hostelry.base.errors import TerminalError
from hostelry.base.printable import one_line
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.json_client import JsonClient

MAX_SUGGESTIONS = 3
MAX_SHOWN = 80  # letters of an invalid name
PATIENT_TRIES = 6  # the gateway holds each try for ten seconds while control is away
AWAY_NOTE = "hostelry: control does not answer; waiting for it"
NAME_OF = {
    "inference_component": "InferenceComponentName",
    "endpoint": "EndpointName",
    "endpoint_config": "EndpointConfigName",
    "model": "ModelName",
}
AWAY_CODES = ("ServiceUnavailable", "ServiceUnavailableException", "503")
NAME_FORM = "a name has up to 63 letters from a to z, digits, and hyphens between, such as my-model"
MAX_NAME = 63
LEAST_LIKENESS = 0.6  # difflib's ratio, from 0 to 1


class NameKind(StrEnum):
    """The kinds of resources that a NAME stands for."""

    ENDPOINT = "endpoint"
    COMPONENT = "component"
    ADAPTER = "adapter"


PREFIXES = {"endpoint/": NameKind.ENDPOINT, "component/": NameKind.COMPONENT}


class ListedComponent(msgspec.Struct, frozen=True):
    """An inference component as the list shows it."""

    name: str
    endpoint: str


class ListedNames(msgspec.Struct, frozen=True):
    """All names that a NAME may resolve to."""

    endpoints: Sequence[str] = ()
    components: Sequence[ListedComponent] = ()


class NamedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved NAME.

    Args:
        kind: ADAPTER is an adapter inside COMPONENT's archive. After `find_named` has looked, it is
            also a component that is an adapter.
        endpoint: the endpoint itself, or the component's endpoint.
        component: None for an endpoint.
        adapter: its name inside the component's archive. None if the component is an adapter.
        base: the base component of an adapter component.
    """

    kind: NameKind
    endpoint: str
    component: str | None = None
    adapter: str | None = None
    base: str | None = None

    @property
    def openai_model(self) -> str:
        """The `model` of OpenAI clients: the component, or the endpoint if it has no components."""
        name = self.component or self.endpoint
        return f"{name}:{self.adapter}" if self.adapter else name


class NoControlAnswerError(TerminalError):
    """The gateway answers, but control does not."""


class UnknownModelNameError(TerminalError):
    """No endpoint and no component has that name."""


def resolve(name: str, listed: ListedNames, prefer: NameKind = NameKind.COMPONENT) -> NamedModel:
    """The resource that `name` stands for.

    `prefer` decides between an endpoint and the component of the same name on it. Raises
    UnknownModelNameError with near misses. Raises TerminalError if a component of that name is on
    another endpoint, or if the name has an invalid form.
    """
    kind, whole, adapter = _parse_name(name)
    component = next((it for it in listed.components if it.name == whole), None)
    if adapter is not None:
        if component is None:
            raise _unknown(whole, NameKind.COMPONENT, listed)
        return _find_adapter(component, adapter, listed)
    component = None if kind is NameKind.ENDPOINT else component
    has_endpoint = kind is not NameKind.COMPONENT and whole in listed.endpoints
    if has_endpoint and component is not None and component.endpoint != whole:
        raise TerminalError(
            f"{whole} is an endpoint, and a component of endpoint {component.endpoint}: "
            f"write endpoint/{whole} or component/{whole}"
        )
    if has_endpoint and (component is None or prefer is NameKind.ENDPOINT):
        return NamedModel(kind=NameKind.ENDPOINT, endpoint=whole)
    if component is None:
        raise _unknown(whole, kind, listed)
    return NamedModel(kind=NameKind.COMPONENT, endpoint=component.endpoint, component=whole)


def suggestions(name: str, names: Iterable[str]) -> list[str]:
    """Up to three known names that `name` may stand for, the most similar first."""
    lower = {it.lower(): it for it in sorted(set(names), reverse=True)}
    asked = name.lower()
    near = difflib.get_close_matches(asked, lower, n=MAX_SUGGESTIONS, cutoff=LEAST_LIKENESS)
    holding = sorted(
        (it for it in lower if asked in it or it in asked), key=lambda it: (len(it), it)
    )
    found = dict.fromkeys([*near, *holding])
    return [lower[it] for it in list(found)[:MAX_SUGGESTIONS]]


def is_valid_name(name: str) -> bool:
    """True if an endpoint or a component can have the name."""
    plain = name.replace("-", "")
    is_inside = len(name) <= MAX_NAME and name.strip("-") == name
    return is_inside and plain.isascii() and plain.isalnum()


def find_named(sagemaker: Any, name: str, prefer: NameKind = NameKind.COMPONENT) -> NamedModel:
    """The resource that `name` stands for on the platform. `sagemaker` is a client.

    Raises the errors of `resolve`, and botocore's errors (see `api_errors`).
    """
    _, whole, adapter = _parse_name(name)
    # An adapter of an archive may have any name.
    parts = [whole, *([adapter] if adapter is not None and is_valid_name(adapter) else [])]
    try:
        found = resolve(name, listed_names(sagemaker, parts), prefer)
    except UnknownModelNameError:
        found = resolve(name, listed_names(sagemaker), prefer)
    if found.component is None or found.adapter is not None:
        return found
    shown = sagemaker.describe_inference_component(InferenceComponentName=found.component)
    base = shown.get("Specification", {}).get("BaseInferenceComponentName")
    return replace(found, kind=NameKind.ADAPTER, base=base) if base else found


def listed_names(sagemaker: Any, parts: Sequence[str] | None = None) -> ListedNames:
    """Every endpoint and component, or only those whose names contain one of `parts`."""
    wanted: list[dict[str, str]] = [{}] if parts is None else [{"NameContains": it} for it in parts]
    endpoints = dict.fromkeys(
        row["EndpointName"]
        for like in wanted
        for row in list_rows(sagemaker, "list_endpoints", "Endpoints", **like)
    )
    components = dict.fromkeys(
        ListedComponent(row["InferenceComponentName"], row["EndpointName"])
        for like in wanted
        for row in list_rows(sagemaker, "list_inference_components", "InferenceComponents", **like)
    )
    return ListedNames(tuple(endpoints), tuple(components))


def list_rows(sagemaker: Any, call: str, member: str, **like: str) -> Iterator[dict[str, Any]]:
    """The entries of all pages of a list operation. `call` is the operation's name in boto3."""
    for page in sagemaker.get_paginator(call).paginate(**like):
        yield from page[member]


def describe(sagemaker: Any, kind: str, name: str) -> dict[str, Any] | None:
    """The description of a resource. None if it does not exist. `kind` is as in boto3's names."""
    if isinstance(sagemaker, JsonClient):
        return sagemaker.find(f"describe_{kind}", **{NAME_OF[kind]: name})
    from botocore.exceptions import ClientError

    try:
        shown: dict[str, Any] = getattr(sagemaker, f"describe_{kind}")(**{NAME_OF[kind]: name})
    except ClientError as error:
        if "could not find" in str(error).lower():
            return None
        raise
    return shown


def called_model(sagemaker: Any, name: str) -> NamedModel:
    """The model that calls of NAME go to. An endpoint's only component stands for the endpoint.

    Raises the errors of `find_named`, and TerminalError if the endpoint has several components.
    """
    found = find_named(sagemaker, name)
    if found.kind is not NameKind.ENDPOINT:
        return found
    listed = list_rows(
        sagemaker,
        "list_inference_components",
        "InferenceComponents",
        EndpointNameEquals=found.endpoint,
    )
    names = [it["InferenceComponentName"] for it in listed]
    if not names:
        return found
    if len(names) == 1:
        return find_named(sagemaker, f"component/{names[0]}")
    some = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
    raise TerminalError(f"endpoint {found.endpoint} has several models, name one: {some}")


def patient_client(service: str, config: UpConfig, credentials: Credentials) -> Any:
    """A client whose calls wait about a minute for a restarting control, and report that once."""
    client = aws_client(service, config, credentials, tries=PATIENT_TRIES)
    noted: list[str] = []

    def note(response: Any = None, **_: Any) -> None:
        if response is not None and response[0].status_code == HTTPStatus.SERVICE_UNAVAILABLE:
            noted.append(AWAY_NOTE)
            if len(noted) == 1:
                typer.echo(AWAY_NOTE, err=True)

    client.meta.events.register("needs-retry", note)
    return client


@contextmanager
def api_errors(config: UpConfig) -> Iterator[None]:
    """Convert botocore's errors, including missing answers, to TerminalErrors of one line."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectionError,
        HTTPClientError,
        ReadTimeoutError,
    )

    try:
        yield
    except ClientError as error:
        refused = error.response.get("Error", {})
        text = " ".join(str(refused.get("Message") or error).split())
        is_away = refused.get("Code") in AWAY_CODES
        kind = NoControlAnswerError if is_away else TerminalError
        raise kind(f"{error.operation_name} was refused: {text}") from error
    except ReadTimeoutError as error:
        raise NoControlAnswerError(
            f"the platform takes too long to answer at {config.gateway_url}: see `hostelry status`"
        ) from error
    except (ConnectionError, HTTPClientError) as error:
        raise TerminalError(
            f"the platform does not answer at {config.gateway_url}: start it with `hostelry up`, "
            "or see `hostelry status`"
        ) from error
    except BotoCoreError as error:
        raise TerminalError(" ".join(str(error).split())) from error


def _parse_name(name: str) -> tuple[NameKind | None, str, str | None]:
    """The kind that a prefix names, the name, and the adapter after a colon."""
    kind, plain = None, name.strip()
    for prefix, one in PREFIXES.items():
        if plain.startswith(prefix):
            kind, plain = one, plain.removeprefix(prefix)
            break
    whole, colon, adapter = plain.partition(":")
    if not whole or (colon and not adapter):
        raise TerminalError(
            f"{name!r} is not a valid name: give an endpoint, a component, or COMPONENT:ADAPTER"
        )
    if not is_valid_name(whole):
        raise TerminalError(f"{one_line(whole, MAX_SHOWN)!r} is not a valid name: {NAME_FORM}")
    if colon and kind is NameKind.ENDPOINT:
        raise TerminalError(f"{name} is not a valid name: an adapter belongs to a component")
    return kind, whole, adapter if colon else None


def _find_adapter(component: ListedComponent, adapter: str, listed: ListedNames) -> NamedModel:
    """The adapter component of that name on the endpoint, or else an adapter in the archive."""
    own = next((it for it in listed.components if it.name == adapter), None)
    if own is not None and own.endpoint == component.endpoint:
        return NamedModel(kind=NameKind.ADAPTER, endpoint=own.endpoint, component=own.name)
    return NamedModel(
        kind=NameKind.ADAPTER,
        endpoint=component.endpoint,
        component=component.name,
        adapter=adapter,
    )


def _unknown(name: str, kind: NameKind | None, listed: ListedNames) -> UnknownModelNameError:
    components = [it.name for it in listed.components]
    among = [
        *(() if kind is NameKind.COMPONENT else listed.endpoints),
        *(() if kind is NameKind.ENDPOINT else components),
    ]
    near = suggestions(name, among)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif among:
        hint = "`hostelry ls` shows all names"
    else:
        hint = "there is none yet: `hostelry deploy SOURCE` makes one"
    kinds = "endpoint or component" if kind is None else kind.value
    return UnknownModelNameError(f"there is no {kinds} {name}: {hint}")
