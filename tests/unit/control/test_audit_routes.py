"""The internal routes of the audit trail."""

import asyncio
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.audit.samples import KEY, OWNER, FailingFiles, opened_trail, root

from hostelry.audit.invocation import MAX_NOTES, InvocationNote, InvocationReport
from hostelry.audit.lookup import TrailFilter
from hostelry.audit.trail import AuditTrail
from hostelry.base.clock import ManualClock
from hostelry.control.audit_routes import MAX_CHARS, AuditRoutes

ASKED = {"who": "user ada", "act": "scale", "target": "component base", "outcome": "accepted"}


def send(
    trail: AuditTrail,
    method: str,
    path: str = "",
    *,
    routes: AuditRoutes | None = None,
    **request: object,
) -> httpx.Response:
    async def ask() -> httpx.Response:
        built = routes or AuditRoutes(trail, ManualClock(17.0))
        transport = httpx.ASGITransport(app=Starlette(routes=list(built.routes())))
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            url = f"/internal/audit{path}"
            return await client.request(method, url, **request)  # type: ignore[arg-type] # by name

    return asyncio.run(ask())


def events(trail: AuditTrail) -> list[dict[str, object]]:
    """The events, oldest first."""
    found = trail.find(TrailFilter(), 100).lines
    return [msgspec.json.decode(bytes(it.event)) for it in found][::-1]


def test_an_act_of_another_process_is_added_with_the_time(tmp_path: Path) -> None:
    with opened_trail(tmp_path) as trail:
        assert send(trail, "POST", json={**ASKED, "endpoint": "chat"}).status_code == 204
        (found,) = send(trail, "GET", "?limit=5&endpoint=chat").json()["entries"]
        assert found == {**ASKED, "at": 17.0, "endpoint": "chat", "account": "", "region": ""}
        assert send(trail, "GET", "?endpoint=none").json() == {"entries": []}
        head = send(trail, "GET", "/head").json()
        assert head == {"number": 1, "digest": trail.head.digest}


@cases(
    "body",
    case("nothing", b""),
    case("no text", b"\xff\xff"),
    case("a list", b"[1]"),
    case("without an act", b'{"who": "user ada"}'),
    case("without a user", {**ASKED, "who": ""}),
    case("a text that is too long", {**ASKED, "target": "x" * (MAX_CHARS + 1)}),
    case("a time of its own", {**ASKED, "at": 5}),
)
def test_a_body_that_is_no_entry_is_refused(tmp_path: Path, body: object) -> None:
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    with opened_trail(tmp_path) as trail:
        answer = send(trail, "POST", **sent)
        assert answer.status_code == 400
        assert "no audit entry" in answer.json()["error"]
        assert trail.newest(1) == []


@pytest.mark.parametrize(
    "limit", ["0", "-1", "many", "1001", "9" * 40, "000000001" + "0" * 19, "²", ""]
)
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: str) -> None:
    with opened_trail(tmp_path) as trail:
        assert send(trail, "GET", f"?limit={limit}").status_code == 400


def test_a_disk_that_refuses_is_reported(tmp_path: Path) -> None:
    files = FailingFiles(tmp_path / "audit", KEY)
    files.is_full = True
    with opened_trail(tmp_path, writer=files) as trail:
        answer = send(trail, "POST", json=ASKED)
        assert answer.status_code == 507
        assert "cannot be written: no space left" in answer.json()["error"]
        report = msgspec.msgpack.encode(reported(1, note(1)))
        assert send(trail, "POST", "/invocations", content=report).status_code == 507


def note(number: int, **facts: object) -> InvocationNote:
    given = {"operation": "InvokeEndpoint", "endpoint": "chat", "status": 200, **facts}
    return InvocationNote(
        at=float(number),
        request_id=f"r-{number}",
        event_id=f"e-{number}",
        caller=root(OWNER[0]),
        account=OWNER[0],
        region=OWNER[1],
        **given,  # type: ignore[arg-type] # by name
    )


def reported(sequence: int, *notes: InvocationNote, num_lost: int = 0) -> InvocationReport:
    return InvocationReport(
        worker="gateway-1", started_at=1.0, sequence=sequence, notes=notes, num_lost=num_lost
    )


def test_invocations_are_recorded_once_with_their_losses(tmp_path: Path) -> None:
    with opened_trail(tmp_path) as trail:
        routes = AuditRoutes(trail, ManualClock(17.0))
        for report in (
            reported(1, note(1), note(2, status=429, error_code="ThrottlingException")),
            reported(1, note(1)),  # sent again, because the answer was lost
            reported(2, note(3, operation="/v1/chat/completions"), num_lost=7),
        ):
            body = msgspec.msgpack.encode(report)
            answer = send(trail, "POST", "/invocations", routes=routes, content=body)
            assert answer.status_code == 204
        found = events(trail)
    assert [it["eventName"] for it in found] == [
        "InvokeEndpoint",
        "InvokeEndpoint",
        "InvocationRecordsLost",
        "/v1/chat/completions",
    ]
    assert found[1]["errorCode"] == "ThrottlingException"
    assert found[2]["serviceEventDetails"] == {"count": 7, "worker": "gateway-1"}
    assert found[3]["eventSource"] == "openai.hostelry.internal"
    first = found[0]
    assert (first["eventCategory"], first["managementEvent"]) == ("Data", False)
    assert first["requestParameters"] == {"endpointName": "chat"}
    assert first["resources"] == [
        {
            "ARN": f"arn:aws:sagemaker:us-east-1:{OWNER[0]}:endpoint/chat",
            "accountId": OWNER[0],
            "type": "AWS::SageMaker::Endpoint",
        }
    ]


@cases(
    "body",
    case("nothing", b""),
    case("no message", b"\xff"),
    case("an entry", msgspec.msgpack.encode(ASKED)),
    case("too many", msgspec.msgpack.encode(reported(1, *[note(1)] * (MAX_NOTES + 1)))),
)
def test_a_report_that_is_invalid_is_refused(tmp_path: Path, body: bytes) -> None:
    with opened_trail(tmp_path) as trail:
        assert send(trail, "POST", "/invocations", content=body).status_code == 400
        assert trail.head.number == 0
