"""Operations in process, held to botocore's service models on both sides."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

import boto3
import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.model import ServiceModel
from tests.contract.api.shape_checks import check_value
from tests.message_rig import MessageRig

from hostelry.api.context import CallContext
from hostelry.api.iam.execution_role import ensure_execution_role
from hostelry.api.operations import perform
from hostelry.aws.call import ApiCall, parse_call, serialize_error, serialize_result
from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.base.root_key import RootKey
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, CopySpec, CopyStatus, Instance, InstanceState
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.model import Container
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.events.call_rows import CallRows
from hostelry.fleet.shapes import instance_types
from hostelry.logs.store import LogStore
from hostelry.messaging.tables import METADATA
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.database import Database, open_database
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

SHAPES = {
    "ml.g5.12xlarge": Shape(cpus=48, memory_bytes=192 * 1024**3, accelerators=4),
    "ml.m5.xlarge": Shape(cpus=4, memory_bytes=16 * 1024**3),
}
HERE = Scope("123456789012", "us-west-2")
SEAL = TokenSeal("a secret of the home")
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"


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
    """Where logs and messages are: to make these files takes longer than most tests."""
    folder = tmp_path_factory.mktemp("files")
    logs, database = LogStore(folder / "logs.db"), open_database(folder / "messages.db")
    database.create(METADATA)
    yield logs, database
    logs.close()
    database.close()


@pytest.fixture
def log_store(files: tuple[LogStore, Database]) -> LogStore:
    """Without logs."""
    store, _ = files
    with store.database.writing() as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in tables:
            db.execute(f"DELETE FROM {name}")
    return store


@pytest.fixture
def messages(state: State, clock: ManualClock, files: tuple[LogStore, Database]) -> MessageRig:
    """Topics and queues; http://trusted/ needs no confirmation, an address with "forbidden" is."""
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


@dataclass
class Work:
    """How long calls say that they have computed: `each_s` more at each look."""

    done_s: float = 0.0
    each_s: float = 0.0

    def look(self) -> float:
        self.done_s += self.each_s
        return self.done_s


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def call_as(
    work: Work,
    state: State,
    clock: ManualClock,
    metrics: MemoryMetrics,
    root_key: RootKey,
    log_store: LogStore,
    messages: MessageRig,
    service_models: Callable[[str], ServiceModel],
) -> Callable[..., dict[str, Any]]:
    """`call_as(scope, operation, **params)`: the result, after botocore has accepted both sides."""

    def call_as(
        scope: Scope,
        operation: str,
        service: str = "sagemaker",
        session: Session | None = None,
        /,
        **params: Any,
    ) -> dict[str, Any]:
        model = service_models(service).operation_model(operation)
        check_value(model.input_shape, params)
        context = CallContext(
            scope=scope,
            state=state,
            now=clock.now(),
            shape_of=lambda name: SHAPES.get(name, Shape(cpus=16, memory_bytes=64 * 1024**3)),
            role_arn=ROLE,
            role_name="HostelryExecutionRole",
            metrics=metrics,
            instance_types=instance_types(),
            root_key=root_key,
            log_store=log_store,
            session=session,
            issue_keys=SEAL.issue,
            checks_roles=True,
            messaging=messages.services,
            calls=CallRows(messages.tables),
            worked_s=work.look,
        )
        result = perform(context, service, operation, params)
        check_value(model.output_shape, result)
        return result

    return call_as


@pytest.fixture
def call(call_as: Callable[..., dict[str, Any]], scope: Scope) -> Callable[..., dict[str, Any]]:
    """`call(operation, **params)` in the one scope most tests need."""
    return lambda operation, *service, **params: call_as(scope, operation, *service, **params)


@pytest.fixture(scope="session")
def check() -> Callable[[Any, Any], None]:
    """`check(shape, value)`: what botocore and the service model demand of a value."""
    return check_value


