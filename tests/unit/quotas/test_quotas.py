"""Tables of the quotas that select a call, of estimates, and of the texts of refusals."""

from typing import Any

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.quotas.quota_sample import ACCOUNT, ANA, BEN, NOON, call, counted, index, quota

from hostelry.base.json import decode
from hostelry.domain.quota import CallPrices, ModelPrices, Priority, Quota
from hostelry.quotas.decision import LimitUse, build_rate_headers, decide, explain_refusal
from hostelry.quotas.estimate import (
    DEFAULT_GENERATED,
    Tokens,
    estimate_answer,
    estimate_tokens,
)
from hostelry.quotas.matching import MAX_VALUES, OTHERS, QuotaCall, build_document
from hostelry.quotas.measures import (
    CONCURRENCY,
    DAY_COST,
    DAY_TOKENS,
    GENERATED,
    NANO,
    PROMPT,
    REQUESTS,
    count_amounts,
)

LIMIT: dict[str, Any] = {"requests_per_minute": 1}
CHAT = {"endpoint": "chat", "component": "base"}


@cases(
    "fields, by, values",
    case("all calls of its account", {}, call(), ()),
    case("no call of another account", {}, QuotaCall(account="999900001111"), None),
    case("the calls of its principal", {"principal": ANA}, call(ANA), ()),
    case("no call of another principal", {"principal": ANA}, call(BEN), None),
    case("each principal separately", {"principal": "*"}, call(BEN), (BEN,)),
    case("no call without a name, of each name", {"adapter": "*"}, call(**CHAT), None),
    case("calls of its endpoint", {"endpoint": "chat"}, call(**CHAT), ()),
    case("an adapter's calls for its base", {"component": "base"}, call(**CHAT, adapter="a"), ()),
    case(
        "each key of a principal",
        {"principal": ANA, "openai_key": "*"},
        call(openai_key="k"),
        ("k",),
    ),
    case(
        "each account, in the order of selectors",
        {"account": "*", "endpoint": "*"},
        call(**CHAT),
        (ACCOUNT, "chat"),
    ),
)
def test_a_quota_counts(
    fields: dict[str, str], by: QuotaCall, values: tuple[str, ...] | None
) -> None:
    found = counted(quota(**LIMIT, **fields), by=by)
    assert [it.values for it in found] == ([] if values is None else [values])


def test_counts_of_one_quota_have_different_keys_and_a_label() -> None:
    (ana,) = counted(quota(**LIMIT, principal="*"), by=call(ANA))
    (ben,) = counted(quota(**LIMIT, principal="*"), by=call(BEN))
    assert ana.key != ben.key
    assert (ana.label, ben.label) == (f"principal {ANA}", f"principal {BEN}")


def test_names_that_clients_invent_share_a_count_beyond_a_limit() -> None:
    known = index(quota(**LIMIT, adapter="*"))
    for number in range(MAX_VALUES):
        known.find(call(adapter=f"a{number}"))
    assert known.find(call(adapter="one more")).counts[0].values == (OTHERS,)
    assert known.find(call(adapter="a7")).counts[0].values == ("a7",)


def test_the_first_quota_by_name_decides_priority_and_weight() -> None:
    standing = index(
        quota("b", priority=Priority.LOW, weight=4.0),
        quota("a", priority=Priority.HIGH),
        quota("c", principal=BEN, weight=9.0),
    ).find(call())
    assert (standing.priority, standing.weight, standing.counts) == (Priority.HIGH, 4.0, ())


