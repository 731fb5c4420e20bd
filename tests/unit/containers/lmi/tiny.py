"""A byte tokenizer, a chat template and a served fake model, for tests of the LLM server."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from hostelry.base.clock import ManualClock
from hostelry.containers.lmi.fake import FakeBackend
from hostelry.containers.lmi.http.adapter_registry import AdapterRegistry
from hostelry.containers.lmi.http.app import build_app
from hostelry.containers.lmi.http.server import LmiServer, LoadedModel, ServerPhase
from hostelry.containers.lmi.lifecycle import model_conventions
from hostelry.containers.lmi.request.chat_template import ChatTemplate
from hostelry.containers.lmi.settings.config import LmiConfig, resolve_config
from hostelry.containers.lmi.text_codec import TextCodec

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS = 2
TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_tokenizer() -> Tokenizer:
    """A tokenizer with a token per byte of UTF-8, after three control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: index for index, text in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return tokenizer


def write_tokenizer(folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json of the byte tokenizer, with a template."""
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    settings = {"bos_token": SPECIAL[1], "eos_token": SPECIAL[2], "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


CODEC = TextCodec(byte_tokenizer())


def ids(text: str) -> tuple[int, ...]:
    """The byte tokens of `text`."""
    return CODEC.encode(text, add_special_tokens=False)


def config(properties: str = "", **env: str) -> LmiConfig:
    """A configuration from options."""
    return resolve_config(env, properties, (), Path("/model"), 4)


@cache
def chat_template(text: str) -> ChatTemplate:
    """A chat template, compiled once. Its clock stands still."""
    return ChatTemplate(text, {"bos_token": SPECIAL[1]}, ManualClock())


@cache
def with_adapters() -> LmiConfig:
    """The default configuration of `server`, with adapters."""
    return config("option.enable_lora=true")


def server(
    answers: Mapping[str | None, str] | None = None,
    *,
    settings: LmiConfig | None = None,
    backend: FakeBackend | None = None,
    template: str = TEMPLATE,
) -> LmiServer:
    """A ready server over a fake backend, which answers with a text for each adapter."""
    settings = settings or with_adapters()
    texts = answers or {None: "a base answer", "es": "hola", "fr": "salut"}
    backend = backend or FakeBackend({name: ids(text) for name, text in texts.items()})
    registry = AdapterRegistry(
        backend, enabled=settings.engine.enable_lora, max_pinned=settings.max_cpu_loras
    )
    registry.adopt((name, Path("/model/adapters") / name) for name in sorted(backend.adapters))
    clock = ManualClock()
    chat = chat_template(template)
    model = LoadedModel(
        backend=backend,
        codec=CODEC,
        chat=chat,
        registry=registry,
        conventions=model_conventions(settings, chat, CODEC),
    )
    return LmiServer(config=settings, clock=clock, model=model, phase=ServerPhase.READY)


def fake(served: LmiServer) -> FakeBackend:
    """The fake backend of a server."""
    assert served.model is not None
    assert isinstance(served.model.backend, FakeBackend)
    return served.model.backend


@dataclass(frozen=True, slots=True)
class Answer:
    """A response with shortcuts for tests."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def lines(self) -> list[Any]:
        """The JSON lines of a stream."""
        return [json.loads(line) for line in self.text.splitlines() if line]

    @property
    def events(self) -> list[Any]:
        """The data of server-sent events. The end mark is a text."""
        data = [part.removeprefix("data: ") for part in self.text.split("\n\n") if part]
        return [each if each == "[DONE]" else json.loads(each) for each in data]


def ask(
    served: LmiServer,
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request to the application. A body that is not bytes is sent as JSON."""
    return ask_all(served, [(method, path, body, headers or {})])[0]


def ask_all(
    served: LmiServer,
    requests: Sequence[tuple[str, str, Any, Mapping[str, str]]],
    *,
    show_defects: bool = True,
) -> list[Answer]:
    """Send several requests at the same time. With `show_defects` uncaught errors are raised."""

    async def run() -> list[Answer]:
        transport = httpx.ASGITransport(build_app(served), raise_app_exceptions=show_defects)
        async with httpx.AsyncClient(transport=transport, base_url="http://copy") as client:
            asking = [send(client, *request) for request in requests]
            return list(await asyncio.gather(*asking))

    return asyncio.run(run())


async def send(
    client: httpx.AsyncClient, method: str, path: str, body: Any, headers: Mapping[str, str]
) -> Answer:
    """Send one request through an open client."""
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
    response = await client.request(method, path, content=content, headers=dict(headers))
    return Answer(response.status_code, response.headers, response.text)
