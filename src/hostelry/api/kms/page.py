"""Pages of KMS's lists, which name their tokens Marker and NextMarker."""

from collections.abc import Iterable

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, page_of

DEFAULT_PAGE_SIZE = 100


def marked_page(
    context: CallContext,
    operation: str,
    params: Params,
    member: str,
    rows: Iterable[tuple[str, Result]],
) -> Result:
    """The page of `rows` (name, entry) that the request asks for, under `member`."""
    asked = {name: it for name, it in params.items() if name not in ("Marker", "Limit")}
    asked["NextToken"] = params.get("Marker")
    tokens = PageTokens(context, operation, asked, "InvalidMarkerException")
    size = params.get("Limit") or DEFAULT_PAGE_SIZE
    page, following = page_of(tokens, [((name, name), row) for name, row in rows], size)
    answer: Result = {member: page, "Truncated": bool(following)}
    return {**answer, "NextMarker": following["NextToken"]} if following else answer
