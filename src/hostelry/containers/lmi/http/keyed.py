"""The server's first look at a request: whether it shows the copy's key; its body is not read."""

from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.copy_key import HEADER, NOT_SHOWN, is_shown
from hostelry.containers.lmi.http.adapter_routes import json_response
from hostelry.containers.lmi.response.error_form import front_end_error, openai_error

NAME = HEADER.lower().encode()


def keyed(app: ASGIApp, key: str | None) -> ASGIApp:
    """`app` for those who show `key`, 403 for others; `app` itself without a key."""
    if key is None:
        return app

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        given = [value.decode("latin-1") for name, value in scope["headers"] if name == NAME]
        if is_shown(key, given):
            await app(scope, receive, send)
            return
        form = openai_error if scope["path"].startswith("/v1/") else front_end_error
        refusal = json_response(form(403, NOT_SHOWN), 403)
        refusal.headers["Connection"] = "close"  # what is left of the body is not read
        await refusal(scope, receive, send)

    return answer
