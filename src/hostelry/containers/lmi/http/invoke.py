"""Handler of the routes that generate: /invocations and OpenAI's."""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, closing

import httpx
import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import Send

from hostelry.containers.lmi.engine.backend import (
    AdapterMissingError,
    BackendError,
    BusyError,
    DeadlineMissedError,
    GenerationRefusedError,
    QuotaReachedError,
)
from hostelry.containers.lmi.http.bodies import (
    UntilDisconnect,
    add_headers,
    respond,
    send_chunks,
    send_whole,
)
from hostelry.containers.lmi.http.custom import CustomRequest, OutputFormatter
from hostelry.containers.lmi.http.request_head import (
    check_asked_model,
    check_synchronous,
    get_caller,
    parse_context,
)
from hostelry.containers.lmi.http.server import LmiServer, LoadedModel
from hostelry.containers.lmi.http.step_limit import StepLimit
from hostelry.containers.lmi.metrics.measurements import RequestMeasure
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface, bad_request, get_status
from hostelry.containers.lmi.request.adapter_choice import unknown_adapter
from hostelry.containers.lmi.request.body import parse_as, parse_invocation
from hostelry.containers.lmi.request.context import parse_terms
from hostelry.containers.lmi.request.field_table import ignored_header
from hostelry.containers.lmi.request.fields import SHOWN_CHARACTERS
from hostelry.containers.lmi.request.images import ImageLimits, ImageSource
from hostelry.containers.lmi.request.invocation import Invocation, Schema
from hostelry.containers.lmi.response.answer_forms import AnswerForms
from hostelry.containers.lmi.response.beam_run import run_beams
from hostelry.containers.lmi.response.forms import (
    EVENT_ENDS,
    JSON,
    StreamForm,
)
from hostelry.containers.lmi.response.generated import GeneratedSequence
from hostelry.containers.lmi.response.generation import (
    Pieces,
    RunningSequence,
    prepare,
    returned_sequences,
    run,
)
from hostelry.containers.lmi.sessions import SESSION_HEADER, SessionRequest
from hostelry.graph.step_report import STEPS_HEADER, encode_steps

VERSION_HEADER = "x-hostelry-adapter-version"
MAX_NOTED_FIELDS = 1000  # names of ignored fields that are logged

Steps = AsyncGenerator[Pieces]

LOG = logging.getLogger(__name__)
FETCH_S = 10.0
MAX_AT_ONCE = 8


class InvocationRoute(msgspec.Struct, frozen=True):
    """A route that generates: its OpenAI schema (None: the body decides) and its error form."""

    schema: Schema | None
    surface: Surface


class InvocationHandler(msgspec.Struct, frozen=True):
    """Handles one request to generate, from its body to its last byte."""

    server: LmiServer
    request: Request
    route: InvocationRoute

    async def respond(self) -> UntilDisconnect:
        """Read the body. The response then runs until it is sent or the client disconnects."""
        return await respond(self.server, self.request, self.route.surface, self._run)

    async def _run(self, send: Send, body: bytes) -> None:
        arrived_at = self.server.measured.clock.now()
        model = self.server.get_model()
        with self.server.admission():
            custom = self._custom()
            if custom is None or not await custom.is_handled(send, body):
                await self._serve(send, model, custom, body, arrived_at)

    def _custom(self) -> CustomRequest | None:
        code = self.server.code
        if code is None or code.is_empty:
            return None
        return CustomRequest(
            code=code,
            request=self.request,
            surface=self.route.surface,
            predict_timeout_s=self.server.config.predict_timeout_s,
            shown=self.server.hide_paths,
        )

    async def _serve(
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
            caller = get_caller(self.request)
            formatted = await custom.formatted_body(body, caller, model.registry.records)
            body, content_type = (body, content_type) if formatted is None else (formatted, JSON)
        parsed = await self._parse_body(model, content_type, body)
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

    async def _parse_body(
        self, model: LoadedModel, content_type: str, body: bytes
    ) -> Invocation | SessionRequest:
        """The parsed body, in a thread if the request has a chat template, which may be slow."""
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
        send = add_headers(send, self._note_ignored_fields(invocation))
        terms = parse_terms(self.request.headers, self.server.config.first_token_deadline_s)
        await model.registry.ensure_loaded(invocation.adapters)
        if invocation.images:
            found = await fetch_images(invocation.images, model.images)
            invocation = replace(invocation, images=found)
        sequences = await prepare(invocation, model.codec, model.backend.facts, terms)
        generated = [each.generated for each in sequences]
        with self.server.measured.running(sequences, arrived_at) as measure:
            async with aclosing(self._steps(model, invocation, sequences, measure)) as steps:
                if invocation.stream:
                    forms = self._forms(model, invocation)
                    form = forms.stream() if formatter is None else forms.stream_for_code()
                    await self._stream(send, form, steps, generated, measure, formatter)
                    return
                await self._collect(steps)
        forms, chosen = self._forms(model, invocation), returned_sequences(invocation, generated)
        content_type = forms.content_type
        if formatter is not None:
            content_type = JSON
            body = await formatter.whole(*forms.values_for_code(chosen, generated))
        elif invocation.form.scores.num_top is None:
            body = forms.whole(chosen, generated)
        else:  # long prompts have many scores
            body = await asyncio.to_thread(forms.whole, chosen, generated)
        headers = {"content-type": content_type, **version_header(generated)}
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
                async for _ in steps:
                    pass
        except TimeoutError:
            raise build_timeout_refusal(limit_s) from None
        except BackendError as error:
            raise build_refusal(error) from error

    def _note_ignored_fields(self, invocation: Invocation) -> dict[str, str]:
        """The header with the fields outside the table. Each field is logged once."""
        noted = self.server.noted_fields
        for name in invocation.ignored_fields:
            cut = name[:SHOWN_CHARACTERS]
            if cut not in noted and len(noted) < MAX_NOTED_FIELDS:
                noted.add(cut)
                LOG.warning("requests have a field %r, which is ignored", cut)
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
        with closing(StepLimit(self.server.config.predict_timeout_s)) as limit:
            first = await take_step(steps, limit) or []
            opening = form.opening(generated) + form.step(generated, first)
            content_type = form.content_type
            rest = self._rest(form, steps, generated, measure, limit)
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
        limit: StepLimit,
    ) -> AsyncGenerator[bytes]:
        try:
            while (pieces := await take_step(steps, limit)) is not None:
                yield form.step(generated, pieces)
        except Refusal as refusal:
            LOG.warning("a stream broke: %s", refusal.message)
            measure.end("error")
            status = get_status(refusal.cause, self.route.surface, self.server.config.codes)
            yield form.broken(generated, status, self.server.hide_paths(refusal.message))
            return
        except Exception:
            LOG.exception("a stream broke by a defect of the server")
            measure.end("error")
            yield form.broken(
                generated, 500, "the server failed at this response; its log has the reason"
            )
            return
        yield form.closing(generated)

    def _forms(self, model: LoadedModel, invocation: Invocation) -> AnswerForms:
        return AnswerForms(
            form=invocation.form,
            config=self.server.config,
            codec=model.codec,
            surface=self.route.surface,
            now=self.server.clock.now(),
        )