@dataclass(frozen=True)
class Maker:
    """Resources with the few values a test does not care about."""

    call: Callable[..., dict[str, Any]]

    image: ClassVar = "763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference:0.27.0-deepspeed"
    archive: ClassVar = "s3://bucket/model.tar.gz"
    needs: ClassVar = {"MinMemoryRequiredInMb": 1024, "NumberOfAcceleratorDevicesRequired": 1}
    variant: ClassVar = {
        "VariantName": "main",
        "InstanceType": "ml.g5.12xlarge",
        "InitialInstanceCount": 1,
    }

    def model(self, name: str = "m", **more: Any) -> None:
        container = {
            "Image": self.image,
            "ModelDataUrl": self.archive,
            "Environment": {"A": "1", "B": "2"},
        }
        given = {"ExecutionRoleArn": ROLE, "PrimaryContainer": container, **more}
        self.call("CreateModel", ModelName=name, **given)

    def config(self, name: str = "c", *variants: dict[str, Any], **more: Any) -> None:
        given = {
            "ExecutionRoleArn": ROLE,
            "ProductionVariants": [{**self.variant, **it} for it in variants or ({},)],
            **more,
        }
        self.call("CreateEndpointConfig", EndpointConfigName=name, **given)

    def endpoint(self, name: str = "e", *variants: dict[str, Any], **more: Any) -> None:
        """An endpoint of the variants given, or one for components, and its NAME-config."""
        self.config(f"{name}-config", *variants)
        self.call("CreateEndpoint", EndpointName=name, EndpointConfigName=f"{name}-config", **more)

    def component(self, name: str = "base", endpoint: str = "e", **more: Any) -> None:
        specification = {
            "Container": {"Image": self.image, "ArtifactUrl": self.archive},
            "ComputeResourceRequirements": self.needs,
        }
        given: dict[str, Any] = {
            "Specification": specification,
            "RuntimeConfig": {"CopyCount": 1},
            **more,
        }
        self.call(
            "CreateInferenceComponent",
            InferenceComponentName=name,
            EndpointName=endpoint,
            **{key: value for key, value in given.items() if value is not None},
        )

    def adapter(
        self, name: str = "es", base: str = "base", endpoint: str = "e", **more: Any
    ) -> None:
        specification = {
            "BaseInferenceComponentName": base,
            "Container": {"ArtifactUrl": f"s3://bucket/{name}.tar.gz"},
            **more,
        }
        self.component(name, endpoint, Specification=specification, RuntimeConfig=None)


@pytest.fixture(scope="session")
def seal() -> TokenSeal:
    """What temporary keys are issued with."""
    return SEAL


@pytest.fixture
def make(call: Callable[..., dict[str, Any]]) -> Maker:
    return Maker(call)


@pytest.fixture
def refused(call: Callable[..., dict[str, Any]]) -> Callable[..., str]:
    """`refused(operation, **params)`: the text of the ValidationException it answers with."""

    def refused(operation: str, **params: Any) -> str:
        with pytest.raises(ServiceError) as caught:
            call(operation, **params)
        assert (caught.value.code, caught.value.http_status) == ("ValidationException", 400)
        return caught.value.message

    return refused


@pytest.fixture
def endpoint(state: State, scope: Scope) -> Callable[[], Endpoint]:
    """The stored endpoint "e"."""

    def stored() -> Endpoint:
        found = state.endpoints.get(scope, "e")
        assert found is not None
        return found.value

    return stored


@pytest.fixture
def change(state: State, scope: Scope) -> Callable[..., None]:
    """`change(**fields)`: what a reconciler does to the endpoint "e", or the one named by `at`."""

    def change(at: str = "e", **fields: Any) -> None:
        found = state.endpoints.get(scope, at)
        assert found is not None
        changed = replace(found.value, **fields)
        state.endpoints.put(scope, at, changed, expect=found.version)

    return change


