"""Filters, order and pages of every List operation.

A page's token holds the position of its last row, not an offset: rows that come or go between two
calls neither repeat nor hide another. It is bound to the operation, the caller's scope and the
filters by a digest, so that a foreign or garbled token is refused.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.base.errors import validation_error

DEFAULT_PAGE_SIZE = 10
PAGING = ("NextToken", "MaxResults")
Position = tuple[str | float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    """One resource as a list sees it; `summary` is what the answer shows of it."""

    name: str
    created_at: float
    summary: Result
    modified_at: float = 0.0
    status: str = ""


def list_page(
    context: CallContext, operation: str, params: Params, rows: Iterable[ListedResource]
) -> tuple[list[Result], Result]:
    """The summaries of the page that `params` ask for, and the members that lead to the next.

    The order is by CreationTime, newest first, unless SortBy and SortOrder say otherwise; rows of
    one instant or status are in the order of their names.
    """
    digest = request_digest(context, operation, params)
    descending = params.get("SortOrder", "Descending") == "Descending"
    placed = sorted(
        ((position(row, params.get("SortBy", "CreationTime")), row) for row in rows),
        key=lambda pair: pair[0],
        reverse=descending,
    )
    found = [pair for pair in placed if passes(pair[1], params)]
    if params.get("NextToken"):
        last = read_token(params["NextToken"], digest)
        found = [pair for pair in found if is_after(pair[0], last, descending=descending)]
    size = params.get("MaxResults") or DEFAULT_PAGE_SIZE
    shown = found[:size]
    following = {"NextToken": write_token(shown[-1][0], digest)} if len(found) > size else {}
    return [row.summary for _, row in shown], following


def passes(row: ListedResource, params: Params) -> bool:
    """Whether `row` meets every filter given."""
    bounds: Sequence[tuple[str, float]] = (
        ("CreationTime", row.created_at),
        ("LastModifiedTime", row.modified_at),
    )
    for name, at in bounds:
        before, after = params.get(name + "Before"), params.get(name + "After")
        if before is not None and not at < before:
            return False
        if after is not None and not at > after:
            return False
    if params.get("StatusEquals") not in (None, row.status):
        return False
    return str(params.get("NameContains") or "") in row.name


def position(row: ListedResource, sort_by: str) -> Position:
    """Where `row` stands in the order of `sort_by`."""
    places: dict[str, Position] = {
        "Name": (row.name, row.name),
        "CreationTime": (row.created_at, row.name),
        "Status": (row.status, row.name),
    }
    return places[sort_by]


def is_after(place: Position, last: Position, *, descending: bool) -> bool:
    """Whether a row at `place` comes later in the list than one at `last`."""
    return place < last if descending else place > last


def request_digest(context: CallContext, operation: str, params: Params) -> str:
    """What must be the same from page to page."""
    asked = {name: str(value) for name, value in params.items() if name not in PAGING}
    scope = context.scope
    return digest_of([operation, scope.account, scope.region, sorted(asked.items())])


def digest_of(content: Any) -> str:
    """A short digest of JSON content; it finds mistakes, it keeps no secret."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]


def write_token(place: Position, digest: str) -> str:
    """A token that leads behind `place`."""
    content = json.dumps([*place, digest_of([digest, *place])])
    return base64.urlsafe_b64encode(content.encode()).decode()


def read_token(token: str, digest: str) -> Position:
    """The place a token leads behind; raises ValidationException where it is not this list's."""
    try:
        key, name, check = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError):
        check = key = name = None
    if check is None or check != digest_of([digest, key, name]):
        raise validation_error(
            "NextToken is not valid for this request: it must come unchanged from the previous"
            " answer of the same operation, with the same filters and order."
        )
    return key, name
