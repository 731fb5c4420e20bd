"""Tokens that lead from one page of an answer to the next; each is of one list and its filters."""

import base64
import json
from typing import Any

from hostelry.api.context import CallContext, Params
from hostelry.api.logs.lookup import invalid
from hostelry.api.page import digest_of

INVALID_TOKEN = "The specified nextToken is invalid."
PAGING = frozenset({"nextToken", "limit"})


def token_to(context: CallContext, params: Params, position: Any) -> str:
    """The token to the page at `position`, which is JSON."""
    text = json.dumps([position, _digest(context, params)])
    return base64.urlsafe_b64encode(text.encode()).decode()


def position_of(context: CallContext, params: Params) -> Any:
    """The position of the request's token; None without one.

    Raises InvalidParameterException where the token is not of this list.
    """
    token = params.get("nextToken")
    if token is None:
        return None
    try:
        position, digest = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    except (ValueError, TypeError, RecursionError):
        raise invalid(INVALID_TOKEN) from None
    if digest != _digest(context, params) or not _is_position(position):
        raise invalid(INVALID_TOKEN)
    return position


def _is_position(position: Any) -> bool:
    """Whether it is a pair of a number and a number or text that the store can look for."""
    if not isinstance(position, list) or len(position) != 2:
        return False
    first, second = position
    small = (it for it in position if isinstance(it, int))
    return (
        isinstance(first, int)
        and isinstance(second, int | str)
        and all(abs(it) < 2**62 for it in small)
    )


def _digest(context: CallContext, params: Params) -> str:
    scope = context.scope
    filters = sorted((name, str(it)) for name, it in params.items() if name not in PAGING)
    return digest_of([scope.account, scope.region, filters])
