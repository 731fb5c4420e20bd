"""The server around the handlers: health, limits, adapters, clients that go away."""

import asyncio
import dataclasses
import json
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import CODEC, Answer, ask, ask_all, config, fake, ids, server

from hostelry.containers.lmi.fake import FakeBackend
from hostelry.containers.lmi.http.app import build_app
from hostelry.containers.lmi.http.server import LmiServer, ServerPhase
from hostelry.containers.lmi.text_codec import TextCodec

LORA = config("option.enable_lora=true")


@cases(
    "phase, alive, status",
    case("not while the model loads", ServerPhase.LOADING, True, 503),
    case("ready", ServerPhase.READY, True, 200),
    case("the engine is dead or stands still", ServerPhase.READY, False, 500),
    case("failed", ServerPhase.FAILED, True, 500),
    case("shutting down", ServerPhase.DRAINING, True, 503),
)
def test_ping_is_honest(phase: ServerPhase, alive: bool, status: int) -> None:
    served = server()
    fake(served).ready = alive
    served.phase = phase
    assert ask(served, "/ping", method="GET").status == status


@cases(
    "phase, status",
    case("loading", ServerPhase.LOADING, 503),
    case("shutting down", ServerPhase.DRAINING, 503),
    case("failed", ServerPhase.FAILED, 500),
)
@pytest.mark.parametrize("path", ["/invocations", "/v1/completions", "/adapters"])
def test_requests_outside_the_ready_phase(phase: ServerPhase, status: int, path: str) -> None:
    served = server()
    served.phase = phase
    assert ask(served, path, {"inputs": "a", "prompt": "a"}).status == status


def test_a_body_over_the_limit_is_413() -> None:
    served = server(settings=config(SAGEMAKER_MAX_REQUEST_SIZE="100"))
    answer = ask(served, "/invocations", {"inputs": "a" * 100})
    assert (answer.status, answer.json["code"]) == (413, 413)
    assert "limit is 100" in answer.json["message"]


def test_a_full_queue_is_503() -> None:
    settings = config("job_queue_size=1\noption.max_rolling_batch_size=1")
    served = server(settings=settings)
    answers = ask_all(served, [("POST", "/invocations", {"inputs": "a"}, {})] * 4)
    statuses = [answer.status for answer in answers]
    assert sorted(set(statuses)) == [200, 503]
    refused = next(answer for answer in answers if answer.status == 503)
    assert "Worker queue capacity exceeded" in refused.json["message"]
    assert served.in_flight == 0


def test_the_status_of_a_full_queue_can_be_changed() -> None:
    settings = config(
        "job_queue_size=0\noption.max_rolling_batch_size=1\nthrottle_error_http_code=429"
    )
    answers = ask_all(
        server(settings=settings), [("POST", "/invocations", {"inputs": "a"}, {})] * 3
    )
    assert 429 in {answer.status for answer in answers}


@cases(
    "method, path, status",
    case("an unknown path", "GET", "/nothing", 404),
    case("an unknown OpenAI path", "GET", "/v1/nothing", 404),
    case("a wrong method", "GET", "/invocations", 405),
    case("an unknown model", "GET", "/models/other", 404),
    case("adapters of an unknown model", "GET", "/models/other/adapters", 404),
)
def test_what_is_not_there(method: str, path: str, status: int) -> None:
    answer = ask(server(), path, method=method)
    assert answer.status == status
    assert ("allow" in answer.headers) == (status == 405)
    content = answer.json
    assert (content["error"] if path.startswith("/v1/") else content)["code"] == status


def test_models_are_listed_in_both_forms() -> None:
    served = server()
    names = [each["id"] for each in ask(served, "/v1/models", method="GET").json["data"]]
    assert names == ["lmi", "es", "fr"]
    assert ask(served, "/models", method="GET").json["models"][0]["modelName"] == "lmi"
    (workflow,) = ask(served, "/models/lmi", method="GET").json
    (described,) = workflow["models"]
    assert (described["status"], described["adapters"]) == ("Healthy", 2)


def register(served: LmiServer, folder: Path, name: str, more: str = "") -> Answer:
    return ask(served, f"/adapters?name={name}&src={folder}{more}")


