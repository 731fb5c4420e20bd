"""The whole gateway over copies without processes: its records of each call."""

import asyncio
from typing import Any

import msgspec
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningKeys
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, SNAPSHOT
from tests.unit.services.test_metered_gateway import CREDENTIALS

from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.clock import SystemClock
from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import FakeReplyConnection, FakeUpstream, WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.dataplane.routes import FixedRoutes
from hostelry.graph.step_report import STEPS_HEADER, StepReport, encode_steps
from hostelry.home.home import UpConfig
from hostelry.http1.reply import BrokenError, ConnectError, Reply
from hostelry.http1.upstream import Timeouts
from hostelry.services.gateway import Gateway, build_gateway

HOST = "127.0.0.1:8787"
WHOLE = "/endpoints/llms/invocations"
STREAM = "/endpoints/llms/invocations-response-stream"
CHAT = "/v1/chat/completions"
BODY = b'{"model": "base"}'
ANSWER = b'{"usage":{"prompt_tokens":3}}'
OPERATOR = {"x-hostelry-key": CREDENTIALS.internal_key}
OPENAI = {"authorization": f"Bearer {CREDENTIALS.openai_api_key}"}
COMPONENT = "X-Amzn-SageMaker-Inference-Component"
PARENT = "x-hostelry-parent-request"
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class Copies(FakeUpstream):
    """Copies that answer. The first ones of `refuse` take no connection."""

    def __init__(
        self, *, refuse: int = 0, breaks: bool = False, hangs: bool = False, steps: str = ""
    ) -> None:
        super().__init__()
        self._refuse, self._breaks, self._hangs, self._steps = refuse, breaks, hangs, steps
        self.heads: list[bytes] = []

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.heads.append(parts[0])
        if len(self.heads) <= self._refuse:
            raise ConnectError("refused")
        if self._hangs:
            await asyncio.Event().wait()
        reply = Reply(FakeReplyConnection())
        steps = {STEPS_HEADER.lower(): self._steps} if self._steps else {}
        reply.set_head(200, {"content-type": "application/json", **steps})
        reply.add_chunk(ANSWER)
        if self._breaks:
            reply.fail(BrokenError("gone"))
        else:
            reply.end(reusable=True)
        return reply


