"""Cases of the rolling batch's dialect, in secure mode, without a chat template."""

from tests.contract.lmi.async_cases import CHAT, PROMPT, asked
from tests.contract.lmi.exchange import (
    EVENTS,
    LINES,
    Served,
    each,
    get,
    has,
    last,
    members,
    one,
    several,
)

DETAILS = asked(details=True)
TOKEN = members("id", "text", "log_prob")
ERROR = {"generated_text": None, "code": 400, "details": {"finish_reason": "error"}}


@several("1.5", "requests are sampled only with do_sample")
def greedy(served: Served) -> None:
    texts = {served.text(inputs="hello", parameters={"seed": it}) for it in (1, 2)}
    assert len(texts) == 1


@several("1.16", "an adapter with what is forbidden is refused and not registered")
def forbidden(served: Served) -> None:
    for place, words in (
        ("coded", "model.py"),
        ("pickled", "adapter_model.bin"),
        ("required", "requirements.txt"),
    ):
        answer = served.client.post(f"/adapters?name={place}&src={served.places[place]}")
        assert (answer.status_code, words in answer.text) == (400, True), answer.text
    assert served.client.get("/adapters").json() == {"adapters": []}


@several("1.16", "an adapter without them is served")
def allowed(served: Served) -> None:
    path = f"/adapters?name=good&src={served.places['outside']}"
    assert served.client.post(path).status_code == 200
    assert served.text(**DETAILS, adapters="good") != served.text(**DETAILS)
    assert served.client.delete("/adapters/good").status_code == 200


CASES = (
    greedy,
    forbidden,
    allowed,
    one(
        "1.6", "details of a whole answer in the rolling batch's form", DETAILS,
        found={
            "details": {
                "finish_reason": "length", "generated_tokens": 5, "inputs": "hello",
                "tokens": each(TOKEN),
            }
        },
    ),
    one(
        "1.6", "a rolling batch's stream", {**DETAILS, "stream": True}, kind=LINES,
        found=lambda it: len(it) == 5 and each({"token": TOKEN})(it),
    ),
    one(
        "1.6", "the last line of a rolling batch's stream", {**DETAILS, "stream": True},
        kind=LINES,
        found=last(
            {
                "generated_text": lambda it: isinstance(it, str),
                "details": {"finish_reason": "length", "generated_tokens": 5},
            }
        ),
    ),
    one(
        "1.6", "a rolling batch's events", asked(output_formatter="sse"), kind=EVENTS,
        found=each({"token": TOKEN}),
    ),
    one(
        "1.6", "the end token is eos_token in LMI's words",
        {"inputs": "a", "parameters": {"logit_bias": {"2": 100}, "details": True}},
        found={"generated_text": "", "details": {"finish_reason": "eos_token"}},
    ),
    one(
        "1.7", "a bad parameter in the rolling batch's form", asked(top_p=2), status=400,
        found=ERROR,
    ),
    one(
        "1.7", "no inputs in the rolling batch's form", {"inputs": []}, status=400, found=ERROR
    ),
    one("1.7", "a prompt too long", {"inputs": "x" * 3000}, status=424, found=has("2048")),
    one("1.7", "an adapter that is not there", {**DETAILS, "adapters": "x"}, status=424),
    one(
        "1.11", "the rolling batch names the adapter that is not registered",
        {**DETAILS, "adapters": "x"}, status=424, found={"error": has("x is not registered")},
    ),
    one(
        "1.15", "a model without a chat template refuses chats", CHAT, status=400,
        found={"error": has("chat template")},
    ),
    one("1.15", "it serves prompts", PROMPT, found={"object": "text_completion"}),
    get("1.3", "a rolling batch of vLLM has 256 requests", "/models/lmi",
        found=each({"models": each({"batchSize": 256})})),
)  # fmt: skip
