"""Lifecycle of the LLM server: load, serve, then drain or fail."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hostelry.base.concurrency import stop_event
from hostelry.base.errors import HostelryError
from hostelry.containers.http.listening import http_server, served_on
from hostelry.containers.lmi.code.author_code import AuthorCode, CodeTerms
from hostelry.containers.lmi.engine.backend import EngineBackend, EngineFailedError
from hostelry.containers.lmi.engine.child import ForkedEngine
from hostelry.containers.lmi.engine.messages import StartEngine
from hostelry.containers.lmi.http.adapter_registry import (
    AdapterRecord,
    AdapterRegistry,
    check_name,
)
from hostelry.containers.lmi.http.app import build_app, guard_with_key
from hostelry.containers.lmi.http.server import LmiServer, LoadedModel, ServerPhase
from hostelry.containers.lmi.pooling.run import first_vector
from hostelry.containers.lmi.refusal import Refusal, Surface
from hostelry.containers.lmi.request.chat_template import ChatTemplate, load_chat_template
from hostelry.containers.lmi.request.images import ImageLimits
from hostelry.containers.lmi.request.sampling import NEUTRAL
from hostelry.containers.lmi.settings.config import DEFAULT_ADAPTERS, LmiConfig
from hostelry.containers.lmi.settings.model_overrides import model_defaults, overlay
from hostelry.containers.lmi.settings.model_source import (
    adapter_folders,
    locate_draft_model,
    model_folder,
    module_adapters,
)
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.containers.lmi.tools.families import OFF, Conventions, find_conventions
from hostelry.containers.lmi.vllm.launch import ChosenEngine

DRAIN_S = 8.0
FAILED_ANSWERS_S = 1.0  # a failed server still responds this long, so that clients get the reason

LOG = logging.getLogger(__name__)


async def serve(
    server: LmiServer,
    listener: socket.socket,
    engine: ForkedEngine | None = None,
    key: str | None = None,
) -> str | None:
    """Run on `listener` until SIGTERM or SIGINT. Returns the reason if it fails before.

    `engine` is the engine process if it exists already. With a `key`, requests without the key get
    403.
    """
    stop = stop_event()
    http = http_server(guard_with_key(served_on(listener, build_app(server)), key))
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    serving.add_done_callback(lambda _: stop.set())
    try:
        return await run_server(server, stop, engine)
    finally:
        http.should_exit = True
        await serving


async def run_server(
    server: LmiServer, stop: asyncio.Event, engine: ForkedEngine | None
) -> str | None:
    """Load, serve, and drain or fail. Returns the reason of a failure, None after `stop`."""
    chosen = ChosenEngine(server.config, engine)
    with TemporaryDirectory(prefix="hostelry-lmi-") as scratch:
        try:
            reason = await load_and_serve(stop, server, chosen, Path(scratch))
            if reason is None:
                await drain(server)
            else:
                await fail(server, reason)
            return reason
        finally:
            await chosen.close()
            if server.code is not None:
                await server.code.close()


async def load_and_serve(
    stop: asyncio.Event, server: LmiServer, chosen: ChosenEngine, scratch: Path
) -> str | None:
    """Load and serve until a failure. Returns its reason, None once `stop` is set."""
    async with ended_by(stop) as stopping:
        loading = asyncio.ensure_future(load(server, chosen, scratch))
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            loading.cancel()
            return None
        try:
            server.model = loading.result()
        except (HostelryError, ValueError, OSError) as error:
            return str(error)
        server.phase, server.ready_at = ServerPhase.READY, server.clock.now()
        died = asyncio.ensure_future(chosen.backend.died.wait())
        await asyncio.wait((died, stopping), return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
    return None if stop.is_set() else f"Inference Engine Failure: {chosen.backend.failure}"


@asynccontextmanager
async def ended_by(stop: asyncio.Event) -> AsyncIterator[asyncio.Task[bool]]:
    """A task that ends when `stop` is set, cancelled on the way out."""
    task = asyncio.ensure_future(stop.wait())
    try:
        yield task
    finally:
        task.cancel()


async def load(server: LmiServer, chosen: ChosenEngine, scratch: Path) -> LoadedModel:
    """Fetch and load model, tokenizer, template and first adapters.

    `scratch` is an empty folder that lives as long as the model. Raises ConfigurationError,
    ValueError, EngineFailedError or Refusal with the reason.
    """
    config = server.config
    folder = await asyncio.to_thread(model_folder, config)
    adapters, remote_adapters = first_adapters(config, folder)
    check_fused(config.engine.fuse_adapter, [name for name, _ in (*adapters, *remote_adapters)])
    code = server.code = await load_code(server, folder, adapters)
    defaults = model_defaults(config, folder)
    if defaults != NEUTRAL:
        LOG.info("defaults of sampling by the model or its options: %s", defaults)
    LOG.info("loading %s with %d adapters", folder, len(adapters))
    read_folder = await asyncio.to_thread(overlay, folder, config.config_overrides, scratch)
    named = tuple((name, str(path)) for name, path in adapters)
    settings = locate_draft_model(config.engine, config)
    await chosen.start(StartEngine(str(read_folder), settings, named))
    codec = await asyncio.to_thread(TextCodec.load, folder)
    chat = load_chat_template(folder, config.chat_template, server.clock, config.model_dir)
    try:
        async with asyncio.timeout(config.loading_timeout_s):
            facts = await chosen.wait_ready()
    except TimeoutError:
        raise EngineFailedError(
            f"the model did not load within {config.loading_timeout_s:g} s (model_loading_timeout)"
        ) from None
    for warning in facts.warnings:
        LOG.warning("%s", warning)
    registry = AdapterRegistry(
        chosen.backend,
        enabled=config.engine.enable_lora,
        max_pinned=config.max_cpu_loras,
        limit_s=config.loading_timeout_s,
        code=code,
        secure=config.code.secure,
    )
    registry.adopt(adapters)
    await register_remote(registry, remote_adapters)
    await check_vectors(config, code, codec, chosen.backend)
    LOG.info(
        "ready: %s, ranks: %d, at most %d tokens a request",
        facts.dtype,
        facts.ranks,
        facts.max_model_len,
    )
    return LoadedModel(
        backend=chosen.backend,
        codec=codec,
        chat=chat,
        registry=registry,
        defaults=defaults,
        conventions=model_conventions(config, chat, codec),
        images=image_limits(config, facts.max_images, chat),
        engine=chosen.name,
        why_engine=chosen.reason,
    )


def image_limits(config: LmiConfig, most: int, chat: ChatTemplate | None) -> ImageLimits:
    """Which images the model reads, by its engine's `most` and its template."""
    if most and (chat is None or not chat.places_images()):
        LOG.warning("images are refused: the model's chat template does not place them")
        return ImageLimits(why_none="the model's chat template does not place images")
    return ImageLimits(most=most, domains=config.media_domains)


