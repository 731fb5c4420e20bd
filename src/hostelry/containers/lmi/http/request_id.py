"""The id of each request: of the client or a new one, in its response and in its log lines."""

import logging
import re
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hostelry.base.ids import new_request_id

ID = re.compile(rb"[\x21-\x7e]{1,128}")  # it goes into a header and into one log line
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
GATEWAYS = b"x-request-id"


class RequestIds:
    """`app`, whose requests have an id by the header `header`, else by the gateway's."""

    def __init__(self, app: ASGIApp, header: str) -> None:
        self._app = app
        self._name = header.lower().encode("latin-1")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request under its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = (headers.get(name, b"") for name in (self._name, GATEWAYS))
        request_id = next(filter(ID.fullmatch, given), None) or new_request_id().encode()

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = (self._name, request_id)
                message = {**message, "headers": [*message.get("headers", ()), named]}
            await send(message)

        token = REQUEST_ID.set(request_id.decode())
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            REQUEST_ID.reset(token)


class RequestIdSuffix(logging.Filter):
    """Adds the id of the request that is handled to a line, as DJL Serving names it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every line is kept."""
        request_id = REQUEST_ID.get()
        if request_id:
            record.msg = f"{record.getMessage()} requestId={request_id}"
            record.args = None
        return True


def show_request_ids(root: logging.Logger) -> None:
    """Add the ids to what the handlers of `root` write."""
    for handler in root.handlers:
        handler.addFilter(RequestIdSuffix())
