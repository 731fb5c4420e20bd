"""Pages and tokens of every List and Describe operation.

A page's token holds the position of its last row, not an offset: rows that come or go between two
calls neither repeat nor hide another. It is bound to the operation, the caller's scope and the
filters by a digest, so that a garbled token, or one of another list, is refused.
"""

import base64
import hashlib
import heapq
import json
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from hostelry.api.context import CallContext, Params, Result
from hostelry.base.errors import ServiceError
from hostelry.store.first_created import FirstCreated, Parts

DEFAULT_PAGE_SIZE = 10
# These may differ from page to page; all other parameters may not.
PAGING = ("NextToken", "MaxResults", "MaxRecords", "MaxDatapoints", "Limit")
INVALID_TOKEN = (
    "NextToken is not valid for this request: it must come unchanged from the previous"
    " answer of the same operation, with the same filters and order."
)
Position = tuple[str | float, str]
# The members by which a list is sorted, by its SortBy.
POSITIONS = {
    "Name": ("name", "name"),
    "CreationTime": ("created_at", "name"),
    "Status": ("status", "name"),
}
PLACES_OF_RECORDS = {"status": "status.value"}
FILTERS = (
    "CreationTimeBefore",
    "CreationTimeAfter",
    "LastModifiedTimeBefore",
    "LastModifiedTimeAfter",
    "StatusEquals",
    "NameContains",
)
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
    found, following = _page(tokens, rows, operator.itemgetter(0), size, descending=descending)
    return [it for _, it in found], following


def _page(
    tokens: PageTokens,
    rows: Iterable[T],
    position_of: Callable[[T], Position],
    size: int,
    *,
    descending: bool,
) -> tuple[list[T], Result]:
    last = tokens.last_position()
    if last is not None:
        follows = operator.lt if descending else operator.gt
        rows = (it for it in rows if follows(position_of(it), last))
    first = heapq.nlargest if descending else heapq.nsmallest
    found = first(size + 1, rows, key=position_of)  # without sorting those of other pages
    following = tokens.next_members(position_of(found[size - 1])) if len(found) > size else {}
    return found[:size], following


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPaging:
    """The members and the page size of a service's lists.

    Pages have `page_size` entries, or as many as the request asks for by its `size_member`. With
    an empty `size_member` a request cannot choose. `error_code` is for invalid tokens.
    """

    page_size: int = 100
    size_member: str = "MaxResults"
    error_code: str = "ValidationException"

    def answer(
        self,
        context: CallContext,
        operation: str,
        params: Params,
        member: str,
        rows: Iterable[tuple[Position, Any]],
        *,
        descending: bool = False,
    ) -> Result:
        """The page of `rows` that a request asks for, as `member`, and the token to the next."""
        tokens = PageTokens(context, operation, params, self.error_code)
        size = params.get(self.size_member) or self.page_size
        page, following = page_of(tokens, rows, size, descending=descending)
        return {member: page, **following}


def named(rows: Iterable[tuple[str, T]]) -> list[tuple[Position, T]]:
    """Rows (name, entry) in the order of their names, which are unique."""
    return [((name, name), entry) for name, entry in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedResource:
    """One resource of a SageMaker list; `summary` is its entry in the answer."""

    name: str
    created_at: float
    summary: Result
    modified_at: float = 0.0
    status: str = ""


class ListedRecord(Protocol):
    """A record that a SageMaker list shows."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def created_at(self) -> float:
        """Seconds since the epoch."""
        ...

    @property
    def modified_at(self) -> float:
        """Seconds since the epoch."""
        ...

    @property
    def status(self) -> Enum:
        """Its status, by AWS's name of it."""
        ...


L = TypeVar("L", bound=ListedRecord)


def list_page(
    context: CallContext, operation: str, params: Params, resources: Iterable[ListedResource]
) -> tuple[list[Result], Result]:
    """The summaries of the page of a SageMaker list, and the members that lead to the next.

    The order is by CreationTime, newest first, unless SortBy and SortOrder are given; resources of
    one instant or status are in the order of their names.
    """
    found, following = _page(
        PageTokens(context, operation, params),
        (it for it in resources if passes(it, params)),
        operator.attrgetter(*POSITIONS[params.get("SortBy", "CreationTime")]),
        params.get("MaxResults") or DEFAULT_PAGE_SIZE,
        descending=params.get("SortOrder", "Descending") == "Descending",
    )
    return [it.summary for it in found], following


def list_records(
    context: CallContext,
    operation: str,
    params: Params,
    groups: Iterable[tuple[Hashable, Parts[L]]],
    first: FirstCreated,
    summary: Callable[[L], Result],
    belongs: Callable[[L], bool] | None = None,
) -> tuple[list[Result], Result]:
    """As `list_page`, of thousands of records in parts: `summary` is of those on the page alone.

    With `belongs` the list has those of which it holds.
    """
    order, size = params.get("SortBy", "CreationTime"), params.get("MaxResults")
    descending = params.get("SortOrder", "Descending") == "Descending"
    size = size or DEFAULT_PAGE_SIZE
    is_first = not params.get("NextToken") and order == "CreationTime"
    if is_first and not belongs and all(params.get(it) is None for it in FILTERS):
        records: Iterable[L] = first.among(groups, size + 1, descending=descending)
    else:
        records = (it for _, parts in groups for part in parts.values() for it in part.values())
        records = (it for it in records if passes(_listed(it), params))
        records = filter(belongs, records) if belongs else records
    tokens = PageTokens(context, operation, params)
    place = operator.attrgetter(*(PLACES_OF_RECORDS.get(it, it) for it in POSITIONS[order]))
    found, following = _page(tokens, records, place, size, descending=descending)
    return [summary(it) for it in found], following


def _listed(record: ListedRecord) -> ListedResource:
    return ListedResource(
        name=record.name,
        created_at=record.created_at,
        modified_at=record.modified_at,
        status=str(record.status.value),
        summary={},
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


def digest_of(content: Any) -> str:
    """A short digest of JSON content, against mistakes; it is no secret."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]
