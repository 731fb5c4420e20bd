"""The routes for vectors: OpenAI's embeddings, vLLM's pooling, classify, score and rerank.

A pooled model's /invocations and OpenAI's generating routes are answered here, too.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Send

from hostelry.base.ids import new_request_id
from hostelry.containers.lmi.code.author_hooks import HANDLE, INPUT_FORMATTER, OUTPUT_FORMATTER
from hostelry.containers.lmi.engine.backend import BackendError, EngineBackend
from hostelry.containers.lmi.http.bodies import UntilDisconnect, respond, send_whole
from hostelry.containers.lmi.http.invoke import (
    VERSION_HEADER,
    build_refusal,
    build_timeout_refusal,
)
from hostelry.containers.lmi.http.request_head import check_asked_model, parse_context
from hostelry.containers.lmi.http.server import LmiServer, LoadedModel
from hostelry.containers.lmi.pooling.forms import AnswerHead, PooledCall
from hostelry.containers.lmi.pooling.inputs import generates_nothing, parse_invoked
from hostelry.containers.lmi.pooling.parse import PooledRequest, PooledRoute, parse_pooled
from hostelry.containers.lmi.pooling.run import PooledResult, run_pooled
from hostelry.containers.lmi.refusal import Surface, bad_request
from hostelry.containers.lmi.request.body import body_fields
from hostelry.containers.lmi.request.context import parse_terms
from hostelry.containers.lmi.request.fields import BodyFields, parse_json, show
from hostelry.containers.lmi.response.forms import JSON
from hostelry.engine.pooled import PoolingFacts

POOLED_PATHS: Mapping[str, PooledRoute] = {
    "/v1/embeddings": PooledRoute.EMBEDDINGS,
    "/pooling": PooledRoute.POOLING,
    "/classify": PooledRoute.CLASSIFY,
    "/score": PooledRoute.SCORE,
    "/v1/score": PooledRoute.SCORE,
    "/rerank": PooledRoute.RERANK,
    "/v1/rerank": PooledRoute.RERANK,
    "/v2/rerank": PooledRoute.RERANK,
}
ID_PREFIXES: Mapping[PooledRoute | None, str] = {
    PooledRoute.EMBEDDINGS: "embd-",
    PooledRoute.POOLING: "pool-",
    PooledRoute.CLASSIFY: "classify-",
    PooledRoute.SCORE: "score-",
    PooledRoute.RERANK: "rerank-",
}
HOOKS = (HANDLE, INPUT_FORMATTER, OUTPUT_FORMATTER)
GENERATES = (
    "this model generates text and gives no vectors; serve a model that embeds (an encoder, or "
    "this one with option.task=text-embedding) or one that classifies"
)


class PooledHandler(msgspec.Struct, frozen=True):
    """Handles one request for vectors, from its body to its last byte.

    `route` is not set for /invocations, whose body decides. `generates` means that the route is
    only for generating models.
    """

    server: LmiServer
    request: Request
    route: PooledRoute | None
    surface: Surface = Surface.OPENAI
    generates: bool = False

    async def respond(self) -> UntilDisconnect:
        """Read the body. The response then runs until it is sent or the client disconnects."""
        return await respond(self.server, self.request, self.surface, self._run)

    async def _run(self, send: Send, body: bytes) -> None:
        model = self.server.get_model()
        with self.server.admission():
            await self._answer(send, model, body)

    async def _answer(self, send: Send, model: LoadedModel, body: bytes) -> None:
        call = await asyncio.to_thread(self._parse, model, body)
        await model.registry.ensure_loaded(call.adapters)
        result = await self._compute(model, call)
        head = AnswerHead(
            id=ID_PREFIXES.get(self.route, "pool-") + new_request_id(),
            created=int(self.server.clock.now()),
            model=call.model,
            num_tokens=result.num_tokens,
        )
        content = await asyncio.to_thread(encode_answer, call, result, head)
        versions = {VERSION_HEADER: ",".join(result.versions)} if result.versions else {}
        end = b"\n" if self.surface is Surface.ASYNC else b""
        await send_whole(send, 200, {"content-type": JSON, **versions}, content + end)

    async def _compute(self, model: LoadedModel, call: PooledCall) -> PooledResult:
        limit_s = self.server.config.predict_timeout_s
        terms = parse_terms(self.request.headers, self.server.config.first_token_deadline_s)
        try:
            async with asyncio.timeout(limit_s):
                return await run_pooled(call, model.codec, model.backend, terms)
        except TimeoutError:
            raise build_timeout_refusal(limit_s) from None
        except BackendError as error:
            raise build_refusal(error) from error

    def _parse(self, model: LoadedModel, body: bytes) -> PooledCall:
        check_asked_model(self.server.config, self.request)
        facts = model.backend.facts.pooling
        if facts is None:
            raise bad_request(GENERATES)
        asked = PooledRequest(
            body=self._fields(body),
            facts=facts,
            context=parse_context(self.server, self.request, model),
        )
        if self.generates:
            raise bad_request(generates_nothing(asked))
        if self.route is not None:
            call = parse_pooled(self.route, asked)
        else:
            call = parse_invoked(asked, lists=self.server.config.lists_vectors)
        self._check_code(call)
        return call

    def _check_code(self, call: PooledCall) -> None:
        """Raise Refusal for an adapter with its own code."""
        code = self.server.code
        for adapter in dict.fromkeys(call.adapters):
            if code is not None and any(code.find_host(adapter, it) for it in HOOKS):
                raise bad_request(
                    f"adapter {show(adapter)} has a model.py, which is not run for a model with "
                    "vectors; register the adapter without it",
                    "adapters",
                )

    def _fields(self, body: bytes) -> BodyFields:
        if self.route is None and not self.generates:
            return body_fields(self.request.headers.get("content-type", ""), body)
        return BodyFields(parse_json(body), "the body")


def encode_answer(call: PooledCall, result: PooledResult, head: AnswerHead) -> bytes:
    """The answer's JSON."""
    content: Any = call.form.answer(result.vectors_BP, head)
    return msgspec.json.encode(content)


def pooling_facts(server: LmiServer) -> PoolingFacts | None:
    """The facts of a pooled model. None if the model generates or is not loaded yet."""
    backend: EngineBackend | None = server.model.backend if server.model else None
    return backend.facts.pooling if backend else None
