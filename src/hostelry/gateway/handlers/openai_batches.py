"""OpenAI's files and batches: passed on to the jobs process, which keeps and runs them.

A file is passed on while it comes in, and while it is read: no worker holds it whole.
"""

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.request_body import BodyLostError
from hostelry.dataplane.openai import error_response
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.callers import Callers
from hostelry.gateway.handlers.openai import Asker
from hostelry.http1.heads import build_request_head
from hostelry.http1.reply import Reply, UpstreamError
from hostelry.http1.streamed_body import BodyBrokenError, StreamedBody
from hostelry.http1.upstream import Timeouts, UpstreamPool
from hostelry.permissions.needs.invocation import ASYNCHRONOUS, InvokedTarget

PATHS = ("/v1/files", "/v1/batches")
# With the file, of 200 MB at most, the rest of the form.
UPLOADS = {"/v1/files": 200 * 1024 * 1024 + 64 * 1024}
TIMEOUTS = Timeouts(total_s=3600.0, connect_s=1.0)  # of a large file on a slow line
PASSED = ("content-type",)


class OpenAiBatchHandler(msgspec.Struct, frozen=True):
    """Serves ``/v1/files`` and ``/v1/batches`` for the account of the OpenAI key.

    `address` is the jobs process. `internal_key` is the key of calls between processes.
    """

    callers: Callers
    routes: RouteSource
    pool: UpstreamPool
    address: str
    internal_key: str

    def admit(self, request: HttpRequest) -> bool:
        """Return True. Raises ServiceError 401 without a valid key."""
        self.callers.find_bearer(request)
        return True

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Pass a request and its answer on. Raises ServiceError before the answer's first byte."""
        scope = self._find_scope(exchange)
        exchange.verified()
        try:
            reply = await self._send(exchange, scope, request_id)
            try:
                await self._pass_on(exchange, reply, request_id)
            finally:
                reply.close()
        except BodyBrokenError as error:
            if isinstance(error.cause, BodyLostError):
                text = f"The upload broke off: {error.cause}."
                raise ServiceError("timeout", text, 408) from None
            raise _away(error) from error
        except UpstreamError as error:
            if not exchange.started:
                raise _away(error) from error

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` as OpenAI's API does."""
        return error_response(error, request_id)

    def _find_scope(self, exchange: Exchange) -> Scope:
        """The account of the caller. Raises ServiceError 401 and 403.

        A batch may name any model of the account, so that its caller must be allowed to call all.
        """
        found = self.callers.find_bearer(exchange.request)
        exchange.note_caller(found.caller, self.callers.owner.region)
        scope = Scope(found.caller.account, self.callers.owner.region)
        every = InvokedTarget(endpoint="*", component="*")
        refusal = self.callers.permits.find_refusal(
            found.caller, exchange, scope, ASYNCHRONOUS, every
        )
        models = self.routes.table.llms(scope.account) if refusal is None else []
        asker = Asker(self.callers, exchange, self.routes.table)
        closed = [it for it in models if not asker.may_call(it, ASYNCHRONOUS)]
        if closed:
            refusal = f"Its policies deny {', '.join(closed):.300}."
        if found.models:
            refusal = f"The key may call {', '.join(found.models):.300} only."
        if refusal is not None:
            raise ServiceError(
                "permission_denied",
                "Files and batches need a key that may call every model of the account"
                f" (sagemaker:{ASYNCHRONOUS}). {refusal}",
                403,
            )
        return scope

    async def _send(self, exchange: Exchange, scope: Scope, request_id: str) -> Reply:
        request, body = exchange.request, exchange.body
        if body is None:
            head = self._head(request, scope, len(request.body), request_id)
            return await self.pool.send(self.address, (head, request.body), TIMEOUTS)
        if body.length_bytes is None:
            text = "An upload must say its length: send Content-Length."
            raise ServiceError("length_required", text, 411)
        head = self._head(request, scope, body.length_bytes, request_id)
        streamed = StreamedBody(body.chunks(), body.length_bytes)
        return await self.pool.stream(self.address, head, streamed, TIMEOUTS)

    def _head(self, request: HttpRequest, owner: Scope, num_bytes: int, request_id: str) -> bytes:
        target = f"{request.path}?{request.query}" if request.query else request.path
        lines = {
            "Host": self.address.removeprefix("http://"),
            "X-Hostelry-Key": self.internal_key,
            "X-Hostelry-Account": owner.account,
            "X-Hostelry-Region": owner.region,
            "x-request-id": request_id,
            **{name: request.headers[name] for name in PASSED if name in request.headers},
        }
        return build_request_head(request.method, target, lines, num_bytes)

    async def _pass_on(self, exchange: Exchange, reply: Reply, request_id: str) -> None:
        content_type = reply.headers.get("content-type", "application/json")
        exchange.start(reply.status, {"Content-Type": content_type, "x-request-id": request_id})
        while (chunk := await reply.next_chunk()) is not None:
            await exchange.send(chunk)
        exchange.finish()


def _away(error: UpstreamError) -> ServiceError:
    return ServiceError(
        "server_error",
        f"The process for batches does not answer ({error}); try again in a few seconds.",
        503,
    )
