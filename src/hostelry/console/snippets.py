"""A request of the playground as code that sends it again: curl, openai and boto3. Pure.

All of it finds addresses and keys in the variables that `hostelry env` prints, so that no key is
shown; each is complete as it stands.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any

WIDTH = 80
INDENT = 4
MAX_CURL_BYTES = 100_000  # of a body; Linux takes 128 KiB for an argument
IN_SHELL = 'eval "$(hostelry env)"'
IN_PYTHON = f"# first, in the shell: {IN_SHELL}"
# Parameters of openai's own; what else a request has goes into extra_body.
OPENAI_FIELDS = frozenset({
    "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
    "temperature", "top_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty",
    "logprobs", "top_logprobs", "logit_bias", "response_format", "tools", "tool_choice", "user",
})  # fmt: skip
STREAMED = ("stream", "stream_options")
HEADERS = {
    "ContentType": "Content-Type",
    "Accept": "Accept",
    "InferenceComponentName": "X-Amzn-SageMaker-Inference-Component",
    "TargetModel": "X-Amzn-SageMaker-Target-Model",
}


def chat_snippets(request: Mapping[str, Any], endpoint: str) -> dict[str, str]:
    """Code that sends a chat, by its client; boto3's gets the whole answer at once."""
    component, _, adapter = request["model"].partition(":")  # one of the component's own archive
    plain = {name: it for name, it in request.items() if name not in (*STREAMED, "model")}
    if adapter:
        plain["adapters"] = adapter
    return {
        **_curl(
            json.dumps(request, ensure_ascii=False),
            'curl -sSN "$OPENAI_BASE_URL/chat/completions"',
            '-H "Authorization: Bearer $OPENAI_API_KEY"',
            "-H 'Content-Type: application/json'",
        ),
        "openai": _lines(
            IN_PYTHON,
            "from openai import OpenAI",
            "",
            f"request = {_python(_for_openai(request))}",
            "for chunk in OpenAI().chat.completions.create(**request):",
            "    for choice in chunk.choices:",
            '        print(choice.delta.content or "", end="", flush=True)',
            "print()",
        ),
        "boto3": _lines(
            IN_PYTHON,
            "import json",
            "",
            "import boto3",
            "",
            f"request = {_python(plain)}",
            'answer = boto3.client("sagemaker-runtime").invoke_endpoint(',
            f"    EndpointName={_python(endpoint)},",
            f"    InferenceComponentName={_python(component)},",
            '    ContentType="application/json",',
            "    Body=json.dumps(request),",
            ")",
            'print(json.load(answer["Body"])["choices"][0]["message"]["content"])',
        ),
    }


def invocation_snippets(invocation: Mapping[str, str], body: str) -> dict[str, str]:
    """Code that sends an invocation; `invocation` has parameters of InvokeEndpoint by name."""
    path = f"/endpoints/{invocation['EndpointName']}/invocations"
    given = [
        f"-H {shlex.quote(f'{header}: {invocation[parameter]}')}"
        for parameter, header in HEADERS.items()
        if parameter in invocation
    ]
    if "ContentType" not in invocation:
        given.append("-H Content-Type:")
    return {
        **_curl(
            body,
            f'curl -sS "$AWS_ENDPOINT_URL"{shlex.quote(path)}',
            '--aws-sigv4 "aws:amz:$AWS_REGION:sagemaker"',
            '--user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"',
            *given,
        ),
        "boto3": _lines(
            IN_PYTHON,
            "import boto3",
            "",
            'answer = boto3.client("sagemaker-runtime").invoke_endpoint(',
            *(f"    {parameter}={_python(value)}," for parameter, value in invocation.items()),
            f"    Body={_python(body)}.encode(),",
            ")",
            'print(answer["Body"].read().decode("utf-8", "replace"))',
        ),
    }


def _curl(body: str, *parts: str) -> dict[str, str]:
    """The command under its name; none for a body that no argument can hold."""
    if "\0" in body or len(body.encode()) > MAX_CURL_BYTES:
        return {}
    continued = " \\\n  ".join((*parts, f"--data-raw {shlex.quote(body)}"))
    return {"curl": _lines(IN_SHELL, continued)}


def _for_openai(request: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: it for name, it in request.items() if name in OPENAI_FIELDS}
    others = {name: it for name, it in request.items() if name not in OPENAI_FIELDS}
    return {**own, "extra_body": others} if others else own


def _python(value: Any, indent: int = 0) -> str:
    """A JSON value as Python source, a line each for the parts of what is long."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, ensure_ascii=False)  # which Python reads as well
    deeper = indent + INDENT
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    if isinstance(value, dict):
        parts = [f"{_python(name)}: {_python(it, deeper)}" for name, it in value.items()]
    else:
        parts = [_python(it, deeper) for it in value]
    in_one = f"{opening}{', '.join(parts)}{closing}"
    if len(in_one) + indent <= WIDTH and "\n" not in in_one:
        return in_one
    lines = "".join(f"{' ' * deeper}{part},\n" for part in parts)
    return f"{opening}\n{lines}{' ' * indent}{closing}"


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"
