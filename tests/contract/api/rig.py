"""Operations in this process. botocore's service models check requests and answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from botocore.model import ServiceModel
from msgspec.structs import replace
from tests.contract.api.shape_checks import check_value
from tests.message_rig import MessageRig

from hostelry.api.context import CallContext, no_provider_keys
from hostelry.api.iam.aws_policies import aws_policies
from hostelry.api.operations import perform
from hostelry.audit.record import AuditedCaller
from hostelry.audit.trail import AuditTrail
from hostelry.aws.access_keys import AccessKeySecrets
from hostelry.aws.sigv4 import Identity
from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.base.root_key import RootKey
from hostelry.domain.component import InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, CopySpec, CopyStatus, Instance, InstanceState
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.model import Container
from hostelry.domain.role import build_role_arn
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.events.call_rows import CallRows
from hostelry.fleet.shapes import instance_types
from hostelry.logs.store import LogStore
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.principals.caller import Caller
from hostelry.principals.records import find_caller
from hostelry.store.records import State

SHAPES = {
    "ml.g5.12xlarge": Shape(cpus=48, memory_bytes=192 * 1024**3, accelerators=4),
    "ml.m5.xlarge": Shape(cpus=4, memory_bytes=16 * 1024**3),
}
MACHINE = Shape(cpus=16, memory_bytes=64 * 1024**3)
HERE = Scope("123456789012", "us-west-2")
SEAL = TokenSeal("a secret of the home")
SECRETS = AccessKeySecrets("a secret of the home")
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"


@dataclass
class Work:
    """A clock of computing time, for calls: it grows by `each_s` at each look."""

    done_s: float = 0.0
    each_s: float = 0.0

    def look(self) -> float:
        self.done_s += self.each_s
        return self.done_s


@dataclass(frozen=True)
class Maker:
    """Creates resources, with default values that tests do not care about."""

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
        """Create an endpoint with these variants, or for components, and its NAME-config."""
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


@dataclass(frozen=True)
class Api:
    """Calls of the API in this process, and the records that calls and reconcilers write."""

    state: State
    clock: ManualClock
    metrics: MemoryMetrics
    root_key: RootKey
    log_store: LogStore
    messages: MessageRig
    service_models: Callable[[str], ServiceModel]
    scope: Scope = HERE
    provider_keys: Callable[[str, str], Sequence[Mapping[str, Any]]] = no_provider_keys
    work: Work = field(default_factory=Work)
    trail: AuditTrail | None = None
    named: list[AuditedCaller] = field(default_factory=list)

    @property
    def make(self) -> Maker:
        return Maker(self.call)

    def call_as(
        self,
        scope: Scope,
        operation: str,
        service: str = "sagemaker",
        session: Session | None = None,
        user: str = "",
        /,
        **params: Any,
    ) -> dict[str, Any]:
        """The result of a call. botocore has accepted the request and the result.

        Without a `session`, and without a `user` that has an access key, the platform itself calls.
        """
        model = self.service_models(service).operation_model(operation)
        check_value(model.input_shape, params)
        context = CallContext(
            scope=scope,
            state=self.state,
            now=self.clock.now(),
            get_shape=lambda name: SHAPES.get(name, Shape(cpus=16, memory_bytes=64 * 1024**3)),
            role_arn=build_role_arn(scope.account, "HostelryExecutionRole"),
            role_name="HostelryExecutionRole",
            first_account=self.scope.account,
            caller=self.find_caller(scope, session, user),
            metrics=self.metrics,
            instance_types=instance_types(),
            machine=MACHINE,
            root_key=self.root_key,
            log_store=self.log_store,
            session=session,
            issue_keys=SEAL.issue,
            derive_secret=SECRETS.derive,
            find_provider_keys=self.provider_keys,
            checks_roles=True,
            messaging=self.messages.services,
            calls=CallRows(self.messages.tables),
            worked_s=self.work.look,
            trail=self.trail,
            name_caller=self.named.append,
        )
        result = perform(context, service, operation, params)
        check_value(model.output_shape, result)
        return result

    def find_caller(self, scope: Scope, session: Session | None, user: str) -> Caller | None:
        """The caller with the keys of a session or of a user."""
        if session is None and not user:
            return None
        stored = self.state.users.get(scope.account_wide, user.lower())
        key_id = stored.value.access_keys[0].id if stored else ""
        identity = Identity(
            access_key_id=session.access_key_id if session else key_id,
            account_id=scope.account,
            region=scope.region,
            service="",
            user=user.lower(),
            session=session,
        )
        return find_caller(self.state, aws_policies(), self.scope.account, identity)

    def call(self, operation: str, *service: Any, **params: Any) -> dict[str, Any]:
        """The result of a call in the scope that most tests use."""
        return self.call_as(self.scope, operation, *service, **params)

    def refusal(self, operation: str, **params: Any) -> str:
        """The text of the ValidationException that answers a call."""
        with pytest.raises(ServiceError) as caught:
            self.call(operation, **params)
        assert (caught.value.code, caught.value.http_status) == ("ValidationException", 400)
        return caught.value.message

    def cloudwatch(self, operation: str, **params: Any) -> dict[str, Any]:
        return self.call(operation, "cloudwatch", **params)

    def scaling(self, operation: str, **params: Any) -> dict[str, Any]:
        """The result of a call of application-autoscaling, in the namespace sagemaker."""
        given = {"ServiceNamespace": "sagemaker", **params}
        return self.call(operation, "application-autoscaling", **given)

    def scaling_refusal(self, operation: str, **params: Any) -> tuple[str, str]:
        """Code and text of the error that answers a call of application-autoscaling."""
        with pytest.raises(ServiceError) as caught:
            self.scaling(operation, **params)
        assert caught.value.http_status == 400
        return caught.value.code, caught.value.message

    def endpoint(self) -> Endpoint:
        """The stored endpoint "e"."""
        found = self.state.endpoints.get(self.scope, "e")
        assert found is not None
        return found.value

    def change_endpoint(self, at: str = "e", **fields: Any) -> None:
        """Change the record of an endpoint as a reconciler does."""
        found = self.state.endpoints.get(self.scope, at)
        assert found is not None
        changed = replace(found.value, **fields)
        self.state.endpoints.put(self.scope, at, changed, expect=found.version)

    def component(self, name: str) -> InferenceComponent:
        """The stored component of this name."""
        found = self.state.components.get(self.scope, name)
        assert found is not None
        return found.value

    def change_component(self, name: str, **fields: Any) -> None:
        """Change the record of a component as a reconciler does."""
        found = self.state.components.get(self.scope, name)
        assert found is not None
        changed = replace(found.value, **fields)
        self.state.components.put(self.scope, name, changed, expect=found.version)

    def add_copy(
        self, name: str, variant: str, generation: int, phase: CopyPhase, **fields: Any
    ) -> None:
        """Add an instance of the endpoint "e" with a copy on it."""
        instance = Instance(
            id=f"i-{name}",
            scope=self.scope,
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
            scope=self.scope,
            endpoint_name="e",
            variant_name=variant,
            component_name=None,
            generation=generation,
            instance_id=instance.id,
            spec=spec,
            status=CopyStatus(id=spec.id, phase=phase),
            created_at=0.0,
        )
        self.state.instances.put(self.scope, instance.id, instance, expect=None)
        self.state.copies.put(self.scope, spec.id, replace(copy, **fields), expect=None)
