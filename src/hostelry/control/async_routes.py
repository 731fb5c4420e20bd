"""Routes of control for the jobs process: publish to a topic, publish metrics, know an endpoint."""

import asyncio
import logging
import threading
from collections.abc import Callable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.domain.async_metrics import AsyncMetricsReport
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.metric import MODEL_NAMESPACE, Sample
from hostelry.domain.publication_request import PublicationRequest
from hostelry.domain.scope import Scope
from hostelry.messaging.topic_publisher import TopicMissingError, TopicPublisher
from hostelry.metrics.protocol import MetricWriter
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
MAX_MESSAGE_CHARACTERS = 256 * 1024
MAX_HOSTS = 1_000  # of which the newest report is known


class AsyncRoutes:
    """Handlers of /internal/publish, /internal/async-metrics and /internal/async-endpoint.

    Args:
        state: has the endpoints.
        topics: publishes messages.
        metrics: takes samples.
    """

    def __init__(self, state: State, topics: TopicPublisher, metrics: MetricWriter) -> None:
        self._state = state
        self._topics = topics
        self._metrics = metrics
        self._reported: dict[str, tuple[float, int]] = {}  # by host: the newest report's number
        self._reporting = threading.Lock()

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/publish", self.publish, methods=["POST"]),
            Route("/internal/async-metrics", self.take, methods=["POST"]),
            Route("/internal/async-endpoint", self.known, methods=["GET"]),
        )

    async def publish(self, request: Request) -> Response:
        """204 once the message is durable; 404 without such a topic, 400 for no message."""
        return await _done(self._publish, await request.body(), "message")

    async def take(self, request: Request) -> Response:
        """204 once the samples are published, also where they were before; 400 for no report."""
        return await _done(self._take, await request.body(), "report")

    async def known(self, request: Request) -> Response:
        """Whether there is such an endpoint that is not being deleted."""
        asked = request.query_params
        scope = Scope(asked.get("account", ""), asked.get("region", ""))
        found = await asyncio.to_thread(self._state.endpoints.get, scope, asked.get("endpoint", ""))
        exists = found is not None and found.value.status is not EndpointStatus.DELETING
        return JsonResponse({"exists": exists})

    def _publish(self, body: bytes) -> int:
        asked = decode(body, PublicationRequest)
        if len(asked.message) > MAX_MESSAGE_CHARACTERS:
            raise ValueError(f"its {len(asked.message)} characters exceed {MAX_MESSAGE_CHARACTERS}")
        try:
            self._topics.publish(
                asked.topic_arn, asked.subject, asked.message, message_id=asked.message_id
            )
        except TopicMissingError:
            LOG.warning("a notification was refused: there is no topic %.300s", asked.topic_arn)
            return 404
        return 204

    def _take(self, body: bytes) -> int:
        report = decode(body, AsyncMetricsReport)
        by_scope: dict[Scope, list[Sample]] = {}
        for scoped in report.samples:
            check_sample(scoped.sample)
            by_scope.setdefault(scoped.scope, []).append(scoped.sample)
        with self._reporting:
            number = (report.started_at, report.sequence)
            if number > self._reported.get(report.host, (0.0, 0)):
                self._reported.pop(report.host, None)
                self._reported[report.host] = number
                if len(self._reported) > MAX_HOSTS:
                    oldest = next(iter(self._reported))  # by its last report
                    self._reported.pop(oldest)
                for scope, samples in by_scope.items():
                    self._metrics.emit(scope, samples)
        return 204


def check_sample(sample: Sample) -> None:
    """Raise ValueError for what is no sample of an asynchronous endpoint."""
    if sample.metric.namespace != MODEL_NAMESPACE or len(sample.values) != len(sample.counts):
        raise ValueError(f"{sample.metric} has another namespace, or no count for each value")


async def _done(act: Callable[[bytes], int], body: bytes, what: str) -> Response:
    try:
        status = await asyncio.to_thread(act, body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        LOG.warning("a %s of the jobs process was refused: %s", what, error)
        return Response(f"no {what}: {error}", 400)
    return Response(status_code=status)
