"""The routes of framework model servers: for one model, and for many models."""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.containers.http.serving_app import (
    ServingApp,
    read_request,
    text_response,
    to_header_value,
)
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.model_table import ModelInMemory, ModelProcesses, ModelTable
from hostelry.containers.predictive.worker_process import Prediction, PredictRequest

MODEL_HEADER_PREFIX = "x-amzn-sagemaker-"
MODEL_HEADERS = {"content-type": "Content-Type", "accept": "Accept", "x-request-id": "X-Request-Id"}
FRAMING_HEADERS = frozenset(
    {"content-length", "content-type", "transfer-encoding", "connection", "date", "server"}
)
NAME_CHARACTERS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")  # by RFC 9110
MAX_LOAD_BYTES = 1 << 16
MAX_NAME_CHARACTERS = 1024
DEFAULT_PAGE, MAX_PAGE = 100, 1000
TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"
PLACES = "x-hostelry-places"


class PredictiveApp(ServingApp):
    """The application over the processes of one model, which compute `num_places` requests at once.

    Its answers report this number to gateways, unless it is 0.
    """

    def __init__(
        self,
        pool: ModelProcesses,
        max_request_bytes: int,
        clock: Clock,
        metrics: PredictiveMetrics,
        num_places: int = 0,
    ) -> None:
        super().__init__(clock, metrics)
        self._num_places = str(num_places)
        self._pool = pool
        self._max_bytes = max_request_bytes
        metrics.watch_workers(lambda: len(pool.pids))

    def routes(self) -> list[Route]:
        """The routes of one model."""
        return [
            Route("/invocations", self.invoke_counted, methods=["POST"]),
            Route("/execution-parameters", self.execution_parameters, methods=["GET"]),
        ]

    def fault(self) -> str | None:
        """The reason why no worker serves."""
        return self._pool.fault

    async def execution_parameters(self, _request: Request) -> Response:
        """The result of the model's execution_parameters_fn. 404 without the function."""
        parameters = self._pool.execution_parameters
        if parameters is None:
            return text_response("the model's code has no execution_parameters_fn", 404)
        return json_response(parameters)

    async def invoke(self, request: Request) -> Response:
        """The model's answer to one request."""
        asked = await read_predict_request(request, self._max_bytes)
        response = to_response(await self._pool.invoke(asked))
        if self._num_places != "0":
            response.headers[PLACES] = self._num_places
        return response


class ToLoad(msgspec.Struct, frozen=True):
    """The body of POST /models."""

    model_name: str
    url: str


class MultiModelApp(ServingApp):
    """The routes of SageMaker's contract for multi-model containers, over a table of models.

    An unload waits at most `unload_s` for requests to end.
    """

    def __init__(
        self,
        table: ModelTable,
        max_request_bytes: int,
        unload_s: float,
        clock: Clock,
        metrics: PredictiveMetrics,
    ) -> None:
        super().__init__(clock, metrics)
        self._table = table
        self._max_bytes = max_request_bytes
        self._unload_s = unload_s
        metrics.watch_workers(lambda: len(table.pids))

    def routes(self) -> list[Route]:
        """The routes of the contract."""
        return [
            Route("/models", self.load, methods=["POST"]),
            Route("/models", self.list, methods=["GET"]),
            Route("/models/{name}", self.describe, methods=["GET"]),
            Route("/models/{name}", self.unload, methods=["DELETE"]),
            Route("/models/{name}/invoke", self.invoke_counted, methods=["POST"]),
        ]

    def fault(self) -> str | None:
        """The reason why it takes no orders. It is healthy without a model."""
        return None if self._table.is_ready else "the framework is being imported"

    async def load(self, request: Request) -> Response:
        """Load a model: 200, 409 if it is loaded, 507 without room."""
        body = await read_request(request, MAX_LOAD_BYTES)
        query = request.query_params
        try:
            given = decode(body or msgspec.json.encode(dict(query)), ToLoad)
        except msgspec.DecodeError as error:
            return text_response(f'the body must have "model_name" and "url": {error}', 400)
        if not 0 < len(given.model_name) <= MAX_NAME_CHARACTERS or "/" in given.model_name:
            return text_response(
                f"model_name must have 1 to {MAX_NAME_CHARACTERS} characters and no slash", 400
            )
        target = request.headers.get(TARGET_MODEL, "")
        model = await self._table.load(given.model_name, given.url, target)
        return json_response({**describe_model(model), "status": f"model {model.name} is loaded"})

    async def list(self, request: Request) -> Response:
        """A page of the loaded models."""
        text = request.query_params.get("limit", str(DEFAULT_PAGE))
        limit = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
        if not 0 < limit <= MAX_PAGE:
            return text_response(f"limit must be a number from 1 to {MAX_PAGE}", 400)
        token = request.query_params.get("next_page_token", "")
        models, following = self._table.page(limit, token)
        page: dict[str, object] = {"models": [describe_model(model) for model in models]}
        return json_response({**page, "nextPageToken": following} if following else page)

    async def describe(self, request: Request) -> Response:
        """A loaded model. 404 if it is not loaded."""
        return json_response(describe_model(self._table.get(request.path_params["name"])))

    async def unload(self, request: Request) -> Response:
        """Unload a model: 200 once its memory is free, 404 if it is not loaded."""
        name = request.path_params["name"]
        await self._table.unload(name, self._unload_s)
        return json_response({"status": f"model {name} is unloaded"})

    async def invoke(self, request: Request) -> Response:
        """A model's answer. 404 if it is not loaded."""
        asked = await read_predict_request(request, self._max_bytes)
        return to_response(await self._table.invoke(request.path_params["name"], asked))


async def read_predict_request(request: Request, max_bytes: int) -> PredictRequest:
    """The body, and the headers that the model's functions see. Raises RefusedRequestError."""
    return PredictRequest(
        body=await read_request(request, max_bytes), headers=select_model_headers(request.headers)
    )


def select_model_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that the model's functions see: SageMaker's and the content's."""
    selected = {}
    for name, value in headers.items():
        lowered = name.lower()
        if lowered in MODEL_HEADERS:
            selected[MODEL_HEADERS[lowered]] = value
        elif lowered.startswith(MODEL_HEADER_PREFIX):
            selected[name] = value
    return selected


def to_response(answer: Prediction) -> Response:
    """The response with a model's answer, without headers that frame the answer."""
    headers = {
        name: to_header_value(value)
        for name, value in answer.headers.items()
        if name.lower() not in FRAMING_HEADERS and name and set(name.lower()) <= NAME_CHARACTERS
    }
    headers["content-type"] = to_header_value(answer.content_type)
    return Response(answer.body, answer.status if 200 <= answer.status < 600 else 500, headers)


def describe_model(model: ModelInMemory) -> dict[str, object]:
    """A model in the contract's form, with its memory."""
    return {
        "modelName": model.name,
        "modelUrl": model.url,
        "memoryBytes": model.memory_bytes,
        "workers": len(model.pool.pids),
    }


def json_response(value: object) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(value), media_type="application/json")
