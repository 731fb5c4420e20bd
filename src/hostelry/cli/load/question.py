"""The requests of a load test: a prompt or a file, sent to the models that a name stands for."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.calls.chat import Conversation, lacks_template
from hostelry.cli.calls.invoke import GRACE_S, AnswerSink, call_model, guess_content_type, read_body
from hostelry.cli.calls.llm_calls import JSON, openai_calls
from hostelry.cli.named import NamedModel, called_model, find_named
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig
from hostelry.loadtest.answers import ModelAnswerError
from hostelry.loadtest.requests import (
    GatewayAccess,
    InvokedModel,
    LoadRequests,
    invocation_requests,
    openai_requests,
)

PROMPT = "Write a short story about a lighthouse."
MAX_TOKENS = 64


class LoadQuestion(msgspec.Struct, frozen=True):
    """The content of each request: a prompt, or a file's bytes.

    With `prompt_characters` the prompt is repeated, and cut to this length.
    """

    prompt: str | None
    prompt_characters: int | None
    max_tokens: int | None
    file: str | None
    content_type: str | None

    def __post_init__(self) -> None:
        """Raise UsageError if the options contradict each other."""
        if self.file is None:
            return
        for flag, value in (
            ("--prompt", self.prompt),
            ("--prompt-characters", self.prompt_characters),
            ("--max-tokens", self.max_tokens),
        ):
            if value is not None:
                raise UsageError(f"{flag} is for a prompt, and --body is a file: give one")

    @property
    def text(self) -> str:
        """The prompt."""
        prompt, length = self.prompt or PROMPT, self.prompt_characters
        if length is None:
            return prompt
        return (f"{prompt} " * (length // (len(prompt) + 1) + 1))[:length]

    @property
    def most_tokens(self) -> int:
        """The maximum number of tokens per answer."""
        return self.max_tokens or MAX_TOKENS

    @property
    def options(self) -> dict[str, Any]:
        """The options that describe the question in a result."""
        if self.file is not None:
            return {"body": self.file}
        shown = {"prompt": self.prompt or PROMPT, "max_tokens": self.most_tokens}
        if self.prompt_characters is not None:
            shown["prompt_characters"] = self.prompt_characters
        return shown


def load_models(sagemaker: Any, name: str, adapters: str | None) -> list[NamedModel]:
    """The models that requests are sent to in turn: the named model, or its adapters."""
    base = called_model(sagemaker, name)
    if adapters is None:
        return [base]
    if base.component is None or base.adapter is not None or base.base is not None:
        raise UsageError(f"--adapters needs a base component, which {name} is not")
    names = [it.strip() for it in adapters.split(",") if it.strip()]
    if not names:
        raise UsageError("--adapters is empty: name them as a,b,c")
    return [find_named(sagemaker, f"{base.component}:{it}") for it in names]


def load_requests(
    config: UpConfig, credentials: Credentials, models: Sequence[NamedModel], asked: LoadQuestion
) -> LoadRequests:
    """Build the requests of a test, after a first request succeeded. Raises TerminalError."""
    if asked.file is not None:
        content = read_body(asked.file, config.max_body_bytes)
        name = None if asked.file == "-" else asked.file
        kind = asked.content_type or guess_content_type(name, content)
        return invocations(config, credentials, models, content, kind)
    talk = Conversation(settings={"max_tokens": asked.most_tokens})
    if models[0].component is None:
        body = talk.body("", asked.text)
        for member in ("model", "stream", "stream_options"):
            del body[member]
        return invocations(config, credentials, models, msgspec.json.encode(body), JSON)
    calls, names = openai_calls(config, credentials), [it.openai_model for it in models]
    try:
        calls.answer(talk.body(names[0], asked.text), lambda _: None)
    except ModelAnswerError as error:
        if not lacks_template(str(error)):
            raise TerminalError(f"the first request failed: {error}") from None
        talk.has_template = False
    body = talk.body("", asked.text)
    del body["model"]
    return openai_requests(gateway_access(config, credentials), names, body)


def invocations(
    config: UpConfig,
    credentials: Credentials,
    models: Sequence[NamedModel],
    content: bytes,
    kind: str,
) -> LoadRequests:
    """Build invocations with this body, after a first one succeeded. Raises TerminalError."""
    packed = next((it for it in models if it.adapter is not None), None)
    if packed is not None:
        raise TerminalError(
            f"adapter {packed.adapter} is inside the archive, which a body chooses by its own "
            "member `adapters`: leave it out of the options, or use --prompt"
        )
    limit_s = config.invoke_timeout_s + GRACE_S
    runtime = aws_client("sagemaker-runtime", config, credentials, read_timeout_s=limit_s)
    first = {"EndpointName": models[0].endpoint, "Body": content, "ContentType": kind}
    if models[0].component:
        first["InferenceComponentName"] = models[0].component
    facts = call_model(runtime.invoke_endpoint, first, AnswerSink(keeps=True))
    if facts.error is not None:
        raise TerminalError(f"the first request failed: {facts.error}")
    access = gateway_access(config, credentials)
    invoked = [InvokedModel(it.endpoint, it.component) for it in models]
    return invocation_requests(access, invoked, content, kind)


def gateway_access(config: UpConfig, credentials: Credentials) -> GatewayAccess:
    """The platform's gateway and the keys of its account."""
    return GatewayAccess(
        url=config.gateway_url,
        region=credentials.region,
        access_key_id=credentials.access_key_id,
        secret_access_key=credentials.secret_access_key,
        openai_api_key=credentials.openai_api_key,
    )
