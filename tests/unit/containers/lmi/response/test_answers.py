"""The forms of answers in both dialects and both OpenAI schemas, over a backend with known text."""

from dataclasses import replace
from typing import Any

from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import EOS, ask, config, fake, ids, server

from hostelry.containers.lmi.fake import LOGPROB, FakeBackend
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.response.generation import split_steps
from hostelry.engine.request import FinishReason, Output, Request

HI = {None: "Hi", "es": "hola", "fr": "salut"}
ID_H, ID_I = ids("Hi")
LORA = {"OPTION_ENABLE_LORA": "true"}


def legacy(**env: str) -> LmiServer:
    return server(HI, settings=config(**LORA, OPTION_ROLLING_BATCH="vllm", **env))


def current(**env: str) -> LmiServer:
    return server(HI, settings=config(**LORA, **env))


def greedy(prompt: Any = "ab", stream: bool = False, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"seed": 3, **parameters}, "stream": stream}


def test_the_async_dialects_plain_answer() -> None:
    answer = ask(current(), "/invocations", greedy())
    assert (answer.status, answer.type) == (200, "application/json")
    assert answer.text == '{"generated_text":"Hi"}\n'


def test_the_async_dialects_details() -> None:
    details = ask(current(), "/invocations", greedy(details=True)).json["details"]
    assert details == {
        "finish_reason": "eos_token",
        "generated_tokens": 3,
        "seed": 3,
        "prefill": [],
        "tokens": [
            {"id": ID_H, "text": "H", "logprob": LOGPROB},
            {"id": ID_I, "text": "i", "logprob": LOGPROB},
            {"id": EOS, "text": "", "logprob": LOGPROB},
        ],
    }


def test_the_async_dialects_stream() -> None:
    answer = ask(current(), "/invocations", greedy(stream=True, details=True, max_new_tokens=2))
    assert answer.type == "application/jsonlines"
    assert answer.lines == [
        {
            "index": 0,
            "token": {"id": ID_H, "text": "H", "logprob": LOGPROB},
            "generated_text": None,
            "details": None,
        },
        {
            "index": 0,
            "token": {"id": ID_I, "text": "i", "logprob": LOGPROB},
            "generated_text": "Hi",
            "details": {
                "finish_reason": "length",
                "seed": 3,
                "generated_tokens": 2,
                "input_length": 2,
            },
        },
    ]


def test_the_legacy_dialects_details() -> None:
    answer = ask(legacy(), "/invocations", greedy(details=True, max_new_tokens=1))
    assert answer.json == {
        "generated_text": "H",
        "details": {
            "finish_reason": "length",
            "generated_tokens": 1,
            "inputs": "ab",
            "tokens": [{"id": ID_H, "text": "H", "log_prob": LOGPROB}],
        },
    }


def test_the_legacy_dialects_stream() -> None:
    answer = ask(legacy(), "/invocations", greedy(stream=True, details=True))
    assert answer.lines == [
        {"token": {"id": ID_H, "text": "H", "log_prob": LOGPROB}},
        {"token": {"id": ID_I, "text": "i", "log_prob": LOGPROB}},
        {
            "token": {"id": EOS, "text": "", "log_prob": LOGPROB},
            "generated_text": "Hi",
            "details": {"finish_reason": "eos_token", "generated_tokens": 3, "inputs": "ab"},
        },
    ]


def test_tgis_form_is_a_list_with_short_names_and_details() -> None:
    answer = ask(legacy(OPTION_TGI_COMPAT="true"), "/invocations", greedy(max_new_tokens=1))
    (only,) = answer.json
    assert only["details"]["tokens"] == [
        {"id": ID_H, "text": "H", "logprob": LOGPROB, "special": False}
    ]


def test_tgis_stream_is_events() -> None:
    answer = ask(legacy(OPTION_TGI_COMPAT="true"), "/invocations", greedy(stream=True))
    assert answer.type == "text/event-stream"
    assert [event["token"]["special"] for event in answer.events] == [False, False, True]
    assert answer.events[-1]["generated_text"] == "Hi"


def test_top_tokens() -> None:
    answer = ask(legacy(), "/invocations", greedy(details=True, top_n_tokens=1, max_new_tokens=1))
    assert answer.json["details"]["top_tokens"] == [
        [{"id": ID_H, "text": "H", "log_prob": LOGPROB}]
    ]


@cases("served", case("l", legacy), case("a", current))
def test_a_list_of_inputs_answers_a_list_in_its_order(served: Any) -> None:
    body = {"inputs": ["a", "b", "c"], "adapters": ["fr", "", "es"]}
    answer = ask(served(), "/invocations", body)
    assert [each["generated_text"] for each in answer.json] == ["salut", "Hi", "hola"]


