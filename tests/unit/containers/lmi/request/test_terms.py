"""Tenant and deadline of a request, and refusals with Retry-After in each format."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import ask, config, fake, server

from hostelry.containers.lmi.refusal import Cause, Refusal
from hostelry.containers.lmi.request.context import Terms, parse_terms

ROUTES: list[Any] = [
    pytest.param("/invocations", {"inputs": "a"}, "", id="invocations, async"),
    pytest.param("/invocations", {"inputs": "a"}, "option.rolling_batch=vllm", id="legacy"),
    pytest.param("/v1/completions", {"prompt": "a"}, "", id="completions"),
    pytest.param(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, "", id="chat"
    ),
]


@cases("stream", case("whole", False), case("sse", True))
@pytest.mark.parametrize(("path", "body", "properties"), ROUTES)
@cases(
    "headers, status, retry_after, message",
    case("a quota", {"X-Hostelry-Tenant": "greedy"}, 429, "3", "its quota"),
    case("a full engine", {"X-Hostelry-Tenant": "crowd"}, 503, "4", "wait already"),
    case("a deadline", {"X-Hostelry-First-Token-Deadline-S": "0.5"}, 503, "1",
        "first_token_deadline_s, 0.5"),
)  # fmt: skip
def test_refusals_that_ask_for_a_retry(
    headers: dict[str, str], status: int, retry_after: str, message: str,
    path: str, body: Any, properties: str, stream: bool,
) -> None:  # fmt: skip
    served = server(settings=config(properties))
    answer = ask(served, path, {**body, "stream": stream}, headers=headers)
    assert (answer.status, answer.headers["retry-after"]) == (status, retry_after)
    error = answer.json["error"] if path.startswith("/v1") else answer.json
    assert error["code"] == status
    assert message in error["message"]
    if path.startswith("/v1"):
        assert error["type"] == ("RateLimitError" if status == 429 else "ServiceUnavailableError")
    assert served.in_flight == 0


def test_a_full_server_has_a_retry_after() -> None:
    settings = config("job_queue_size=0\noption.max_rolling_batch_size=1")
    served = server(settings=settings)
    served.in_flight = 1
    answer = ask(served, "/invocations", {"inputs": "a"})
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_terms_reach_every_sequence() -> None:
    served = server(settings=config("option.first_token_deadline_s=9"))
    ask(served, "/invocations", {"inputs": ["a", "b"]}, headers={"X-Hostelry-Tenant": "blue"})
    ask(served, "/invocations", {"inputs": "a"}, headers={"X-Hostelry-First-Token-Deadline-S": "3"})
    seen = [(it.tenant, it.first_token_deadline_s) for it in fake(served).seen]
    assert seen == [("blue", 9.0), ("blue", 9.0), (None, 3.0)]


def test_callers_share_no_cached_prefix_whatever_salt_they_give() -> None:
    served = server()
    for principal, salt in (("", ""), ("", "s"), ("role/a", ""), ("role/a", "s"), ("role/b", "s")):
        headers = {"X-Hostelry-Principal": principal} if principal else {}
        body = {"prompt": "a", **({"cache_salt": salt} if salt else {})}
        ask(served, "/v1/completions", body, headers=headers)
    salts = [it.cache_salt for it in fake(served).seen]
    assert salts == ["", "s", "role/a/", "role/a/s", "role/b/s"]


@cases(
    "headers, message",
    case("a tenant without a name", {"x-hostelry-tenant": ""}, "1 to 256"),
    case("an endless name", {"x-hostelry-tenant": "x" * 257}, "1 to 256"),
    case("a control character", {"x-hostelry-tenant": "a\x01b"}, "printable"),
    case("no time", {"x-hostelry-first-token-deadline-s": "0"}, "greater than 0"),
    case("the past", {"x-hostelry-first-token-deadline-s": "-1"}, "greater than 0"),
    case("NaN", {"x-hostelry-first-token-deadline-s": "nan"}, "greater than 0"),
    case("for ever", {"x-hostelry-first-token-deadline-s": "inf"}, "at most 86400"),
    case("in words", {"x-hostelry-first-token-deadline-s": "soon"}, "'soon'"),
)
def test_terms_that_cannot_be(headers: dict[str, str], message: str) -> None:
    with pytest.raises(Refusal, match=message) as refusal:
        parse_terms(headers, None)
    assert refusal.value.cause is Cause.BAD_REQUEST


def test_no_headers_are_the_servers_own_terms() -> None:
    assert parse_terms({}, None) == Terms()
    assert parse_terms({}, 5.0) == Terms(first_token_deadline_s=5.0)


def test_a_whole_answer_names_the_versions_that_computed_it() -> None:
    served = server()
    body = {"inputs": ["a", "b", "c", "d"], "adapters": ["fr", "", "es", "fr"]}
    assert ask(served, "/invocations", body).headers["x-hostelry-adapter-version"] == "fr,es"
    base = ask(served, "/invocations", {"inputs": "a"})
    assert "x-hostelry-adapter-version" not in base.headers
