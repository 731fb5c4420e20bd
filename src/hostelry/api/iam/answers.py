"""IAM's errors in AWS's words, its pages (Marker, MaxItems, IsTruncated) and its tags.

Tags are members of the tagged record. Source: IAM API reference, and the answers that moto and
Terraform's provider match on.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from hostelry.api.context import Params, Result
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import MAX_TAGS
from hostelry.permissions.document import DocumentKind, MalformedDocument, parse_statements
from hostelry.permissions.statement import PolicyStatement

DEFAULT_PAGE_SIZE = 100
T = TypeVar("T")


def no_such_entity(message: str) -> ServiceError:
    """The error for a missing entity."""
    return ServiceError("NoSuchEntity", message, 404)


def already_exists(message: str) -> ServiceError:
    """The error for a name that is taken."""
    return ServiceError("EntityAlreadyExists", message, 409)


def delete_conflict(message: str) -> ServiceError:
    """The error for the delete of an entity in use."""
    return ServiceError("DeleteConflict", message, 409)


def limit_exceeded(message: str) -> ServiceError:
    """The error for a quota of an account or an entity."""
    return ServiceError("LimitExceeded", message, 409)


def invalid_input(message: str) -> ServiceError:
    """The error for a value that IAM does not accept."""
    return ServiceError("InvalidInput", message, 400)


def validation_failed(message: str) -> ServiceError:
    """The error for a value that does not match its form."""
    return ServiceError("ValidationError", message, 400)


def unmodifiable(name: str) -> ServiceError:
    """The error for a change of a role that a service owns."""
    return ServiceError(
        "UnmodifiableEntity",
        f"Cannot perform the operation on the protected role '{name}' - this role is only"
        " modifiable by AWS",
        400,
    )


def parse_document(text: str, kind: DocumentKind) -> tuple[PolicyStatement, ...]:
    """The statements of a document. Raises MalformedPolicyDocument."""
    try:
        return parse_statements(text, kind)
    except MalformedDocument as error:
        raise ServiceError("MalformedPolicyDocument", str(error), 400) from None


def count_characters(text: str) -> int:
    """The number of characters in a document without white space, which quotas count."""
    return len("".join(text.split()))


def build_page(params: Params, rows: Iterable[tuple[str, T]]) -> tuple[list[T], Result]:
    """The requested page of `rows` (name, entry) in the order of names, and its other members."""
    after = _read_marker(params.get("Marker"))
    size = params.get("MaxItems") or DEFAULT_PAGE_SIZE
    left = sorted((it for it in rows if after is None or it[0] > after), key=lambda it: it[0])
    page = [it for _, it in left[:size]]
    if len(left) <= size:
        return page, {"IsTruncated": False}
    marker = base64.urlsafe_b64encode(left[size - 1][0].encode()).decode()
    return page, {"IsTruncated": True, "Marker": marker}


def _read_marker(marker: str | None) -> str | None:
    """The name of the last row on the previous page. Raises ValidationError."""
    if marker is None:
        return None
    try:
        return base64.b64decode(marker, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise validation_failed("Invalid Marker.") from None


def parse_tags(given: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    """The tags of a request, checked."""
    tags: dict[str, str] = {}
    for tag in given or ():
        key = tag["Key"]
        if key.lower() in {it.lower() for it in tags}:
            raise invalid_input(
                "Duplicate tag keys found. Please note that Tag keys are case insensitive."
            )
        if key.lower().startswith("aws:"):
            raise invalid_input(f"Tag keys that begin with aws: are reserved; got {key}.")
        tags[key] = tag["Value"]
    return tags


def merge_tags(present: Mapping[str, str], params: Params) -> dict[str, str]:
    """The tags after a Tag... call. Keys that differ only in case are the same key."""
    added = parse_tags(params["Tags"])
    replaced = {it.lower() for it in added}
    merged = {k: v for k, v in present.items() if k.lower() not in replaced} | added
    if len(merged) > MAX_TAGS:
        raise limit_exceeded(f"The number of tags has reached the maximum limit: {MAX_TAGS}")
    return merged


def remove_tags(present: Mapping[str, str], params: Params) -> dict[str, str]:
    """The tags after an Untag... call."""
    gone = {it.lower() for it in params["TagKeys"]}
    return {key: value for key, value in present.items() if key.lower() not in gone}


def answer_tag_page(tags: Mapping[str, str], params: Params) -> Result:
    """A page of tags."""
    page, members = build_page(params, [(it["Key"], it) for it in describe_tags(tags)])
    return {"Tags": page, **members}


def describe_tags(tags: Mapping[str, str]) -> list[Result]:
    """Tags in AWS's form."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]
