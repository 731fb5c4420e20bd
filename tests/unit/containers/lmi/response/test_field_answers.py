"""Effects of single fields of requests on answers, over a backend with known text."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.response.test_answers import HI, ID_H, ID_I, LORA, current, greedy
from tests.unit.containers.lmi.tiny import EOS, ask, config, fake, ids, server


@cases(
    "stop, fewest, text",
    case("the first place without a length", ["a"], 0, "b"),
    case("a place within the fewest tokens is passed", ["a"], 2, "ban"),
    case("one that begins within them and ends after counts", ["an"], 2, "b"),
    case("what is held back has been passed", ["a", "anx"], 2, "ban"),
    case("none after them", ["ana"], 6, "banana"),
)
def test_stop_strings_count_from_the_fewest_tokens_on(
    stop: list[str], fewest: int, text: str
) -> None:
    served = server({None: "banana"})
    answer = ask(served, "/v1/completions", {"prompt": "x", "stop": stop, "min_tokens": fewest})
    assert answer.json["choices"][0]["text"] == text


@cases(
    "detection, text",
    case("two of two", {"max_pattern_size": 2, "min_count": 2}, "banan"),
    case("two of one", {"max_pattern_size": 1, "min_count": 2}, "bananass"),
    case("none", {"max_pattern_size": 3, "min_pattern_size": 3, "min_count": 2}, "bananassy"),
)
def test_an_answer_that_repeats_itself_ends(detection: dict[str, int], text: str) -> None:
    served = server({None: "bananassy"})
    body = {"prompt": "x", "repetition_detection": detection}
    (choice,) = ask(served, "/v1/completions", body).json["choices"]
    ends = "stop" if text == "bananassy" else "repetition"
    assert (choice["text"], choice["finish_reason"]) == (text, ends)
    assert len(fake(served).aborted) == (ends == "repetition")


def test_bad_words_are_tokenized_with_a_space_where_it_is_one_token_more() -> None:
    served = server()
    ask(served, "/v1/completions", {"prompt": "x", "bad_words": ["no", " a"]})
    assert fake(served).seen[0].sampling.bad_words == (ids("no"), ids("a"))


@cases(
    "fields, kept",
    case("the last", {"truncate_prompt_tokens": 2}, "ef"),
    case("first", {"truncate_prompt_tokens": 2, "truncation_side": "right"}, "ab"),
    case("what fits", {"truncate_prompt_tokens": -1, "max_tokens": 252}, "cdef"),
)
def test_truncated_prompts(fields: dict[str, Any], kept: str) -> None:
    served = server()
    assert ask(served, "/v1/completions", {"prompt": "abcdef", **fields}).status == 200
    assert fake(served).seen[0].prompt_token_ids == ids(kept)


def test_the_last_message_is_echoed_and_continued() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "so "}]
    body = {"messages": messages, "echo": True, "continue_final_message": True}
    served = server({None: "it is"})
    message = ask(served, "/v1/chat/completions", body).json["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "so it is"}
    events = ask(served, "/v1/chat/completions", {**body, "stream": True}).events
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": "so "}


def test_token_ids_and_counts_in_each_chunk() -> None:
    body = {
        "prompt": "ab", "stream": True, "return_token_ids": True, "logprobs": 0,
        "return_tokens_as_token_ids": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }  # fmt: skip
    *chunks, last, _ = ask(server(HI), "/v1/completions", body).events
    assert chunks[0]["choices"][0]["prompt_token_ids"] == list(ids("ab"))
    assert [it["choices"][0]["token_ids"] for it in chunks[1:]] == [[ID_H], [ID_I], [EOS]]
    assert [it["usage"]["completion_tokens"] for it in chunks] == [0, 1, 2, 3]
    assert chunks[1]["choices"][0]["logprobs"]["tokens"] == [f"token_id:{ID_H}"]
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 5)


@pytest.mark.parametrize(
    ("path", "rolling_batch"),
    [("/invocations", "auto"), ("/v1/completions", "auto"), ("/v1/completions", "vllm")],
)
def test_an_unknown_model_is_404_in_openais_form(path: str, rolling_batch: str) -> None:
    served = server(HI, settings=config(**LORA, OPTION_ROLLING_BATCH=rolling_batch))
    answer = ask(served, path, {"prompt": "x", "model": "gpt-9"})
    assert answer.status == 404
    assert answer.json["error"]["type"] == "NotFoundError"
    assert answer.json["error"]["param"] == "model"
    assert "gpt-9" in answer.json["error"]["message"]
    for name, text in (("lmi", "Hi"), ("/opt/ml/model", "Hi"), ("es", "hola")):
        named = ask(served, path, {"prompt": "x", "model": name})
        assert named.json["choices"][0]["text"] == text


def test_the_model_of_an_lmi_body_is_checked_too() -> None:
    assert ask(current(), "/invocations", {**greedy(), "model": "gpt-9"}).status == 404
    named = ask(current(), "/invocations", {**greedy(), "model": "es"})
    assert named.json == {"generated_text": "hola"}
