"""Pages of alarms and of their histories; a token that is not the list's is InvalidNextToken."""

from collections.abc import Sequence
from typing import TypeVar

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import Position, digest_of, is_after, read_token, write_token
from hostelry.base.errors import ServiceError

PAGING = ("NextToken", "MaxRecords")
T = TypeVar("T")


def page_of(
    context: CallContext,
    operation: str,
    params: Params,
    placed: Sequence[tuple[Position, T]],
    *,
    default_size: int,
    descending: bool = False,
) -> tuple[list[T], Result]:
    """The page that `params` ask for of what stands in order, and the member that leads on."""
    asked = sorted((name, str(value)) for name, value in params.items() if name not in PAGING)
    scope = context.scope
    digest = digest_of([operation, scope.account, scope.region, asked])
    if params.get("NextToken"):
        last = place_of(params["NextToken"], digest)
        placed = [it for it in placed if is_after(it[0], last, descending=descending)]
    size = params.get("MaxRecords") or default_size
    shown = placed[:size]
    following = {"NextToken": write_token(shown[-1][0], digest)} if len(placed) > size else {}
    return [value for _, value in shown], following


def place_of(token: str, digest: str) -> Position:
    """The place a token leads behind."""
    try:
        return read_token(token, digest)
    except ServiceError as error:
        raise ServiceError("InvalidNextToken", error.message) from None
