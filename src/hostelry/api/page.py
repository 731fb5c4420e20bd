"""Pages and tokens of every List and Describe operation.

A page's token holds the position of its last row. It holds no offset, so rows that are added or
deleted between two calls neither repeat nor hide another row. A digest binds the token to the
operation, the caller's scope and the filters, so that invalid tokens are refused.
"""

import base64
import hashlib
import heapq
import json
import operator
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import msgspec

from hostelry.api.context import CallContext, Params, Result
from hostelry.base.errors import ServiceError
from hostelry.store.first_created import CreatedRecord, FirstCreated, Parts

DEFAULT_PAGE_SIZE = 10
# Parameters that may differ from page to page.
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
    "Status": ("status.value", "name"),
}
FILTERS = (
    "CreationTimeBefore",
    "CreationTimeAfter",
    "LastModifiedTimeBefore",
    "LastModifiedTimeAfter",
    "StatusEquals",
    "NameContains",
)
T = TypeVar("T")
C = TypeVar("C", bound=CreatedRecord)


class PageTokens:
    """The token that a request gives, and the token to the next page.

    `error_code` is the service's code for an invalid token.
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
        self._digest = get_digest([operation, scope.account, scope.region, filters])

    def last_position(self) -> Position | None:
        """The position of the last row on the previous page, or None on the first page.

        Raises ServiceError for a token of another list.
        """
        if not self._given:
            return None
        try:
            content = base64.b64decode(self._given, altchars=b"-_", validate=True)
            key, name, check = json.loads(content)
        except (ValueError, TypeError, RecursionError):
            key = name = check = None
        if check is None or check != get_digest([self._digest, key, name]):
            raise ServiceError(self._error_code, INVALID_TOKEN)
        return key, name

    def next_members(self, position: Position) -> Result:
        """The member of the answer that leads to the rows behind `position`."""
        content = json.dumps([*position, get_digest([self._digest, *position])])
        return {"NextToken": base64.urlsafe_b64encode(content.encode()).decode()}


def get_page(
    tokens: PageTokens,
    rows: Iterable[tuple[Position, T]],
    size: int,
    *,
    descending: bool = False,
) -> tuple[list[T], Result]:
    """The requested page of `rows` (position, entry), and the token to the next page."""
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
    found = first(size + 1, rows, key=position_of)  # does not sort the rows of other pages
    following = tokens.next_members(position_of(found[size - 1])) if len(found) > size else {}
    return found[:size], following


class ListPaging(msgspec.Struct, frozen=True, kw_only=True):
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
        page, following = get_page(tokens, rows, size, descending=descending)
        return {member: page, **following}


def order_by_name(rows: Iterable[tuple[str, T]]) -> list[tuple[Position, T]]:
    """Rows (name, entry) in the order of their names, which are unique."""
    return [((name, name), entry) for name, entry in rows]


def list_answer(
    context: CallContext,
    operation: str,
    params: Params,
    member: str,
    records: Iterable[C],
    summarize: Callable[[C], Result],
) -> Result:
    """The answer of a SageMaker list: the requested page of `records`, which pass its filters.

    The order is by CreationTime, newest first, unless SortBy and SortOrder are given. Records of
    one instant or status are in the order of their names.
    """
    found, following = _page(
        PageTokens(context, operation, params),
        records,
        operator.attrgetter(*POSITIONS[params.get("SortBy", "CreationTime")]),
        params.get("MaxResults") or DEFAULT_PAGE_SIZE,
        descending=_is_descending(params),
    )
    return {member: [summarize(it) for it in found], **following}


def select_in_parts(
    params: Params,
    groups: Iterable[tuple[Hashable, Parts[C]]],
    first: FirstCreated,
    belongs: Callable[[C], bool] | None = None,
) -> Iterable[C]:
    """The records in parts that pass the filters of a SageMaker list, and `belongs` if given.

    For the first page of an unfiltered list these are only the records that it may begin with.
    """
    is_first = not params.get("NextToken") and params.get("SortBy") in (None, "CreationTime")
    if is_first and not belongs and all(params.get(it) is None for it in FILTERS):
        size = params.get("MaxResults") or DEFAULT_PAGE_SIZE
        return first.among(groups, size + 1, descending=_is_descending(params))
    every = (it for _, parts in groups for part in parts.values() for it in part.values())
    passing = (it for it in every if passes(it, params))
    return filter(belongs, passing) if belongs else passing


def _is_descending(params: Params) -> bool:
    return bool(params.get("SortOrder", "Descending") == "Descending")


def passes(record: Any, params: Params) -> bool:
    """True if a record passes every filter of a SageMaker list."""
    bounds = (
        ("CreationTimeBefore", "CreationTimeAfter", "created_at"),
        ("LastModifiedTimeBefore", "LastModifiedTimeAfter", "modified_at"),
    )
    for before, after, instant in bounds:
        if params.get(before) is not None and not getattr(record, instant) < params[before]:
            return False
        if params.get(after) is not None and not getattr(record, instant) > params[after]:
            return False
    status = params.get("StatusEquals")
    if status is not None and record.status.value != status:
        return False
    return str(params.get("NameContains") or "") in record.name


def get_digest(content: Any) -> str:
    """A short digest of JSON content. It protects against mistakes, not against forgery."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:24]
