"""Completion requests on their way to a copy of the model that they name."""

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.dataplane.balancing.destination import NoCopyError
from hostelry.dataplane.balancing.load_balancer import InFlightRequest, LoadBalancer
from hostelry.dataplane.invocation_head import (
    ADAPTER_ALIAS,
    ADAPTER_IDENTIFIER,
    build_term_headers,
    post_head,
)
from hostelry.dataplane.metering.meter import Measurement
from hostelry.dataplane.openai import find_model
from hostelry.dataplane.route_table import Destination
from hostelry.dataplane.routes import RouteSource
from hostelry.dataplane.tracing.call_trace import NO_TRACE, CallTrace
from hostelry.domain.at_zero import AtZero
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.admission import SentRequest, send_when_ready
from hostelry.gateway.queueing.decisions import NotServedError
from hostelry.gateway.queueing.pending_queue import PendingQueue
from hostelry.http1.reply import ConnectError, DeadlineError, UpstreamError
from hostelry.http1.upstream import Timeouts

NO_CAPACITY = "no_capacity"
TIMEOUT = "timeout"
MODEL_FAILED = "model_failed"


class _Asked(msgspec.Struct):
    """The only members of a completion request that the gateway reads."""

    model: str
    stream: bool | None = None


class Completions:
    """Sends completion requests to copies.

    Args:
        routes: the copies of each model.
        copies: chooses a copy.
        pending_queue: holds requests for which no copy is ready.
        timeout_s: limit of the wait for a copy, and then of the answer to its last byte.
    """

    def __init__(
        self,
        routes: RouteSource,
        copies: LoadBalancer,
        pending_queue: PendingQueue,
        timeout_s: float,
    ) -> None:
        self._routes = routes
        self._copies = copies
        self._pending_queue = pending_queue
        self._timeouts = Timeouts(total_s=timeout_s)

    async def send_when_ready(
        self,
        request: HttpRequest,
        owner: Scope,
        name: str,
        request_id: str,
        trace: CallTrace = NO_TRACE,
    ) -> SentRequest:
        """Send the request to a copy of model `name`, after a wait if no copy is ready.

        Raises ServiceError: model_not_found, component_failed, no_capacity, timeout, model_failed.
        """

        def find() -> Destination:
            destination = find_model(self._routes.table, owner, name)
            if not destination.copies:
                raise NoCopyError(destination)
            return destination

        async def send(destination: Destination, measured: Measurement) -> InFlightRequest:
            head = build_completion_head(request, name, destination, request_id)
            return await self._send(head, request.body, destination, measured)

        limit_s = self._timeouts.total_s
        pending = self._pending_queue.begin_request(find, len(request.body), limit_s, trace)
        try:
            return await send_when_ready(self._pending_queue, pending, send)
        except NotServedError as error:
            raise ServiceError(NO_CAPACITY, error.message, 503) from None
        except (NoCopyError, ConnectError):
            raise ServiceError(
                NO_CAPACITY, f"No copy of model `{name}` can take the request now.", 503
            ) from None

    async def _send(
        self, head: bytes, body: bytes, destination: Destination, measured: Measurement
    ) -> InFlightRequest:
        try:
            return await self._copies.send(
                destination.copies,
                destination.routing,
                (head, body),
                self._timeouts,
                adapter=destination.adapter_id,
                chosen=measured.record_copy,
            )
        except ConnectError:
            if destination.at_zero is AtZero.COMPAT:
                measured.record_no_answer()
            raise
        except UpstreamError as error:
            measured.record_no_answer()
            raise build_no_answer_error(error) from error


def build_completion_head(
    request: HttpRequest, name: str, destination: Destination, request_id: str
) -> bytes:
    """Build the head of `request` for a copy of `destination`, which has the model `name`."""
    return post_head(
        request.path,
        len(request.body),
        (
            ("Content-Type", request.headers.get("content-type", "application/json")),
            ("Accept", request.headers.get("accept")),
            ("X-Hostelry-Model", name),
            (ADAPTER_IDENTIFIER, destination.adapter_id),
            (ADAPTER_ALIAS, destination.adapter_alias),
            ("x-request-id", request_id),
            *build_term_headers(request),
        ),
    )


def parse_model_name(body: bytes) -> tuple[str, bool]:
    """Read the `model` of a completion request, and if it asks for a stream.

    Raises ServiceError 400.
    """
    try:
        asked = decode(body, _Asked)
        return asked.model, bool(asked.stream)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ServiceError(
            "invalid_request_body",
            f"The body must be a JSON object whose `model` is a string: {error}.",
            400,
            {"param": "model"},
        ) from None


def build_no_answer_error(error: UpstreamError) -> ServiceError:
    """Build the error of a request that its copy did not answer."""
    if isinstance(error, DeadlineError):
        return ServiceError(TIMEOUT, "The model did not finish its answer in time.", 504)
    return ServiceError(MODEL_FAILED, "The model server broke off before its answer ended.", 502)
