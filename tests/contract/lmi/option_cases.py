"""Cases of a model with options, a chat template and code in one folder of its archive."""

from concurrent.futures import ThreadPoolExecutor

from tests.contract.lmi.async_cases import CHAT, GREEDY, HI
from tests.contract.lmi.exchange import (
    LINES,
    Case,
    Served,
    each,
    get,
    has,
    last,
    one,
    several,
)
from tests.integration.lmi_rig import eventually

# serving.properties of the model.
PROPERTIES = """
engine=Python
option.max_rolling_batch_size=2
option.max_model_len=1500
option.output_formatter=jsonlines
option.chat_template=chat.jinja
option.served_model_name=mine
option.entryPoint=model.py
option.draft_model_id=some/draft
option.max_loras=1
job_queue_size=1
throttle_error_http_code=429
timeout_http_code=408
bad_request_http_code=422
request_id_header_key=x-my-id
"""
# serving.properties overrides the first variable. The other variables are only set here.
ENVIRONMENT = {
    "OPTION_MAX_ROLLING_BATCH_SIZE": "7",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "60",
    "OPTION_PREDICT_TIMEOUT": "900",
    "SAGEMAKER_MAX_REQUEST_SIZE": "20000",
    "SAGEMAKER_MAX_PAYLOAD_IN_MB": "6",
    "HOSTELRY_CUSTOM_CODE": "trusted",
}
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MODEL_PY = """
from djl_python import Output
from djl_python.async_utils import create_non_stream_output
from djl_python.encode_decode import decode
from djl_python.input_parser import input_formatter
from djl_python.output_formatter import output_formatter

async def handle(inputs):
    if inputs.is_empty():
        return None
    request = inputs.get_batches()[0]
    payload = decode(request, request.get_property("Content-Type"))
    if payload.get("raise"):
        raise ValueError("by its author")
    if payload.get("status"):
        return Output().error("teapot", payload["status"])
    return create_non_stream_output({"mine": 1}) if payload.get("mine") else None

@input_formatter
def rename(payload, tokenizer=None, **kwargs):
    if "question" in payload:
        payload["inputs"] = payload.pop("question")
        payload.setdefault("parameters", {})["output_formatter"] = "json"
    return payload

@output_formatter
def label(response):
    if isinstance(response, dict):
        response["by"] = "model.py"
    return response
"""
LONG = {"max_new_tokens": 1400, "do_sample": False, "ignore_eos_token": True}
JSON_HI = {**HI, "parameters": {**GREEDY, "output_formatter": "json"}}


def described(text: str, row: str, **members: object) -> Case:
    return get(row, text, "/models/mine", found=each({"models": each(members)}))


@several("1.8", "a full queue is refused at once, with the status of throttle_error_http_code")
def full_queue(served: Served) -> None:
    body = {"inputs": "a", "parameters": {**LONG, "max_new_tokens": 300}}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(served.ask, [body] * 8))
    statuses = [it.status_code for it in answers]
    assert set(statuses) == {200, 429}, statuses
    refused = next(it for it in answers if it.status_code == 429)
    assert "Worker queue capacity exceeded" in refused.json()["message"]
    assert int(refused.headers["retry-after"]) >= 1


@several("1.8", "a client that leaves ends its request")
def left(served: Served) -> None:
    body = {"inputs": "a", "parameters": LONG, "stream": True}
    with served.client.stream("POST", "/invocations", json=body) as answer:
        next(answer.iter_lines())
    idle = {"server_load": 0}
    eventually(lambda: served.client.get("/load").json() == idle, "no request is under way")


@several("1.14", "the next request after a failure of the code is served")
def after_failure(served: Served) -> None:
    assert served.ask({"raise": 1}).status_code == 424
    assert served.ask({"mine": 1}).json() == {"mine": 1}


CASES = (
    described("serving.properties comes before the environment", "1.2", batchSize=2),
    described("a property without its prefix", "1.2", queueSize=1),
    one(
        "1.2", "SAGEMAKER_MAX_REQUEST_SIZE comes before SAGEMAKER_MAX_PAYLOAD_IN_MB",
        {"inputs": "a" * 30000}, status=413, found={"code": 413, "message": has("20000")},
    ),
    described("the longest request", "1.3", maxModelLen=1500),
    described("the computing type", "1.3", dtype=has("32")),
    one(
        "1.3", "the formatter of the configuration", HI, kind=LINES,
        found=last("[DONE]"),
    ),
    one("1.3", "a formatter of the request before it", JSON_HI, found={"generated_text": None}),
    one("1.3", "the served name", CHAT, path="/v1/chat/completions", found={"model": "mine"}),
    one(
        "1.10", "without enable_lora there are no adapters", path="/adapters?name=a&src=/tmp",
        status=422,
        found={
            "code": 422, "type": "BadRequestException", "message": has("LoRA is not enabled."),
        },
    ),
    described("one folder of an archive is the model's", "1.4", modelUrl=has("/inner")),
    one(
        "1.1", "the header of ids by the configuration", JSON_HI, headers={"x-my-id": "42"},
        shows={"x-my-id": "42"},
    ),
    full_queue,
    left,
    one(
        "1.8", "a body too large", {"inputs": "b" * 30000}, status=413, found={"code": 413}
    ),
    one("1.14", "the code's handler answers", {"mine": 1}, found={"mine": 1}),
    one(
        "1.14", "a handler of the code that raises", {"raise": 1}, status=424,
        found={"code": 424, "error": has("Custom handler failed: ")},
    ),
    one("1.14", "a status of the code's", {"status": 418}, status=418, found=has("teapot")),
    one(
        "1.14", "formatters of the code change request and response", {"question": "hi"},
        found={"generated_text": None, "by": "model.py"},
    ),
    after_failure,
    one(
        "1.15", "a template of the options", {**CHAT, "max_tokens": 1},
        path="/v1/chat/completions", found={"usage": {"prompt_tokens": 2}},
    ),
    one(
        "1.7", "the status of a bad request by the configuration, on OpenAI's routes",
        {**CHAT, "temperature": 9}, path="/v1/chat/completions", status=422,
        found={"error": {"type": "BadRequestError", "code": 422}},
    ),
)  # fmt: skip