@pytest.fixture
def run(state: State, scope: Scope) -> Callable[..., None]:
    """`run(id, variant, generation, **fields of the copy)`: an instance with a copy on it."""

    def run(name: str, variant: str, generation: int, phase: CopyPhase, **fields: Any) -> None:
        instance = Instance(
            id=f"i-{name}",
            scope=scope,
            endpoint_name="e",
            variant_name=variant,
            generation=generation,
            instance_type="ml.m5.xlarge",
            shape=Shape(cpus=4, memory_bytes=1),
            state=InstanceState.RUNNING,
            created_at=0.0,
        )
        spec = CopySpec(
            id=f"c-{name}",
            owner=f"variant/{variant}",
            container=Container(image="i"),
            requirements=None,
            download_timeout_s=1.0,
            startup_timeout_s=1.0,
        )
        copy = Copy(
            scope=scope,
            endpoint_name="e",
            variant_name=variant,
            component_name=None,
            generation=generation,
            instance_id=instance.id,
            spec=spec,
            status=CopyStatus(id=spec.id, phase=phase),
            created_at=0.0,
        )
        state.instances.put(scope, instance.id, instance, expect=None)
        state.copies.put(scope, spec.id, replace(copy, **fields), expect=None)

    return run


@pytest.fixture
def component(state: State, scope: Scope) -> Callable[[str], InferenceComponent]:
    """The stored component of a name."""

    def stored(name: str) -> InferenceComponent:
        found = state.components.get(scope, name)
        assert found is not None
        return found.value

    return stored


@pytest.fixture
def change_component(state: State, scope: Scope) -> Callable[..., None]:
    """`change_component(name, **fields)`: what a reconciler does to it."""

    def change(name: str, **fields: Any) -> None:
        found = state.components.get(scope, name)
        assert found is not None
        changed = replace(found.value, **fields)
        state.components.put(scope, name, changed, expect=found.version)

    return change


@pytest.fixture
def cloudwatch(
    call_as: Callable[..., dict[str, Any]], scope: Scope
) -> Callable[..., dict[str, Any]]:
    """`cloudwatch(operation, **params)`."""

    def cloudwatch(operation: str, **params: Any) -> dict[str, Any]:
        return call_as(scope, operation, "cloudwatch", **params)

    return cloudwatch


@pytest.fixture
def scaling(call_as: Callable[..., dict[str, Any]], scope: Scope) -> Callable[..., dict[str, Any]]:
    """`scaling(operation, **params)` of application-autoscaling, in the namespace sagemaker."""

    def scaling(operation: str, **params: Any) -> dict[str, Any]:
        given = {"ServiceNamespace": "sagemaker", **params}
        return call_as(scope, operation, "application-autoscaling", **given)

    return scaling


@pytest.fixture
def unscaled(scaling: Callable[..., dict[str, Any]]) -> Callable[..., tuple[str, str]]:
    """`unscaled(operation, **params)`: code and text of the error that it answers with."""

    def unscaled(operation: str, **params: Any) -> tuple[str, str]:
        with pytest.raises(ServiceError) as caught:
            scaling(operation, **params)
        assert caught.value.http_status == 400
        return caught.value.code, caught.value.message

    return unscaled


@pytest.fixture
def served(make: Maker, change: Callable[..., None], change_component: Callable[..., None]) -> None:
    """In service: "e" with the component "base" and its adapter "es"; "v" with two variants."""
    make.endpoint("e")
    make.component("base")
    make.adapter("es")
    make.model("m")
    make.endpoint("v", {"ModelName": "m"}, {"VariantName": "other", "ModelName": "m"})
    for name in ("e", "v"):
        change(name, status=EndpointStatus.IN_SERVICE)
    for name in ("base", "es"):
        change_component(name, status=ComponentStatus.IN_SERVICE)


class Body:
    """A response's body as botocore reads it."""

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
    """A handler of boto3's before-send: the request is parsed, performed and answered here."""

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
            shape_of=lambda _: Shape(cpus=48, memory_bytes=2**38, accelerators=4),
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
    """`client(service)`: boto3's own, whose requests are answered here."""

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
