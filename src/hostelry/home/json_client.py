"""Calls of APIs that speak JSON, for commands whose work takes less time than botocore's start."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from hostelry.base.errors import RetryableError, TerminalError
from hostelry.base.json import decode
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.signed_call import CallAnswer, SignedApi

TIMEOUT_S = 20.0
# By botocore's name: the name that signatures cover, the prefix of targets, the version of JSON.
SERVICES = {
    "sagemaker": ("sagemaker", "SageMaker", "1.1"),
    "cloudwatch": ("monitoring", "GraniteServiceVersion20100801", "1.0"),
}
INSTANTS = ("Time", "Timestamps")  # ends of members' names


class JsonClient:
    """Client with the calls and paginators of a botocore client, by their names in Python.

    A call raises TerminalError in words for people.
    """

    def __init__(self, service: str, config: UpConfig, credentials: Credentials) -> None:
        signed_as, self._prefix, self._version = SERVICES[service]
        url = config.gateway_url
        self._api = SignedApi(
            service=signed_as, url=url, credentials=credentials, timeout_s=TIMEOUT_S
        )

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        return partial(self._call, name)

    def get_paginator(self, name: str) -> "Pages":
        """The pages of a list operation."""
        return Pages(partial(self._call, name))

    def find(self, name: str, **params: Any) -> dict[str, Any] | None:
        """The answer of a call, or None if the resource that it names does not exist."""
        operation, answer = self._send(name, params)
        if answer.status != 200 and "could not find" in refusal(answer).lower():
            return None
        return result(operation, answer)

    def _call(self, name: str, **params: Any) -> dict[str, Any]:
        return result(*self._send(name, params))

    def _send(self, name: str, params: Mapping[str, Any]) -> tuple[str, CallAnswer]:
        operation = "".join(part.capitalize() for part in name.split("_"))
        headers = {
            "content-type": f"application/x-amz-json-{self._version}",
            "x-amz-target": f"{self._prefix}.{operation}",
        }
        body = msgspec.json.encode({name: epoch_s(value) for name, value in params.items()})
        try:
            return operation, self._api.call("POST", body=body, headers=headers)
        except RetryableError:
            raise TerminalError(
                f"the platform does not answer at {self._api.url}: start it with `hostelry up`, "
                "or see `hostelry status`"
            ) from None


class Pages:
    """Pages of one list operation."""

    def __init__(self, call: Callable[..., dict[str, Any]]) -> None:
        self._call = call

    def paginate(self, **params: Any) -> Iterator[dict[str, Any]]:
        """Each page. A later page is fetched when the caller asks for it."""
        while True:
            page = self._call(**params)
            yield page
            if not page.get("NextToken"):
                return
            params["NextToken"] = page["NextToken"]


def result(operation: str, answer: CallAnswer) -> dict[str, Any]:
    """The members of an answer. Raises TerminalError for a refusal."""
    if answer.status != 200:
        raise TerminalError(f"{operation} was refused: {refusal(answer)}")
    found: dict[str, Any] = convert_datetimes(decode(answer.body, dict[str, Any]))
    return found


def refusal(answer: CallAnswer) -> str:
    """The message of an error on one line."""
    try:
        error = decode(answer.body, dict[str, Any])
    except msgspec.DecodeError:
        return str(answer)
    return " ".join(str(error.get("message") or error.get("Message") or answer).split())


def convert_datetimes(value: Any, name: str = "") -> Any:
    """The value of the member `name`, with datetimes for instants, as botocore gives them."""
    if isinstance(value, dict):
        return {key: convert_datetimes(it, key) for key, it in value.items()}
    if isinstance(value, list):
        return [convert_datetimes(it, name) for it in value]
    is_instant = isinstance(value, int | float) and name.endswith(INSTANTS)
    return datetime.fromtimestamp(value, UTC) if is_instant else value


def epoch_s(value: Any) -> Any:
    """An instant as JSON services take it, anything else as it is."""
    return value.timestamp() if isinstance(value, datetime) else value
