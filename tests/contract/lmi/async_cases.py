"""Cases of the async handler's dialect, LMI's default: routes, requests, responses, errors."""

from tests.contract.lmi.exchange import (
    EVENTS,
    LINES,
    TEXT,
    Case,
    Served,
    each,
    get,
    has,
    last,
    members,
    one,
    several,
)

GREEDY = {"max_new_tokens": 5, "do_sample": False, "ignore_eos_token": True}
HI = {"inputs": "hello", "parameters": GREEDY}
CHAT = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 4,
    "temperature": 0,
    "ignore_eos": True,
}
PROMPT = {"prompt": "hello", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
ANSWER = {"generated_text": lambda it: isinstance(it, str)}
# Every parameter in LMI's table, with a value that does not change a greedy answer.
NEUTRAL = {
    "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "seed": 7, "details": False,
    "decoder_input_details": False, "return_full_text": False, "stop_sequences": [], "stop": [],
    "stop_token_ids": [], "include_stop_str_in_output": False, "skip_special_tokens": True,
    "spaces_between_special_tokens": True, "logit_bias": {}, "n": 1, "best_of": 1, "num_beams": 1,
    "length_penalty": 1.0, "early_stopping": False, "top_n_tokens": 0, "truncate": 1000,
}  # fmt: skip


def asked(**parameters: object) -> dict[str, object]:
    return {"inputs": "hello", "parameters": {**GREEDY, **parameters}}


def refusal(row: str, text: str, words: str, **parameters: object) -> Case:
    found = {"code": 424, "error": has(words)}
    return one(row, text, asked(**parameters), status=424, found=found)


ROUTES = (
    one("1.1", "a prediction by the model's name", HI, path="/predictions/lmi", found=ANSWER),
    one("1.1", "a version that is not there", HI, path="/predictions/lmi/7", status=404),
    one("1.1", "an invocation of a multi-model endpoint", HI, path="/models/lmi/invoke"),
    one("1.1", "the model by the query", HI, path="/invocations?model_name=lmi"),
    one("1.1", "the model by a header", HI, headers={"model_name": "lmi"}),
    one("1.1", "another model in the query", HI, path="/invocations?model_name=x", status=404),
    one("1.1", "another model in a header", HI, headers={"model_name": "x"}, status=404),
    one("1.1", "chats have a path of their own", CHAT, path="/v1/chat/completions"),
    one(
        "1.1", "a request's id comes back", HI,
        headers={"x-request-id": "mine"}, shows={"x-request-id": "mine"},
    ),
    one(
        "1.1", "an answer to poll for is refused", HI, headers={"x-synchronous": "false"},
        status=424, found={"code": 424, "error": has("x-synchronous is 'false'")},
    ),
    one(
        "1.1", "a token of such an answer is refused", HI, headers={"x-starting-token": "t"},
        status=424, found={"error": has("x-starting-token")},
    ),
    get("1.1", "the models", "/models", found={"models": each({"modelName": "lmi"})}),
    get(
        "1.1", "the model's description", "/models/lmi",
        found=each({"workflowName": "lmi", "models": each({"status": "Healthy"})}),
    ),
    get("1.1", "metrics", "/metrics", kind=TEXT, found=has("vllm:num_requests_running")),
    get("1.1", "no workflows", "/workflows", status=404, found={"code": 404}),
    get("1.9", "the state by the model's name", "/ping", found={"lmi": {"status": "Healthy"}}),
)  # fmt: skip

REQUESTS = (
    one("1.5", "inputs are LMI's own", HI, found=members("generated_text")),
    one("1.5", "a prompt is a completion", PROMPT, found={"object": "text_completion"}),
    one("1.5", "messages are a chat", CHAT, found={"object": "chat.completion"}),
    one(
        "1.5", "a prompt comes before inputs", {**PROMPT, **HI},
        found={"object": "text_completion"},
    ),
    one("1.5", "inputs come before messages", {**HI, "messages": []}, found=ANSWER),
    one("1.5", "no model is the served name", PROMPT, found={"model": "lmi"}),
    one(
        "1.5", "none of the members", {"question": "hi"}, status=424,
        found={
            "code": 424,
            "error": "Input parsing failed: invalid payload. must contain prompt, inputs, or "
            "messages",
        },
    ),
    one(
        "1.5", "a list of inputs", {**HI, "inputs": ["a", "b"]},
        found=lambda it: len(it) == 2 and each(ANSWER)(it),
    ),
    one(
        "1.5", "a text is one input", b"hello", headers={"content-type": "text/plain"},
        found=lambda it: len(it) == 1,
    ),
    one(
        "1.5", "a column of a table", b"inputs,n\r\nhello,1\r\nhi,2\r\n",
        headers={"content-type": "text/csv"}, found=lambda it: len(it) == 2,
    ),
    one(
        "1.5", "a table without that column", b"a,b\r\n1,2\r\n",
        headers={"content-type": "text/csv"}, status=424, found={"error": has("named inputs")},
    ),
    one("1.5", "no content type is JSON", b'{"inputs": "a"}', found=ANSWER),
    one("1.5", "no JSON", b"{", status=424, found={"error": has("Input parsing failed")}),
    one("1.5", "an empty list of inputs", {**HI, "inputs": []}, status=424),
    one("1.5", "parameters that are no object", {**HI, "parameters": []}, status=424),
    one(
        "1.5", "30 new tokens unless given",
        {"inputs": "a", "parameters": {"details": True, "ignore_eos_token": True}},
        found={"details": {"generated_tokens": 30}},
    ),
    one(
        "1.5", "the text with its prompt", asked(return_full_text=True),
        found={"generated_text": lambda it: it.startswith("hello")},
    ),
    one(
        "1.5", "a stop token", asked(stop_token_ids=list(range(259)), details=True),
        found={"details": {"finish_reason": "eos_token", "generated_tokens": 1}},
    ),
    one(
        "1.5", "a bias decides", asked(logit_bias={"100": 100}, details=True),
        found={"details": {"tokens": each({"id": 100})}},
    ),
    one(
        "1.5", "the prompt's log-probabilities", asked(details=True, decoder_input_details=True),
        found={"details": {"prefill": lambda it: len(it) == 4 and each({"logprob": None})(it)}},
    ),
    one(
        "1.5", "several sequences",
        asked(n=2, do_sample=True, details=True),
        found={"details": {"best_of_sequences": lambda it: len(it) == 1}},
    ),
    one(
        "1.5", "the likeliest tokens", asked(top_n_tokens=2, details=True),
        found={"details": {"top_tokens": lambda it: [len(x) for x in it] == [2] * 5}},
    ),
    one(
        "1.5", "a prompt cut to its end", {**PROMPT, "truncate_prompt_tokens": 2},
        found={"usage": {"prompt_tokens": 2}},
    ),
    refusal("1.5", "no tokens", "max_new_tokens", max_new_tokens=0),
    refusal("1.5", "a cold temperature", "temperature", do_sample=True, temperature=-1),
    refusal("1.5", "no mass", "top_p", do_sample=True, top_p=0),
    refusal("1.5", "more mass than there is", "min_p", do_sample=True, min_p=1.5),
    refusal("1.5", "a penalty below its range", "presence_penalty", presence_penalty=-3),
    refusal("1.5", "a penalty above its range", "frequency_penalty", frequency_penalty=3),
    refusal("1.5", "a penalty of nothing", "repetition_penalty", repetition_penalty=0),
    refusal("1.5", "a text where a number is due", "top_k", top_k="ten"),
)  # fmt: skip


def check_neutral(served: Served) -> None:
    assert served.text(**asked(**NEUTRAL)) == served.text(**HI)


def check_seed(served: Served) -> None:
    sampled = {"do_sample": True, "max_new_tokens": 12}
    one_text, same, other = (served.text(**asked(**sampled, seed=seed)) for seed in (1, 1, 2))
    assert one_text == same != other


def check_stop(served: Served) -> None:
    biased = {"logit_bias": {"70": 100}}
    letter = served.text(**asked(**biased))[0]
    for name in ("stop", "stop_sequences"):
        answer = served.ask(asked(**biased, **{name: [letter * 2]}, details=True)).json()
        assert answer["generated_text"] == ""
        assert answer["details"]["finish_reason"] == "stop_sequence"
    kept = served.text(**asked(**biased, stop=[letter * 2], include_stop_str_in_output=True))
    assert kept == letter * 2


def check_do_sample(served: Served) -> None:
    parameters = [{"max_new_tokens": 12, "seed": seed} for seed in (1, 2)]
    texts = {served.text(inputs="hello", parameters=it) for it in parameters}
    assert len(texts) == 2, "sampled unless do_sample is false"


SEQUENCES = (
    several("1.5", "parameters at their defaults change nothing")(check_neutral),
    several("1.5", "a seed decides a sampled text")(check_seed),
    several("1.5", "stop and stop_sequences end the text")(check_stop),
    several("1.5", "requests are sampled unless do_sample is false")(check_do_sample),
)


def formatted(name: str, stream: bool = False) -> dict[str, object]:
    return {**asked(output_formatter=name), "stream": stream}


TOKEN = {"index": 0, "token": members("id", "text", "logprob")}
RESPONSES = (
    one(
        "1.6", "details of a whole answer", asked(details=True),
        found={
            "details": {
                "finish_reason": "length", "generated_tokens": 5, "seed": lambda it: it >= 0,
                "prefill": [], "tokens": each(members("id", "text", "logprob")),
            }
        },
    ),
    one(
        "1.6", "a stream is a line a token", {**asked(details=True), "stream": True}, kind=LINES,
        found=lambda it: len(it) == 5 and each(TOKEN)(it) and it[0]["generated_text"] is None,
    ),
    one(
        "1.6", "the last line has the text and the details",
        {**asked(details=True), "stream": True}, kind=LINES,
        found=last(
            {
                "generated_text": lambda it: isinstance(it, str),
                "details": members("finish_reason", "seed", "generated_tokens", "input_length"),
            }
        ),
    ),
    one("1.6", "formatter json", formatted("json"), found=ANSWER),
    one("1.6", "formatter jsonlines", formatted("jsonlines"), kind=LINES, found=each(TOKEN)),
    one("1.6", "formatter sse", formatted("sse"), kind=EVENTS, found=each(TOKEN)),
    one(
        "1.6", "formatter json_chat", formatted("json_chat"), found={"object": "chat.completion"}
    ),
    one(
        "1.6", "formatter jsonlines_chat", formatted("jsonlines_chat", stream=True), kind=LINES,
        found=each({"object": "chat.completion.chunk"}),
    ),
    one(
        "1.6", "formatter sse_chat", formatted("sse_chat", stream=True), kind=EVENTS,
        found=last("[DONE]"),
    ),
    one(
        "1.6", "formatter 3p", formatted("3p"),
        found={
            "body": {"generation_token_count": 5, "stop_reason": "length"},
            "metering": {"outputTokenCount": 5},
        },
    ),
    one(
        "1.6", "formatter 3p_stream", formatted("3p_stream"), kind=LINES,
        found=each({"metering": {"outputTokenCount": lambda it: it > 0}}),
    ),
    one("1.6", "formatter none", formatted("none"), kind=TEXT),
    one("1.6", "an unknown formatter", formatted("xml"), status=424, found=has("output_form")),
    one(
        "1.6", "a chat's stream of an invocation is lines", {**CHAT, "stream": True}, kind=LINES,
        found=last({"choices": each({"finish_reason": "length"})}),
    ),
    one(
        "1.6", "a completion's stream of an invocation is lines", {**PROMPT, "stream": True},
        kind=LINES, found=each({"object": "text_completion"}),
    ),
    one(
        "1.6", "a chat's stream of OpenAI's route is events", {**CHAT, "stream": True},
        path="/v1/chat/completions", kind=EVENTS, found=last("[DONE]"),
    ),
    one(
        "1.6", "a chat's answer", {**CHAT, "logprobs": True, "top_logprobs": 2},
        found={
            "id": has("chatcmpl-"), "object": "chat.completion", "created": None, "model": "lmi",
            "choices": each(
                {
                    "index": 0, "finish_reason": "length",
                    "message": {"role": "assistant", "content": None},
                    "logprobs": {
                        "content": each({"top_logprobs": lambda it: len(it) == 2})
                    },
                }
            ),
            "usage": {"completion_tokens": 4},
        },
    ),
    one(
        "1.6", "usage at the end of a stream",
        {**CHAT, "stream": True, "stream_options": {"include_usage": True}}, kind=LINES,
        found=last({"usage": {"completion_tokens": 4}}),
    ),
    one(
        "1.6", "a schema of the answer",
        {**CHAT, "max_tokens": 40, "ignore_eos": False, "structured_outputs": {"choice": ["red"]}},
        found={"choices": each({"message": {"content": "red"}, "finish_reason": "stop"})},
    ),
    one(
        "1.6", "a stream of several inputs", {**HI, "inputs": ["a", "b"], "stream": True},
        kind=LINES, found=each({"outputs": lambda it: len(it) == 2}),
    ),
)  # fmt: skip


@several("1.6", "every body ends with a line break")
def line_break(served: Served) -> None:
    for body in (HI, CHAT, {**HI, "stream": True}):
        assert served.ask(body).text.endswith("\n")


LONG = "x" * 3000
ERRORS = (
    one(
        "1.7", "a bad parameter", asked(temperature="hot"), status=424,
        found={"code": 424, "error": has("Input parsing failed: ")},
    ),
    one(
        "1.7", "an adapter that is not there", {**HI, "adapters": "de"}, status=424,
        found={"code": 424, "error": has("de")},
    ),
    one("1.7", "a prompt too long", {**HI, "inputs": LONG}, status=424, found={"code": 424}),
    one(
        "1.7", "a prompt too long for OpenAI's route", {**PROMPT, "prompt": LONG},
        path="/v1/completions", status=400, found={"error": {"code": 400}},
    ),
    one(
        "1.7", "a path that is not there", HI, path="/nothing", status=404,
        found={"code": 404, "type": "ResourceNotFoundException", "message": None},
    ),
    get(
        "1.7", "a method that is not there", "/invocations", status=405,
        found={"code": 405, "type": "MethodNotAllowedException", "message": None},
    ),
    one(
        "1.7", "a failure before the first token of a stream has its own status",
        {**HI, "inputs": LONG, "stream": True}, status=424,
    ),
    one(
        "1.7", "an unknown model", {**CHAT, "model": "gpt"}, status=404,
        found={"error": {"code": 404}},
    ),
)  # fmt: skip

CHATS = (
    one("1.15", "a chat is its template's prompt", CHAT, found={"usage": {"prompt_tokens": 61}}),
    one(
        "1.15",
        "a prompt without the assistant's turn",
        {**CHAT, "add_generation_prompt": False},
        found={"usage": {"prompt_tokens": 50}},
    ),
    one(
        "1.15",
        "a template of a request is not trusted",
        {**CHAT, "chat_template": "{{ 1 }}"},
        status=424,
        found={"error": has("trust_request_chat_template")},
    ),
)


@several("1.13", "a session is opened, used and closed")
def session(served: Served) -> None:
    opened = served.ask({"requestType": "NEW_SESSION"})
    given = opened.headers["X-Amzn-SageMaker-Session-Id"]
    name, _, expires = given.partition("; Expires=")
    assert opened.json() == {"result": f"Session {name} created"}
    assert len(expires) == len("2026-01-01T00:00:00Z")
    header = {"X-Amzn-SageMaker-Session-Id": name}
    assert served.ask(HI, **header).status_code == 200
    closed = served.ask({"requestType": "CLOSE"}, **header)
    assert closed.headers["X-Amzn-SageMaker-Closed-Session-Id"] == name
    again = served.ask(HI, **header)
    assert (again.status_code, again.json()["code"]) == (424, 424)


SESSIONS = (
    session,
    one("1.13", "an unknown request type", {"requestType": "PAUSE"}, status=424),
    one("1.13", "a session that is not open", HI, status=424,
        headers={"X-Amzn-SageMaker-Session-Id": "none"},
        found={"error": has("session not found")}),
    one("1.13", "no session to close", {"requestType": "CLOSE"}, status=424),
)  # fmt: skip

CASES = (
    *ROUTES, *REQUESTS, *SEQUENCES, *RESPONSES, line_break, *ERRORS, *CHATS, *SESSIONS,
)  # fmt: skip
