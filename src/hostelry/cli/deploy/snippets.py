"""Programs that call the deployed model and work as they are printed. Pure."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from hostelry.cli.deploy.deployment import ModelDeployment
from hostelry.cli.deploy.hugging_face import Task
from hostelry.cli.deploy.recognise import Recognised

JSON, CSV = "application/json", "text/csv"
QUESTION = "Give me a creative excuse to skip the party."
PROBE_BODY, PROBE_TYPE = "HOSTELRY_PROBE_BODY", "HOSTELRY_PROBE_CONTENT_TYPE"
SIGNED = (
    '--aws-sigv4 "aws:amz:$AWS_REGION:sagemaker" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippets:
    """Shell commands by what they use; empty where the model has no such route."""

    environment: str
    curl: str = ""
    openai: str = ""
    boto3: str = ""
    hostelry: tuple[str, ...] = ()

    @property
    def blocks(self) -> list[tuple[str, str]]:
        """Title and command of each, in the order to be shown."""
        found = [("curl", self.curl), ("openai", self.openai), ("boto3", self.boto3)]
        return [(title, text) for title, text in found if text]


@dataclass(frozen=True, slots=True)
class SampleBody:
    """A request body that the model answers, and its content type."""

    body: str
    content_type: str


def snippets(recognised: Recognised, deployment: ModelDeployment, home_flag: str = "") -> Snippets:
    """What calls the model; `home_flag` is " --home DIR" where the home is not the default one."""
    name, task = deployment.name, recognised.task
    environment = f'eval "$(hostelry env{home_flag})"'
    sample = sample_body(recognised, deployment.model.environment)
    if sample is None:
        return Snippets(
            environment=environment, hostelry=(f"hostelry invoke {name} FILE{home_flag}",)
        )
    verb = f"hostelry {'chat' if task is Task.CHAT else 'invoke'} {name}"
    if task is None or not (task.is_text or task is Task.VECTORS):
        return Snippets(
            environment=environment,
            curl=signed_curl(name, sample),
            boto3=boto3_program(name, sample),
            hostelry=(f"printf %s {shlex.quote(sample.body)} | {verb} -{home_flag}",),
        )
    verbs = [verb + home_flag] if task is Task.CHAT else []
    if task is Task.CHAT:
        verbs += [f"hostelry chat {it.component}{home_flag}" for it in deployment.adapters[:3]]
    return Snippets(
        environment=environment,
        curl=openai_curl(name, task),
        openai=openai_program(name, task),
        boto3=boto3_program(name, sample),
        hostelry=tuple(verbs),
    )


def sample_body(recognised: Recognised, environment: Mapping[str, str]) -> SampleBody | None:
    """A body that the model answers; None where nothing says which that is."""
    if PROBE_BODY in environment:
        return SampleBody(environment[PROBE_BODY], environment.get(PROBE_TYPE) or JSON)
    match recognised.task:
        case Task.CHAT:
            body = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 64}
            return SampleBody(json.dumps(body), JSON)
        case Task.TEXT:
            body = {"inputs": "The sea is", "parameters": {"max_new_tokens": 32}}
            return SampleBody(json.dumps(body), JSON)
        case Task.VECTORS | Task.CLASSES:
            return SampleBody(json.dumps({"inputs": QUESTION}), JSON)
    count = recognised.num_features
    if count is None:
        return None
    if recognised.framework == "xgboost":
        return SampleBody(",".join(["1"] * count), CSV)
    return SampleBody(json.dumps([[1.0] * count]), JSON)


def openai_curl(name: str, task: Task) -> str:
    """A call of the OpenAI route by curl."""
    route, body = openai_request(name, task)
    return (
        f'curl -sS "$OPENAI_BASE_URL/{route}" -H "Authorization: Bearer $OPENAI_API_KEY" '
        f"-H 'Content-Type: {JSON}' -d {shlex.quote(json.dumps(body))}"
    )


def openai_request(name: str, task: Task) -> tuple[str, dict[str, object]]:
    """The OpenAI route of a task, and a body."""
    if task is Task.CHAT:
        asked = [{"role": "user", "content": QUESTION}]
        return "chat/completions", {"model": name, "messages": asked, "max_tokens": 64}
    if task is Task.TEXT:
        return "completions", {"model": name, "prompt": "The sea is", "max_tokens": 32}
    return "embeddings", {"model": name, "input": QUESTION}


def openai_program(name: str, task: Task) -> str:
    """A program of OpenAI's client."""
    _, body = openai_request(name, task)
    given = ", ".join(f"{key}={value!r}" for key, value in body.items())
    match task:
        case Task.CHAT:
            lines = [
                f"for event in OpenAI().chat.completions.create({given}, stream=True):",
                '    print(event.choices[0].delta.content or "", end="", flush=True)',
                "print()",
            ]
        case Task.TEXT:
            lines = [f"print(OpenAI().completions.create({given}).choices[0].text)"]
        case _:
            lines = [f"print(OpenAI().embeddings.create({given}).data[0].embedding[:8])"]
    return here_document(["from openai import OpenAI", *lines])


def boto3_program(name: str, sample: SampleBody) -> str:
    """A program of boto3."""
    return here_document(
        [
            "import boto3",
            'answer = boto3.client("sagemaker-runtime").invoke_endpoint(',
            f"    EndpointName={name!r}, InferenceComponentName={name!r},",
            f"    ContentType={sample.content_type!r},",
            f"    Body={sample.body!r},",
            ")",
            'print(answer["Body"].read().decode())',
        ]
    )


def signed_curl(name: str, sample: SampleBody) -> str:
    """InvokeEndpoint by curl, which signs it."""
    return (
        f'curl -sS "$AWS_ENDPOINT_URL/endpoints/{name}/invocations" {SIGNED} '
        f"-H 'Content-Type: {sample.content_type}' "
        f"-H 'X-Amzn-SageMaker-Inference-Component: {name}' -d {shlex.quote(sample.body)}"
    )


def here_document(lines: list[str]) -> str:
    """A Python program as a shell command."""
    return "\n".join(["python - <<'END'", *lines, "END"])
