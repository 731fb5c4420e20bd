"""Typed reads from an untrusted JSON object. Every refusal names field, value and limits."""

import reprlib
from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.base.json import nests_deeper
from hostelry.containers.lmi.refusal import Refusal, bad_request
from hostelry.engine.request import MAX_COUNT, MAX_TOKEN_ID

SHOWN_CHARACTERS = 80
MAX_INTEGER = MAX_COUNT
# Well below the recursion limit of repr, templates and schemas. A JSON schema of 64 levels, the
# most that are accepted, takes two lists or objects for each level.
MAX_NESTING = 200

# Reads no more of a value than is shown.
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 2 * SHOWN_CHARACTERS
_REPR.maxlist = _REPR.maxdict = SHOWN_CHARACTERS


def parse_json(body: bytes) -> Any:
    """The JSON value in `body`. Raises Refusal for invalid JSON and too deep nesting."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    except RecursionError:
        raise nests_too_deep() from None
    if body.count(b"[") + body.count(b"{") > MAX_NESTING and nests_deeper(value, MAX_NESTING):
        raise nests_too_deep()
    return value


def nests_too_deep() -> Refusal:
    """The refusal of a body whose lists and objects nest too deep."""
    return bad_request(f"the body nests deeper than {MAX_NESTING} lists and objects")


def show(value: object) -> str:
    """A value as error messages show it, cut to a readable length."""
    text = _REPR.repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."


class BodyFields:
    """The members of one JSON object. Null counts as absent."""

    def __init__(self, members: object, where: str) -> None:
        if not isinstance(members, dict):
            raise bad_request(f"{where} is {show(members)}; it must be a JSON object", where)
        self._members: Mapping[str, Any] = members

    def __contains__(self, name: str) -> bool:
        return self._members.get(name) is not None

    def names(self) -> tuple[str, ...]:
        """The names of the members that are not null."""
        return tuple(name for name, value in self._members.items() if value is not None)

    def as_dict(self) -> dict[str, Any]:
        """Every member."""
        return dict(self._members)

    def raw(self, name: str) -> Any:
        """The value as parsed. None if absent."""
        return self._members.get(name)

    def members(self, name: str) -> "BodyFields":
        """The members of an object. An absent object is empty."""
        value = self._members.get(name)
        return BodyFields({} if value is None else value, name)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean, or the text true or false."""
        value = self._members.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise bad_request(f"{name} is {show(value)}; it must be true or false", name)

    def integer(self, name: str, low: int, high: int = MAX_INTEGER) -> int | None:
        """A whole number between `low` and `high`."""
        value = self.number(name, low, high)
        if value is None:
            return None
        if value != int(value):
            raise bad_request(f"{name} is {value}; it must be a whole number", name)
        return int(value)

    def number(self, name: str, low: float, high: float) -> float | None:
        """A finite number between `low` and `high`."""
        value = self._members.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_request(f"{name} is {show(value)}; it must be a number", name)
        if not low <= value <= high:
            raise bad_request(
                f"{name} is {show(value)}; it must be at least {low}"
                + ("" if high == MAX_INTEGER else f" and at most {high}"),
                name,
            )
        return value

    def text(self, name: str) -> str | None:
        """A string."""
        value = self._members.get(name)
        if value is None or isinstance(value, str):
            return value
        raise bad_request(f"{name} is {show(value)}; it must be a string", name)

    def texts(self, name: str, *, most: int, longest: int) -> tuple[str, ...]:
        """A string, or a list of strings, each with characters. Empty if absent."""
        value = self._members.get(name)
        values = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise bad_request(
                f"{name} is {show(value)}; it must be a string or a list of strings", name
            )
        if len(values) > most or any(not 0 < len(each) <= longest for each in values):
            raise bad_request(
                f"{name} is {show(value)}; at most {most} strings of 1 to {longest} characters",
                name,
            )
        return tuple(values)

    def integers(self, name: str, *, most: int) -> tuple[int, ...]:
        """A list of whole numbers from 0 on. Empty if absent."""
        value = self._members.get(name)
        values = [] if value is None else value
        if not isinstance(values, list) or not all(is_token_id(each) for each in values):
            raise bad_request(f"{name} is {show(value)}; it must be a list of token ids", name)
        if len(values) > most:
            raise bad_request(f"{name} has {len(values)} members; at most {most}", name)
        return tuple(values)

    def refuse(self, name: str, accepted: tuple[object, ...], reason: str) -> None:
        """Raise Refusal for any value of `name` except null and the `accepted` ones."""
        value = self._members.get(name)
        if value is None or any(value == each for each in accepted):
            return
        raise bad_request(f"{name} is {show(value)}: {reason}", name)


def is_token_id(value: object) -> bool:
    """True if `value` is a whole number in the range of token ids."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return is_integer and 0 <= value <= MAX_TOKEN_ID  # type: ignore[operator]
