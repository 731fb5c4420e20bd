"""Requests of a program passed on to the gateway or the object store, byte for byte, and noted.

A signature covers method, target, headers and Host, so that none of them is changed.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpcore
from starlette.types import Message, Receive, Scope, Send

from hostelry.base.clock import Clock
from hostelry.cli.program.call import SeenCall, SeenRequest, error_of, is_aws, is_s3, name_of

HEAD_BYTES = 64 * 1024  # of bodies, to find the operation of a form and the code of an error
HOP_HEADERS = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"expect"})
AWAY = b'{"__type":"ServiceUnavailable","message":"The hostelry does not answer."}'


class Forwarder:
    """An ASGI application that sends requests on to `gateway`, those for S3 to `store`.

    `seen` gets each call once it has ended. `for_store` is set on the port that is S3's.
    """

    def __init__(
        self,
        pool: httpcore.AsyncConnectionPool,
        gateway: str,
        store: str,
        seen: Callable[[SeenCall], None],
        clock: Clock,
        *,
        for_store: bool = False,
    ) -> None:
        self._pool = pool
        self._gateway = httpcore.URL(gateway)
        self._store = httpcore.URL(store)
        self._seen = seen
        self._clock = clock
        self._for_store = for_store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request; raises where an answer that has begun cannot be finished."""
        exchange = _Exchange(scope, receive)
        host = exchange.headers.get("host", "").partition(":")[0]
        to_store = self._for_store or (is_aws(host) and is_s3(host))
        status, answer_headers, beginning = await self._passed_on(
            exchange, self._store if to_store else self._gateway, send
        )
        service, operation = name_of(exchange.request())
        error = error_of(status, answer_headers, beginning) if status >= 400 else ("", "")
        self._seen(
            SeenCall(
                service=service,
                operation=operation,
                status=status,
                error=error[0],
                message=error[1],
                host=host if is_aws(host) else "",
                at=self._clock.now(),
            )
        )

    async def _passed_on(
        self, exchange: "_Exchange", origin: httpcore.URL, send: Send
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and beginning of the answer, which has been sent on."""
        url = httpcore.URL(
            scheme=origin.scheme, host=origin.host, port=origin.port, target=exchange.target
        )
        has_body = {b"content-length", b"transfer-encoding"} & {it for it, _ in exchange.raw}
        beginning, has_begun = b"", False
        try:
            async with self._pool.stream(
                exchange.method,
                url,
                headers=[(name, value) for name, value in exchange.raw if name != b"expect"],
                content=exchange.body() if has_body else None,
            ) as answer:
                kept = [it for it in answer.headers if it[0].lower() not in HOP_HEADERS]
                has_begun = True
                await send(
                    {"type": "http.response.start", "status": answer.status, "headers": kept}
                )
                async for chunk in answer.aiter_stream():
                    beginning = (beginning + chunk)[:HEAD_BYTES]
                    await send(_body(chunk, more=True))
                await send(_body(b"", more=False))
                return answer.status, _text(kept), beginning
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError):
            if has_begun:
                return 503, {}, AWAY  # the server cuts an answer that is not whole
            headers = [(b"content-type", b"application/x-amz-json-1.1")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send(_body(AWAY, more=False))
            return 503, {}, AWAY


class _Exchange:
    """One request as it comes in, with the beginning of its body kept."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._beginning = b""
        query = scope["query_string"]
        self.method: str = scope["method"]
        self.target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
        self.raw: list[tuple[bytes, bytes]] = list(scope["headers"])
        self.headers = _text(self.raw)

    def request(self) -> SeenRequest:
        """What names the operation."""
        return SeenRequest(
            method=self.method,
            target=self.target.decode("latin-1"),
            headers=self.headers,
            body=self._beginning,
        )

    async def body(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        more = True
        while more:
            message = await self._receive()
            chunk: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            self._beginning = (self._beginning + chunk)[:HEAD_BYTES]
            if chunk:
                yield chunk


def _body(chunk: bytes, *, more: bool) -> Message:
    message: dict[str, Any] = {"type": "http.response.body", "body": chunk, "more_body": more}
    return message


def _text(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
