"""The routes of a framework model server."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.containers.http.serving_app import ServingApp, body_of, one_line, text_response
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.model_processes import ModelProcesses
from hostelry.containers.predictive.worker_pool import PoolBusyError
from hostelry.containers.predictive.worker_process import Answered, Asked, WorkerLostError

SHOWN_PREFIX = "x-amzn-sagemaker-"
SHOWN = {"content-type": "Content-Type", "accept": "Accept", "x-request-id": "X-Request-Id"}
NOT_PASSED = frozenset(
    {"content-length", "content-type", "transfer-encoding", "connection", "date", "server"}
)
OK_TO_PASS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")  # of RFC 9110's names


class PredictiveApp(ServingApp):
    """The application over the processes of one model."""

    def __init__(
        self, pool: ModelProcesses, max_request_bytes: int, clock: Clock, metrics: PredictiveMetrics
    ) -> None:
        super().__init__(clock, metrics)
        self._pool = pool
        self._max_bytes = max_request_bytes
        metrics.watch_workers(lambda: len(pool.pids))

    def routes(self) -> list[Route]:
        """Its own routes."""
        return [
            Route("/invocations", self.counted, methods=["POST"]),
            Route("/execution-parameters", self.execution_parameters, methods=["GET"]),
        ]

    def fault(self) -> str | None:
        """Why no worker serves."""
        return self._pool.fault

    async def execution_parameters(self, _request: Request) -> Response:
        """What the model's execution_parameters_fn gives; 404 without it."""
        found = self._pool.execution_parameters
        if found is None:
            return text_response("the model's code has no execution_parameters_fn", 404)
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def invoked(self, request: Request) -> Response:
        """The model's answer to one request."""
        body = await body_of(request, self._max_bytes)
        if isinstance(body, Response):
            return body
        try:
            return answer_of(
                await self._pool.invoke(Asked(headers=shown(request.headers), body=body))
            )
        except HostelryError as error:
            return refusal_of(error)


def answer_of(answer: Answered) -> Response:
    """A model's answer as the client's."""
    headers = {**passed(answer.headers), "content-type": one_line(answer.content_type)}
    return Response(answer.body, answer.status if 200 <= answer.status < 600 else 500, headers)


def refusal_of(error: HostelryError) -> Response:
    """The answer to a request that no worker answered."""
    if isinstance(error, PoolBusyError):
        return text_response(str(error), 503)
    if isinstance(error, WorkerLostError):
        return text_response(str(error), 504 if error.timed_out else 502)
    return text_response(str(error), 500)


def shown(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that the model's functions see: SageMaker's, and those of the content."""
    found = {}
    for name, value in headers.items():
        lowered = name.lower()
        if lowered in SHOWN:
            found[SHOWN[lowered]] = value
        elif lowered.startswith(SHOWN_PREFIX):
            found[name] = value
    return found


def passed(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a model's answer that reach the client; those that frame it do not."""
    return {
        name: one_line(value)
        for name, value in headers.items()
        if name.lower() not in NOT_PASSED and name and set(name.lower()) <= OK_TO_PASS
    }
