"""The routes of a multi-model server: the contract of SageMaker's multi-model containers."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.containers.http.serving_app import ServingApp, body_of, text_response
from hostelry.containers.predictive.app import answer_of, refusal_of, shown
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.model_table import ModelInMemory, ModelRefusedError, ModelTable
from hostelry.containers.predictive.worker_process import Asked

MAX_LOAD_BYTES = 1 << 16
MAX_NAME_CHARACTERS = 1024
PAGE, MAX_PAGE = 100, 1000
TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"


class ToLoad(msgspec.Struct, frozen=True):
    """The body of POST /models."""

    model_name: str
    url: str


class MultiModelApp(ServingApp):
    """The application over a table of models. An unload waits `unload_s` for requests to end."""

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
        """Its own routes."""
        return [
            Route("/models", self.load, methods=["POST"]),
            Route("/models", self.listed, methods=["GET"]),
            Route("/models/{name}", self.described, methods=["GET"]),
            Route("/models/{name}", self.unload, methods=["DELETE"]),
            Route("/models/{name}/invoke", self.counted, methods=["POST"]),
        ]

    def fault(self) -> str | None:
        """Why it takes no orders; without a model it is healthy."""
        return None if self._table.is_ready else "the framework is being imported"

    async def load(self, request: Request) -> Response:
        """Load a model: 200, 409 if it is loaded, 507 without room."""
        body = await body_of(request, MAX_LOAD_BYTES)
        if isinstance(body, Response):
            return body
        query = request.query_params
        try:
            given = decode(body or msgspec.json.encode(dict(query)), ToLoad)
        except msgspec.DecodeError as error:
            return text_response(f'the body must have "model_name" and "url": {error}', 400)
        if not 0 < len(given.model_name) <= MAX_NAME_CHARACTERS or "/" in given.model_name:
            return text_response(
                f"model_name must have 1 to {MAX_NAME_CHARACTERS} characters and no slash", 400
            )
        try:
            target = request.headers.get(TARGET_MODEL, "")
            model = await self._table.load(given.model_name, given.url, target)
        except ModelRefusedError as error:
            return text_response(str(error), error.status)
        except HostelryError as error:
            return text_response(str(error), 500)
        return json_response({**described(model), "status": f"model {model.name} is loaded"})

    async def listed(self, request: Request) -> Response:
        """A page of the loaded models."""
        text = request.query_params.get("limit", str(PAGE))
        limit = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
        if not 0 < limit <= MAX_PAGE:
            return text_response(f"limit must be a number from 1 to {MAX_PAGE}", 400)
        token = request.query_params.get("next_page_token", "")
        models, following = self._table.page(limit, token)
        page: dict[str, object] = {"models": [described(model) for model in models]}
        return json_response({**page, "nextPageToken": following} if following else page)

    async def described(self, request: Request) -> Response:
        """A loaded model; 404 without it."""
        try:
            return json_response(described(self._table.get(request.path_params["name"])))
        except ModelRefusedError as error:
            return text_response(str(error), error.status)

    async def unload(self, request: Request) -> Response:
        """Unload a model: 200 once its memory is free, 404 without it."""
        name = request.path_params["name"]
        try:
            await self._table.unload(name, self._unload_s)
        except ModelRefusedError as error:
            return text_response(str(error), error.status)
        return json_response({"status": f"model {name} is unloaded"})

    async def invoked(self, request: Request) -> Response:
        """A model's answer; 404 where it is not loaded."""
        body = await body_of(request, self._max_bytes)
        if isinstance(body, Response):
            return body
        asked = Asked(headers=shown(request.headers), body=body)
        try:
            return answer_of(await self._table.invoke(request.path_params["name"], asked))
        except ModelRefusedError as error:
            return text_response(str(error), error.status)
        except HostelryError as error:
            return refusal_of(error)


def described(model: ModelInMemory) -> dict[str, object]:
    """A model as the contract shows it, and its memory."""
    return {
        "modelName": model.name,
        "modelUrl": model.url,
        "memoryBytes": model.memory_bytes,
        "workers": len(model.pool.pids),
    }


def json_response(value: object) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(value), media_type="application/json")
