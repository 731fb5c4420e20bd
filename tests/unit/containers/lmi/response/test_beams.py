"""Beam searches over HTTP, over a backend whose next tokens come from a table."""

import math
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import EOS, ask, config, fake, ids, server

from hostelry.containers.lmi.fake import FakeBackend
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.engine.request import FinishReason, Output, Request, TokenLogprob

COMPLETIONS, CHATS, INVOCATIONS = "/v1/completions", "/v1/chat/completions", "/invocations"
# The next characters after each text, with their probabilities. "." stands for the end.
NEXT = {
    "p": {"a": 0.5, "b": 0.4, "c": 0.1},
    "a": {"x": 0.4, "y": 0.35, ".": 0.25},
    "b": {".": 0.9, "x": 0.1},
    "c": {".": 1.0},
    "x": {".": 0.6, "y": 0.4},
    "y": {".": 1.0},
}
TEXT = {ids(text)[0]: text for text in NEXT}


class TableBackend(FakeBackend):
    """The likeliest tokens after a prompt's last character. `version` is the adapter's."""

    def __init__(self) -> None:
        super().__init__({None: (), "es": ()})
        self.version = 0
        self.changes_version = False

    async def generate(self, requests: Sequence[Request]) -> AsyncGenerator[tuple[Output, ...]]:
        self.seen += requests
        self.version += self.changes_version
        for request in requests:
            yield (self._next(request),)

    def _next(self, request: Request) -> Output:
        table = NEXT[TEXT[request.prompt_token_ids[-1]]]
        top = tuple(
            TokenLogprob(token_id=EOS if text == "." else ids(text)[0], logprob=math.log(share))
            for text, share in sorted(table.items(), key=lambda item: -item[1])
        )
        return Output(
            request_id=request.id,
            token_id=top[0].token_id,
            logprob=top[0].logprob,
            top_logprobs=top[: request.sampling.num_logprobs],
            finish_reason=FinishReason.LENGTH,
            adapter_content_id=None if request.adapter is None else f"v{self.version}",
        )


def served(**env: str) -> LmiServer:
    return server(backend=TableBackend(), settings=config(OPTION_ENABLE_LORA="true", **env))


def completion(**fields: Any) -> dict[str, Any]:
    return {"prompt": "p", "max_tokens": 3, "use_beam_search": True, "n": 2, **fields}


def test_the_best_beams_are_the_choices() -> None:
    answer = ask(served(), COMPLETIONS, completion(length_penalty=0, logprobs=1)).json
    first, second = answer["choices"]
    assert [(it["text"], it["finish_reason"]) for it in (first, second)] == [
        ("b", "stop"),
        ("ay", "stop"),
    ]
    assert first["logprobs"]["token_logprobs"] == pytest.approx([math.log(0.4), math.log(0.9)])
    assert first["logprobs"]["top_logprobs"][0] == pytest.approx(
        {"a": math.log(0.5), "b": math.log(0.4)}
    )
    assert answer["usage"] == {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}


@cases(
    "fields, texts",
    case("a longer sequence is better", {"length_penalty": 5.0}, ["ay", "ax"]),
    case("the best of two", {"n": 1, "best_of": 2, "length_penalty": 0}, ["b"]),
    case("num_beams", {"num_beams": 2, "n": 1, "length_penalty": 0}, ["b"]),
    case("beam_width", {"beam_width": 2, "n": 1, "length_penalty": 0}, ["b"]),
    case("one beam is greedy", {"n": 1}, ["ax"]),
    case("one token", {"max_tokens": 1}, ["a", "b"]),
    case("no end", {"ignore_eos": True, "max_tokens": 1}, ["a", "b"]),
    case("an end token", {"stop_token_ids": list(ids("x")), "length_penalty": 0}, ["b", "a"]),
    case("two prompts", {"prompt": ["p", "c"], "n": 1, "best_of": 2}, ["b", ""]),
)
def test_searches(fields: dict[str, Any], texts: list[str]) -> None:
    choices = ask(served(), COMPLETIONS, completion(**fields)).json["choices"]
    assert [it["text"] for it in choices] == texts


def test_a_step_asks_for_one_token_of_each_beam_with_enough_alternatives() -> None:
    asked = served()
    ask(asked, COMPLETIONS, completion(adapters="es"), headers={})
    seen = fake(asked).seen
    assert len({it.id for it in seen}) == len(seen)
    assert {it.adapter for it in seen} == {"es"}
    assert {(it.sampling.max_new_tokens, it.sampling.num_logprobs) for it in seen} == {(1, 4)}


@pytest.mark.parametrize("parameters", [{"num_beams": 2}, {"num_beams": 2, "n": 1}])
def test_lmis_details_have_the_other_beams(parameters: dict[str, Any]) -> None:
    body = {
        "inputs": "p",
        "parameters": {"max_new_tokens": 3, "length_penalty": 0, "details": True, **parameters},
    }
    for env in ({}, {"OPTION_ROLLING_BATCH": "vllm"}):
        answer = ask(served(**env), INVOCATIONS, body).json
        assert answer["generated_text"] == "b"
        others = answer["details"].get("best_of_sequences", [])
        assert [it["generated_text"] for it in others] == ([] if "n" in parameters else ["ay"])


def test_an_adapter_replaced_during_a_search_ends_it() -> None:
    backend = TableBackend()
    backend.changes_version = True
    replaced = server(backend=backend, settings=config(OPTION_ENABLE_LORA="true"))
    answer = ask(replaced, COMPLETIONS, completion(model="es"))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "the adapter was replaced during the beam search" in answer.text


@cases(
    "fields, message",
    case("heat", {"temperature": 0.5}, "temperature is 0.5: a beam search takes"),
    case("top_k", {"top_k": 5}, "top_k is 5: a beam search takes the likeliest"),
    case("a bias", {"logit_bias": {"5": 1}}, "logit_bias is"),
    case("a least length", {"min_tokens": 3}, "min_new_tokens is 3"),
    case("a stream", {"stream": True, "n": 1, "num_beams": 2}, "stream with a beam"),
    case("stop", {"stop": "x"}, "stop with a beam search: beams end at tokens"),
    case("scores", {"prompt_logprobs": 0}, "prompt_logprobs with a beam search"),
    case("echoed scores", {"echo": True, "logprobs": 1}, "nor echo with logprobs"),
    case("no token", {"echo": True, "max_tokens": 0}, "at least one token"),
    case("too few beams", {"num_beams": 2, "n": 3}, "n is 3; there are 2 beams"),
    case("many", {"num_beams": 33}, "num_beams is 33; it must be at least 1 and"),
    case("many choices", {"n": 33}, "33 beams; at most 32"),
    case("prompts", {"prompt": ["p"] * 65}, "130; at most 128 in one request"),
    case("stopping", {"early_stopping": "now"}, "early_stopping is 'now'"),
    case("penalty", {"length_penalty": 11}, "length_penalty is 11"),
    case(
        "too many end tokens",
        {"n": 32, "stop_token_ids": list(range(9))},
        "need 320 alternatives a step; at most 256",
    ),
)
def test_refusals(fields: dict[str, Any], message: str) -> None:
    answer = ask(served(), COMPLETIONS, completion(**fields))
    assert answer.status == 400
    assert message in answer.json["error"]["message"]
