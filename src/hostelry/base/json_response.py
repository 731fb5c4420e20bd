"""JSON bodies of control's internal routes."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def refuse_invalid(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Answer 400, `no WHAT: REASON`, if the block cannot decode a body or raises `errors`."""
    invalid: tuple[type[Exception], ...] = (msgspec.MsgspecError, UnicodeDecodeError, *errors)
    try:
        yield
    except invalid as error:
        LOG.warning("refused an invalid body, no %s: %s", what, error)
        raise HTTPException(400, f"no {what}: {error}") from None


class JsonResponse(Response):
    """Response with a value that msgspec can encode."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The value as JSON."""
        return msgspec.json.encode(content)