def test_an_adapter_lives_from_its_registration_to_its_end(tmp_path: Path) -> None:
    served = server(settings=LORA)
    alias = {"X-Amzn-SageMaker-Adapter-Alias": "german"}
    answer = ask(served, f"/adapters?name=de&src={tmp_path}", headers=alias)
    assert (answer.status, answer.json) == (200, {"status": "Adapter german registered"})
    assert ask(served, "/adapters/de", method="GET").json["src"] == str(tmp_path)
    assert ask(served, "/invocations", {"inputs": "a", "adapters": "de"}).status == 200
    gone = ask(served, "/adapters/de", method="DELETE")
    assert gone.json == {"status": "Adapter german unregistered"}
    assert ask(served, "/invocations", {"inputs": "a", "adapters": "de"}).status == 424
    assert ask(served, "/adapters/de", method="DELETE").status == 404


def test_a_registration_by_body_alone_is_answered_in_plain_text(tmp_path: Path) -> None:
    answer = ask(server(settings=LORA), "/adapters", {"name": "de", "src": str(tmp_path)})
    assert (answer.status, answer.text) == (200, "Adapter de registered")
    assert answer.type.startswith("text/plain")


def test_the_model_may_come_first_in_the_path(tmp_path: Path) -> None:
    served = server(settings=LORA)
    assert ask(served, f"/models/lmi/adapters?name=de&src={tmp_path}").status == 200
    assert ask(served, "/models/lmi/adapters/de", method="GET").json["name"] == "de"


@cases(
    "query, status, message",
    case("no source", "name=de", 400, "Parameter src is required"),
    case("no name", "src=/x", 400, "Parameter name is required"),
    case("a name that is taken", "name=es&src={}", 409, "already exists"),
    case("a folder that is not", "name=de&src={}/none", 424, "is not a folder"),
    case("a name too long", "name=de&src=/" + "a" * 900, 424, "is not a folder"),
    case("weights that are refused", "name=de&src={}/bad", 424, "use_dora"),
    case("more than the engine's memory", "name=de&src={}/huge", 507, "no memory"),
    case("an unknown place", "name=de&src=ftp://b/k", 409, "it must be a folder"),
    case("a place cut short", "name=de&src=s3:k", 409, "it must be a folder"),
    case("no URL at all", "name=de&src=http://[", 400, "which is no URL"),
    case("bad weights from afar", "name=de&src=s3://b/bad", 424, "use_dora"),
    case("a source of two lines", "name=de&src=a%0Ab", 400, "printable"),
    case("an endless source", "name=de&src=" + "a" * 5000, 400, "at most 4096"),
    case("pinned unloaded", "name=de&src={}&pin=true&preload=false", 424, "preload"),
    case("perhaps pinned", "name=de&src={}&pin=perhaps", 400, "true or false"),
    case("a name like a path", "name=a%2Fb&src={}", 400, "without a slash"),
    case("a name of two lines", "name=a%0Ab&src={}", 400, "printable"),
)
def test_registrations_that_fail_leave_nothing_listed(
    query: str, status: int, message: str, tmp_path: Path
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "huge").mkdir()
    served = server(settings=LORA)
    answer = ask(served, "/adapters?" + query.format(tmp_path))
    assert (answer.status, answer.json["code"]) == (status, status)
    assert message in answer.json["message"]
    listed = ask(served, "/adapters", method="GET").json["adapters"]
    assert [each["name"] for each in listed] == ["es", "fr"]


def test_only_so_many_adapters_can_be_pinned(tmp_path: Path) -> None:
    settings = config("option.enable_lora=true\noption.max_loras=1\noption.max_cpu_loras=1")
    served = server(settings=settings)
    assert register(served, tmp_path, "a", "&pin=true").status == 200
    refused = register(served, tmp_path, "b", "&pin=true")
    assert refused.status == 507
    assert "No free lora slots" in refused.json["message"]
    assert register(served, tmp_path, "b").status == 200


def test_without_lora_adapters_cannot_be_registered(tmp_path: Path) -> None:
    answer = register(server(settings=config()), tmp_path, "de")
    assert answer.status == 400
    assert answer.json["message"].startswith("LoRA is not enabled.")


