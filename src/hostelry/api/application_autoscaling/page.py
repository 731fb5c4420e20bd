"""Pages of the Describe operations of Application Auto Scaling."""

from collections.abc import Iterable
from typing import TypeVar

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import PageTokens, Position, page_of
from hostelry.base.errors import validation_error

MAX_RESULTS = 50
T = TypeVar("T")


def scaling_page(
    context: CallContext,
    operation: str,
    params: Params,
    rows: Iterable[tuple[Position, T]],
    *,
    size: int = MAX_RESULTS,
    descending: bool = False,
) -> tuple[list[T], Result]:
    """The page that `params` ask for, at most `size` rows, and the member that leads to the next.

    Raises ValidationException for MaxResults outside of 1 to 50, InvalidNextTokenException for a
    token that is not of this list.
    """
    tokens = PageTokens(context, operation, params, "InvalidNextTokenException")
    return page_of(tokens, rows, min(size, page_size(params)), descending=descending)


def page_size(params: Params) -> int:
    """MaxResults, or the maximum."""
    asked = params.get("MaxResults")
    if asked is None:
        return MAX_RESULTS
    if not 1 <= asked <= MAX_RESULTS:
        bound = "greater than or equal to 1" if asked < 1 else "less than or equal to 50"
        raise validation_error(
            f"1 validation error detected: Value '{asked}' at 'maxResults' failed to satisfy"
            f" constraint: Member must have value {bound}"
        )
    return int(asked)
