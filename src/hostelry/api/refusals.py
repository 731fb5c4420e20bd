"""Errors whose texts clients and SDKs match.

Source: DescribeEndpoint, CreateModel and their kin; the waiters and the SageMaker SDK look for
"Could not find" and "Cannot create already existing" in the text of a ValidationException.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.scope import Scope
from hostelry.store.records import Records, Versioned

MAX_REASON = 1024
T = TypeVar("T")

# The resource's kind in ARNs, and the words for it in messages.
KIND_WORDS: Mapping[str, str] = {
    "model": "model",
    "endpoint-config": "endpoint configuration",
    "endpoint": "endpoint",
    "inference-component": "inference component",
    "transform-job": "transform job",
    "inference-experiment": "inference experiment",
}


def not_found(scope: Scope, kind: str, name: str) -> ServiceError:
    """The error for a name that no resource has."""
    return validation_error(f'Could not find {KIND_WORDS[kind]} "{scope.arn(kind, name)}".')


def found_in(records: Records[T], scope: Scope, kind: str, name: str) -> Versioned[T]:
    """The record of that name; raises ValidationException where there is none."""
    found = records.get(scope, name)
    if found is None:
        raise not_found(scope, kind, name)
    return found


def already_exists(scope: Scope, kind: str, name: str) -> ServiceError:
    """The error for a second create of a name."""
    return validation_error(
        f'Cannot create already existing {KIND_WORDS[kind]} "{scope.arn(kind, name)}".'
    )


def in_progress(kind: str, arn: str) -> ServiceError:
    """The error for an update while another change is in progress."""
    return validation_error(f'Cannot update in-progress {KIND_WORDS[kind]} "{arn}".')


def unsupported(field: str, advice: str = "") -> ServiceError:
    """The error for a field that this version does not implement."""
    return validation_error(
        f"{field} is not supported by this version of Hostelry." + (f" {advice}" if advice else "")
    )


def refuse_fields(params: Mapping[str, Any], fields: tuple[str, ...], path: str = "") -> None:
    """Raise `unsupported` for the first of `fields` that is given; `path` leads to `params`."""
    for field in fields:
        if params.get(field) is not None:
            raise unsupported(path + field)


def refuse_isolation(params: Mapping[str, Any]) -> None:
    """Raise `unsupported` where network isolation is requested: it cannot be provided."""
    if params.get("EnableNetworkIsolation"):
        raise unsupported(
            "EnableNetworkIsolation=true",
            "Model servers are processes of this machine and share its network.",
        )


def echoed(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The members of a request that have one of `names` and a value."""
    return {name: given[name] for name in names if given.get(name) is not None}


def short_reason(reason: str) -> str:
    """A failure reason within the 1024 characters that AWS's shape allows."""
    return reason if len(reason) <= MAX_REASON else reason[: MAX_REASON - 3] + "..."