async def take_step(steps: Steps, limit: StepLimit) -> Pieces | None:
    """The next step's pieces, None after the last step. Raises Refusal, also for a late step."""
    try:
        with limit:
            return await anext(steps, None)
    except TimeoutError:
        raise build_timeout_refusal(limit.limit_s) from None
    except BackendError as error:
        raise build_refusal(error) from error


def phases_header(measure: RequestMeasure) -> dict[str, str]:
    """The header by which the gateway notes queue, prefill and decode. A stream lacks decode."""
    phases = measure.phases()
    return {STEPS_HEADER: encode_steps(phases)} if phases else {}


def version_header(generated: Sequence[GeneratedSequence]) -> dict[str, str]:
    """The content ids of the adapters used, in order of the inputs, each once."""
    versions = dict.fromkeys(it.adapter_version for it in generated if it.adapter_version)
    return {VERSION_HEADER: ",".join(versions)} if versions else {}


def build_refusal(error: BackendError) -> Refusal:
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


def build_timeout_refusal(limit_s: float) -> Refusal:
    """The refusal of a request that took longer than predict_timeout."""
    return Refusal(Cause.TIMEOUT, f"Time out in: {limit_s:g} seconds (predict_timeout)")


async def fetch_images(
    sources: Sequence[ImageSource], limits: ImageLimits
) -> tuple[ImageSource, ...]:
    """The sources with their bytes. Raises Refusal with the part whose image cannot be had."""
    if all(it.url is None for it in sources):
        return tuple(sources)
    gate = asyncio.Semaphore(MAX_AT_ONCE)
    async with httpx.AsyncClient(follow_redirects=False, timeout=FETCH_S) as client:

        async def one(source: ImageSource) -> ImageSource:
            async with gate:
                return await fetch_image(client, source, limits.max_bytes)

        return tuple(await asyncio.gather(*(one(it) for it in sources)))


async def fetch_image(
    client: httpx.AsyncClient, source: ImageSource, max_bytes: int
) -> ImageSource:
    """The source with its bytes. Raises Refusal."""
    if source.url is None:
        return source
    data = bytearray()
    try:
        async with asyncio.timeout(FETCH_S), client.stream("GET", source.url) as response:
            if response.status_code != 200:
                raise refusal(source, f"its host answered {response.status_code}")
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > max_bytes:
                    raise refusal(source, f"it has more than {max_bytes} bytes")
    except TimeoutError:
        raise refusal(source, f"it did not come within {FETCH_S:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise refusal(source, str(error) or type(error).__name__) from error
    if not data:
        raise refusal(source, "it has no bytes")
    return replace(source, data=bytes(data), url=None)


def refusal(source: ImageSource, cause: str) -> Refusal:
    """The refusal of a request whose image cannot be had."""
    return bad_request(f"the image of {source.where} cannot be fetched: {cause}", source.where)
