"""Calls of the rest-json protocol: method and path name the operation, and carry members."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec
from botocore.model import ListShape, Shape, StructureShape

from hostelry.aws.models import REST_ROOTS, service_model
from hostelry.aws.tree import INTEGER_BITS, JSON_READERS, read_tree, serialization_error

MAX_QUERY_FIELDS = 200
_LABEL = re.compile(r"\{(\w+)\+?\}")
_TRUTHS = {"true": True, "false": False}


class _RestRoute(msgspec.Struct, frozen=True, kw_only=True):
    operation: str
    method: str
    path: re.Pattern[str]


def rest_service(path: str) -> str | None:
    """The service whose operations have paths like `path`, or None."""
    return REST_ROOTS.get(path.split("/", 2)[1]) if path.startswith("/") else None


def rest_operation(service: str, method: str, path: str) -> tuple[str, Mapping[str, str]] | None:
    """The operation of `service` at a path with the path's members by name, or None."""
    for route in _routes(service):
        found = route.path.fullmatch(path) if route.method == method else None
        if found is not None:
            return route.operation, {name: unquote(it) for name, it in found.groupdict().items()}
    return None


def read_rest(
    shape: StructureShape, tree: Any, path_members: Mapping[str, str], query: str
) -> dict[str, Any]:
    """The members of a request, from its JSON body, its path and its query.

    Raises ServiceError SerializationException for a member that is not of its type.
    """
    located = {name: it.serialization for name, it in shape.members.items()}
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise serialization_error(f"more than {MAX_QUERY_FIELDS} fields in the query") from None
    params: dict[str, Any] = {
        name: it
        for name, it in read_tree(shape, tree, "", JSON_READERS).items()
        if "location" not in located[name]
    }
    for name, where in located.items():
        texts = _texts(where, path_members, fields)
        # An empty list leaves no trace in a query.
        is_list = "location" in where and isinstance(shape.members[name], ListShape)
        if texts or (is_list and name in shape.required_members):
            params[name] = _value(shape.members[name], texts, name)
    return params


def _texts(
    where: Mapping[str, str], path_members: Mapping[str, str], fields: Mapping[str, list[str]]
) -> list[str]:
    if where.get("location") == "uri":
        return [path_members[where["name"]]]
    return fields.get(where["name"], []) if where.get("location") == "querystring" else []


def _value(shape: Shape, texts: list[str], name: str) -> Any:
    if isinstance(shape, ListShape):
        return [_value(shape.member, [it], name) for it in texts]
    text = texts[0]
    if shape.type_name in INTEGER_BITS:
        if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) is None:
            raise serialization_error(f"'{text:.50}' is not an Integer at '{name}'")
        return read_tree(shape, int(text), name, JSON_READERS)
    if shape.type_name == "boolean":
        if text not in _TRUTHS:
            raise serialization_error(f"'{text:.50}' is not a Boolean at '{name}'")
        return _TRUTHS[text]
    return text


@cache
def _routes(service: str) -> tuple[_RestRoute, ...]:
    """The paths of a service's operations, those with more fixed text first."""
    routes = sorted(_all_routes(service), key=lambda it: -len(it.path.pattern))
    return tuple(routes)


def _all_routes(service: str) -> Iterator[_RestRoute]:
    model = service_model(service)
    for name in model.operation_names:
        http = model.operation_model(name).http
        pattern = _LABEL.sub(r"(?P<\1>[^/]+)", http["requestUri"])
        yield _RestRoute(operation=name, method=http["method"], path=re.compile(pattern))