def test_a_streamed_list_gives_a_line_a_step() -> None:
    body = {"inputs": ["a", "b"], "adapters": ["es", ""], "stream": True}
    lines = ask(current(), "/invocations", body).lines
    assert [line["outputs"] for line in lines] == [
        ["h", "H"], ["o", "i"], ["l", ""], ["a", ""], ["", ""],
    ]  # fmt: skip


def test_a_list_of_one_is_still_a_list() -> None:
    answer = ask(current(), "/invocations", {"inputs": ["a"], "adapters": ["es"]})
    assert answer.json == [{"generated_text": "hola"}]


def test_the_prompt_comes_first_when_asked_for() -> None:
    answer = ask(current(), "/invocations", greedy(return_full_text=True))
    assert answer.json == {"generated_text": "abHi"}


@cases(
    "stop, include, text",
    case("text before the stop string", ["l"], False, "ho"),
    case("a stop string over two tokens", ["ol"], False, "h"),
    case("with the stop string where asked", ["ol"], True, "hol"),
    case("a beginning that is held back comes at the end", ["la!"], False, "hola"),
)
def test_stop_strings(stop: list[str], include: bool, text: str) -> None:
    served = current()
    body = greedy(stop_sequences=stop, include_stop_str_in_output=include, details=True)
    answer = ask(served, "/invocations?adapter=es", body)
    assert answer.json["generated_text"] == text
    found = text != "hola"
    assert answer.json["details"]["finish_reason"] == ("stop_sequence" if found else "eos_token")
    assert len(fake(served).aborted) == found


def test_a_character_of_several_tokens_is_shown_whole() -> None:
    served = server({None: "né€"})
    lines = ask(served, "/invocations", greedy(stream=True)).lines
    texts = [line["token"]["text"] for line in lines]
    assert texts == ["n", "", "é", "", "", "€", ""]


def test_truncate_keeps_the_end_of_the_prompt() -> None:
    served = current()
    ask(served, "/invocations", greedy("abcdef", truncate=2))
    assert fake(served).seen[0].prompt_token_ids == ids("ef")


def test_an_answer_never_outgrows_the_models_length() -> None:
    served = current()
    ask(served, "/invocations", greedy("a" * 250, max_new_tokens=100))
    assert fake(served).seen[0].sampling.max_new_tokens == 6


CHAT = {"messages": [{"role": "user", "content": "x"}]}


def test_a_chat_completion() -> None:
    answer = ask(current(), "/v1/chat/completions", {**CHAT, "model": "es"})
    body = answer.json
    assert body["id"].startswith("chatcmpl-")
    assert (body["object"], body["model"]) == ("chat.completion", "es")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hola"},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    used = body["usage"]
    assert used["completion_tokens"] == 5
    assert used["total_tokens"] == used["prompt_tokens"] + 5


def test_a_streamed_chat_completion() -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    answer = ask(current(), "/v1/chat/completions", body)
    assert answer.type == "text/event-stream"
    *chunks, closing, end = answer.events
    assert end == "[DONE]"
    assert closing["choices"] == []
    assert closing["usage"]["completion_tokens"] == 3
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""}, {"content": "H"}, {"content": "i"}, {"content": ""},
    ]  # fmt: skip
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_chat_through_invocations_streams_bare_lines() -> None:
    answer = ask(current(), "/invocations", {**CHAT, "stream": True})
    assert answer.type == "application/jsonlines"
    assert "DONE" not in answer.text
    assert answer.lines[1]["choices"][0]["delta"] == {"content": "H"}


def test_the_legacy_dialect_gives_chats_lmis_finish_reasons() -> None:
    body = {**CHAT, "max_tokens": 1}
    assert ask(legacy(), "/invocations", body).json["choices"][0]["finish_reason"] == "length"
    assert ask(legacy(), "/invocations", CHAT).json["choices"][0]["finish_reason"] == "eos_token"


def test_logprobs_of_a_chat() -> None:
    body = {**CHAT, "logprobs": True, "top_logprobs": 1, "max_tokens": 1}
    (entry,) = ask(current(), "/v1/chat/completions", body).json["choices"][0]["logprobs"][
        "content"
    ]
    token = {"token": "H", "logprob": LOGPROB, "bytes": [72]}
    assert entry == {**token, "top_logprobs": [token]}


def test_a_completion_of_several_prompts_echoed() -> None:
    body = {"prompt": ["a", list(ids("b"))], "echo": True, "logprobs": 1}
    answer = ask(current(), "/v1/completions", body).json
    assert answer["object"] == "text_completion"
    assert [choice["text"] for choice in answer["choices"]] == ["aHi", "bHi"]
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["tokens"][:3] == ["a", "H", "i"]
    assert logprobs["text_offset"] == [0, 1, 2, 3]
    assert logprobs["top_logprobs"][:2] == [None, {"H": LOGPROB}]


