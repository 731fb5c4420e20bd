"""Log-probabilities of prompts in responses, over a backend with known ones."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import CODEC, ask, config, fake, ids, server
from tokenizers.processors import TemplateProcessing

from hostelry.containers.lmi.fake import LOGPROB
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.text_codec import TextCodec

ANSWER: dict[str | None, str] = {None: "Hi"}
COMPLETIONS, CHATS, INVOCATIONS = "/v1/completions", "/v1/chat/completions", "/invocations"
LOW = 2 * LOGPROB
# The likeliest tokens of the fake: ids 3 and 4.
THIRD, FOURTH = CODEC.token_text(3), CODEC.token_text(4)


def current() -> LmiServer:
    return server(ANSWER, settings=config())


def legacy() -> LmiServer:
    return server(ANSWER, settings=config(OPTION_ROLLING_BATCH="vllm"))


def completion(**fields: Any) -> dict[str, Any]:
    return {"prompt": "abc", "max_tokens": 2, "echo": True, "logprobs": 1, **fields}


def test_echoed_tokens_come_before_those_of_the_answer() -> None:
    (choice,) = ask(current(), COMPLETIONS, completion()).json["choices"]
    assert choice["text"] == "abcHi"
    assert choice["logprobs"] == {
        "tokens": ["a", "b", "c", "H", "i"],
        "token_logprobs": [None, LOW, LOW, LOGPROB, LOGPROB],
        "top_logprobs": [
            None,
            {THIRD: LOGPROB, "b": LOW},
            {THIRD: LOGPROB, "c": LOW},
            {"H": LOGPROB},
            {"i": LOGPROB},
        ],
        "text_offset": [0, 1, 2, 3, 4],
    }


def test_no_token_after_an_echoed_prompt() -> None:
    answer = ask(current(), COMPLETIONS, completion(max_tokens=0)).json
    (choice,) = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["tokens"] == ["a", "b", "c"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}


def test_echo_alone_needs_no_scores() -> None:
    served = current()
    (choice,) = ask(served, COMPLETIONS, completion(logprobs=None, max_tokens=0)).json["choices"]
    assert (choice["text"], choice["logprobs"]) == ("abc", None)
    assert [it.num_prompt_logprobs for it in fake(served).seen] == [None]


def test_a_list_of_prompts_of_ids_and_texts_is_echoed_in_order() -> None:
    served = current()
    body = completion(prompt=[list(ids("xy")), list(ids("z"))], max_tokens=1, logprobs=0)
    first, second = ask(served, COMPLETIONS, body).json["choices"]
    assert first["logprobs"]["tokens"] == ["x", "y", "H"]
    assert first["logprobs"]["top_logprobs"] == [None, {"y": LOW}, {"H": LOGPROB}]
    assert second["text"] == "zH"
    assert second["logprobs"]["token_logprobs"] == [None, LOGPROB]
    assert second["logprobs"]["text_offset"] == [0, 1]


def test_a_character_of_several_tokens_has_one_place() -> None:
    body = completion(prompt="a\u00e9b", max_tokens=1)
    (by_text,) = ask(current(), COMPLETIONS, body).json["choices"]
    assert by_text["logprobs"]["text_offset"] == [0, 1, 1, 2, 3]
    (by_ids,) = ask(current(), COMPLETIONS, body | {"prompt": ids("a\u00e9b")}).json["choices"]
    assert by_ids["text"] == by_text["text"] == "a\u00e9bH"
    assert by_ids["logprobs"]["text_offset"] == [0, 1, 1, 2, 3]


def test_a_token_that_the_tokenizer_adds_has_no_text() -> None:
    tokenizer = CODEC.tokenizer.from_str(CODEC.tokenizer.to_str())
    start, end = "<|im_start|>", "<|im_end|>"
    tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A {end}", special_tokens=[(start, 1), (end, 2)]
    )
    codec = TextCodec(tokenizer)
    assert codec.encode("ab", add_special_tokens=True) == (1, *ids("ab"), 2)
    assert codec.offsets("ab", add_special_tokens=True) == (0, 0, 1, 2)


def test_a_truncated_prompt_is_echoed_as_what_is_left_of_it() -> None:
    (choice,) = ask(current(), COMPLETIONS, completion(truncate_prompt_tokens=2)).json["choices"]
    assert choice["text"] == "bcHi"
    assert choice["logprobs"]["tokens"] == ["b", "c", "H", "i"]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3]


def test_every_sequence_shows_the_prompts_scores_which_are_computed_once() -> None:
    served = current()
    choices = ask(served, COMPLETIONS, completion(n=2, best_of=3)).json["choices"]
    assert [it["logprobs"]["token_logprobs"][:3] for it in choices] == [[None, LOW, LOW]] * 2
    assert [it.num_prompt_logprobs for it in fake(served).seen] == [1, None, None]


def test_the_first_chunk_of_a_stream_has_the_prompt() -> None:
    events = ask(current(), COMPLETIONS, completion(stream=True)).events
    first, second = (it["choices"][0] for it in events[:-1])
    assert (first["text"], second["text"]) == ("abcH", "i")
    assert first["logprobs"]["tokens"] == ["a", "b", "c", "H"]
    assert first["logprobs"]["text_offset"] == [0, 1, 2, 3]
    assert second["logprobs"]["tokens"] == ["i"]
    assert second["logprobs"]["text_offset"] == [4]


def test_prompt_logprobs_are_in_vllms_form() -> None:
    own = str(ids("b")[0])
    body = {"prompt": "ab", "prompt_logprobs": 2, "max_tokens": 1}
    (choice,) = ask(current(), COMPLETIONS, body).json["choices"]
    assert choice["logprobs"] is None
    assert choice["prompt_logprobs"] == [
        None,
        {
            own: {"logprob": LOW, "rank": 2, "decoded_token": "b"},
            "3": {"logprob": LOGPROB, "rank": 1, "decoded_token": THIRD},
            "4": {"logprob": LOGPROB, "rank": 2, "decoded_token": FOURTH},
        },
    ]
    body |= {"prompt_logprobs": 0, "max_tokens": 0}
    (choice,) = ask(current(), COMPLETIONS, body).json["choices"]
    assert choice["text"] == ""
    assert [list(it or ()) for it in choice["prompt_logprobs"]] == [[], [own]]


def test_a_chats_prompt_logprobs_are_of_the_rendered_prompt() -> None:
    body = {"messages": [{"role": "user", "content": "a"}], "prompt_logprobs": 0}
    answer = ask(current(), CHATS, body).json
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert answer["prompt_logprobs"][0] is None


@cases(
    "make, name, first",
    case("the async handler leaves out the first token", current, "logprob", []),
    case("the rolling batch has it without one", legacy, "log_prob", [("a", None)]),
)
@pytest.mark.parametrize("field", [{"decoder_input_details": True}, {"prompt_logprobs": 3}])
def test_prefill(make: Any, name: str, first: list[Any], field: dict[str, Any]) -> None:
    served = make()
    parameters = {"max_new_tokens": 1, **field}
    body = {"inputs": "abc", "parameters": {"details": True, **parameters}}
    details = ask(served, INVOCATIONS, body).json["details"]
    expected = [*first, ("b", LOW), ("c", LOW)]
    assert details["prefill"] == [
        {"id": ids(text)[0], "text": text, name: logprob} for text, logprob in expected
    ]
    body = {"inputs": "abc", "parameters": parameters}
    assert ask(served, INVOCATIONS, body).json == {"generated_text": "H"}
    assert fake(served).seen[-1].num_prompt_logprobs is None


def test_the_rolling_batchs_stream_ends_with_the_prefill() -> None:
    parameters = {"details": True, "decoder_input_details": True, "max_new_tokens": 2}
    body = {"inputs": "ab", "parameters": parameters, "stream": True}
    lines = ask(legacy(), INVOCATIONS, body).lines
    assert [list(it) for it in lines] == [["token"], ["token", "generated_text", "details"]]
    assert [it["text"] for it in lines[-1]["details"]["prefill"]] == ["a", "b"]


@cases(
    "path, body, message",
    case(
        "no tokens without a reason",
        COMPLETIONS,
        {"prompt": "a", "max_tokens": 0},
        "max_tokens is 0, which needs echo or prompt_logprobs; else it must be at least 1",
    ),
    case(
        "a stream of scores",
        COMPLETIONS,
        {"prompt": "a", "prompt_logprobs": 1, "stream": True},
        "prompt_logprobs is 1 with stream: it is not streamed; leave out stream",
    ),
    case(
        "a stream of a chat's scores",
        CHATS,
        {"messages": [{"role": "user", "content": "a"}], "prompt_logprobs": 0, "stream": True},
        "prompt_logprobs is 0 with stream",
    ),
    case(
        "too many alternatives",
        COMPLETIONS,
        {"prompt": "a", "prompt_logprobs": 21},
        "prompt_logprobs is 21; it must be at least 0 and at most 20",
    ),
    case(
        "the whole vocabulary",
        COMPLETIONS,
        {"prompt": "a", "prompt_logprobs": -1},
        "prompt_logprobs is -1; it must be at least 0",
    ),
    case(
        "several echoed streams",
        COMPLETIONS,
        completion(stream=True, n=2),
        "n is 2 with echo, logprobs and stream; leave out one of them",
    ),
    case(
        "more scores than a response may hold",
        COMPLETIONS,
        completion(prompt=["a" * 200] * 1000, logprobs=20, max_tokens=0),
        "the prompts have 4200000 log-probabilities, alternatives included; at most 500000",
    ),
    case(
        "a stream of the async handler",
        INVOCATIONS,
        {
            "inputs": "ab",
            "parameters": {"details": True, "decoder_input_details": True},
            "stream": True,
        },
        "decoder_input_details is true with stream",
    ),
)
def test_refusals(path: str, body: Any, message: str) -> None:
    answer = ask(current(), path, body)
    assert answer.status in (400, 424)
    assert message in answer.text


def test_generating_stops_at_a_stop_string_of_an_echoed_answer() -> None:
    (choice,) = ask(current(), COMPLETIONS, completion(stop="i")).json["choices"]
    assert choice["text"] == "abcH"
    assert choice["finish_reason"] == "stop"