def model_conventions(
    config: LmiConfig, chat: ChatTemplate | None, codec: TextCodec
) -> Conventions:
    """Find and log the model's ways of writing calls and reasoning."""
    conventions = find_conventions(
        "\n".join(chat.sources) if chat else None,
        codec.control_tokens,
        tool_parser=config.tools.call_parser,
        reasoning_parser=config.tools.reasoning_parser,
        auto_calls=config.tools.auto_choice,
    )
    names = [it.name if it else OFF for it in (conventions.tools, conventions.reasoning)]
    LOG.info("tool calls are read as %s, reasoning as %s", *names)
    return conventions


async def check_vectors(
    config: LmiConfig, code: AuthorCode, codec: TextCodec, backend: EngineBackend
) -> None:
    """If the model gives vectors, compute one.

    Raises ConfigurationError if the engine or the model folder does not fit such a model, and
    EngineFailedError.
    """
    if backend.facts.pooling is not None:
        if not code.is_empty:
            raise ConfigurationError("model.py is not run for a model with vectors; remove it")
        await first_vector(codec, backend)
    elif config.engine.pooled.task in ("embed", "classify"):
        raise ConfigurationError(
            f"option.task asks to {config.engine.pooled.task}, which the vLLM engine does not do "
            "here; set option.backend=hostelry, or leave out option.rolling_batch"
        )