def test_an_adapter_without_preload_is_loaded_by_its_first_request(tmp_path: Path) -> None:
    served = server(settings=LORA)
    assert register(served, tmp_path, "de", "&preload=false").status == 200
    assert "de" not in fake(served).adapters
    assert ask(served, "/invocations", {"inputs": "a", "adapters": "de"}).status == 200
    assert "de" in fake(served).adapters


def test_a_late_load_that_fails_is_the_requests_error(tmp_path: Path) -> None:
    served = server(settings=LORA)
    (tmp_path / "bad").mkdir()
    assert register(served, tmp_path / "bad", "de", "&preload=false").status == 200
    answer = ask(served, "/invocations", {"inputs": "a", "adapters": "de"})
    assert answer.status == 424
    assert "use_dora" in answer.text


def test_an_engine_without_memory_for_an_adapter_serves_the_others_on(tmp_path: Path) -> None:
    served = server(settings=LORA)
    (tmp_path / "huge").mkdir()
    refused = register(served, tmp_path / "huge", "de")
    assert (refused.status, refused.json["type"]) == (507, "InsufficientMemoryException")
    late = register(served, tmp_path / "huge", "late", "&preload=false")
    assert late.status == 200
    answer = ask(served, "/invocations", {"inputs": "a", "adapters": "late"})
    assert (answer.status, "no memory" in answer.text) == (507, True)
    assert ask(served, "/invocations", {"inputs": "a", "adapters": "es"}).status == 200
    assert ask(served, "/ping", method="GET").status == 200


def test_with_a_dead_engine_every_route_fails_with_the_reason(tmp_path: Path) -> None:
    served = server(settings=LORA)
    late = register(served, tmp_path, "late", "&preload=false")
    assert late.status == 200
    fake(served).ready = False
    answers = [
        register(served, tmp_path, "de"),
        ask(served, "/adapters/es", method="DELETE"),
        ask(served, "/models/lmi", method="GET"),
        ask(served, "/invocations", {"inputs": "a", "adapters": "late"}),
    ]
    assert [answer.status for answer in answers] == [500] * 4
    assert all("engine process ended" in answer.text for answer in answers)


@cases(
    "path, status",
    case("preload again", "/adapters/es/update?preload=true", 200),
    case("pin", "/adapters/es/update?pin=true", 200),
    case("a folder that is not there", "/adapters/es/update?src=/elsewhere", 424),
    case("another source", "/adapters/es/update?src=hf://org/es-2", 200),
    case("another, refused", "/adapters/es/update?src=hf://org/bad", 424),
    case("another, too large", "/adapters/es/update?src=hf://org/huge", 507),
    case("a pin beyond the engine's budget", "/adapters/fr/update?pin=true", 507),
    case("an unknown adapter", "/adapters/xx/update?pin=true", 404),
)
def test_updates(path: str, status: int) -> None:
    assert ask(server(settings=LORA), path).status == status


def test_a_pin_stays_until_it_is_taken_away() -> None:
    served = server(settings=LORA)
    assert ask(served, "/adapters/es/update?pin=true").json == {"status": "Adapter es updated"}
    assert ask(served, "/adapters/es/update?preload=true").status == 200
    assert ask(served, "/adapters/es", method="GET").json["pin"] is True
    assert fake(served).pinned == {"es"}
    assert ask(served, "/adapters/es/update?pin=false").status == 200
    assert ask(served, "/adapters/es", method="GET").json["pin"] is False
    assert fake(served).pinned == set()


def test_adapters_are_listed_in_pages() -> None:
    served = server({None: "x", **{f"a{number}": "x" for number in range(5)}}, settings=LORA)
    seen: list[str] = []
    token = "0"
    while token:
        page = ask(served, f"/adapters?limit=2&next_page_token={token}", method="GET").json
        seen += [each["name"] for each in page["adapters"]]
        token = page.get("nextPageToken", "")
    assert seen == [f"a{number}" for number in range(5)]
    for invalid_setting in ("limit=0", "limit=x", "next_page_token=99", "next_page_token=-1"):
        assert ask(served, f"/adapters?{invalid_setting}", method="GET").status == 400


