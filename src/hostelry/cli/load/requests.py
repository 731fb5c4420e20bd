"""The requests of a load test, as whole messages: OpenAI's, or signed invocations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.cli.load.connection import message
from hostelry.cli.named import NamedModel
from hostelry.home.home import Credentials, UpConfig

SIGNED_FOR_S = 60.0  # a signature is taken for some minutes
JSON = "application/json"
ERROR_HEADER = b"x-amzn-errortype"


@dataclass(frozen=True, slots=True)
class LoadRequests:
    """Makes the request number n; `streams_text` where answers are an LLM's."""

    make: Callable[[int], bytes]
    streams_text: bool


def openai_requests(
    config: UpConfig, credentials: Credentials, models: Sequence[str], body: dict[str, Any]
) -> LoadRequests:
    """Requests to the models in turn, streamed; `body` has messages or a prompt."""
    route = "chat/completions" if "messages" in body else "completions"
    headers = {
        "Host": host_of(config),
        "Authorization": f"Bearer {credentials.openai_api_key}",
        "Content-Type": JSON,
    }
    made = [
        message(f"/v1/{route}", headers, msgspec.json.encode({"model": model, **body}))
        for model in models
    ]
    return LoadRequests(lambda number: made[number % len(made)], streams_text=True)


def invocation_requests(
    config: UpConfig,
    credentials: Credentials,
    models: Sequence[NamedModel],
    body: bytes,
    content_type: str,
) -> LoadRequests:
    """Invocations of the models in turn, signed again as time passes."""
    signers = [_Signer(config, credentials, model, body, content_type) for model in models]
    return LoadRequests(
        lambda number: signers[number % len(signers)].request(monotonic_s()), streams_text=False
    )


def host_of(config: UpConfig) -> str:
    """The Host header of requests to the gateway."""
    return config.gateway_url.partition("//")[2]


class _Signer:
    """One invocation, signed again once its signature has aged."""

    def __init__(
        self,
        config: UpConfig,
        credentials: Credentials,
        model: NamedModel,
        body: bytes,
        content_type: str,
    ) -> None:
        from botocore.auth import SigV4Auth
        from botocore.credentials import Credentials as SigningCredentials

        self._path = f"/endpoints/{quote(model.endpoint)}/invocations"
        self._url = f"{config.gateway_url}{self._path}"
        self._host = host_of(config)
        self._body = body
        self._headers = {"Content-Type": content_type}
        if model.component:
            self._headers["X-Amzn-SageMaker-Inference-Component"] = model.component
        keys = SigningCredentials(credentials.access_key_id, credentials.secret_access_key)
        self._auth = SigV4Auth(keys, "sagemaker", credentials.region)
        self._signed = b""
        self._until_s = 0.0

    def request(self, now_s: float) -> bytes:
        """The whole message."""
        if now_s >= self._until_s:
            from botocore.awsrequest import AWSRequest

            request = AWSRequest("POST", self._url, dict(self._headers), self._body)
            self._auth.add_auth(request)
            headers = {"Host": self._host, **dict(request.headers.items())}
            self._signed = message(self._path, headers, self._body)
            self._until_s = now_s + SIGNED_FOR_S
        return self._signed
