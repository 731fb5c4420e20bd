"""The query protocols: form bodies to values, values to XML. Knows no services and no headers.

A form names every leaf by its path: ``Dimensions.member.1.Name=x``, ``Map.entry.1.key=k``. The
models that speak `QUERY` flatten no list and give own names only to keys and values of maps, which
a test checks. ec2's protocol, `EC2`, flattens every list of a request and gives members own names.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec
from botocore.model import ListShape, MapShape, Shape, StructureShape

from hostelry.aws.tree import (
    Reader,
    check_type,
    finite,
    from_base64,
    integer_reader,
    present_members,
    serialization_error,
)

MAX_FORM_FIELDS = 20_000
MAX_PATH_PARTS = 32
_LEAF = ""
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How a query protocol names members of structures in forms and answers, and items of lists.

    In a form `listed` stands between a list's name and its items' numbers, unless it is empty.
    """

    in_form: Callable[[str, Shape], str]
    in_answer: Callable[[str, Shape], str]
    listed: str
    item: str


def _member_name(name: str, _: Shape) -> str:
    return name


def _ec2_form_name(name: str, member: Shape) -> str:
    own: str = member.serialization.get("name", name)
    return str(member.serialization.get("queryName") or own[:1].upper() + own[1:])


def _ec2_answer_name(name: str, member: Shape) -> str:
    return str(member.serialization.get("name", name))


QUERY = Dialect(in_form=_member_name, in_answer=_member_name, listed="member", item="member")
EC2 = Dialect(in_form=_ec2_form_name, in_answer=_ec2_answer_name, listed="", item="item")

Node = dict[str, Any]
"""A form as a tree: path part -> Node; the text of a leaf under the empty name."""


def decode_form(body: bytes) -> dict[str, str]:
    """The fields of a form body. The last of several equal names wins."""
    try:
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            max_num_fields=MAX_FORM_FIELDS,
            errors="strict",
        )
    except ValueError as error:
        raise serialization_error(f"The body is not a form: {error}") from None
    return dict(pairs)


def read_form(
    shape: StructureShape, fields: Mapping[str, str], dialect: Dialect = QUERY
) -> dict[str, Any]:
    """The values of `shape`'s members in `fields`. Other fields are ignored."""
    root: Node = {}
    for name, text in fields.items():
        parts = name.split(".")
        if len(parts) > MAX_PATH_PARTS:
            raise serialization_error(f"A field is nested deeper than {MAX_PATH_PARTS} levels")
        node = root
        for part in parts:
            node = node.setdefault(part, {}) if part else node
        node[_LEAF] = text
    values: dict[str, Any] = _read_shape(shape, root, "", dialect)
    return values


def _read_shape(shape: Shape, node: Node, path: str, dialect: Dialect) -> Any:
    if isinstance(shape, StructureShape):
        named = {dialect.in_form(name, it): name for name, it in shape.members.items()}
        return {
            named[key]: _read_shape(
                shape.members[named[key]], child, f"{path}.{named[key]}", dialect
            )
            for key, child in node.items()
            if key in named
        }
    if isinstance(shape, ListShape):
        items = _sort_numbered(node.get(dialect.listed, {}) if dialect.listed else node, path)
        return [_read_shape(shape.member, child, f"{path}.{at}", dialect) for at, child in items]
    if isinstance(shape, MapShape):
        key, value = _entry_names(shape)
        entries = _sort_numbered(node.get("entry", {}), path)
        return {
            _read_shape(shape.key, child.get(key, {}), f"{path}.{at}.{key}", dialect): _read_shape(
                shape.value, child.get(value, {}), f"{path}.{at}.{value}", dialect
            )
            for at, child in entries
        }
    try:
        return FORM_READERS[shape.type_name](node[_LEAF])
    except KeyError:
        raise serialization_error(f"A value is missing at '{path.lstrip('.')}'") from None
    except (ValueError, OverflowError) as error:
        raise serialization_error(f"{error} at '{path.lstrip('.')}'") from None


def _entry_names(shape: MapShape) -> tuple[str, str]:
    """The names of a map entry's key and value, which differ in sns."""
    key, value = (it.serialization.get("name") for it in (shape.key, shape.value))
    return key or "key", value or "value"


def _sort_numbered(node: Node, path: str) -> list[tuple[int, Node]]:
    """Children in the order of their numbers. Gaps are closed, as on AWS."""
    numbers = [name for name in node if name != _LEAF]
    odd = [name for name in numbers if not (name.isascii() and name.isdigit() and len(name) < 10)]
    if odd:
        raise serialization_error(f"'{odd[0]:.50}' is not a list index at '{path.lstrip('.')}'")
    return sorted(((int(name), node[name]) for name in numbers), key=lambda item: item[0])


