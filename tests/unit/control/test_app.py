"""Control's HTTP without a process: the key, AWS answers, the routes' long poll, the overview."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from tests.cases import case, cases

from hostelry import __version__
from hostelry.audit.trail import AuditTrail
from hostelry.aws.sigv4 import Identity
from hostelry.aws.temporary_keys import Session
from hostelry.base.clock import ManualClock
from hostelry.control import app as control_app_module
from hostelry.control.app import ControlDeps, VerifiedCaller, build_app
from hostelry.domain.routes import RouteSnapshot
from hostelry.domain.shape import Shape
from hostelry.fleet.fake import FakeFleet
from hostelry.home.home import Credentials
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.reconcile.reconciler import Reconciler, ReconcilerDeps
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, Record, StoreUnavailable
from hostelry.store.records import open_state

CREDENTIALS = Credentials(
    account_id="111122223333",
    region="us-west-2",
    access_key_id="AKIAEXAMPLE",
    secret_access_key="secret",
    internal_key="internal-key",
    openai_api_key="sk-x",
)
OWN = {
    "X-Hostelry-Key": "internal-key",
    "X-Hostelry-Account": "111122223333",
    "X-Hostelry-Region": "us-west-2",
    "X-Hostelry-Request-Id": "rid-7",
}


class BreakingStore(MemoryStore):
    """A store whose writes raise `fault`, and whose revisions raise `away`, while they are set."""

    fault: Exception | None = None
    away: Exception | None = None

    def revision(self) -> int:
        if self.away is not None:
            raise self.away
        return super().revision()

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        if self.fault is not None:
            raise self.fault
        return super().put(key, body, expect=expect)


class App:
    """The application over a memory store, and a client of it."""

    def __init__(self, trail: AuditTrail | None = None) -> None:
        self.store = BreakingStore()
        self.noted: list[str] = []
        clock = ManualClock()
        fleet = FakeFleet()
        shape = Shape(cpus=4, memory_bytes=1 << 34)
        around = ReconcilerDeps(
            fleet=fleet,
            connect=fleet.connect,
            clock=clock,
            get_shape=lambda _: shape,
            is_llm=lambda _: True,
        )
        state = open_state(self.store)
        self.reconciler = Reconciler(state, around)
        app = build_app(
            ControlDeps(
                state=state,
                reconciler=self.reconciler,
                credentials=CREDENTIALS,
                clock=clock,
                get_shape=lambda _: shape,
                max_body_bytes=10_000,
                checks_roles=False,
                metrics=MemoryMetrics(clock),
                note_step=lambda _, call: self.noted.append(call.operation),
                trail=trail,
            )
        )
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1"
        )

    async def aws(
        self, operation: str, params: dict[str, Any] | bytes, **headers: str
    ) -> httpx.Response:
        body = params if isinstance(params, bytes) else json.dumps(params).encode()
        target = {
            "X-Amz-Target": f"SageMaker.{operation}",
            "Content-Type": "application/x-amz-json-1.1",
        }
        return await self.client.post("/", headers={**OWN, **target, **headers}, content=body)


@asynccontextmanager
async def open_app(trail: AuditTrail | None = None) -> AsyncIterator[App]:
    app = App(trail)
    async with app.client:
        yield app


CONFIG = {
    "EndpointConfigName": "c",
    "ExecutionRoleArn": "arn:aws:iam::111122223333:role/R",
    "ProductionVariants": [
        {"VariantName": "v", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
    ],
}


@pytest.mark.parametrize("path", ["/internal/health", "/internal/state"])
async def test_internal_routes_say_that_the_store_is_away(path: str) -> None:
    async with open_app() as app:
        app.store.away = StoreUnavailable("the server restarts")
        answer = await app.client.get(path, headers=OWN)
        assert (answer.status_code, answer.text) == (503, "Try again: the server restarts")


@cases(
    "headers",
    case("no key", {}),
    case("an empty key", {"X-Hostelry-Key": ""}),
    case("a wrong key", {"X-Hostelry-Key": "internal-kex"}),
    case("a longer key", {"X-Hostelry-Key": "internal-key2"}),
    case("a key that is no ASCII", {"X-Hostelry-Key": "\u00e9"}),
    case("the key elsewhere", {"Authorization": "internal-key"}),
)
@pytest.mark.parametrize("path", ["/", "/internal/state", "/internal/routes", "/internal/health"])
async def test_nothing_is_answered_without_the_key(headers: dict[str, str], path: str) -> None:
    async with open_app() as app:
        sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        for method in ("GET", "POST"):
            refused = await app.client.request(method, path, headers=sent)
            assert refused.status_code == 403


async def test_successful_calls_alone_are_noted_as_steps() -> None:
    async with open_app() as app:
        assert (await app.aws("CreateEndpointConfig", CONFIG)).status_code == 200
        assert (await app.aws("CreateEndpointConfig", CONFIG)).status_code == 400
        app.store.fault = StoreUnavailable("the server restarts")
        unavailable = await app.aws("CreateEndpointConfig", {**CONFIG, "EndpointConfigName": "d"})
        assert unavailable.status_code == 503
        assert app.noted == ["CreateEndpointConfig"]


async def test_a_call_is_performed_for_the_verified_caller() -> None:
    async with open_app() as app:
        created = await app.aws("CreateEndpointConfig", CONFIG)
        assert created.status_code == 200
        assert created.json()["EndpointConfigArn"].endswith("111122223333:endpoint-config/c")
        assert created.headers["x-amzn-requestid"] == "rid-7"
        listed = await app.aws("ListEndpointConfigs", {})
        assert [it["EndpointConfigName"] for it in listed.json()["EndpointConfigs"]] == ["c"]
        other = {"X-Hostelry-Account": "999999999999"}
        theirs = await app.aws("ListEndpointConfigs", {}, **other)
        assert theirs.json()["EndpointConfigs"] == []
        unseen = await app.aws("DescribeEndpointConfig", {"EndpointConfigName": "c"}, **other)
        assert unseen.status_code == 400
        assert "Could not find" in unseen.json()["message"]


@cases(
    "body, status",
    case("an empty body", b"", 400),
    case("half a body", b"{", 400),
    case("a list", b"[]", 400),
    case("no UTF-8", b"\xff\xfe{}", 400),
    case("a wrong type", b'{"EndpointConfigName": 7}', 400),
    case("deep nesting", b"[" * 9_000, 400),
    case("more than the limit", b"{" + b" " * 10_000 + b"}", 413),
)
async def test_bad_bodies_are_refused_in_aws_form_with_the_request_id(
    body: bytes, status: int
) -> None:
    async with open_app() as app:
        answer = await app.aws("CreateEndpointConfig", body)
        assert answer.status_code == status
        assert answer.headers["x-amzn-requestid"] == "rid-7"
        assert answer.json()["__type"]
        assert app.store.revision() == 0


@pytest.mark.parametrize(
    ("missing", "status"),
    [("X-Hostelry-Account", 403), ("X-Hostelry-Region", 403)],
)
async def test_a_caller_without_an_identity_is_refused(missing: str, status: int) -> None:
    async with open_app() as app:
        answer = await app.aws("ListModels", {}, **{missing: ""})
        assert answer.status_code == status
        assert answer.headers["x-amzn-requestid"] == "rid-7"


@pytest.mark.parametrize(
    ("signed_for", "refused"),
    [("monitoring", False), ("", False), ("sagemaker", True), ("sts", True)],
)
async def test_a_form_is_answered_to_who_signed_for_its_service(
    signed_for: str, refused: bool
) -> None:
    async with open_app() as app:
        form = {"Action": "ListMetrics", "Version": "2010-08-01"}
        headers = OWN | {"X-Hostelry-Service": signed_for}
        answer = await app.client.post("/", headers=headers, data=form)
        assert ("SignatureDoesNotMatch" in answer.text) is refused
        assert (answer.status_code == 403) is refused


FORM = {"Content-Type": "application/x-www-form-urlencoded", "X-Hostelry-Service": "sts"}


@cases(
    "body, code",
    case("a token", "Action=AssumeRoleWithWebIdentity&Version=2011-06-15", "ValidationError"),
    case("another action", "Action=GetSessionToken&Version=2011-06-15", "MissingAuthentication"),
    case(
        "the last of two actions",
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&Action=GetSessionToken",
        "MissingAuthentication",
    ),
)
async def test_a_request_without_a_signature_has_few_operations(body: str, code: str) -> None:
    unsigned = {"X-Hostelry-Access-Key-Id": "", "X-Hostelry-Unsigned": "1"}
    async with open_app() as app:
        answer = await app.client.post("/", headers={**OWN, **FORM, **unsigned}, content=body)
        assert f"<Code>{code}" in answer.text
        assert "Credentials" not in answer.text


async def test_a_web_page_that_knows_the_key_still_gets_nothing() -> None:
    async with open_app() as app:
        answer = await app.client.get("/internal/health", headers=OWN | {"Host": "evil.example"})
        assert answer.status_code == 403
        assert "evil.example" in answer.text


async def test_a_call_that_comes_to_its_turn_too_late_is_not_performed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control_app_module, "MAX_CALL_S", -1.0)
    async with open_app() as app:
        before = app.store.revision()
        answer = await app.aws("CreateEndpointConfig", CONFIG)
        assert (answer.status_code, answer.json()["__type"]) == (400, "ThrottlingException")
        assert app.store.revision() == before


def build_session(role_name: str = "", session_name: str = "") -> Session:
    return Session(
        access_key_id="A",
        account_id="1",
        expires_at=0,
        role_name=role_name,
        session_name=session_name,
    )


@cases(
    "user, session, sharer",
    case("the account's own keys share", "", {}, "1/"),
    case("keys of the account's sessions share with them", "", {"session_name": "s"}, "1/"),
    case("a role's sessions share", "", {"role_name": "R", "session_name": "s"}, "1/R"),
    case("a user's keys share", "ann", {}, "1/ann"),
)
def test_callers_share_threads_by_account_user_and_role(
    user: str, session: dict[str, str], sharer: str
) -> None:
    identity = Identity(
        access_key_id="A",
        account_id="1",
        region="us-west-2",
        service="iam",
        user=user,
        session=build_session(**session) if session else None,
    )
    caller = VerifiedCaller(
        identity=identity, is_platform=False, signed_for="iam", source_ip="", is_secure=False
    )
    assert caller.sharer == sharer


async def test_unknown_operations_and_paths_get_a_modelled_error() -> None:
    async with open_app() as app:
        unknown = await app.aws("ListClusters", {})
        assert 400 <= unknown.status_code < 500
        assert "ListClusters" in unknown.text
        nowhere = await app.client.get("/nowhere", headers=OWN)
        assert 400 <= nowhere.status_code < 500
        assert nowhere.headers["x-amzn-requestid"] == "rid-7"


@cases(
    "fault, status, code",
    case("a full disk", StoreUnavailable("disk full"), 503, "ServiceUnavailable"),
    case("a defect", ZeroDivisionError("secret detail"), 500, "InternalFailure"),
)
async def test_defects_are_answered_with_the_request_id_and_without_details(
    fault: Exception, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_app() as app:
        app.store.fault = fault
        answer = await app.aws("CreateEndpointConfig", CONFIG)
        assert answer.status_code == status
        assert answer.json()["__type"] == code
        assert "secret detail" not in answer.text
        assert "rid-7" in caplog.text


async def test_the_routes_are_answered_at_once_to_those_who_lack_them() -> None:
    async with open_app() as app:
        board = app.reconciler.routes
        waiting = asyncio.create_task(app.client.get("/internal/routes", headers=OWN))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done(), "there are none before the first look"
        board.publish(RouteSnapshot(version="v1", endpoints=()))
        assert (await waiting).json() == {"version": "v1", "endpoints": []}
        stale = await app.client.get("/internal/routes", params={"have": "v0"}, headers=OWN)
        assert stale.json()["version"] == "v1"
        fresh = asyncio.create_task(
            app.client.get("/internal/routes", params={"have": "v1"}, headers=OWN)
        )
        for _ in range(20):
            await asyncio.sleep(0)
        assert not fresh.done()
        board.publish(RouteSnapshot(version="v2", endpoints=()))
        assert (await fresh).json()["version"] == "v2"


async def test_health_state_and_placement_report_what_is_there() -> None:
    async with open_app() as app:
        health = await app.client.get("/internal/health", headers=OWN)
        known = {"status": "ok", "ready": False, "revision": 0, "version": __version__}
        assert health.json() == known
        await app.aws("CreateEndpointConfig", CONFIG)
        await app.aws("CreateEndpoint", {"EndpointName": "e", "EndpointConfigName": "c"})
        state = (await app.client.get("/internal/state", headers=OWN)).json()
        assert state["routes_version"] is None
        assert [(it["name"], it["status"]) for it in state["endpoints"]] == [("e", "Creating")]
        known = (await app.client.get("/internal/names", headers=OWN)).json()
        assert (known["endpoints"], known["variants"], known["copies"]) == (["e"], ["v"], [])
        explained = (await app.client.get("/internal/placement", headers=OWN)).json()["endpoints"]
        (placement,) = [it.pop("placement") for it in explained]
        assert explained == state["endpoints"]
        assert placement == {"instances": [], "why": {}, "unplaced": []}
