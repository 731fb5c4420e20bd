"""OpenAI's Responses: the formats of requests, responses and streams, and refusals."""

from typing import Any

from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import Answer, ask, fake, server

from hostelry.containers.lmi.http.server import LmiServer

ROUTE = "/v1/responses"


def events(answer: Answer) -> list[tuple[str, Any]]:
    """Each event's name and data."""
    found = []
    for part in answer.text.split("\n\n")[:-1]:
        name, data = part.split("\n", 1)
        found.append(
            (name.removeprefix("event: "), Answer(0, {}, data.removeprefix("data: ")).json)
        )
    return found


def prompt_of(served: LmiServer, body: Any) -> str:
    """The text that the model was given."""
    answer = ask(served, ROUTE, body)
    assert answer.status == 200, answer.text
    ids = fake(served).seen[-1].prompt_token_ids
    assert served.model is not None
    return served.model.codec.decode(ids, skip_special_tokens=False)


def test_a_whole_response() -> None:
    answer = ask(server(), ROUTE, {"model": "lmi", "input": "hi", "metadata": {"a": "b"}})
    assert answer.status == 200, answer.text
    content = answer.json
    (message,) = content["output"]
    (part,) = message["content"]
    assert content["id"].startswith("resp_")
    assert (content["object"], content["status"], content["model"]) == (
        "response",
        "completed",
        "lmi",
    )
    assert (content["error"], content["incomplete_details"], content["store"]) == (
        None,
        None,
        False,
    )
    assert content["metadata"] == {"a": "b"}
    assert (message["type"], message["role"], message["status"]) == (
        "message",
        "assistant",
        "completed",
    )
    text = {"type": "output_text", "text": "a base answer", "annotations": [], "logprobs": []}
    assert part == text
    usage = content["usage"]
    assert usage["output_tokens"] == len("a base answer") + 1
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens_details"] == {"cached_tokens": 0}


def test_a_response_that_is_cut_is_incomplete() -> None:
    content = ask(server(), ROUTE, {"input": "hi", "max_output_tokens": 3}).json
    assert content["status"] == "incomplete"
    assert content["incomplete_details"] == {"reason": "max_output_tokens"}
    assert content["output"][0]["content"][0]["text"] == "a b"
    assert content["max_output_tokens"] == 3


def test_a_stream_has_openais_events_in_order() -> None:
    answer = ask(server(), ROUTE, {"input": "hi", "stream": True, "max_output_tokens": 3})
    assert answer.type == "text/event-stream"
    seen = events(answer)
    assert [name for name, _ in seen] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert [data["sequence_number"] for _, data in seen] == list(range(len(seen)))
    assert all(data["type"] == name for name, data in seen)
    assert "".join(data["delta"] for name, data in seen if name.endswith("delta")) == "a b"
    last = seen[-1][1]["response"]
    assert last["output"][0]["id"] == seen[4][1]["item_id"]
    assert last["usage"]["output_tokens"] == 3


def test_a_stream_that_breaks_ends_with_a_failed_response() -> None:
    served = server()
    fake(served).fail_after = 2
    name, data = events(ask(served, ROUTE, {"input": "hi", "stream": True}))[-1]
    assert name == "response.failed"
    assert (data["response"]["status"], data["response"]["error"]["code"]) == (
        "failed",
        "server_error",
    )


def test_the_conversation_becomes_a_chat() -> None:
    items = [
        {"role": "developer", "content": "be brief"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one"}]},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [{"type": "output_text", "text": "two", "annotations": []}],
        },
        {"role": "user", "content": "three"},
    ]
    prompt = prompt_of(server(), {"input": items, "instructions": "you are"})
    sent = [("system", "you are"), ("system", "be brief"), ("user", "one"), ("assistant", "two")]
    turns = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in sent)
    assert prompt == f"{turns}<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"


def test_sampling_and_log_probabilities() -> None:
    served = server()
    body = {
        "input": "hi",
        "temperature": 0,
        "top_p": 0.5,
        "max_output_tokens": 2,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
    }
    content = ask(served, ROUTE, body).json
    sampling = fake(served).seen[-1].sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_new_tokens) == (0, 0.5, 2)
    first, _ = content["output"][0]["content"][0]["logprobs"]
    assert (first["token"], first["logprob"], len(first["top_logprobs"])) == ("a", -0.5, 2)
    assert (content["temperature"], content["top_p"]) == (0, 0.5)


def test_the_adapter_is_the_model() -> None:
    content = ask(server(), ROUTE, {"model": "es", "input": "hi"}).json
    assert (content["model"], content["output"][0]["content"][0]["text"]) == ("es", "hola")


def test_a_json_schema_bounds_the_text() -> None:
    served = server()
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "name": "it", "schema": schema, "strict": True}
    content = ask(served, ROUTE, {"input": "hi", "text": {"format": form}}).json
    structure = fake(served).seen[-1].sampling.structure
    assert structure is not None
    assert structure.kind == "json_schema"
    assert content["text"]["format"] == form


@cases(
    "body, param, message",
    case("no input", {}, "input", "input is None"),
    case("an empty list", {"input": []}, "input", "1 to 10000"),
    case("a number", {"input": 3}, "input", "a text or a list"),
    case("texts in a list", {"input": ["a"]}, "input[0]", "JSON object"),
    case("store", {"input": "a", "store": True}, "store", "not stored here"),
    case(
        "an earlier response",
        {"input": "a", "previous_response_id": "resp_1"},
        "previous_response_id",
        "not stored here",
    ),
    case("later", {"input": "a", "background": True}, "background", "not stored"),
    case("tools", {"input": "a", "tools": [{"type": "web_search"}]}, "tools", "not served"),
    case("truncation", {"input": "a", "truncation": "auto"}, "truncation", "refused"),
    case("effort", {"input": "a", "reasoning": {"effort": "high"}}, "reasoning", "effort"),
    case("a field of chats", {"input": "a", "n": 2}, "n", "not a field"),
    case("include", {"input": "a", "include": ["x"]}, "include", "may have"),
    case("top alone", {"input": "a", "top_logprobs": 2}, "include", "needs include"),
    case("zero", {"input": "a", "max_output_tokens": 0}, "max_output_tokens", "1"),
    case("metadata", {"input": "a", "metadata": {"a": 1}}, "metadata", "texts"),
    case("format", {"input": "a", "text": {"format": {"type": "xml"}}}, "text", "text.format"),
    case("verbosity", {"input": "a", "text": {"verbosity": "low"}}, "verbosity", "decides"),
    case(
        "a reference", {"input": [{"type": "item_reference", "id": "msg_1"}]}, "input", "messages"
    ),
    case(
        "an image",
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "input",
        "input_image",
    ),
    case("a role", {"input": [{"role": "tool", "content": "a"}]}, "input", "role"),
)
def test_refused_members(body: dict[str, Any], param: str, message: str) -> None:
    answer = ask(server(), ROUTE, body)
    error = answer.json["error"]
    assert (answer.status, error["param"]) == (400, param), answer.text
    assert message in error["message"]