class Connection:
    """A client that sends a body and then hangs up after a signal."""

    def __init__(self, body: Any) -> None:
        self._body = json.dumps(body).encode()
        self._sent = False
        self.leave = asyncio.Event()
        self.messages: list[MutableMapping[str, Any]] = []
        self.first_chunk = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.messages.append(message)
        if message["type"] == "http.response.body":
            self.first_chunk.set()

    @property
    def scope(self) -> MutableMapping[str, Any]:
        return {
            "type": "http", "method": "POST", "path": "/invocations", "raw_path": b"/invocations",
            "query_string": b"", "headers": [], "root_path": "", "scheme": "http",
        }  # fmt: skip


@cases("stream", case("stream", True), case("whole", False))
async def test_a_client_that_leaves_ends_its_request(stream: bool) -> None:
    served = server(backend=FakeBackend({None: ids("abcdefgh")}))
    backend = fake(served)
    connection = Connection({"inputs": "x", "stream": stream})
    backend.gate.clear()
    app = build_app(served)
    task = asyncio.create_task(app(connection.scope, connection.receive, connection.send))
    await backend.started.wait()
    assert served.in_flight == 1
    connection.leave.set()
    await task
    served = served
    assert fake(served).aborted == [fake(served).seen[0].id]
    assert (served.in_flight, served.idle.is_set()) == (0, True)


async def test_the_first_chunk_is_sent_before_the_second_token_exists() -> None:
    served = server(backend=FakeBackend({None: ids("abc")}, hold_after=1))
    connection = Connection({"inputs": "x", "stream": True})
    app = build_app(served)
    task = asyncio.create_task(app(connection.scope, connection.receive, connection.send))
    await connection.first_chunk.wait()
    sent = list(connection.messages)
    connection.leave.set()
    await task
    start, first = sent
    assert start["status"] == 200
    assert b'"text":"a"' in first["body"]


@cases(
    "path, body",
    case("invocations", "/invocations", {"inputs": "a"}),
    case("an OpenAI route", "/v1/completions", {"prompt": "a"}),
)
def test_a_defect_of_ours_is_a_500_in_the_routes_form(path: str, body: Any) -> None:
    served = server()
    served.model = replace(served.model, codec=None)  # type: ignore[type-var] # the defect
    answer = ask_all(served, [("POST", path, body, {})], show_defects=False)[0]
    error = answer.json["error"] if path.startswith("/v1/") else answer.json
    assert (answer.status, error["code"]) == (500, 500)
    assert "codec" not in answer.text
    assert served.in_flight == 0


class NoC(TextCodec):
    """Cannot decode the letter c."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        if ids("c")[0] in token_ids:
            raise OverflowError("c")
        return super().decode(token_ids, skip_special_tokens=skip_special_tokens)


@cases(
    "path, body",
    case("invocations", "/invocations", {"inputs": "a", "stream": True}),
    case("an OpenAI route", "/v1/completions", {"prompt": "a", "stream": True}),
)
def test_a_defect_in_a_stream_that_has_begun_is_its_last_event(path: str, body: Any) -> None:
    served = server(backend=FakeBackend({None: ids("abc")}))
    served.model = replace(served.model, codec=NoC(CODEC.tokenizer))  # type: ignore[type-var]
    answer = ask_all(served, [("POST", path, body, {})])[0]
    assert answer.status == 200
    assert '"text":"b"' in answer.text
    assert "the server failed at this response" in answer.text
    assert served.in_flight == 0


def test_many_requests_at_once_keep_their_answers_apart() -> None:
    served = server(
        settings=dataclasses.replace(LORA, engine=replace(LORA.engine, max_batch_size=64))
    )
    names = ["", "es", "fr"] * 10
    bodies = [{"inputs": "a", "adapters": name} for name in names]
    requests: list[Any] = [("POST", "/invocations", body, {}) for body in bodies]
    texts = [answer.json["generated_text"] for answer in ask_all(served, requests)]
    expected = {"": "a base answer", "es": "hola", "fr": "salut"}
    assert texts == [expected[name] for name in names]
