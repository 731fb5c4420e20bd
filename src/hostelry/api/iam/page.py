"""Pages of IAM's lists: Marker, MaxItems, IsTruncated."""

import base64
import binascii
from collections.abc import Iterable
from typing import TypeVar

from hostelry.api.context import Params, Result
from hostelry.api.iam.refusals import validation

DEFAULT_PAGE_SIZE = 100
T = TypeVar("T")


def iam_page(params: Params, rows: Iterable[tuple[str, T]]) -> tuple[list[T], Result]:
    """The page that a request asks for of named rows, in the order of names, and its members."""
    after = _last_name(params.get("Marker"))
    size = params.get("MaxItems") or DEFAULT_PAGE_SIZE
    left = sorted((it for it in rows if after is None or it[0] > after), key=lambda it: it[0])
    page = [it for _, it in left[:size]]
    if len(left) <= size:
        return page, {"IsTruncated": False}
    marker = base64.urlsafe_b64encode(left[size - 1][0].encode()).decode()
    return page, {"IsTruncated": True, "Marker": marker}


def _last_name(marker: str | None) -> str | None:
    """The name of the last row of the page before; raises ValidationError for no such marker."""
    if marker is None:
        return None
    try:
        return base64.b64decode(marker, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise validation("Invalid Marker.") from None
