"""The gateway's public routes, as the playground calls them: OpenAI's and InvokeEndpoint."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningKeys

from hostelry.base.json import decode
from hostelry.console.platform import ModelAnswer, NoModelAnswerError
from hostelry.console.snippets import HEADERS
from hostelry.home.home import Credentials, UpConfig

CONNECT_S = 5.0
SILENT_S = 300.0  # between two pieces of an answer, or before the first
MODELS_S = 10.0


class HttpAnswer:
    """A response as the playground reads it."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.content_type = response.headers.get("content-type", "")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises NoModelAnswerError if it breaks off."""
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except httpx.HTTPError as error:
            raise _no_answer(error) from None


class GatewayModels:
    """Implements `console.platform.ModelPort`."""

    def __init__(self, config: UpConfig, credentials: Credentials) -> None:
        self._url = config.gateway_url
        self._region = credentials.region
        self._bearer = {"Authorization": f"Bearer {credentials.openai_api_key}"}
        self._keys = SigningKeys(credentials.access_key_id, credentials.secret_access_key)
        self._http = httpx.AsyncClient(
            headers={"Accept-Encoding": "identity"},
            timeout=httpx.Timeout(SILENT_S, connect=CONNECT_S),
            trust_env=False,
            verify=False,  # plain HTTP on loopback
        )

    async def models(self) -> list[str]:
        """The names of GET /v1/models."""
        try:
            answer = await self._http.get(
                f"{self._url}/v1/models", headers=self._bearer, timeout=MODELS_S
            )
            answer.raise_for_status()
            return [it["id"] for it in decode(answer.content, dict[str, Any])["data"]]
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            raise _no_answer(error) from None

    @asynccontextmanager
    async def chat(self, content: bytes) -> AsyncIterator[ModelAnswer]:
        """POST /v1/chat/completions."""
        headers = {**self._bearer, "Content-Type": "application/json"}
        async with self._send(f"{self._url}/v1/chat/completions", headers, content) as answer:
            yield answer

    @asynccontextmanager
    async def invoke(
        self, parameters: Mapping[str, str], body: bytes
    ) -> AsyncIterator[ModelAnswer]:
        """InvokeEndpoint, signed with the account's keys."""
        name = quote(parameters["EndpointName"], safe="")
        headers = {HEADERS[it]: value for it, value in parameters.items() if it in HEADERS}
        request = AWSRequest(
            "POST", f"{self._url}/endpoints/{name}/invocations", headers=headers, data=body
        )
        SigV4Auth(self._keys, "sagemaker", self._region).add_auth(request)
        async with self._send(request.url, dict(request.headers.items()), body) as answer:
            yield answer

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    @asynccontextmanager
    async def _send(
        self, url: str, headers: Mapping[str, str], content: bytes
    ) -> AsyncIterator[ModelAnswer]:
        request = self._http.build_request("POST", url, headers=headers, content=content)
        try:
            response = await self._http.send(request, stream=True)
        except httpx.HTTPError as error:
            raise _no_answer(error) from None
        try:
            yield HttpAnswer(response)
        finally:
            await response.aclose()


def _no_answer(error: Exception) -> NoModelAnswerError:
    return NoModelAnswerError(f"The gateway does not answer: {error or type(error).__name__}")
