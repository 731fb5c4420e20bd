"""Handler of the routes that generate: /invocations and OpenAI's two."""

import asyncio
import logging
import secrets
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Send

from hostelry.base.ids import new_request_id
from hostelry.containers.lmi.engine.backend import (
    AdapterMissingError,
    BackendError,
    BusyError,
    DeadlineMissedError,
    GenerationRefusedError,
    QuotaReachedError,
)
from hostelry.containers.lmi.http.body import read_body
from hostelry.containers.lmi.http.custom import CustomRequest, OutputFormatter
from hostelry.containers.lmi.http.image_fetch import fetched
from hostelry.containers.lmi.http.model_name import check_asked_model
from hostelry.containers.lmi.http.polling import check_synchronous
from hostelry.containers.lmi.http.responses import (
    UntilDisconnect,
    send_chunks,
    send_whole,
    with_headers,
)
from hostelry.containers.lmi.http.server import LmiServer, LoadedModel
from hostelry.containers.lmi.metrics.measurements import RequestMeasure
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface, bad_request, status_of
from hostelry.containers.lmi.request.adapter_choice import Caller, unknown_adapter
from hostelry.containers.lmi.request.body import parse_as, parse_invocation
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.fields import SHOWN_CHARACTERS
from hostelry.containers.lmi.request.invocation import Formatter, Invocation, Schema
from hostelry.containers.lmi.request.terms import terms_of
from hostelry.containers.lmi.request.undone_fields import ignored_header
from hostelry.containers.lmi.response.beam_run import run_beams
from hostelry.containers.lmi.response.formatter_form import TEXT, OneTextStream, third_party
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.containers.lmi.response.generation import (
    RunningSequence,
    prepare,
    returned_sequences,
    run,
)
from hostelry.containers.lmi.response.lmi_form import LmiForm
from hostelry.containers.lmi.response.openai_form import OpenAIForm
from hostelry.containers.lmi.response.responses_form import ResponsesForm, ResponsesStream
from hostelry.containers.lmi.response.stream_form import (
    EVENT_ENDS,
    JSON,
    LmiStream,
    OpenAIStream,
    StreamForm,
)
from hostelry.containers.lmi.sessions.open_sessions import SESSION_HEADER, SessionRequest
from hostelry.containers.lmi.settings.config import ImageKind, LmiConfig
from hostelry.graph.step_report import HEADER as STEPS_HEADER
from hostelry.graph.step_report import step_header

ADAPTER_HEADER = "x-amzn-sagemaker-adapter-identifier"
ALIAS_HEADER = "x-amzn-sagemaker-adapter-alias"
API_HEADER = "x-amzn-sagemaker-forwarded-api"
MODEL_HEADER = "x-hostelry-model"
VERSION_HEADER = "x-hostelry-adapter-version"
STRICT_HEADER = "x-hostelry-strict-fields"
MAX_NOTED_FIELDS = 1000  # names of ignored fields that are logged
STREAMING_API = "InvokeEndpointWithResponseStream"

LOGGED = (Cause.ENGINE, Cause.TIMEOUT)  # the server's own failures, not the client's