def test_a_streamed_completion() -> None:
    events = ask(current(), "/v1/completions", {"prompt": "a", "stream": True}).events
    assert [event["choices"][0]["text"] for event in events[:-1]] == ["H", "i", ""]
    assert events[-1] == "[DONE]"


@cases(
    "headers, adapter, model",
    case("the base under its name", {"X-Hostelry-Model": "mine"}, None, "mine"),
    case("an adapter under its component's name",
        {"X-Hostelry-Model": "mine-es", "X-Amzn-SageMaker-Adapter-Identifier": "es"}, "es",
        "mine-es"),
)  # fmt: skip
def test_the_gateways_header_decides(
    headers: dict[str, str], adapter: str | None, model: str
) -> None:
    served = current()
    answer = ask(served, "/v1/chat/completions", {**CHAT, "model": "fr"}, headers=headers)
    assert answer.json["model"] == model
    assert fake(served).seen[0].adapter == adapter


@cases(
    "env, path, body, status, expected",
    case("async: a parse failure is 424", {}, "/invocations", {"inputs": 1}, 424, {
            "code": 424,
            "error": "Input parsing failed: inputs is 1; "
            "it must be a string or a non-empty list of strings",
        }),
    case("legacy: a bad request is 400", {"OPTION_ROLLING_BATCH": "vllm"}, "/invocations",
        {"inputs": 1}, 400, {
            "generated_text": None,
            "error": "inputs is 1; it must be a string or a non-empty list of strings",
            "code": 400,
            "details": {"finish_reason": "error"},
        }),
    case("an unknown adapter is 424", {}, "/invocations", {"inputs": "a", "adapters": "de"}, 424,
        {"code": 424, "error": "Adapter de is not registered"}),
    case("OpenAI's error object", {}, "/v1/completions", {"prompt": "a", "n": 0}, 400, {
            "error": {
                "message": "n is 0; it must be at least 1 and at most 128",
                "type": "BadRequestError",
                "param": "n",
                "code": 400,
            }
        }),
)  # fmt: skip
def test_error_forms(env: dict[str, str], path: str, body: Any, status: int, expected: Any) -> None:
    answer = ask(server(settings=config(**LORA, **env)), path, body)
    assert (answer.status, answer.json) == (status, expected)


def test_a_prompt_that_is_too_long_names_both_numbers() -> None:
    for path, name, status in (
        ("/invocations", "inputs", 424),
        ("/v1/completions", "prompt", 400),
    ):
        answer = ask(current(), path, {name: "a" * 300})
        assert answer.status == status
        assert "300 tokens" in answer.text
        assert "256" in answer.text


def test_an_unknown_model_is_404_for_openai_clients() -> None:
    answer = ask(current(), "/v1/chat/completions", {**CHAT, "model": "gpt-9"})
    assert (answer.status, answer.json["error"]["type"]) == (404, "NotFoundError")


@cases(
    "path, body",
    case("a stream", "/invocations", {"inputs": "a", "stream": True}),
    case("a whole answer", "/invocations", {"inputs": "a"}),
    case("a chat's stream", "/v1/chat/completions", {**CHAT, "stream": True}),
)
def test_an_engine_that_dies_before_the_first_token_is_a_500(path: str, body: Any) -> None:
    served = server(backend=FakeBackend({None: ids("abc")}, fail_after=0))
    assert ask(served, path, body).status == 500


def test_the_async_dialects_broken_stream() -> None:
    served = server(backend=FakeBackend({None: ids("abc")}, fail_after=2))
    lines = ask(served, "/invocations", {"inputs": "x", "stream": True}).lines
    assert lines[1]["token"]["text"] == "b"
    assert lines[2]["code"] == 500
    assert len(lines) == 3


def test_the_legacy_dialects_broken_stream() -> None:
    served = server(
        settings=config(OPTION_ROLLING_BATCH="vllm"),
        backend=FakeBackend({None: ids("abc")}, fail_after=2),
    )
    last = ask(served, "/invocations", {"inputs": "x", "stream": True}).lines[-1]
    assert last["token"] == {"id": -1, "text": "", "log_prob": -1, "special_token": True}
    assert last["details"] == {"finish_reason": "error", "generated_tokens": 2}


def test_openais_broken_stream() -> None:
    served = server(backend=FakeBackend({None: ids("abc")}, fail_after=1))
    events = ask(served, "/v1/completions", {"prompt": "x", "stream": True}).events
    assert events[-2]["error"]["code"] == 500
    assert events[-1] == "[DONE]"


