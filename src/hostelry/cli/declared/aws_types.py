"""msgspec's types of the structures in AWS's service models, so that every field can be given."""

from functools import cache
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec
from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

from hostelry.aws.models import OPEN_ENUMS, service_model

Fields = list[tuple[str, Any] | tuple[str, Any, Any]]
Scalar = str | int | float | bool
"""A text that may be written without quotes: of an environment, of a tag."""
_NUMBERS: dict[str, Any] = {
    "integer": int, "long": int, "float": float, "double": float, "boolean": bool,
}  # fmt: skip


def input_fields(service: str, operation: str, *without: str) -> Fields:
    """The members of an operation's request, but those of `without`; none is required."""
    found: OperationModel = service_model(service).operation_model(operation)
    return fields_of(service, found.input_shape, *without)


def shape_fields(service: str, name: str, *without: str) -> Fields:
    """The members of a structure, but those of `without`; none is required."""
    return fields_of(service, service_model(service).shape_for(name), *without)


def fields_of(service: str, shape: StructureShape, *without: str) -> Fields:
    """The members of `shape`, but those of `without`, as optional fields."""
    return [
        (name, type_of(service, member.name), msgspec.UNSET)
        for name, member in shape.members.items()
        if name not in without
    ]


def struct(
    name: str, *fields: Fields, doc: str = "", module: str = __name__
) -> type[msgspec.Struct]:
    """A struct that refuses other fields; of fields with one name the last one counts."""
    by_name = {field[0]: field for group in fields for field in group}
    required_first = sorted(by_name.values(), key=len)
    return msgspec.defstruct(
        name,
        required_first,
        kw_only=True,
        forbid_unknown_fields=True,
        module=module,
        namespace={"__doc__": doc} if doc else {},
    )


def mapping_of(kind: Any) -> Any:
    """The type of mappings from names to `kind`."""
    return GenericAlias(dict, (str, kind))


def list_of(kind: Any) -> Any:
    """The type of lists of `kind`."""
    return GenericAlias(list, (kind,))


@cache
def type_of(service: str, name: str) -> Any:
    """The type of the shape `name` of a service."""
    return _type_of(service, service_model(service).shape_for(name))


def _type_of(service: str, shape: Shape) -> Any:
    if isinstance(shape, StructureShape):
        fields: Fields = [
            (member, type_of(service, its.name))
            if member in shape.required_members
            else (member, type_of(service, its.name), msgspec.UNSET)
            for member, its in shape.members.items()
        ]
        return struct(shape.name, fields, module=f"aws.{service}")
    if isinstance(shape, ListShape):
        return _bounded(list_of(type_of(service, shape.member.name)), shape, "length")
    if isinstance(shape, MapShape):
        inner: Any = type_of(service, shape.value.name)
        return mapping_of(Scalar if shape.value.type_name == "string" else inner)
    return _scalar_type(shape)


def _scalar_type(shape: Shape) -> Any:
    if shape.type_name in _NUMBERS:
        kind = _NUMBERS[shape.type_name]
        return kind if kind is bool else _bounded(kind, shape, "value")
    enum = getattr(shape, "enum", None)
    if enum and shape.name not in OPEN_ENUMS:
        return Literal[tuple(enum)]
    return _bounded(str, shape, "length")


def _bounded(kind: Any, shape: Shape, of: str) -> Any:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is None and most is None:
        return kind
    if of == "value":
        return Annotated[kind, msgspec.Meta(ge=least, le=most)]
    return Annotated[kind, msgspec.Meta(min_length=least, max_length=most)]