class Caller:
    """A client of a gateway. Signs as the owner, or with a copy's keys."""

    def __init__(self, parts: Gateway) -> None:
        self.parts = parts

    async def send(self, request: HttpRequest) -> tuple[int, dict[str, str], bytes]:
        sink = WrittenAnswer()
        await self.parts.dispatcher.handle(Exchange(sink, Received(request, True, True), b""))
        head, _, body = sink.written.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]), {name.lower(): value for name, value in pairs}, body

    async def call(
        self, path: str, headers: dict[str, str] | None = None, *, by_copy: bool = False
    ) -> str:
        """The request id of a call."""
        given = {COMPONENT: "base"} | (headers or {})
        if path.startswith("/v1/"):
            request = HttpRequest("POST", path, "", OPENAI | given, BODY)
        else:
            request = signed("POST", path, given, BODY, by_copy=by_copy)
        _, answered, _ = await self.send(request)
        return answered.get("x-amzn-requestid") or answered["x-request-id"]

    async def ask(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        place, _, query = path.partition("?")
        status, _, body = await self.send(HttpRequest("GET", place, query, headers))
        return status, msgspec.json.decode(body)

    async def traced(self, request_id: str) -> dict[str, Any]:
        status, found = await self.ask(f"/traces/{request_id}", OPERATOR)
        assert status == 200, found
        call: dict[str, Any] = found["call"]
        return call


def signed(
    method: str, path: str, headers: dict[str, str], body: bytes = b"", *, by_copy: bool = False
) -> HttpRequest:
    keys = SigningKeys(CREDENTIALS.access_key_id, CREDENTIALS.secret_access_key)
    if by_copy:
        session = Session(
            access_key_id="ASIACOPY",
            account_id=CREDENTIALS.account_id,
            expires_at=int(SystemClock().now()) + 3600,
            session_name="i-copy",
        )
        made = TokenSeal(CREDENTIALS.internal_key).issue(session)
        keys = SigningKeys(made.access_key_id, made.secret_access_key, made.session_token)
    request = AWSRequest(method, f"http://{HOST}{path}", headers, body)
    SigV4Auth(keys, "sagemaker", CREDENTIALS.region).add_auth(request)
    given = {name.lower(): value for name, value in request.headers.items()}
    return HttpRequest(method, path, "", {**given, "host": HOST}, body)


def gateway(copies: FakeUpstream, **config: Any) -> Caller:
    settings = UpConfig(gateway_port=1, control_port=2, **config)
    parts = build_gateway(settings, CREDENTIALS, FixedRoutes(SNAPSHOT), copies)  # type: ignore[arg-type]
    return Caller(parts)


@pytest.mark.parametrize("path", [WHOLE, STREAM, CHAT])
async def test_a_call_is_found_by_the_id_that_its_client_got(path: str) -> None:
    copies = Copies()
    caller = gateway(copies)
    found = await caller.traced(await caller.call(path, {"traceparent": TRACEPARENT}))
    assert (found["status"], found["endpoint"], found["component"]) == (200, "llms", "base")
    assert (found["bytes_in"], found["bytes_out"]) == (len(BODY), len(ANSWER))
    assert found["tokens"] == {"prompt_tokens": 3}
    assert found["traceparent"] == TRACEPARENT
    assert found["account"] == CREDENTIALS.account_id
    assert [it["name"] for it in found["spans"]] == ["arrival", "attempt", "passing on"]
    choice = found["spans"][1]["choice"]
    assert choice["costs"] == {it.id: 0 for it in COPIES}
    assert 0 < found["first_byte_ms"] <= found["ms"]
    assert sum(it["ms"] for it in found["spans"]) <= found["ms"] + 0.01
    assert f"traceparent: {TRACEPARENT}\r\n".encode() in copies.heads[0], "it goes on as it came"


async def test_a_copy_that_refuses_is_an_attempt_of_its_own() -> None:
    caller = gateway(Copies(refuse=1))
    found = await caller.traced(await caller.call(WHOLE))
    attempts = [it for it in found["spans"] if it["name"] == "attempt"]
    assert [it["outcome"] for it in attempts] == ["took no connection", "answered"]
    assert attempts[1]["choice"]["policy"] == "the only copy"
    assert sorted(found["copies"]) == sorted(it.id for it in COPIES)


@cases(
    "path, component, copies, status, words",
    case("a model that dies", WHOLE, "base", Copies(breaks=True), 424, "closed the connection"),
    case("a stream that breaks", STREAM, "base", Copies(breaks=True), 200,
        "broke its streamed answer off"),
    case("an unknown name", WHOLE, "nobody", Copies(), 400, "nobody not found"),
    case("no invocation", "/endpoints/llms/invocations/more", "base", Copies(), 400,
        "no runtime call"),
    case("no copy", CHAT, "base", Copies(refuse=9), 503, "No copy of model"),
)  # fmt: skip
async def test_a_failed_call_is_listed_with_its_cause(
    path: str, component: str, copies: Copies, status: int, words: str
) -> None:
    caller = gateway(copies, hold_limit_s=0.0)
    request_id = await caller.call(path, {COMPONENT: component})
    _, listed = await caller.ask("/traces?order=failed", OPERATOR)
    assert [it["request_id"] for it in listed["calls"]] == [request_id]
    assert listed["calls"][0]["status"] == status
    assert words in listed["calls"][0]["error"]


async def test_a_client_that_leaves_is_noted() -> None:
    copies = Copies(hangs=True)
    caller = gateway(copies)
    calling = asyncio.ensure_future(caller.call(WHOLE))
    for _ in range(10):
        await asyncio.sleep(0)
    assert copies.heads
    calling.cancel()
    await asyncio.wait([calling])
    _, listed = await caller.ask("/traces?order=slowest&endpoint=llms", OPERATOR)
    (found,) = listed["calls"]
    assert (found["status"], found["code"]) == (499, "ClientLeft")
    assert found["spans"][-1]["outcome"] == "gave no answer"


@cases("by_copy, is_believed", case("a copy", True, True), case("another client", False, False))
async def test_a_parent_is_believed_of_a_copys_own_keys_alone(
    by_copy: bool, is_believed: bool
) -> None:
    steps = encode_steps([StepReport("a", "call", "", 0, 1, "ok", 1, 2, "unknown")])
    caller = gateway(Copies(steps=steps))
    top = await caller.call(WHOLE)
    child = await caller.call(WHOLE, {PARENT: f"{top} b"}, by_copy=by_copy)
    made = await caller.traced(child)
    parent = (top, "b") if is_believed else (None, None)
    assert (made["parent_id"], made["parent_step"]) == parent
    found = await caller.traced(top)
    assert [it["request_id"] for it in found["calls"]] == ([child] if is_believed else [])
    (attempt,) = [it for it in found["spans"] if it["name"] == "attempt"]
    assert [it["name"] for it in attempt["spans"]] == ["a"]


@pytest.mark.parametrize("path", [WHOLE, STREAM, CHAT])
@pytest.mark.parametrize("by_copy", [False, True])
async def test_who_calls_is_what_the_gateway_verified(path: str, by_copy: bool) -> None:
    copies = Copies()
    claimed = {"x-hostelry-principal": "role/other", "x-hostelry-tenant": "blue"}
    caller = gateway(copies)
    await caller.call(path, claimed, by_copy=by_copy)
    (head,) = copies.heads
    is_copy = by_copy and path != CHAT
    assert b"role/other" not in head
    assert (b"X-Hostelry-Principal: copy/i-copy\r\n" in head) is is_copy
    assert (b"X-Hostelry-Tenant: blue\r\n" in head) is not is_copy


async def _as_signer(caller: Caller, path: str, *, by_copy: bool = False) -> tuple[int, Any]:
    status, _, body = await caller.send(signed("GET", path, {}, by_copy=by_copy))
    return status, msgspec.json.decode(body)


async def test_an_account_sees_its_own_calls_and_the_operator_all() -> None:
    caller = gateway(Copies())
    own = await caller.call(WHOLE)
    theirs = caller.parts.calls.begin("other-account", "444455556666", HttpRequest("POST", "/"))
    theirs.fail(500, "InternalFailure", "theirs")
    caller.parts.calls.end(theirs, is_whole=True)
    for id, seen in ((own, 200), ("other-account", 404)):
        assert (await _as_signer(caller, f"/traces/{id}"))[0] == seen
        assert (await caller.ask(f"/traces/{id}", OPENAI))[0] == seen
        assert (await caller.ask(f"/traces/{id}", OPERATOR))[0] == 200
    _, listed = await _as_signer(caller, "/traces")
    assert [it["request_id"] for it in listed["calls"]] == [own]
    assert (await caller.ask("/traces?order=failed", OPENAI))[1]["calls"] == []
    assert len((await caller.ask("/traces?order=failed", OPERATOR))[1]["calls"]) == 1


async def test_an_unknown_id_is_answered_with_what_is_kept() -> None:
    caller = gateway(Copies())
    status, found = await caller.ask("/traces/none", OPERATOR)
    assert (status, found["code"]) == (404, "NotFound")
    assert "gateway-1 has had none since its start at 20" in found["message"]
    await caller.call(WHOLE)
    message = (await caller.ask("/traces/none", OPERATOR))[1]["message"]
    assert "No call none is kept." in message
    assert "has all 1 since 20" in message
    assert "hostelry jobs show" in message


@cases(
    "path, headers, status",
    case("nobody", "/traces", {}, 403),
    case("a wrong key", "/traces", {"x-hostelry-key": "wrong"}, 403),
    case("an unknown order", "/traces?order=best", OPERATOR, 400),
    case("no calls", "/traces?limit=0", OPERATOR, 400),
    case("no time", "/traces?since_s=nan", OPERATOR, 400),
    case("no number", "/traces?limit=x", OPERATOR, 400),
)
async def test_other_questions_are_refused(path: str, headers: dict[str, str], status: int) -> None:
    caller = gateway(Copies())
    assert (await caller.ask(path, headers))[0] == status


async def test_a_copys_keys_do_not_read_calls() -> None:
    caller = gateway(Copies())
    assert (await _as_signer(caller, "/traces", by_copy=True))[0] == 403
    post = HttpRequest("POST", "/traces", "", OPERATOR)
    assert (await caller.send(post))[0] == 405
