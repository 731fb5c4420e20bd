"""Refusals of unsupported fields, and members that answers share."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.base.errors import ServiceError, validation_error

MAX_REASON = 1024


def unsupported(field: str, advice: str = "") -> ServiceError:
    """Build the error for a field that this version does not implement."""
    return validation_error(
        f"{field} is not supported by this version of Hostelry." + (f" {advice}" if advice else "")
    )


def refuse_fields(params: Mapping[str, Any], fields: tuple[str, ...], path: str = "") -> None:
    """Raise `unsupported` for the first of `fields` that is given. `path` leads to `params`."""
    for field in fields:
        if params.get(field) is not None:
            raise unsupported(path + field)


def refuse_isolation(params: Mapping[str, Any]) -> None:
    """Raise `unsupported` if network isolation is requested."""
    if params.get("EnableNetworkIsolation"):
        raise unsupported(
            "EnableNetworkIsolation=true",
            "Model servers are processes of this machine and share its network.",
        )


def echo_members(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The members of a request that have one of `names` and a value."""
    return {name: given[name] for name in names if given.get(name) is not None}


def short_reason(reason: str) -> str:
    """A failure reason within the 1024 characters that AWS's shape allows."""
    return reason if len(reason) <= MAX_REASON else reason[: MAX_REASON - 3] + "..."
