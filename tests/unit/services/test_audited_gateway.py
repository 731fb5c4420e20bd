"""The whole gateway over copies without processes: its notes for the audit trail."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import SNAPSHOT
from tests.unit.services.test_metered_gateway import CREDENTIALS
from tests.unit.services.test_traced_gateway import (
    BODY,
    CHAT,
    COMPONENT,
    OPENAI,
    STREAM,
    WHOLE,
    Copies,
    signed,
)

from hostelry.audit.invocation import InvocationNote, build_invocation_event
from hostelry.base.clock import SystemClock
from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.dataplane.invocation_audit import build_note
from hostelry.dataplane.routes import FixedRoutes
from hostelry.home.home import UpConfig
from hostelry.services.gateway import build_gateway
from hostelry.services.gateway_memory import open_own_memory

BASE = {COMPONENT: "base", "user-agent": "Boto3/1"}


async def notes_of(*requests: HttpRequest, copies: Copies | None = None) -> list[InvocationNote]:
    """The notes of invocations from 10.1.2.3."""
    found: list[InvocationNote] = []

    def note(exchange: Exchange, request_id: str) -> None:
        built = build_note(exchange, request_id, lambda: 5.0, lambda: "event")
        assert built is not None
        found.append(built)

    memory = replace(open_own_memory(SystemClock().now), note_invocation=note)
    parts = build_gateway(
        UpConfig(gateway_port=1, control_port=2),
        CREDENTIALS,
        FixedRoutes(SNAPSHOT),
        copies or Copies(),  # type: ignore[arg-type]
        memory=memory,
    )
    for request in requests:
        received = Received(request, True, True)
        exchange = Exchange(WrittenAnswer(), received, b"", address="10.1.2.3")
        await parts.dispatcher.handle(exchange)
    return found


@cases(
    "path, operation",
    case("an invocation", WHOLE, "InvokeEndpoint"),
    case("a stream", STREAM, "InvokeEndpointWithResponseStream"),
    case("a chat", CHAT, CHAT),
)
async def test_an_invocation_is_noted_with_its_caller(path: str, operation: str) -> None:
    # Signed here: a signature is valid for some minutes, and other tests come before.
    chat = HttpRequest("POST", path, "", {**OPENAI, **BASE}, BODY)
    sent = chat if path == CHAT else signed("POST", path, BASE, BODY)
    (note,) = await notes_of(sent)
    assert (note.operation, note.status, note.endpoint) == (operation, 200, "llms")
    assert (note.component, note.account) == ("base", CREDENTIALS.account_id)
    assert (note.address, note.user_agent) == ("10.1.2.3", "Boto3/1")
    assert note.bytes_in == len(BODY)
    event = build_invocation_event(note)
    assert event.user_identity.arn == f"arn:aws:iam::{CREDENTIALS.account_id}:root"


async def test_a_copy_is_named_as_the_caller() -> None:
    (note,) = await notes_of(signed("POST", WHOLE, BASE, BODY, by_copy=True))
    event = build_invocation_event(note)
    assert (event.user_identity.type, event.user_identity.principal_id) == (
        "AWSService",
        "copy/i-copy",
    )


async def test_a_refused_invocation_is_noted_with_its_error() -> None:
    missing = signed("POST", "/endpoints/none/invocations", {}, BODY)
    asynchronous = signed("POST", "/endpoints/llms/async-invocations", {}, b"")
    refused, other = await notes_of(missing, asynchronous)
    assert (refused.endpoint, refused.status, refused.error_code) == (
        "none",
        400,
        "ValidationError",
    )
    assert "none" in refused.error_message
    assert (other.operation, other.endpoint) == ("InvokeEndpointAsync", "llms")
    assert other.error_code


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer no"}], ids=["no signature", "a wrong key"]
)
@pytest.mark.parametrize("path", [WHOLE, CHAT])
async def test_a_caller_that_is_not_known_is_not_noted(path: str, headers: dict[str, Any]) -> None:
    assert await notes_of(HttpRequest("POST", path, "", headers, BODY)) == []
