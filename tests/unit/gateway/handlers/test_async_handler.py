"""InvokeEndpointAsync: accepted only once it is kept, and only by asynchronous endpoints."""

import asyncio
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import HERE, SNAPSHOT, variant
from tests.unit.quotas.quota_sample import quota

from hostelry.aws.sigv4 import Identity, Verifier
from hostelry.aws.temporary_keys import Session
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.fake import FakeUpstream, WrittenAnswer
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import Received
from hostelry.dataplane.routes import FixedRoutes
from hostelry.domain.async_request import AsyncInference, AsyncRequest
from hostelry.domain.load import LoadKey, Wake
from hostelry.domain.quota import CallPrices
from hostelry.domain.routes import EndpointRoute, RouteSnapshot
from hostelry.gateway.handlers.async_runtime import (
    AsyncRuntimeHandler,
    HttpJobsClient,
    build_not_queued_error,
)
from hostelry.gateway.handlers.callers import Callers
from hostelry.gateway.quota_gate import QuotaGate
from hostelry.http1.reply import ConnectError
from hostelry.principals.caller import Principals
from hostelry.principals.source import FixedPrincipals
from hostelry.principals.table import PolicyRow, PrincipalRow, PrincipalTable, principal_key
from hostelry.quotas.matching import build_document
from hostelry.services.gateway_memory import open_own_memory

QUEUED = EndpointRoute(
    scope=HERE,
    name="queued",
    takes_components=False,
    variants=(variant("main", 1.0, ()),),
    async_inference=AsyncInference(output_uri="s3://out"),
    created_at=5.0,
)
ROUTES = replace(SNAPSHOT, endpoints=(*SNAPSHOT.endpoints, QUEUED))


@dataclass
class FakeJobs:
    """Keeps requests, unless `refusal` is set."""

    refusal: ServiceError | None = None
    kept: list[AsyncRequest] = field(default_factory=list)

    async def submit(self, request: AsyncRequest) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.kept.append(request)


@dataclass
class KnowingControl:
    """Control that knows the endpoints in `names`, and publishes `routes` when it is asked."""

    names: frozenset[str] = frozenset()
    routes: FixedRoutes | None = None

    async def wake(self, wake: Wake) -> None:
        raise AssertionError("nothing waits for a copy")

    async def is_wanted(self, key: LoadKey) -> bool:
        if self.routes is not None:
            self.routes.replace(ROUTES)
        return key.endpoint_name in self.names


class RoleCallers(Callers):
    """Every caller has the temporary keys of a role."""

    async def identify(self, request: HttpRequest, *, invokes: bool = False) -> Identity:
        found = await super().identify(request, invokes=invokes)
        session = Session(
            access_key_id="ASIA1",
            account_id=HERE.account,
            expires_at=1,
            role_name="r",
            role_id="AROAR",
        )
        return replace(found, session=session)


def asked(
    name: str,
    jobs: FakeJobs,
    routes: FixedRoutes | None = None,
    control: KnowingControl | None = None,
    quotas: QuotaGate | None = None,
) -> bytes:
    """The bytes of the answer. Raises the handler's errors."""
    clock = ManualClock()
    row = PrincipalRow(
        account=HERE.account,
        name="r",
        id="AROAR",
        arn=f"arn:aws:iam::{HERE.account}:role/r",
        policies=("all",),
    )
    every = '{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}'
    table = PrincipalTable(
        roles={principal_key(HERE.account, "r"): row},
        policies={"all": PolicyRow(id="all", type="role", document=every)},
    )
    principals = FixedPrincipals(Principals(table, HERE.account))
    callers = RoleCallers(Verifier(lambda _: None), HERE, "sk-1", True, clock.now, principals)
    handler = AsyncRuntimeHandler(
        callers=callers,
        routes=routes or FixedRoutes(ROUTES),
        control=control or KnowingControl(),
        jobs=jobs,
        clock=clock,
        quotas=quotas or open_own_memory(clock.now).quotas,
    )
    sink = WrittenAnswer()
    request = HttpRequest("POST", f"/endpoints/{name}/async-invocations", "", {}, b"in")
    assert handler.admit(request)
    asyncio.run(handler.serve(Exchange(sink, Received(request, True, True), b""), "rid"))
    return sink.written


def test_a_kept_request_is_accepted_with_its_places_while_no_copy_runs() -> None:
    jobs = FakeJobs()
    answer = asked("queued", jobs).decode()
    (kept,) = jobs.kept
    assert answer.startswith("HTTP/1.1 202 ")
    assert f"X-Amzn-SageMaker-OutputLocation: s3://out/{kept.inference_id}.out\r\n" in answer
    assert f"FailureLocation: s3://out/{kept.inference_id}-error.out\r\n" in answer
    assert answer.endswith(f'{{"InferenceId":"{kept.inference_id}"}}')
    assert (kept.scope, kept.endpoint_name, kept.body) == (HERE, "queued", b"in")
    assert (kept.principal, kept.endpoint_created_at) == ("role/r", 5.0)


@cases(
    "name, jobs, code, text",
    case("an endpoint that answers at once", "models", FakeJobs(), "ValidationError",
        "takes InvokeEndpoint, not"),
    case("an endpoint for components", "llms", FakeJobs(), "ValidationError",
        "has no AsyncInferenceConfig"),
    case("no endpoint", "nope", FakeJobs(), "ValidationError",
        "Endpoint nope of account 111122223333 not found."),
    case("nothing that keeps it", "queued", FakeJobs(build_not_queued_error("the disk is full")),
        "ServiceUnavailable", "could not be queued: the disk is full"),
)  # fmt: skip
def test_a_request_that_is_not_kept_is_not_accepted(
    name: str, jobs: FakeJobs, code: str, text: str
) -> None:
    with pytest.raises(ServiceError, match=text) as caught:
        asked(name, jobs)
    assert caught.value.code == code
    assert jobs.kept == []


def test_an_endpoint_that_control_serves_is_found_once_its_route_has_come() -> None:
    jobs, routes = FakeJobs(), FixedRoutes(RouteSnapshot(version="0", endpoints=()))
    control = KnowingControl(frozenset({"queued"}), routes)
    assert asked("queued", jobs, routes, control).startswith(b"HTTP/1.1 202 ")
    assert len(jobs.kept) == 1


@cases(
    "upstream, text",
    case("nothing listens", FakeUpstream({"http://jobs:1": ConnectError("refused")}),
        "the jobs process does not answer"),
    case("any answer but 204", FakeUpstream(), "ok"),
)  # fmt: skip
def test_only_the_answer_that_it_is_durable_counts(upstream: FakeUpstream, text: str) -> None:
    jobs = FakeJobs()
    asked("queued", jobs)
    client = HttpJobsClient(upstream, "http://jobs:1", "key")
    with pytest.raises(ServiceError, match=text) as caught:
        asyncio.run(client.submit(jobs.kept[0]))
    assert (caught.value.code, caught.value.http_status) == ("ServiceUnavailable", 503)


def test_a_queued_request_counts_as_a_request_of_its_caller() -> None:
    quotas, jobs = open_own_memory(ManualClock().now).quotas, FakeJobs()
    principal = f"arn:aws:iam::{HERE.account}:role/r"
    limited = quota(account=HERE.account, principal=principal, requests_per_minute=1)
    quotas.follow(build_document([limited], CallPrices()))
    assert asked("queued", jobs, quotas=quotas).startswith(b"HTTP/1.1 202 ")
    with pytest.raises(ServiceError, match="Quota q allows 1 requests per minute"):
        asked("queued", jobs, quotas=quotas)
    assert len(jobs.kept) == 1
