"""The whole gateway over copies without processes: its calls are held to quotas and charged."""

import asyncio
from typing import Any

import msgspec
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import HERE, SNAPSHOT
from tests.unit.quotas.quota_sample import quota
from tests.unit.services.test_metered_gateway import CREDENTIALS

from hostelry.base.clock import SystemClock
from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import FakeReplyConnection, FakeUpstream, WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.dataplane.routes import FixedRoutes
from hostelry.dataplane.shared.quota_table import QuotaTable
from hostelry.domain.quota import CallPrices, ModelPrices, Quota
from hostelry.home.home import UpConfig
from hostelry.http1.reply import BrokenError, Reply
from hostelry.http1.upstream import Timeouts
from hostelry.quotas.matching import build_document
from hostelry.quotas.measures import (
    CONCURRENCY,
    DAY_COST,
    DAY_TOKENS,
    GENERATED,
    NUM_MEASURES,
    PROMPT,
    REQUESTS,
)
from hostelry.services.gateway import build_gateway
from hostelry.services.gateway_memory import open_own_memory

WHOLE, STREAM = "/endpoints/llms/invocations", "/endpoints/llms/invocations-response-stream"
CHAT, MODELS = "/v1/chat/completions", "/endpoints/models/invocations"
USAGE = b'{"usage":{"prompt_tokens":30,"completion_tokens":7}}'
EVENTS = (b'data: {"t": 1}\n\n', b'data: {"t": 2}\n\ndata: {"t": 3}\n\n')
BODY = b'{"model": "base", "max_tokens": 20}  '
NOTHING = (0,) * NUM_MEASURES
LIMITS: dict[str, Any] = {
    "requests_per_minute": 100,
    "prompt_tokens_per_minute": 10_000,
    "generated_tokens_per_minute": 10_000,
    "concurrency": 100,
    "tokens_per_day": 10_000,
    "cost_per_day": 100.0,
}
PRICES = CallPrices(
    currency="USD", default=ModelPrices(per_prompt_token=1.0, per_generated_token=2.0)
)


class Answers(FakeUpstream):
    """A copy that answers with these chunks, then ends, breaks off or stays silent."""

    def __init__(self, *chunks: bytes, status: int = 200, end: str = "ends") -> None:
        super().__init__()
        self.chunks = chunks
        self.status = status
        self.end = end

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.asked.append(address)
        reply = Reply(FakeReplyConnection())
        is_stream = len(self.chunks) > 1
        kind = "text/event-stream" if is_stream else "application/json"
        reply.set_head(self.status, {"content-type": kind})
        for chunk in self.chunks:
            reply.add_chunk(chunk)
        if self.end == "breaks":
            reply.fail(BrokenError("gone"))
        elif self.end == "ends":
            reply.end(reusable=True)
        return reply


