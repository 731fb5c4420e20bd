"""Writes code that repeats a request of the playground: curl, openai and boto3. Pure.

The code shows no key: it reads addresses and keys from the variables that `hostelry env` prints.
Each piece of code is complete.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any

WIDTH = 80
INDENT = 4
MAX_CURL_BYTES = 100_000  # of a body, because Linux limits an argument to 128 KiB
IN_SHELL = 'eval "$(hostelry env)"'
IN_PYTHON = f"# first, in the shell: {IN_SHELL}"
# The parameters of the openai package. Other members of a request go into extra_body.
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
    """Write the code that sends a chat, by client. The boto3 code does not stream the answer."""
    component, _, adapter = request["model"].partition(":")  # an adapter in the component's archive
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
    """Write the code that sends an invocation. `invocation` has InvokeEndpoint's parameters."""
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
    """Write the curl command, by name. Empty if the body does not fit into an argument."""
    if "\0" in body or len(body.encode()) > MAX_CURL_BYTES:
        return {}
    continued = " \\\n  ".join((*parts, f"--data-raw {shlex.quote(body)}"))
    return {"curl": _lines(IN_SHELL, continued)}


def _for_openai(request: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: it for name, it in request.items() if name in OPENAI_FIELDS}
    others = {name: it for name, it in request.items() if name not in OPENAI_FIELDS}
    return {**own, "extra_body": others} if others else own


def _python(value: Any, indent: int = 0) -> str:
    """Write a JSON value as Python source. A long value has one line for each part."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, ensure_ascii=False)  # which is Python source, too
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
