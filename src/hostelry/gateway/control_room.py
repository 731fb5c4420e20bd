"""Control-plane calls: the caller is verified here, the call is answered by control."""

from collections.abc import Mapping
from xml.sax.saxutils import escape

from hostelry.aws.call import find_target, serialize_error
from hostelry.aws.models import service_model
from hostelry.aws.sigv4 import Identity
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.gateway.callers import Callers, check_service
from hostelry.gateway.exchange import Exchange, header_lines
from hostelry.gateway.reply import Reply, UpstreamError
from hostelry.gateway.upstream import Timeouts, UpstreamPool

TIMEOUTS = Timeouts(total_s=55.0, connect_s=1.0)  # botocore's clients wait for 60 s
MAX_ANSWER_BYTES = 64 * 1024 * 1024
FORWARDED_HEADERS = (
    "content-type",
    "content-encoding",
    "accept",
    "x-amz-target",
    "x-amzn-query-mode",
    "smithy-protocol",
    "user-agent",
)
HOP_HEADERS = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
)
AWAY = "The control plane is restarting and cannot take the call; try again in a few seconds."
S3_ELSEWHERE = (
    "S3 is not served at this address: point the S3 client at the object store "
    "(AWS_ENDPOINT_URL_S3, as printed by `hostelry env`)."
)


class ControlRoom:
    """Serves every call that is not the door's own by asking control.

    Args:
        callers: tells who calls.
        pool: connections, to control among others.
        address: control's ``http://host:port``.
        internal_key: what lets the door in there.
    """

    def __init__(
        self, callers: Callers, pool: UpstreamPool, address: str, internal_key: str
    ) -> None:
        self._callers = callers
        self._pool = pool
        self._address = address
        self._internal_key = internal_key

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Pass one call on and its answer back; raises ServiceError where that cannot be."""
        request = exchange.request
        if _is_s3(request):
            raise ServiceError("MethodNotAllowed", S3_ELSEWHERE, 405)
        if request.path != "/" and not request.path.startswith("/service/"):
            raise ServiceError(
                "UnknownOperationException",
                f"Nothing is served at {request.method} {request.path:.200}.",
                404,
            )
        identity = await self._callers.identify(request)
        service = signing_name(find_target(request).service)
        check_service(identity, service)
        head = self._head(request, identity, service, request_id)
        exchange.respond(await self._ask(head, request.body))

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """`error` in the protocol that the call came in."""
        if _is_s3(request):
            return _s3_error(error, request_id)
        return serialize_error(error, None, request_id, request)

    async def _ask(self, head: bytes, body: bytes) -> HttpResponse:
        try:
            reply = await self._pool.send(self._address, (head, body), TIMEOUTS, MAX_ANSWER_BYTES)
            try:
                return HttpResponse(
                    reply.status, _passed_headers(reply), await reply.body(MAX_ANSWER_BYTES)
                )
            finally:
                reply.close()
        except UpstreamError:
            raise ServiceError("ServiceUnavailable", AWAY, 503) from None

    def _head(
        self, request: HttpRequest, identity: Identity, service: str, request_id: str
    ) -> bytes:
        query = f"?{request.query}" if request.query else ""
        given = request.headers
        passed = {name: given[name] for name in FORWARDED_HEADERS if name in given}
        ours = {
            "Host": self._address.removeprefix("http://"),
            "Content-Length": str(len(request.body)),
            "X-Hostelry-Key": self._internal_key,
            "X-Hostelry-Account": identity.account_id,
            "X-Hostelry-Region": identity.region,
            "X-Hostelry-Service": service,
            "X-Hostelry-Request-Id": request_id,
        }
        line = f"{request.method} {request.path}{query} HTTP/1.1\r\n".encode("latin-1")
        return b"%b%b\r\n" % (line, header_lines(passed | ours))


def signing_name(service: str) -> str:
    """What the service (by boto3 name) is called in a credential's scope."""
    metadata: Mapping[str, str] = service_model(service).metadata
    return metadata.get("signingName") or metadata["endpointPrefix"]


def _passed_headers(reply: Reply) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name not in HOP_HEADERS}


def _is_s3(request: HttpRequest) -> bool:
    return "/s3/aws4_request" in request.headers.get("authorization", "")


def _s3_error(error: ServiceError, request_id: str) -> HttpResponse:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Error>'
        f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        f"<RequestId>{request_id}</RequestId></Error>"
    )
    headers = {"Content-Type": "application/xml", "x-amz-request-id": request_id}
    return HttpResponse(error.http_status, headers, text.encode())