async def load_code(
    server: LmiServer, folder: Path, adapters: list[tuple[str, Path]]
) -> AuthorCode:
    """Check the author's files, and load the code of the model and its first adapters.

    Raises SecureModeError, Refusal.
    """
    config = server.config
    secure = config.code.secure
    if secure is not None:
        await asyncio.to_thread(secure.check_model, config.model_dir, folder)
        for _, path in adapters:
            await asyncio.to_thread(secure.check_adapter, str(path))
    terms = CodeTerms(
        policy=config.code.policy,
        model_dir=config.model_dir,
        tokenizer_folder=folder,
        environment=server.environment,
        options=config.code.options,
        load_limit_s=config.loading_timeout_s,
        is_rolling_batch=config.dialect is Surface.LEGACY,
    )
    code = server.code = AuthorCode(terms)
    await code.load_base()
    for name, path in adapters:
        code.adopt(name, await code.load_adapter(name, str(path)))
    return code


async def register_remote(registry: AdapterRegistry, adapters: list[tuple[str, str]]) -> None:
    """Register the adapters (name, URI) that the options name. Raises ConfigurationError."""
    for name, uri in adapters:
        try:
            await registry.register(AdapterRecord(name=name, alias=name, src=uri))
        except Refusal as refusal:
            raise ConfigurationError(
                f"lora_modules names {uri} for {name}, which cannot be loaded: {refusal.message}"
            ) from refusal


def first_adapters(
    config: LmiConfig, folder: Path
) -> tuple[list[tuple[str, Path]], list[tuple[str, str]]]:
    """The adapters in folders, and the remote ones by URI.

    They are in the folder of serving.properties, in the model's folder, or in lora_modules.
    """
    modules, remote = module_adapters(config)
    named = [name for name, _ in (*modules, *remote)]
    for name in named:
        try:
            check_name(name)
        except Refusal as refusal:
            raise ConfigurationError(f"lora_modules: {refusal.message}") from refusal
    found = [it for it in folder_adapters(config, folder) if it[0] not in named]
    return [*found, *modules], remote


def check_fused(name: str | None, first: list[str]) -> None:
    """Raise ConfigurationError if the adapter to merge is not one of the model's first adapters.

    A model without first adapters may get the adapter while it runs.
    """
    if name is None or name in first:
        return
    if first:
        raise ConfigurationError(
            f"option.fuse_adapter is {name[:80]!r}, which is none of this model's adapters: "
            f"{', '.join(first[:10])}"
        )
    LOG.warning("option.fuse_adapter is %s: it is merged once it is registered", name[:80])


def folder_adapters(config: LmiConfig, folder: Path) -> list[tuple[str, Path]]:
    """The adapters in the folder of serving.properties and in the model's folder."""
    found = adapter_folders((config.model_dir, folder), config.adapters)
    if not found and config.adapters != DEFAULT_ADAPTERS:
        LOG.warning("option.adapters names %s, which holds no adapter", config.adapters)
    if found and not config.engine.enable_lora:
        LOG.warning(
            "%d folders in %s are not used: option.enable_lora is false",
            len(found),
            config.adapters,
        )
        return []
    return found


async def drain(server: LmiServer) -> None:
    """Refuse new requests and wait for those in flight, at most DRAIN_S."""
    server.phase = ServerPhase.DRAINING
    LOG.info("draining %d requests", server.in_flight)
    try:
        await asyncio.wait_for(server.idle.wait(), DRAIN_S)
    except TimeoutError:
        LOG.warning("%d requests did not end within %g s", server.in_flight, DRAIN_S)


async def fail(server: LmiServer, reason: str) -> None:
    """Wait for the error responses of requests in flight before the server ends."""
    server.phase = ServerPhase.FAILED
    LOG.error("%s", reason)
    await asyncio.sleep(FAILED_ANSWERS_S if server.model else 0)
