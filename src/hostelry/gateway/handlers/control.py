"""Control-plane calls: verifies the caller, and forwards the call to control."""

import asyncio
import math
import re
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from hostelry.aws.call import serialize_error
from hostelry.aws.models import signing_name
from hostelry.aws.rest import rest_service
from hostelry.aws.sigv4 import Identity, Proven
from hostelry.aws.target import find_target, head_service, is_form
from hostelry.aws.temporary_keys import session_header
from hostelry.base.clock import monotonic_s
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.control_calls import (
    CONTROL_BACK_S,
    CallOutcome,
    is_read,
    may_send_again,
    why_unanswered,
)
from hostelry.dataplane.http.exchange import Exchange
from hostelry.gateway.handlers.callers import Callers, check_service, is_unsigned
from hostelry.http1.heads import build_request_head
from hostelry.http1.reply import ConnectError, ControlAwayError, Reply, UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

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
AWAY_HEADER = "x-hostelry-away"  # of an answer without a leader of control, with the cause
HOP_HEADERS = frozenset(
    {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
)
AGAIN_S = 0.1
# The verified caller, as control reads it. Without an access key id a process of the platform asks.
KEY_ID_HEADER = "x-hostelry-access-key-id"
USER_HEADER = "x-hostelry-user"
SOURCE_HEADER = "x-hostelry-client-address"
SECURE_HEADER = "x-hostelry-client-tls"
UNSIGNED_HEADER = "x-hostelry-unsigned"  # nothing proves who sent the request
MAX_UNSIGNED_BYTES = 64 * 1024  # a token has at most 20,000 characters
S3_ELSEWHERE = (
    "S3 is not served at this address: point the S3 client at the object store "
    "(AWS_ENDPOINT_URL_S3, as printed by `hostelry env`)."
)
# The service in a credential's scope. It is not verified, and only part of an error's text.
_SIGNED_SERVICE = re.compile(r"Credential=[^/,\s=]+/\d+/[^/,\s]+/([a-z0-9-]{1,50})/aws4_request")
# Clients of SQS may post to a queue's own URL.
_QUEUE_PATH = re.compile(r"/\d{12}/[A-Za-z0-9_-]{1,80}(\.fifo)?")
_TOPIC = re.compile(r"arn:aws:sns:([a-z0-9-]{1,50}):(\d{12}):[A-Za-z0-9_-]{1,256}")


class ControlHandler:
    """Serves the control plane by forwarding calls to control.

    Args:
        callers: identifies callers.
        pool: the connections to control.
        address: control's ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
    """

    def __init__(self, callers: Callers, pool: Upstream, address: str, internal_key: str) -> None:
        self._callers = callers
        self._pool = pool
        self._address = address
        self._internal_key = internal_key

    def admit(self, request: HttpRequest) -> bool:
        """True if the head proves who calls. Raises ServiceError if the call will be refused."""
        _check_path(request)
        if self._find_unsigned(request) is not None or may_be_web_identity(request):
            return False
        found = self._callers.admit(request)
        if not isinstance(found, Proven):
            return False
        _check_signed_service(request, found.identity)
        return True

    async def serve(self, exchange: Exchange, request_id: str) -> None:
        """Forward one call, and its answer. Raises ServiceError if control does not answer."""
        request = exchange.request
        _check_path(request)
        unsigned = self._find_unsigned(request)
        identity = unsigned or await self._callers.identify(request)
        service = _check_signed_service(request, identity)
        if unsigned is None:
            exchange.verified()
        head = self._head(exchange, identity, service, request_id, is_unsigned=unsigned is not None)
        exchange.respond(await self._ask(head, request.body))

    def error_answer(
        self, error: ServiceError, request: HttpRequest, request_id: str
    ) -> HttpResponse:
        """Format `error` in the protocol of the call."""
        if _is_s3(request):
            return _build_s3_error(error, request_id)
        return serialize_error(error, None, request_id, request)

    def _find_unsigned(self, request: HttpRequest) -> Identity | None:
        """The identity for a call that needs no signature, or None."""
        owner = find_confirmed_topic_owner(request)
        if owner is not None:
            return owner
        if not may_be_web_identity(request) or not is_web_identity(request):
            return None
        here = self._callers.owner  # the account of the role is in its ARN
        return Identity(
            access_key_id="", account_id=here.account, region=here.region, service="sts"
        )

    async def _ask(self, head: bytes, body: bytes) -> HttpResponse:
        try:
            reply = await self._send((head, body))
            try:
                if AWAY_HEADER in reply.headers:
                    raise ServiceError("ServiceUnavailable", reply.headers[AWAY_HEADER], 503)
                return HttpResponse(
                    reply.status, _build_answer_headers(reply), await reply.body(MAX_ANSWER_BYTES)
                )
            finally:
                reply.close()
        except UpstreamError as error:
            cause = why_unanswered(error, TIMEOUTS.total_s)
            raise ServiceError("ServiceUnavailable", cause, 503) from None

    async def _send(self, parts: tuple[bytes, bytes]) -> Reply:
        """Send the call to control. While control restarts, a call that it has not taken waits."""
        began_s, give_up_at_s = monotonic_s(), math.inf
        while True:
            try:
                return await self._pool.send(self._address, parts, TIMEOUTS, MAX_ANSWER_BYTES)
            except ControlAwayError:
                raise  # it has waited for another control
            except UpstreamError as error:
                is_untaken = isinstance(error, ConnectError)
                outcome = CallOutcome.NOT_TAKEN if is_untaken else CallOutcome.UNANSWERED
                now_s = monotonic_s()
                give_up_at_s = min(give_up_at_s, now_s + CONTROL_BACK_S)
                in_time = now_s < began_s + TIMEOUTS.total_s
                again = may_send_again(outcome, only_reads=is_read(*parts), is_whole=in_time)
                if not again or now_s >= give_up_at_s:
                    raise
            await asyncio.sleep(AGAIN_S)

    def _head(
        self,
        exchange: Exchange,
        identity: Identity,
        service: str,
        request_id: str,
        *,
        is_unsigned: bool,
    ) -> bytes:
        request = exchange.request
        target = f"{request.path}?{request.query}" if request.query else request.path
        given = request.headers
        passed = {name: given[name] for name in FORWARDED_HEADERS if name in given}
        ours = {
            "Host": self._address.removeprefix("http://"),
            "X-Hostelry-Key": self._internal_key,
            "X-Hostelry-Account": identity.account_id,
            "X-Hostelry-Region": identity.region,
            "X-Hostelry-Service": service,
            "X-Hostelry-Request-Id": request_id,
            KEY_ID_HEADER: identity.access_key_id,
            SOURCE_HEADER: exchange.address,
            SECURE_HEADER: "1" if self._callers.is_secure else "0",
        }
        if is_unsigned:
            ours[UNSIGNED_HEADER] = "1"
        if identity.user:
            ours[USER_HEADER] = identity.user
        if identity.session is not None:
            ours["X-Hostelry-Session"] = session_header(identity.session)
        return build_request_head(request.method, target, passed | ours, len(request.body))


def find_confirmed_topic_owner(request: HttpRequest) -> Identity | None:
    """Find the owner of the topic whose subscription a GET of a SubscribeURL confirms.

    Such a request has no signature. Control checks the token in its query. None for any other
    request. Raises ServiceError if the request has a body, whose sender nothing proves yet.
    """
    if request.method != "GET" or request.path != "/" or not is_unsigned(request):
        return None
    try:
        fields = parse_qs(request.query, max_num_fields=8)
    except ValueError:
        return None
    topic = _TOPIC.fullmatch(fields.get("TopicArn", [""])[0])
    if fields.get("Action") != ["ConfirmSubscription"] or topic is None:
        return None
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        raise ServiceError("InvalidParameter", "ConfirmSubscription takes no body.", 400)
    return Identity(access_key_id="", account_id=topic[2], region=topic[1], service="sns")


def may_be_web_identity(request: HttpRequest) -> bool:
    """True if the head may be of AssumeRoleWithWebIdentity: a short form without a signature.

    The body says if it is. Control verifies the token in it. A packed body of an unknown client is
    not unpacked.
    """
    length = request.headers.get("content-length", "")
    return (
        request.method == "POST"
        and request.path == "/"
        and is_unsigned(request)
        and is_form(request)
        and "content-encoding" not in request.headers
        and length.isascii()
        and length.isdigit()
        and len(length) <= len(str(MAX_UNSIGNED_BYTES))
        and int(length) <= MAX_UNSIGNED_BYTES
    )


def is_web_identity(request: HttpRequest) -> bool:
    """True if the whole request is AssumeRoleWithWebIdentity, read as control reads it."""
    try:
        target = find_target(request)
    except ServiceError:
        return False
    return (target.service, target.operation) == ("sts", "AssumeRoleWithWebIdentity")


def _check_path(request: HttpRequest) -> None:
    if _is_s3(request):
        raise ServiceError("MethodNotAllowed", S3_ELSEWHERE, 405)
    is_queue = _QUEUE_PATH.fullmatch(request.path) is not None
    is_known = is_queue or rest_service(request.path) or request.path.startswith("/service/")
    if request.path != "/" and not is_known:
        signed = _SIGNED_SERVICE.search(request.headers.get("authorization", ""))
        asked = f"{request.method} {request.path:.200}"
        raise ServiceError(
            "UnknownOperationException",
            f"Hostelry does not serve {signed[1]} ({asked}). docs/compatibility.md lists what it"
            " serves."
            if signed
            else f"Nothing is served at {asked}.",
            404,
        )


def _check_signed_service(request: HttpRequest, identity: Identity) -> str:
    """Find the service (signing name) of the call. Raises if the signature is for another one.

    A form names the service in its body, which control reads and compares.
    """
    service, _ = head_service(request)
    if service is None:
        return identity.service
    check_service(identity.service, signing_name(service))
    return signing_name(service)


def _build_answer_headers(reply: Reply) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name not in HOP_HEADERS}


def _is_s3(request: HttpRequest) -> bool:
    return "/s3/aws4_request" in request.headers.get("authorization", "")


def _build_s3_error(error: ServiceError, request_id: str) -> HttpResponse:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Error>'
        f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
        f"<RequestId>{request_id}</RequestId></Error>"
    )
    headers = {"Content-Type": "application/xml", "x-amz-request-id": request_id}
    return HttpResponse(error.http_status, headers, text.encode())
