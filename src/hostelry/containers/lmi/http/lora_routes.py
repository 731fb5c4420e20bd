"""vLLM's routes for adapters at run time, over the same registry as the /adapters routes.

A path is the client's, so it may name only what a model's author may: see `artifact_path`.
Source: vLLM documentation, Dynamically serving LoRA adapters.
"""

import asyncio
import re

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hostelry.containers.lmi.artifact_path import path_inside
from hostelry.containers.lmi.http.adapter_registry import AdapterRecord
from hostelry.containers.lmi.http.adapter_routes import MAX_BODY_BYTES
from hostelry.containers.lmi.http.body import read_body
from hostelry.containers.lmi.http.json_answer import PlainEndpoint, answering, json_response
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.refusal import Cause, Refusal, Surface, bad_request
from hostelry.containers.lmi.request.fields import BodyFields, parse_json, shown
from hostelry.containers.lmi.settings.config import LmiConfig

HUB_ID = re.compile(r"[a-zA-Z0-9][\w.-]*/[a-zA-Z0-9][\w.-]*", re.ASCII)
REMOTE = ("s3://", "hf://")
BOTH_NEEDED = "Both 'lora_name' and 'lora_path' must be provided."


def lora_paths(server: LmiServer) -> list[Route]:
    """The two routes."""

    def route(path: str, operation: PlainEndpoint) -> Route:
        return Route(path, answering(server, Surface.OPENAI, operation), methods=["POST"])

    async def load(request: Request) -> Response:
        registry, body = server.loaded().registry, await body_of(request)
        name, path = body.text("lora_name"), body.text("lora_path")
        if not name or not path:
            return invalid(BOTH_NEEDED)
        in_place = body.flag("load_inplace")
        if name in server.config.served or (name in registry.records and not in_place):
            return invalid(f"The lora adapter '{name}' has already been loaded.")
        src = await asyncio.to_thread(allowed_source, server.config, path)
        try:
            if name in registry.records:
                await registry.update(name, src=src, preload=True, pin=None)
            else:
                await registry.register(AdapterRecord(name=name, alias=name, src=src))
        except Refusal as refusal:
            raise as_vllm(refusal) from refusal
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(request: Request) -> Response:
        registry, body = server.loaded().registry, await body_of(request)
        name = body.text("lora_name")
        if not name:
            return invalid("'lora_name' needs to be provided to unload a LoRA adapter.")
        if name not in registry.records:
            message = f"The lora adapter '{name}' cannot be found."
            raise Refusal(Cause.NOT_FOUND, message, "lora_name")
        await registry.unregister(name)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    return [route("/v1/load_lora_adapter", load), route("/v1/unload_lora_adapter", unload)]


async def body_of(request: Request) -> BodyFields:
    """The members of the body."""
    body = BodyFields(parse_json(await read_body(request, MAX_BODY_BYTES)), "the body")
    body.refuse("is_3d_lora_weight", (False,), "weights are read as PEFT stores them")
    return body


def invalid(message: str) -> Response:
    """The 400 of vLLM for what the body lacks or repeats."""
    error = {"message": message, "type": "InvalidUserInput", "param": None, "code": 400}
    return json_response({"error": error}, 400)


def as_vllm(refusal: Refusal) -> Refusal:
    """The refusal with vLLM's status: 400 for an adapter that cannot be read or applied."""
    if refusal.cause in (Cause.DEPENDENCY, Cause.CONFLICT):
        return Refusal(Cause.BAD_REQUEST, refusal.message, "lora_path")
    return refusal


def allowed_source(config: LmiConfig, path: str) -> str:
    """`path` as a source of the registry: in the model folder, one of its artifacts, or remote.

    ORGANISATION/NAME that is no folder is an id of the hub. Raises Refusal for other places.
    """
    if path.startswith(REMOTE) or path in config.artifact_folders:
        return path
    inside = path_inside(path, config.model_dir)
    if inside is not None and inside.is_dir():
        return str(inside)
    if inside is not None and HUB_ID.fullmatch(path):
        return f"hf://{path}"
    if inside is not None and ":" not in path:
        raise Refusal(Cause.NOT_FOUND, f"No adapter found for {path[:200]}", "lora_path")
    raise bad_request(
        f"lora_path is {shown(path)}; it must be a folder inside the model folder (/opt/ml/model), "
        "s3://BUCKET/PREFIX, or an id of the hub",
        "lora_path",
    )
