"""Pages and tokens of every List and Describe operation.

A page's token holds the position of its last row, not an offset: rows that come or go between two
calls neither repeat nor hide another. It is bound to the operation, the caller's scope and the
filters by a digest, so that a garbled token, or one of another list, is refused.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hostelry.api.context import CallContext, Params, Result
from hostelry.base.errors import ServiceError

DEFAULT_PAGE_SIZE = 10
# These may differ from page to page; all other parameters may not.
PAGING = ("NextToken", "MaxResults", "MaxRecords", "MaxDatapoints")
INVALID_TOKEN = (
    "NextToken is not valid for this request: it must come unchanged from the previous"
    " answer of the same operation, with the same filters and order."
)
Position = tuple[str | float, str]
T = TypeVar("T")


class PageTokens:
    """The tokens of one request: the one that it gives, and the one to the next page.

    `error_code` is that of an invalid token, which differs between the services.
    """

    def __init__(
        self,
        context: CallContext,
        operation: str,
        params: Params,
        error_code: str = "ValidationException",
    ) -> None:
        self._given = params.get("NextToken")
        self._error_code = error_code
        scope = context.scope
        filters = sorted((name, str(it)) for name, it in params.items() if name not in PAGING)
        self._digest = digest_of([operation, scope.account, scope.region, filters])

    def last_position(self) -> Position | None:
        """The position of the last row of the page before; None on the first page.

        Raises ServiceError where the token is not of this list.
        """
        if not self._given:
            return None
        try:
            content = base64.b64decode(self._given, altchars=b"-_", validate=True)
            key, name, check = json.loads(content)
        except (ValueError, TypeError, RecursionError):
            key = name = check = None
        if check is None or check != digest_of([self._digest, key, name]):
            raise ServiceError(self._error_code, INVALID_TOKEN)
        return key, name

    def next_members(self, position: Position) -> Result:
        """The member of the answer that leads to the rows behind `position`."""
        content = json.dumps([*position, digest_of([self._digest, *position])])
        return {"NextToken": base64.urlsafe_b64encode(content.encode()).decode()}


def page_of(
    tokens: PageTokens,
    rows: Iterable[tuple[Position, T]],
    size: int,
    *,
    descending: bool = False,
) -> tuple[list[T], Result]:
    """The page that the request asks for, in the order of positions, and the member to the next."""
    last = tokens.last_position()
    ordered = sorted(rows, key=lambda it: it[0], reverse=descending)
    if last is not None:
        ordered = [it for it in ordered if (it[0] < last if descending else it[0] > last)]
    following = tokens.next_members(ordered[size - 1][0]) if len(ordered) > size else {}
    return [it for _, it in ordered[:size]], following


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    """One resource of a SageMaker list; `summary` is its entry in the answer."""

    name: str
    created_at: float
    summary: Result
    modified_at: float = 0.0
    status: str = ""


def list_page(
    context: CallContext, operation: str, params: Params, resources: Iterable[ListedResource]
) -> tuple[list[Result], Result]:
    """The summaries of the page of a SageMaker list, and the members that lead to the next.

    The order is by CreationTime, newest first, unless SortBy and SortOrder are given; resources of
    one instant or status are in the order of their names.
    """
    sort_by = params.get("SortBy", "CreationTime")
    return page_of(
        PageTokens(context, operation, params),
        [(position(it, sort_by), it.summary) for it in resources if passes(it, params)],
        params.get("MaxResults") or DEFAULT_PAGE_SIZE,
        descending=params.get("SortOrder", "Descending") == "Descending",
    )


def passes(resource: ListedResource, params: Params) -> bool:
    """Whether `resource` meets every filter given."""
    bounds: Sequence[tuple[str, str, float]] = (
        ("CreationTimeBefore", "CreationTimeAfter", resource.created_at),
        ("LastModifiedTimeBefore", "LastModifiedTimeAfter", resource.modified_at),
    )
    for before, after, at in bounds:
        if params.get(before) is not None and not at < params[before]:
            return False
        if params.get(after) is not None and not at > params[after]:
            return False
    if params.get("StatusEquals") not in (None, resource.status):
        return False
    return str(params.get("NameContains") or "") in resource.name


def position(resource: ListedResource, sort_by: str) -> Position:
    """The position of `resource` in the order of `sort_by`."""
    positions: dict[str, Position] = {
        "Name": (resource.name, resource.name),
        "CreationTime": (resource.created_at, resource.name),
        "Status": (resource.status, resource.name),
    }
    return positions[sort_by]


def digest_of(content: Any) -> str:
    """A short digest of JSON content, against mistakes; it is no secret."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]
