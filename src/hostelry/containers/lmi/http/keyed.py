"""Guard of the server's routes: a request needs the copy's key, or its body is not read."""

from starlette.types import ASGIApp, Receive, Scope, Send

from hostelry.base.copy_key import HEADER, NOT_SHOWN
from hostelry.base.key_guard import KeyGuard
from hostelry.containers.lmi.http.json_answer import json_response
from hostelry.containers.lmi.response.error_form import front_end_error, openai_error


def keyed(app: ASGIApp, key: str | None) -> ASGIApp:
    """`app` for requests with `key`, 403 for others; `app` itself without a key."""
    return app if key is None else KeyGuard(app, HEADER, key, _refuse)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    form = openai_error if scope["path"].startswith("/v1/") else front_end_error
    refusal = json_response(form(403, NOT_SHOWN), 403)
    refusal.headers["Connection"] = "close"  # the rest of the body is not read
    await refusal(scope, receive, send)