Steps = AsyncGenerator[list[tuple[RunningSequence, Piece]]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InvocationRoute:
    """A route that generates: its OpenAI schema (None: the body decides) and its error form."""

    schema: Schema | None
    surface: Surface


@dataclass(frozen=True, slots=True)
class InvocationHandler:
    """Handles one request to generate, from its body to its last byte."""

    server: LmiServer
    request: Request
    route: InvocationRoute

    async def respond(self) -> UntilDisconnect:
        """Read the body; the response then runs until it is sent or the client disconnects."""
        try:
            body = await read_body(self.request, self.server.config.max_request_bytes)
        except Refusal as error:
            refusal = error
            return UntilDisconnect(lambda send: self._refuse(send, refusal))
        return UntilDisconnect(lambda send: self._run(send, body))

    async def _run(self, send: Send, body: bytes) -> None:
        arrived_at = self.server.measured.clock.now()
        try:
            model = self.server.loaded()
            with self.server.admission():
                custom = self._custom()
                if custom is None or not await custom.is_handled(send, body):
                    await self._served(send, model, custom, body, arrived_at)
        except Refusal as refusal:
            await self._refuse(send, refusal)

    def _custom(self) -> CustomRequest | None:
        code = self.server.code
        if code is None or code.is_empty:
            return None
        return CustomRequest(
            code=code,
            request=self.request,
            surface=self.route.surface,
            predict_timeout_s=self.server.config.predict_timeout_s,
            shown=self.server.shown,
        )

    async def _served(
        self,
        send: Send,
        model: LoadedModel,
        custom: CustomRequest | None,
        body: bytes,
        arrived_at: float,
    ) -> None:
        session_id = self.request.headers.get(SESSION_HEADER)
        self.server.sessions.check(session_id, self.server.clock.now())
        content_type = self.request.headers.get("content-type", "")
        if custom is not None:
            caller = caller_of(self.request)
            formatted = await custom.formatted_body(body, caller, model.registry.records)
            body, content_type = (body, content_type) if formatted is None else (formatted, JSON)
        parsed = await self._parsed(model, content_type, body)
        if isinstance(parsed, SessionRequest):
            await self._respond_to_session(send, parsed, session_id)
        else:
            formatter = custom.output_formatter(parsed.adapters) if custom else None
            if formatter is not None and parsed.form.schema is Schema.RESPONSES:
                raise bad_request(
                    "model.py has an output formatter, which has no form of Responses"
                )
            await self._generate(send, model, parsed, arrived_at, formatter)

    async def _respond_to_session(
        self, send: Send, asked: SessionRequest, session_id: str | None
    ) -> None:
        now = self.server.clock.now()
        answer = self.server.sessions.carry_out(asked, session_id, str(uuid.uuid4()), now)
        body = msgspec.json.encode({"result": answer.text}) + b"\n"
        await send_whole(send, 200, {"content-type": JSON, answer.header: answer.value}, body)

    async def _refuse(self, send: Send, refusal: Refusal) -> None:
        status, content = self.server.refused(refusal, self.route.surface)
        self.server.measured.refused[status] += 1
        if refusal.cause in LOGGED:
            log.warning("%s %s: %d %s", self.request.method, self.request.url.path, status, refusal)
        body = msgspec.json.encode(content)
        await send_whole(send, status, {"content-type": JSON, **refusal.headers}, body)

    async def _parsed(
        self, model: LoadedModel, content_type: str, body: bytes
    ) -> Invocation | SessionRequest:
        """The parsed body; in a thread where rendering its own chat template may take long."""
        if self.server.config.trust_request_chat_template and b"chat_template" in body:
            return await asyncio.to_thread(self._parse, model, content_type, body)
        return self._parse(model, content_type, body)

    def _parse(
        self, model: LoadedModel, content_type: str, body: bytes
    ) -> Invocation | SessionRequest:
        check_asked_model(self.server.config, self.request)
        check_synchronous(self.request)
        context = parse_context(self.server, self.request, model)
        if self.route.schema:
            return parse_as(self.route.schema, body, context)
        return parse_invocation(content_type, body, context)

    async def _generate(
        self,
        send: Send,
        model: LoadedModel,
        invocation: Invocation,
        arrived_at: float,
        formatter: OutputFormatter | None,
    ) -> None:
        send = with_headers(send, self._ignored(invocation))
        terms = terms_of(self.request.headers, self.server.config.first_token_deadline_s)
        await model.registry.ensure_loaded(invocation.adapters)
        if invocation.images:
            found = await fetched(invocation.images, model.images)
            invocation = replace(invocation, images=found)
        sequences = await prepare(invocation, model.codec, model.backend.facts, terms)
        generated = [each.generated for each in sequences]
        with self.server.measured.running(sequences, arrived_at) as measure:
            async with aclosing(self._steps(model, invocation, sequences, measure)) as steps:
                if invocation.stream:
                    form = self._stream_form(model, invocation, formatter)
                    await self._stream(send, form, steps, generated, measure, formatter)
                    return
                await self._collect(steps)
        if formatter is not None:
            body = await self._formatted(model, invocation, generated, formatter)
        elif invocation.form.scores.num_top is None:
            body = self._whole(model, invocation, generated)
        else:  # long prompts have many scores
            body = await asyncio.to_thread(self._whole, model, invocation, generated)
        is_text = formatter is None and invocation.form.formatter is Formatter.TEXT
        headers = {"content-type": TEXT if is_text else JSON, **version_header(generated)}
        headers |= phases_header(measure)
        await send_whole(send, 200, headers, body)

    def _steps(
        self,
        model: LoadedModel,
        invocation: Invocation,
        sequences: Sequence[RunningSequence],
        measure: RequestMeasure,
    ) -> Steps:
        backend = model.backend
        if invocation.beams is None:
            return run(sequences, backend, measure.take)
        ends = backend.facts.eos_token_ids
        return run_beams(sequences, invocation.beams, ends, backend, measure.take)

    async def _collect(self, steps: Steps) -> None:
        limit_s = self.server.config.predict_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while await self._next(steps) is not None:
                    pass
        except TimeoutError:
            raise timed_out(limit_s) from None

    def _ignored(self, invocation: Invocation) -> dict[str, str]:
        """The header with the fields outside the table, which are logged at their first time."""
        noted = self.server.noted_fields
        for name in invocation.ignored_fields:
            cut = name[:SHOWN_CHARACTERS]
            if cut not in noted and len(noted) < MAX_NOTED_FIELDS:
                noted.add(cut)
                log.warning("requests have a field %r, which is ignored", cut)
        return ignored_header(invocation.ignored_fields)

    async def _stream(
        self,
        send: Send,
        form: StreamForm,
        steps: Steps,
        generated: Sequence[GeneratedSequence],
        measure: RequestMeasure,
        formatter: OutputFormatter | None,
    ) -> None:
        first = await self._next(steps) or []
        opening = form.opening(generated) + form.step(generated, first)
        content_type, rest = form.content_type, self._rest(form, steps, generated, measure)
        if formatter is not None:
            content_type = formatter.stream_type
            opening, rest = await formatter.events(opening), formatter.stream(rest)
        headers = {"content-type": content_type, **phases_header(measure)}
        await send_chunks(send, headers, opening, rest, EVENT_ENDS.get(content_type, b""))

    async def _rest(
        self,
        form: StreamForm,
        steps: Steps,
        generated: Sequence[GeneratedSequence],
        measure: RequestMeasure,
    ) -> AsyncGenerator[bytes]:
        try:
            while (pieces := await self._next(steps)) is not None:
                yield form.step(generated, pieces)
        except Refusal as refusal:
            log.warning("a stream broke: %s", refusal.message)
            measure.end("error")
            status = status_of(refusal.cause, self.route.surface, self.server.config.codes)
            yield form.broken(generated, status, self.server.shown(refusal.message))
            return
        except Exception:
            log.exception("a stream broke by a defect of the server")
            measure.end("error")
            yield form.broken(
                generated, 500, "the server failed at this response; its log has the reason"
            )
            return
        yield form.closing(generated)

    async def _next(self, steps: Steps) -> list[tuple[RunningSequence, Piece]] | None:
        limit_s = self.server.config.predict_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await anext(steps, None)
        except TimeoutError:
            raise timed_out(limit_s) from None
        except BackendError as error:
            raise refusal_of(error) from error

    def _whole(
        self, model: LoadedModel, invocation: Invocation, generated: Sequence[GeneratedSequence]
    ) -> bytes:
        chosen = returned_sequences(invocation, generated)
        formatter = invocation.form.formatter
        content: Any
        if formatter is Formatter.TEXT:
            return (chosen[0].prompt_text * invocation.form.full_text + chosen[0].text).encode()
        if formatter is Formatter.THIRD_PARTY:
            content = third_party(chosen[0], invocation.form.full_text)
        elif invocation.form.schema is Schema.INPUTS and not formatter.is_chat:
            content = self._lmi_form(model, invocation).whole(chosen)
        elif invocation.form.schema is Schema.RESPONSES:
            content = self._responses_form(model, invocation).whole(chosen[0])
        else:
            content = self._openai_form(model, invocation).whole(chosen, generated)
        end = b"\n" if self.route.surface is Surface.ASYNC else b""
        return msgspec.json.encode(content) + end

    async def _formatted(
        self,
        model: LoadedModel,
        invocation: Invocation,
        generated: Sequence[GeneratedSequence],
        code: OutputFormatter,
    ) -> bytes:
        chosen = returned_sequences(invocation, generated)
        response = self._openai_form(model, invocation).whole(chosen, generated)
        is_lmi = invocation.form.schema is Schema.INPUTS
        lmi = self._lmi_form(model, invocation).whole(chosen) if is_lmi else None
        return await code.whole(response, lmi)

    def _stream_form(
        self, model: LoadedModel, invocation: Invocation, code: OutputFormatter | None
    ) -> StreamForm:
        if code is not None:
            return OpenAIStream(self._openai_form(model, invocation), sse=True)
        formatter, full_text = invocation.form.formatter, invocation.form.full_text
        if formatter.is_one_text:
            return OneTextStream(formatter is Formatter.THIRD_PARTY_STREAM, full_text)
        if invocation.form.schema is Schema.INPUTS and not formatter.is_chat:
            sse = formatter is Formatter.SSE
            return LmiStream(self._lmi_form(model, invocation), sse)
        if invocation.form.schema is Schema.RESPONSES:
            return ResponsesStream(self._responses_form(model, invocation))
        config = self.server.config
        sse = self.route.surface is Surface.OPENAI or config.tgi_compat
        sse = sse or Formatter.SSE_CHAT.value in (formatter.value, config.output_formatter)
        return OpenAIStream(self._openai_form(model, invocation), sse)

    def _lmi_form(self, model: LoadedModel, invocation: Invocation) -> LmiForm:
        return LmiForm(
            invocation.form,
            self.server.config.dialect,
            model.codec.token_text,
            model.codec.is_special,
            is_tgi=self.server.config.image is ImageKind.TGI,
        )

    def _openai_form(self, model: LoadedModel, invocation: Invocation) -> OpenAIForm:
        config = self.server.config
        form = invocation.form
        form = replace(form, schema=Schema.CHAT) if form.formatter.is_chat else form
        prefix = "chatcmpl-" if form.schema is Schema.CHAT else "cmpl-"
        return OpenAIForm(
            form=form,
            id=prefix + (form.request_id or new_request_id()),
            created=int(self.server.clock.now()),
            token_text=token_name if form.tokens_as_ids else model.codec.token_text,
            lmi_names=self.route.surface is Surface.LEGACY and config.image is ImageKind.LMI,
        )

    def _responses_form(self, model: LoadedModel, invocation: Invocation) -> ResponsesForm:
        id = secrets.token_hex(16)
        return ResponsesForm(
            form=invocation.form,
            id=f"resp_{id}",
            message_id=f"msg_{id}",
            created=int(self.server.clock.now()),
            token_text=model.codec.token_text,
        )


def parse_context(server: LmiServer, request: Request, model: LoadedModel) -> ParseContext:
    """The values that go with the body of `request`."""
    config = server.config
    return ParseContext(
        dialect=config.dialect,
        caller=replace(caller_of(request), any_model=reads_no_model(config, request.url.path)),
        registered=model.registry.records.keys(),
        served=config.served,
        model_name=config.model_name,
        tgi_compat=config.tgi_compat,
        output_formatter=config.output_formatter,
        chat=model.chat,
        fresh_seed=server.seeds.randrange(2**31),
        defaults=model.defaults,
        conventions=model.conventions,
        template_variables=config.tools.template_variables,
        max_logprobs=config.max_logprobs,
        trust_chat_template=config.trust_request_chat_template,
        strict_fields=config.strict_fields or asks_strictness(request),
        images=model.images,
    )


def reads_no_model(config: LmiConfig, path: str) -> bool:
    """Whether a body's `model` that is no adapter is the base.

    It is with TGI, and with LMI's rolling batch on its own routes.
    """
    is_rolling = config.dialect is Surface.LEGACY and not path.startswith("/v1/")
    return config.image is ImageKind.TGI or is_rolling


def caller_of(request: Request) -> Caller:
    """The values of headers and query that go with the body."""
    return Caller(
        adapter=request.headers.get(ADAPTER_HEADER),
        alias=request.headers.get(ALIAS_HEADER),
        query_adapter=request.query_params.get("adapter"),
        model=request.headers.get(MODEL_HEADER),
        streaming_api=request.headers.get(API_HEADER) == STREAMING_API,
    )


def token_name(token_id: int) -> str:
    """A token as vLLM names it for clients that cannot read its text."""
    return f"token_id:{token_id}"


def asks_strictness(request: Request) -> bool:
    """Whether the request's header asks to refuse fields that are not known."""
    return request.headers.get(STRICT_HEADER, "").lower() == "true"


def phases_header(measure: RequestMeasure) -> dict[str, str]:
    """The header that has the gateway note queue, prefill and decode; a stream's ends later."""
    phases = measure.phases()
    return {STEPS_HEADER: step_header(phases)} if phases else {}


def version_header(generated: Sequence[GeneratedSequence]) -> dict[str, str]:
    """The content ids of the adapters used, in order of the inputs, each once."""
    versions = dict.fromkeys(it.adapter_version for it in generated if it.adapter_version)
    return {VERSION_HEADER: ",".join(versions)} if versions else {}


def refusal_of(error: BackendError) -> Refusal:
    """The refusal that a client gets for an error of the backend."""
    if isinstance(error, BusyError):
        cause = Cause.QUOTA if isinstance(error, QuotaReachedError) else Cause.QUEUE_FULL
        cause = Cause.DEADLINE if isinstance(error, DeadlineMissedError) else cause
        return Refusal(cause, str(error), retry_after_s=error.retry_after_s)
    if isinstance(error, AdapterMissingError):
        return unknown_adapter(str(error))
    if isinstance(error, GenerationRefusedError):
        return bad_request(str(error))
    return Refusal(Cause.ENGINE, str(error))


def timed_out(limit_s: float) -> Refusal:
    """The refusal of a request that took longer than predict_timeout."""
    return Refusal(Cause.TIMEOUT, f"Time out in: {limit_s:g} seconds (predict_timeout)")