def _whole(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise ValueError(f"'{text:.50}' can not be converted to an Integer")
    return int(text)


def _number(text: str) -> float:
    if len(text) > 400 or not _DECIMAL.fullmatch(text):
        raise ValueError(f"'{text:.50}' can not be converted to a Number")
    return finite(float(text))


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"'{text:.50}' can not be converted to a Boolean")
    return text.lower() == "true"


def _instant(text: str) -> float:
    """Epoch seconds of an ISO 8601 instant (UTC without a zone) or of a plain number."""
    if _DECIMAL.fullmatch(text):
        return _number(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"'{text:.50}' can not be converted to a Timestamp") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


FORM_READERS: Mapping[str, Reader] = {
    "string": str,
    "integer": integer_reader("integer", _whole),
    "long": integer_reader("long", _whole),
    "float": _number,
    "double": _number,
    "boolean": _truth,
    "blob": from_base64,
    "timestamp": _instant,
}


def result_xml(
    operation: str, namespace: str, shape: StructureShape | None, value: Any, request_id: str
) -> bytes:
    """The XML answer. Raises TypeError or ValueError if `value` does not fit `shape`."""
    wrapper = f"{operation}Result"
    inner = "" if shape is None else f"<{wrapper}>{_write(shape, value, wrapper)}</{wrapper}>"
    metadata = f"<ResponseMetadata><RequestId>{_text(request_id)}</RequestId></ResponseMetadata>"
    return (
        f'<{operation}Response xmlns="{namespace}">{inner}{metadata}</{operation}Response>'
    ).encode()


def ec2_result_xml(
    operation: str, namespace: str, shape: StructureShape | None, value: Any, request_id: str
) -> bytes:
    """The XML answer of ec2's protocol. Raises as `result_xml` does."""
    inner = "" if shape is None else _write(shape, value, operation, EC2)
    return (
        f'<{operation}Response xmlns="{namespace}"><requestId>{_text(request_id)}</requestId>'
        f"{inner}</{operation}Response>"
    ).encode()


def ec2_error_xml(fault: Mapping[str, str], request_id: str) -> bytes:
    """The XML error answer of ec2's protocol, with Code and Message of `fault`."""
    inner = "".join(f"<{name}>{_text(fault[name])}</{name}>" for name in ("Code", "Message"))
    return (
        f"<Response><Errors><Error>{inner}</Error></Errors>"
        f"<RequestID>{_text(request_id)}</RequestID></Response>"
    ).encode()


def error_xml(fault: Mapping[str, str], namespace: str, request_id: str) -> bytes:
    """The XML error answer. `fault` has Type, Code, Message and further members."""
    inner = "".join(f"<{name}>{_text(text)}</{name}>" for name, text in fault.items())
    attribute = f' xmlns="{namespace}"' if namespace else ""
    return (
        f"<ErrorResponse{attribute}><Error>{inner}</Error>"
        f"<RequestId>{_text(request_id)}</RequestId></ErrorResponse>"
    ).encode()


def _write(shape: Shape, value: Any, path: str, dialect: Dialect = QUERY) -> str:
    return "".join(_pieces(shape, value, path, dialect))


def _pieces(shape: Shape, value: Any, path: str, dialect: Dialect) -> Iterator[str]:
    if isinstance(shape, StructureShape):
        for name, member, item in present_members(shape, value, path):
            tag = dialect.in_answer(name, member)
            yield f"<{tag}>{_write(member, item, f'{path}.{name}', dialect)}</{tag}>"
        return
    check_type(shape, value, path)
    if isinstance(shape, ListShape):
        for item in value:
            inner = _write(shape.member, item, f"{path}[]", dialect)
            yield f"<{dialect.item}>{inner}</{dialect.item}>"
    elif isinstance(shape, MapShape):
        key_name, value_name = _entry_names(shape)
        for key, item in value.items():
            yield f"<entry><{key_name}>{_text(key)}</{key_name}>"
            inner = _write(shape.value, item, f"{path}.{key}", dialect)
            yield f"<{value_name}>{inner}</{value_name}></entry>"
    else:
        yield _text(_scalar(shape.type_name, value))


def _scalar(type_name: str, value: Any) -> str:
    if type_name == "boolean":
        return "true" if value else "false"
    if type_name == "blob":
        return base64.b64encode(value).decode()
    if type_name == "timestamp":
        return iso8601(value)
    return str(value)


def iso8601(epoch_s: float) -> str:
    """An instant as AWS prints it, such as ``2026-11-21T08:30:00Z``, with microseconds if any."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat().replace("+00:00", "Z")


def _text(text: str) -> str:
    """`text` escaped. Characters outside of XML 1.0 become the replacement character."""
    return escape(_NOT_XML.sub("\ufffd", text), {"\r": "&#13;"})
