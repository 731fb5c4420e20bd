"""Pages of the Describe operations of Application Auto Scaling."""

from collections.abc import Iterable
from typing import TypeVar

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import Position, is_after, read_token, request_digest, write_token
from hostelry.base.errors import ServiceError, validation_error

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
    """The page that `params` ask for, at most `size` rows, and the member that leads on.

    Raises ValidationException for MaxResults outside of 1 to 50, InvalidNextTokenException for a
    token that is not this list's.
    """
    digest = request_digest(context, operation, params)
    ordered = sorted(rows, key=lambda it: it[0], reverse=descending)
    if params.get("NextToken"):
        last = place_of(params["NextToken"], digest)
        ordered = [it for it in ordered if is_after(it[0], last, descending=descending)]
    size = min(size, page_size(params))
    following = {}
    if len(ordered) > size:
        following = {"NextToken": write_token(ordered[size - 1][0], digest)}
    return [it for _, it in ordered[:size]], following


def page_size(params: Params) -> int:
    """MaxResults, or the most."""
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


def place_of(token: str, digest: str) -> Position:
    """The place a token leads behind."""
    try:
        return read_token(token, digest)
    except ServiceError as error:
        raise ServiceError("InvalidNextTokenException", error.message) from None