class Rig:
    """A gateway with quotas."""

    def __init__(self, *quotas: Quota, copies: Answers | None = None) -> None:
        self.copies = copies or Answers(USAGE)
        memory = open_own_memory(SystemClock().now)
        self.gate = memory.quotas
        self.gate.follow(build_document(quotas, PRICES))
        config = UpConfig(gateway_port=1, control_port=2, insecure_no_auth=True)
        routes: Any = FixedRoutes(SNAPSHOT)
        upstream: Any = self.copies
        self.parts = build_gateway(config, CREDENTIALS, routes, upstream, memory=memory)

    async def ask(self, path: str = WHOLE, component: str = "base") -> str:
        """The text of the answer."""
        headers = {"host": "localhost", "x-amzn-sagemaker-inference-component": component}
        if path == MODELS:
            del headers["x-amzn-sagemaker-inference-component"]
        request, sink = HttpRequest("POST", path, "", headers, BODY), WrittenAnswer()
        exchange = Exchange(sink, Received(request, True, True), b"")
        await self.parts.dispatcher.handle(exchange)
        return sink.written.decode("latin-1")

    def read(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The use and the holds of the only count."""
        assert isinstance(self.gate.table, QuotaTable)
        (use,) = self.gate.table.list_uses(SystemClock().now())
        return use.used, use.held


def use(requests: int, prompt: int, generated: int) -> tuple[int, ...]:
    cost = (prompt + 2 * generated) * 10**9
    return (requests, prompt, generated, 0, prompt + generated, cost)


@cases(
    "path, copies, expected",
    case("an answer that reports tokens", WHOLE, Answers(USAGE), use(1, 30, 7)),
    case("OpenAI's routes", CHAT, Answers(USAGE), use(1, 30, 7)),
    case("a stream that reports none", STREAM, Answers(*EVENTS), use(1, 10, 3)),
    case("a stream of OpenAI's routes", CHAT, Answers(*EVENTS), use(1, 10, 3)),
    case("an answer that reports none", WHOLE, Answers(b"12345678"), use(1, 10, 2)),
    case("an answer that breaks off", STREAM, Answers(*EVENTS, end="breaks"), use(1, 10, 3)),
    case("an error of the model", WHOLE, Answers(b"no", status=400), use(1, 0, 0)),
    case(
        "an error of the model, on OpenAI's routes", CHAT, Answers(b"no", status=400), use(1, 0, 0)
    ),
    case("a model that is not an LLM", MODELS, Answers(b"12345678"), use(1, 0, 0)),
)
async def test_a_call_is_charged_for(path: str, copies: Answers, expected: tuple[int, ...]) -> None:
    rig = Rig(quota(**LIMITS), copies=copies)
    await rig.ask(path)
    used, held = rig.read()
    assert held == NOTHING
    assert used[:DAY_COST] == expected[:DAY_COST]
    assert used[DAY_COST] == expected[DAY_COST]


async def test_a_call_holds_its_estimate_until_its_client_leaves() -> None:
    rig = Rig(quota(**LIMITS), copies=Answers(*EVENTS, end="stays silent"))
    call = asyncio.ensure_future(rig.ask(STREAM))
    for _ in range(20):
        await asyncio.sleep(0)
    held = rig.read()[1]
    assert (held[CONCURRENCY], held[PROMPT], held[GENERATED]) == (1, 10, 20)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    used, held = rig.read()
    assert (used[:3], held) == ((1, 10, 3), NOTHING)


async def test_a_reached_limit_is_a_throttling_exception_with_a_time_to_retry() -> None:
    rig = Rig(quota("team", requests_per_minute=1))
    await rig.ask()
    answer = await rig.ask()
    assert answer.startswith("HTTP/1.1 429 ")
    assert "\r\nx-amzn-ErrorType: ThrottlingException" in answer
    assert "Retry-After: 61\r\n" in answer or "Retry-After: 60\r\n" in answer
    assert "Quota team allows 1 requests per minute. 1 were used in the last 60 s." in answer
    assert len(rig.copies.asked) == 1


@cases(
    "limits, code, kind, headers",
    case(
        "a limit of a minute",
        {"requests_per_minute": 1, "prompt_tokens_per_minute": 500},
        "rate_limit_exceeded",
        "requests",
        ("x-ratelimit-limit-requests: 1", "x-ratelimit-remaining-requests: 0"),
    ),
    case(
        "a budget of the day",
        {"tokens_per_day": 37},
        "insufficient_quota",
        "insufficient_quota",
        ("x-should-retry: false",),
    ),
)
async def test_openai_clients_get_their_own_form(
    limits: dict[str, Any], code: str, kind: str, headers: tuple[str, ...]
) -> None:
    rig = Rig(quota("team", **limits))
    first, second = await rig.ask(CHAT), await rig.ask(CHAT)
    assert first.startswith("HTTP/1.1 200 ")
    assert ("x-ratelimit-remaining-tokens: 490" in first) == ("prompt_tokens_per_minute" in limits)
    assert second.startswith("HTTP/1.1 429 ")
    assert "Retry-After: " in second
    assert all(f"{it}\r\n" in second for it in headers)
    error = msgspec.json.decode(second.partition("\r\n\r\n")[2])["error"]
    assert (error["code"], error["type"], error["param"]) == (code, kind, None)
    assert error["message"].startswith("Quota team allows ")


async def test_a_quota_that_only_warns_answers_with_a_header(caplog: Any) -> None:
    rig = Rig(quota("soft", requests_per_minute=1, warn_only=True))
    answers = [await rig.ask() for _ in range(3)]
    assert all(it.startswith("HTTP/1.1 200 ") for it in answers)
    assert ["x-hostelry-quota-warning: soft requests_per_minute" in it for it in answers] == [
        False,
        True,
        True,
    ]
    assert caplog.text.count("only warned: Quota soft") == 1


@cases(
    "fields, num_admitted",
    case("of another endpoint", {"endpoint": "models"}, 3),
    case("of the endpoint", {"endpoint": "llms"}, 1),
    case("of the component", {"component": "base"}, 1),
    case("of the caller", {"principal": f"arn:aws:iam::{HERE.account}:root"}, 1),
    case("of another account", {"account": "999999999999"}, 3),
)
async def test_a_quota_holds_only_the_calls_that_it_selects(
    fields: dict[str, str], num_admitted: int
) -> None:
    rig = Rig(quota(requests_per_minute=1, **fields))
    answers = [await rig.ask(path) for path in (WHOLE, CHAT, STREAM)]
    assert sum(it.startswith("HTTP/1.1 200 ") for it in answers) == num_admitted


async def test_quotas_come_and_go_while_calls_are_under_way() -> None:
    rig = Rig()
    assert rig.gate.table is None
    copies = rig.copies
    copies.chunks, copies.end = EVENTS, "stays silent"
    before = asyncio.ensure_future(rig.ask(STREAM))
    await asyncio.sleep(0)
    rig.gate.follow(build_document([quota(concurrency=1)], PRICES))
    held = asyncio.ensure_future(rig.ask(STREAM))
    for _ in range(20):
        await asyncio.sleep(0)
    assert (await rig.ask()).startswith("HTTP/1.1 429 ")
    rig.gate.follow(build_document([], PRICES))
    copies.chunks, copies.end = (USAGE,), "ends"
    assert (await rig.ask()).startswith("HTTP/1.1 200 ")
    for call in (before, held):
        call.cancel()
    await asyncio.gather(before, held, return_exceptions=True)
    assert rig.read() == (NOTHING, NOTHING)


async def test_unknown_names_share_one_count() -> None:
    rig = Rig(quota(component="*", requests_per_minute=2))
    answers = [await rig.ask(component=f"invented-{number}") for number in range(3)]
    assert [it.split()[1] for it in answers] == ["400", "400", "429"]
    assert rig.read()[0][REQUESTS] == 2
    assert rig.read()[0][DAY_TOKENS] == 0
