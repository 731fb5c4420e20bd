"""GET /openapi.json: the description of the server's routes."""

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry import __version__
from hostelry.containers.lmi.http.bodies import json_response
from hostelry.containers.lmi.refusal import StatusCodes

TEXT = {"type": "string"}
FLAG = {"type": "boolean"}
NUMBER = {"type": "number"}
COUNT = {"type": "integer", "minimum": 1}
OBJECT = {"type": "object"}
TEXTS = {"type": "array", "items": TEXT}


def body(*required: str, **members: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a JSON object, which may have more members."""
    return {"type": "object", "properties": members, "required": list(required)}


MESSAGES = {"type": "array", "items": body("role", role=TEXT, content={}), "minItems": 1}
SAMPLING: Mapping[str, Mapping[str, Any]] = {
    "model": TEXT,
    "stream": FLAG,
    "temperature": NUMBER,
    "top_p": NUMBER,
    "seed": {"type": "integer"},
    "adapters": {"oneOf": [TEXT, TEXTS]},
}
INPUTS = body("inputs", inputs={"oneOf": [TEXT, TEXTS]}, parameters=OBJECT, stream=FLAG)
CHAT = body("messages", messages=MESSAGES, max_tokens=COUNT, **SAMPLING)
COMPLETION = body("prompt", prompt={}, max_tokens=COUNT, **SAMPLING)
VECTORS = body("input", input={}, encoding_format=TEXT, dimensions=COUNT)
BODIES: Mapping[str, Mapping[str, Any]] = {
    "/invocations": {"oneOf": [INPUTS, CHAT, COMPLETION]},
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/v1/responses": body(
        "input", input={}, instructions=TEXT, max_output_tokens=COUNT, text=OBJECT, **SAMPLING
    ),
    "/v1/embeddings": VECTORS,
    "/pooling": VECTORS,
    "/classify": VECTORS,
    **dict.fromkeys(("/score", "/v1/score"), body(text_1={}, text_2={}, queries={}, documents={})),
    **dict.fromkeys(
        ("/rerank", "/v1/rerank", "/v2/rerank"),
        body("query", "documents", query=TEXT, documents={}, top_n={"type": "integer"}),
    ),
    "/tokenize": body(prompt=TEXT, messages=MESSAGES, add_special_tokens=FLAG),
    "/detokenize": body("tokens", tokens={"type": "array", "items": {"type": "integer"}}),
    "/v1/load_lora_adapter": body(
        "lora_name", "lora_path", lora_name=TEXT, lora_path=TEXT, load_inplace=FLAG
    ),
    "/v1/unload_lora_adapter": body("lora_name", lora_name=TEXT),
    "/adapters": body("name", "src", name=TEXT, src=TEXT, preload=FLAG, pin=FLAG),
    "/adapters/{name}/update": body(src=TEXT, preload=FLAG, pin=FLAG),
}
QUERIES: Mapping[str, tuple[tuple[str, Mapping[str, Any]], ...]] = {
    "/adapters": (("limit", COUNT), ("next_page_token", TEXT)),
}
# Words for the statuses of every route that reads a body or needs the model.
STATUSES: Mapping[int, str] = {
    200: "Done.",
    400: "A member of the request is not valid, or the answer took too long.",
    404: "There is no such model or adapter.",
    409: "The adapter is there already.",
    413: "The body is too large.",
    424: "The request cannot be read or carried out.",
    429: "A quota of the tenant is reached.",
    500: "The engine failed.",
    503: "The server is loading, draining or full.",
    507: "There is no memory for the adapter.",
}
PLAIN = {"/health": (200, 503), "/ping": (200, 500, 503), "/version": (200,), "/load": (200,)}


def openapi_paths(routes: Iterable[Route], codes: StatusCodes) -> list[Route]:
    """The route of the description of `routes`."""
    content = description(list(routes), codes)

    async def answer(request: Request) -> Response:
        return json_response(content)

    return [Route("/openapi.json", answer, methods=["GET"])]


def description(routes: Iterable[Route], codes: StatusCodes) -> dict[str, Any]:
    """The description by OpenAPI 3.1. `codes` are the statuses that a deployment may change."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = route.path.replace(":path}", "}")
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(path, {})[method.lower()] = operation(path, method, codes)
    info = {"title": "Hostelry's LLM server", "version": __version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def operation(path: str, method: str, codes: StatusCodes) -> dict[str, Any]:
    """One method of a path."""
    own = path.removeprefix("/models/{model}") if path != "/models/{model}/invoke" else path
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": TEXT}
        for part in path.split("/")
        if part.startswith("{")
    ]
    if method == "GET":
        parameters += [
            {"name": name, "in": "query", "schema": schema} for name, schema in QUERIES.get(own, ())
        ]
    described: dict[str, Any] = {
        "operationId": f"{method.lower()} {path}",
        "parameters": parameters,
        "responses": {
            str(status): {"description": words} for status, words in statuses(path, codes).items()
        },
    }
    if method == "POST":
        schema = BODIES.get(own, BODIES["/invocations"])
        content = {"application/json": {"schema": schema}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def statuses(path: str, codes: StatusCodes) -> dict[int, str]:
    """The statuses that a path may answer with, and why."""
    if path in PLAIN:
        return {status: STATUSES[status] for status in PLAIN[path]}
    changed = {
        codes.bad_request: STATUSES[400],
        codes.queue_full: STATUSES[503],
        codes.not_ready: STATUSES[503],
        codes.timeout: STATUSES[400],
        codes.server_error: STATUSES[500],
    }
    return {**STATUSES, **changed}