@cases(
    "fields, words",
    case("no limit at all", {}, "it has no limit"),
    case("a name that no header can have", {"name": "a b", **LIMIT}, "letters, digits"),
    case("a limit of 0", {"concurrency": 0}, "concurrency is 0; expected 1"),
    case("a cost that is not a number", {"cost_per_day": float("nan")}, "cost_per_day is nan"),
    case("too large a weight", {"weight": 1000.0}, "weight is 1000; expected 0.01 to 100"),
    case("an empty selector", {"endpoint": "", **LIMIT}, "endpoint has 0 characters"),
)
def test_a_quota_is_refused_for(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        quota(**fields)
    valid = msgspec.to_builtins(quota(**LIMIT))
    body = msgspec.json.encode({**valid, "requests_per_minute": None, **fields})
    with pytest.raises(msgspec.ValidationError):
        decode(body, Quota)


def test_a_document_changes_its_version_with_its_content_only() -> None:
    one, other = quota("a", **LIMIT), quota("b", **LIMIT)
    prices = CallPrices(currency="USD")
    assert build_document([one, other], prices) == build_document([other, one], prices)
    assert build_document([one], prices).version != build_document([one], CallPrices()).version


@cases(
    "body, tokens",
    case("the limit of OpenAI's clients", b'{"max_completion_tokens": 9}', Tokens(7, 9)),
    case("for each answer", b'{"max_tokens": 9, "n": 3}', Tokens(7, 27)),
    case("in parameters", b'{"inputs": "", "parameters": {"max_new_tokens": 5}}', Tokens(13, 5)),
    case("without a limit", b'{"inputs": "some text"}', Tokens(6, DEFAULT_GENERATED)),
    case("a limit that is not a number", b'{"max_tokens": "9"}', Tokens(5, DEFAULT_GENERATED)),
    case("a body that is not JSON", b"\x00\x01", Tokens(1, DEFAULT_GENERATED)),
)
def test_tokens_are_estimated_from_a_request(body: bytes, tokens: Tokens) -> None:
    assert estimate_tokens(body) == tokens


@cases(
    "sizes, tokens",
    case("nothing was answered", (400, 0, 0), Tokens(0, 0)),
    case("a stream has a token in each event", (400, 9000, 50), Tokens(100, 50)),
    case("another answer has a token in four bytes", (400, 90, 0), Tokens(100, 23)),
)
def test_tokens_are_estimated_from_an_answer(sizes: tuple[int, int, int], tokens: Tokens) -> None:
    assert estimate_answer(*sizes) == tokens


def test_a_call_costs_by_the_prices_of_the_first_name_that_has_any() -> None:
    base = ModelPrices(per_prompt_token=1e-6, per_generated_token=2e-6, per_s=0.5)
    prices = CallPrices(default=ModelPrices(per_s=1.0), models={"base": base})
    assert prices.find("blue", "base", "chat").compute(1000, 500, 2.0) == pytest.approx(1.002)
    assert prices.find("", "other", "chat").compute(1000, 500, 2.0) == 2.0
    assert count_amounts(Tokens(2, 3), 0.25) == (1, 2, 3, 1, 5, NANO // 4)
    assert count_amounts(Tokens(2, 3), 0.0, is_inner=True) == (0, 2, 3, 0, 5, 0)


def use(measure: int, used: int, held: int = 0, asked: int = 1, **more: Any) -> LimitUse:
    (one,) = counted(quota("team", concurrency=1, warn_only=more.pop("warn_only", False)))
    limit = more.pop("limit", 10)
    known = {"counted": one, "measure": measure, "limit": limit, "used": used, "held": held}
    return LimitUse(**known, asked=asked, **{"share": limit, **more})


@cases(
    "reached, retry_s, text",
    case(
        "requests",
        use(REQUESTS, 10, wait_s=7),
        7,
        "Quota team allows 10 requests per minute. 10 were used in the last 60 s. Try again in "
        "7 s, at 2027-01-15T12:00:07Z.",
    ),
    case(
        "tokens, of which requests in flight reserve some",
        use(PROMPT, 4, held=3, asked=5, wait_s=30),
        30,
        "Quota team allows 10 prompt tokens per minute. 4 were used in the last 60 s, and requests "
        "in flight reserve 3. This request needs about 5. Try again in 30 s, at "
        "2027-01-15T12:00:30Z.",
    ),
    case(
        "concurrency",
        use(CONCURRENCY, 0, held=10),
        1,
        "Quota team allows 10 concurrent requests. 10 are in flight. Try again when one of them "
        "has ended.",
    ),
    case(
        "a budget of the day",
        use(DAY_TOKENS, 8, asked=5),
        43_200,
        "Quota team allows 10 tokens per day. 8 were used since midnight UTC. This request needs "
        "about 5. Try again in 43200 s, at 2027-01-16T00:00:00Z.",
    ),
    case(
        "a budget that requests in flight reserve",
        use(DAY_COST, NANO, held=9 * NANO, limit=10 * NANO),
        1,
        "Quota team allows 10 USD per day. 1 USD were used since midnight UTC, and requests in "
        "flight reserve 9 USD. This request needs about 0 USD. Try again in 1 s, at "
        "2027-01-15T12:00:01Z.",
    ),
    case(
        "a host's share of a limit",
        use(REQUESTS, 4, share=4),
        1,
        "Quota team allows 10 requests per minute. This host may use 4 of it now. 4 were used in "
        "the last 60 s. Try again in 1 s, at 2027-01-15T12:00:01Z.",
    ),
)
def test_a_refusal_names_limit_window_use_and_reset(
    reached: LimitUse, retry_s: int, text: str
) -> None:
    refusal, warnings = decide([reached], NOON)
    assert refusal is not None
    assert (refusal.retry_s, warnings) == (retry_s, [])
    assert explain_refusal(refusal, "USD") == text


def test_of_several_reached_limits_the_longest_wait_is_reported() -> None:
    uses = [use(REQUESTS, 10, wait_s=7), use(DAY_TOKENS, 10), use(GENERATED, 0)]
    refusal, _ = decide(uses, NOON)
    assert refusal is not None
    assert refusal.use is uses[1]


def test_a_quota_that_only_warns_refuses_nothing() -> None:
    reached = use(REQUESTS, 10, warn_only=True)
    assert decide([reached, use(PROMPT, 0)], NOON) == (None, [reached])


def test_openai_clients_get_the_limits_of_a_minute_in_headers() -> None:
    uses = [use(REQUESTS, 3), use(PROMPT, 0, asked=4), use(GENERATED, 9, asked=4, wait_s=75)]
    assert build_rate_headers(uses) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "6",
        "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-tokens": "10",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m15s",
    }
    assert build_rate_headers(uses, refused=True)["x-ratelimit-remaining-requests"] == "7"
    assert build_rate_headers([use(CONCURRENCY, 0)]) == {}