def test_a_step_that_takes_too_long_is_a_timeout() -> None:
    settings = replace(config(), predict_timeout_s=0.05)
    for stream in (False, True):
        served = server({None: "Hi"}, settings=settings)
        fake(served).gate.clear()
        answer = ask(served, "/invocations", {"inputs": "x", "stream": stream})
        assert (answer.status, served.in_flight) == (400, 0)
        assert "Time out in: 0.05" in answer.text
        assert len(fake(served).aborted) == 1
    late = FakeBackend({None: ids("abc")}, hold_after=1)
    answer = ask(
        server(backend=late, settings=settings), "/invocations", {"inputs": "x", "stream": True}
    )
    assert [line.get("token", {}).get("text") for line in answer.lines] == ["a", None]
    assert "Time out in: 0.05" in answer.lines[-1]["error"]
    assert len(late.aborted) == 1


class Numbered(FakeBackend):
    """Answers the number of each request, and finds later ones likelier."""

    def _output(self, request: Request, position: int) -> Output:
        number = int(request.id.partition("/")[2] or 0)
        token_id = ids(str(number))[0] if position == 0 else EOS
        finish = FinishReason.EOS if position else None
        if finish:
            self._running.discard(request.id)
        return Output(
            request_id=request.id,
            token_id=token_id,
            logprob=number - 10.0,
            finish_reason=finish,
        )


def numbered() -> LmiServer:
    return server(backend=Numbered({None: ids("x")}), settings=config())


def test_several_choices_of_several_prompts() -> None:
    served = numbered()
    answer = ask(served, "/v1/completions", {"prompt": ["ab", "c"], "n": 2, "seed": 3}).json
    assert [(it["index"], it["text"]) for it in answer["choices"]] == [
        (0, "0"), (1, "1"), (2, "0"), (3, "1"),
    ]  # fmt: skip
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}
    seeds = [each.sampling.seed for each in fake(served).seen]
    assert seeds[0] == 3
    assert len(set(seeds[:2])) == 2


def test_the_best_choices_come_first_and_all_count() -> None:
    served = numbered()
    answer = ask(served, "/v1/chat/completions", {**CHAT, "n": 2, "best_of": 4}).json
    assert [it["message"]["content"] for it in answer["choices"]] == ["3", "2"]
    assert [it["logprobs"] for it in answer["choices"]] == [None, None]
    assert answer["usage"]["completion_tokens"] == 8
    assert [each.sampling.num_logprobs for each in fake(served).seen] == [0] * 4


def test_streamed_choices_carry_their_index() -> None:
    answer = ask(numbered(), "/v1/chat/completions", {**CHAT, "n": 2, "stream": True})
    deltas = [
        (choice["index"], choice["delta"])
        for event in answer.events[:-1]
        for choice in event["choices"]
    ]
    assert deltas[:2] == [(n, {"role": "assistant", "content": ""}) for n in (0, 1)]
    assert sorted(deltas[2:], key=lambda it: it[0]) == [
        (0, {"content": "0"}), (0, {"content": ""}), (1, {"content": "1"}), (1, {"content": ""}),
    ]  # fmt: skip


def test_more_sequences_of_an_input_are_among_its_details() -> None:
    body = {"inputs": ["a", "b"], "parameters": {"n": 2, "details": True, "seed": 5}}
    first, second = ask(numbered(), "/invocations", body).json
    assert first["generated_text"] == "0"
    (other,) = first["details"]["best_of_sequences"]
    assert other["generated_text"] == "1"
    assert other["finish_reason"] == "eos_token"
    assert (first["details"]["seed"], other["generated_tokens"]) == (5, 2)
    assert other["seed"] != 5
    assert second["details"]["best_of_sequences"] == first["details"]["best_of_sequences"]


def test_the_best_of_an_input() -> None:
    body = {"inputs": "a", "parameters": {"best_of": 3, "details": True}}
    answer = ask(numbered(), "/invocations", body).json
    assert answer["generated_text"] == "2"
    assert "best_of_sequences" not in answer["details"]


@cases(
    "ids, steps",
    case("one step of two requests", "ab", ["ab"]),
    case("three steps of one request", "aaa", ["a", "a", "a"]),
    case("two steps of two requests", "abba", ["ab", "ba"]),
)
def test_steps_that_arrive_together_are_read_one_after_another(ids: str, steps: list[str]) -> None:
    outputs = [Output(request_id=it, token_id=number) for number, it in enumerate(ids)]
    found = list(split_steps(outputs))
    assert ["".join(it.request_id for it in step) for step in found] == steps
    assert [it for step in found for it in step] == outputs
