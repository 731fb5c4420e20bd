"""Fixtures of the API in this process, and boto3 clients whose requests are answered in it."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.model import ServiceModel
from tests.contract.api.rig import HERE, ROLE, SEAL, Api
from tests.contract.api.shape_checks import check_value
from tests.message_rig import MessageRig

from hostelry.api.context import CallContext
from hostelry.api.iam.execution_role import ensure_execution_role
from hostelry.api.operations import perform
from hostelry.aws.call import ApiCall, parse_call, serialize_error, serialize_result
from hostelry.aws.temporary_keys import TokenSeal
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.base.root_key import RootKey
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.events.call_rows import CallRows
from hostelry.logs.store import LogStore
from hostelry.messaging.tables import METADATA
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.database import Database, open_database
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state


@pytest.fixture
def scope() -> Scope:
    return HERE


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def state() -> State:
    state = open_state(MemoryStore())
    ensure_execution_role(state, HERE, "HostelryExecutionRole", 1_700_000_000.0)
    return state


@pytest.fixture
def metrics(clock: ManualClock) -> MemoryMetrics:
    return MemoryMetrics(clock)


@pytest.fixture
def root_key() -> RootKey:
    return RootKey()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LogStore, Database]]:
    """The folder of logs and messages. It is shared, because creating its files takes long."""
    folder = tmp_path_factory.mktemp("files")
    logs, database = LogStore(folder / "logs.db"), open_database(folder / "messages.db")
    database.create(METADATA)
    yield logs, database
    logs.close()
    database.close()


@pytest.fixture
def log_store(files: tuple[LogStore, Database]) -> LogStore:
    """No log store."""
    store, _ = files
    with store.database.writing() as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            db.execute(f"DELETE FROM {name}")
    return store


@pytest.fixture
def messages(state: State, clock: ManualClock, files: tuple[LogStore, Database]) -> MessageRig:
    """Topics and queues. http://trusted/ needs no confirmation, "forbidden" is refused."""
    _, database = files
    with database.write() as connection:
        for table in METADATA.sorted_tables:
            connection.execute(table.delete())
    return MessageRig(state, clock, database, trusted=frozenset({"http://trusted/"}))


@pytest.fixture(scope="session")
def service_models() -> Callable[[str], ServiceModel]:
    session = botocore.session.get_session()
    models: dict[str, ServiceModel] = {}

    def model_of(service: str) -> ServiceModel:
        if service not in models:
            models[service] = session.get_service_model(service)
        return models[service]

    return model_of


@pytest.fixture(scope="session")
def check() -> Callable[[Any, Any], None]:
    """`check(shape, value)` asserts what botocore and the service model demand of a value."""
    return check_value


@pytest.fixture(scope="session")
def seal() -> TokenSeal:
    """The seal for temporary keys."""
    return SEAL


@pytest.fixture
def api(
    state: State,
    clock: ManualClock,
    metrics: MemoryMetrics,
    root_key: RootKey,
    log_store: LogStore,
    messages: MessageRig,
    service_models: Callable[[str], ServiceModel],
) -> Api:
    return Api(state, clock, metrics, root_key, log_store, messages, service_models)


@pytest.fixture
def served(api: Api) -> None:
    """In service: endpoint "e" with base "base" and its adapter "es", "v" with two variants."""
    api.make.endpoint("e")
    api.make.component("base")
    api.make.adapter("es")
    api.make.model("m")
    api.make.endpoint("v", {"ModelName": "m"}, {"VariantName": "other", "ModelName": "m"})
    for name in ("e", "v"):
        api.change_endpoint(name, status=EndpointStatus.IN_SERVICE)
    for name in ("base", "es"):
        api.change_component(name, status=ComponentStatus.IN_SERVICE)


class Body:
    """A response's body with the methods that botocore uses."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._body


@pytest.fixture
def answer(
    state: State,
    scope: Scope,
    clock: ManualClock,
    metrics: MemoryMetrics,
    log_store: LogStore,
    messages: MessageRig,
) -> Callable[..., AWSResponse]:
    """A handler of boto3's before-send. It parses, performs and answers the request here."""

    def answer(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        url = urlsplit(request.url)
        headers = {
            name.lower(): it.decode() if isinstance(it, bytes) else it
            for name, it in request.headers.items()
        }
        given = request.body or b""
        body = given.encode() if isinstance(given, str) else bytes(given)
        arrived = HttpRequest(request.method, url.path, url.query, headers, body)
        context = CallContext(
            scope=scope,
            state=state,
            now=clock.now(),
            get_shape=lambda _: Shape(cpus=48, memory_bytes=2**38, accelerators=4),
            role_arn=ROLE,
            role_name="HostelryExecutionRole",
            metrics=metrics,
            log_store=log_store,
            issue_keys=SEAL.issue,
            checks_roles=True,
            messaging=messages.services,
            calls=CallRows(messages.tables),
        )
        call: ApiCall | None = None
        try:
            call = parse_call(arrived, "id")
            result = perform(context, call.service, call.operation, call.params)
            response = serialize_result(call, result)
        except ServiceError as error:
            response = serialize_error(error, call, "id", arrived)
        answered = {name.lower(): value for name, value in response.headers.items()}
        return AWSResponse(request.url, response.status, answered, Body(response.body))

    return answer


@pytest.fixture
def client(scope: Scope, answer: Callable[..., AWSResponse]) -> Callable[[str], Any]:
    """`client(service)` returns a boto3 client whose requests are answered here."""

    def made(service: str) -> Any:
        client = boto3.client(
            service,
            region_name=scope.region,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )
        client.meta.events.register("before-send", answer)
        return client

    return made
