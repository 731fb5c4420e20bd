"""The LLM server's application over a fake engine, with an author's code in real processes."""

import asyncio
import os
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from tests.unit.containers.lmi.tiny import config, server, write_tokenizer

from hostelry.containers.lmi.code.author_code import AuthorCode, CodePolicy, CodeTerms
from hostelry.containers.lmi.http.app import build_app
from hostelry.containers.lmi.http.server import LmiServer

T = TypeVar("T")
SECRETS = {"HOSTELRY_COPY_KEY": "the-key", "HF_TOKEN": "the-token", "AWS_SECRET_ACCESS_KEY": "s"}

INPUT = "from djl_python.input_parser import input_formatter\n"
OUTPUT = "from djl_python.output_formatter import output_formatter\n"
HANDLE = "from djl_python import Input, Output\n"


@dataclass(frozen=True, slots=True)
class Coded:
    """A served model with an author's code, and a client for it."""

    served: LmiServer
    code: AuthorCode
    client: httpx.AsyncClient
    folder: Path

    async def ask(self, body: Any, path: str = "/invocations", **headers: str) -> httpx.Response:
        return await self.client.post(path, json=body, headers=headers)

    def base_pid(self) -> int:
        assert self.code._base is not None
        assert self.code._base.pid is not None
        return self.code._base.pid


def write_code(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(textwrap.dedent(text))
    return folder


def terms(folder: Path, policy: CodePolicy, is_rolling_batch: bool = False) -> CodeTerms:
    environment = {**os.environ, **SECRETS}
    return CodeTerms(
        policy=policy,
        model_dir=folder,
        tokenizer_folder=folder,
        environment=environment,
        options={"model_id": "a/b"},
        is_rolling_batch=is_rolling_batch,
    )


def with_code(
    folder: Path,
    base: str | None,
    run: Callable[[Coded], Awaitable[T]],
    adapters: Mapping[str, str] | None = None,
    properties: str = "",
    policy: CodePolicy = CodePolicy.CONFINED,
) -> T:
    """The result of `run` for a server whose model and adapters have that code."""

    folder.mkdir(exist_ok=True)
    write_tokenizer(folder)
    if base is not None:
        write_code(folder, base)

    async def serve() -> T:
        served = server(settings=config(f"option.enable_lora=true\n{properties}"))
        code = served.code = AuthorCode(terms(folder, policy, "rolling_batch" in properties))
        assert served.model is not None
        served.model.registry._code = code
        try:
            await code.load_base()
            for name, text in (adapters or {}).items():
                place = write_code(folder / "adapters" / name, text)
                code.adopt(name, await code.load_adapter(name, str(place)))
            transport = httpx.ASGITransport(build_app(served))
            async with httpx.AsyncClient(transport=transport, base_url="http://copy") as client:
                return await run(Coded(served, code, client, folder))
        finally:
            await code.close()

    return asyncio.run(serve())
