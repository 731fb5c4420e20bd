"""Streams have one event in each chunk, as clients parse the parts of a stream."""

import asyncio
import json
from typing import Any

from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import config, server

from hostelry.containers.lmi.http.app import build_app
from hostelry.containers.lmi.http.bodies import events_in
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.response.forms import EVENT_ENDS
from hostelry.containers.lmi.settings.config import ImageKind, resolve_config
from hostelry.containers.lmi.settings.options import TGI_MANNERS

TEXTS: dict[str | None, str] = {None: "Hi"}


def parts(served: LmiServer, path: str, body: Any) -> list[bytes]:
    """The chunks of a streamed response."""
    sent: list[bytes] = []
    asked = iter([{"type": "http.request", "body": json.dumps(body).encode()}])

    async def receive() -> Any:
        given = next(asked, None)
        return given if given is not None else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            sent.append(message["body"])

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": [], "root_path": "", "scheme": "http",
    }  # fmt: skip
    asyncio.run(build_app(served)(scope, receive, send))
    assert sent.pop() == b""
    return sent


def strict(part: bytes) -> Any:
    """A part as clients of old parse it: one JSON value, perhaps after "data: "."""
    return json.loads(part.decode().removeprefix("data: "))


CHAT = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "n": 2, "max_tokens": 2}
USAGE = {"stream_options": {"include_usage": True}}


def test_a_part_of_json_lines_is_a_token() -> None:
    for rolling in ("", "option.rolling_batch=vllm"):
        given = server(TEXTS, settings=config(rolling))
        found = parts(given, "/invocations", {"inputs": "a", "stream": True})
        assert [strict(it)["token"]["text"] for it in found] == ["H", "i", ""]
        assert all(it.endswith(b"}\n") and it.count(b"\n") == 1 for it in found)
        assert strict(found[-1])["generated_text"] == "Hi"


def test_a_part_of_a_chat_on_invocations_is_a_chunk() -> None:
    found = parts(server(TEXTS), "/invocations", {**CHAT, **USAGE})
    chunks = [strict(it) for it in found]
    assert [it["choices"][0]["delta"].get("role") for it in chunks[:2]] == ["assistant"] * 2
    assert [it["choices"][0]["finish_reason"] for it in chunks[-3:-1]] == ["length"] * 2
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 4)


def test_a_part_of_a_chats_events_is_an_event_and_the_last_is_done() -> None:
    *events, done = parts(server(TEXTS), "/v1/chat/completions", {**CHAT, **USAGE})
    assert done == b"data: [DONE]\n\n"
    assert all(it.endswith(b"}\n\n") for it in events)
    chunks = [strict(it) for it in events]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-1]["usage"]["total_tokens"] > 4


def test_a_part_of_tgis_stream_has_tgis_members() -> None:
    settings = resolve_config(TGI_MANNERS, "", (), config().model_dir, 4, image=ImageKind.TGI)
    body = {"inputs": "a", "stream": True, "parameters": {"details": True}}
    found = [strict(it) for it in parts(server(TEXTS, settings=settings), "/invocations", body)]
    assert [it["index"] for it in found] == [1, 2, 3]
    assert [it["generated_text"] for it in found] == [None, None, "Hi"]
    assert [bool(it["details"]) for it in found] == [False, False, True]
    assert found[-1]["details"]["finish_reason"] == "eos_token"
    assert found[-1]["details"].keys() >= {"seed", "input_length", "generated_tokens"}


def test_a_part_of_responses_is_an_event() -> None:
    body = {"input": "hi", "stream": True, "max_output_tokens": 2}
    found = parts(server(TEXTS), "/v1/responses", body)
    assert all(it.startswith(b"event: ") and it.count(b"data: ") == 1 for it in found)


@cases(
    "kind, data, events",
    case("a bare text is not cut", "text/plain", b"a\nb\n\n", [b"a\nb\n\n"]),
    case("nothing", "text/plain", b"", []),
    case("a line without an end", "application/jsonlines", b"1\n2", [b"1\n", b"2"]),
    case("events", "text/event-stream", b"a\nb\n\n\nc", [b"a\nb\n\n", b"\nc"]),
)
def test_events_are_found_by_their_end(kind: str, data: bytes, events: list[bytes]) -> None:
    assert events_in(data, EVENT_ENDS.get(kind, b"")) == events
