"""Endpoint made for a drill, with components on the built-in drill server, and removed after it."""

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.errors import TerminalError
from hostelry.home.aws_client import aws_client
from hostelry_lab.call import OK
from hostelry_lab.load import LoadTarget, outcome_of
from hostelry_lab.observer import PlatformObserver, copies_in, wait_for

PREFIX = "hostelry-drill-"
IMAGE = "hostelry/drill"
LLM_IMAGE = "hostelry/lmi"
LLM_MB = 512
VARIANT = "AllTraffic"
INSTANCE_TYPE = "ml.m5.2xlarge"
READY_S, GONE_S = 60.0, 60.0
ANSWER_S = 0.02
BODY = json.dumps({"wait_s": ANSWER_S}).encode()


def new_name() -> str:
    """A name that no resource of the operator has."""
    return PREFIX + secrets.token_hex(4)


class DrillFixture:
    """The drill's own endpoint on a platform. `add` creates its components."""

    def __init__(self, platform: PlatformObserver, instance_type: str = INSTANCE_TYPE) -> None:
        self._platform = platform
        self._instance_type = instance_type
        self.endpoint = new_name()
        self.components: list[str] = []
        self._bases: dict[str, str] = {}  # base component of each adapter
        # Created before the load begins, since a client takes tenths of a second of CPU.
        config, credentials = platform.config, platform.credentials
        self.sagemaker = aws_client("sagemaker", config, credentials, tries=5, read_timeout_s=60.0)
        self.runtime = aws_client("sagemaker-runtime", config, credentials)
        self.s3 = aws_client("s3", config, credentials, tries=5)

    @contextlib.contextmanager
    def deploy(self) -> Iterator["DrillFixture"]:
        """Deploy the endpoint for the block. Raises TerminalError if that fails."""
        try:
            self.make()
            yield self
        except (ClientError, BotoCoreError) as error:
            raise TerminalError(f"the drill's own endpoint {self.endpoint}: {error}") from error
        finally:
            self._remove()

    def add(
        self,
        *,
        copies: int,
        environment: Mapping[str, str] | None = None,
        memory_mb: tuple[int, int | None] = (128, None),
        startup_timeout_s: int = 60,
        artifact_uri: str | None = None,
    ) -> str:
        """Create a component, and return its name. `memory_mb` has minimum and maximum."""
        component = specification(environment or {}, memory_mb, startup_timeout_s)
        if artifact_uri is not None:
            component["Container"]["ArtifactUrl"] = artifact_uri
        return self._create(
            VariantName=VARIANT, Specification=component, RuntimeConfig={"CopyCount": copies}
        )

    def add_llm(self, model_uri: str) -> str:
        """Create a component with one copy of the LLM server, and return its name."""
        component = specification({}, (LLM_MB, None), int(READY_S))
        component["Container"] = {
            "Image": LLM_IMAGE,
            "Environment": {"HF_MODEL_ID": model_uri, "OPTION_ENABLE_LORA": "true"},
        }
        return self._create(
            VariantName=VARIANT, Specification=component, RuntimeConfig={"CopyCount": 1}
        )

    def add_adapter(self, base: str, archive_uri: str) -> str:
        """Create an adapter of the component `base`, and return its name."""
        adapter = {
            "BaseInferenceComponentName": base,
            "Container": {"ArtifactUrl": archive_uri},
        }
        name = self._create(Specification=adapter)
        self._bases[name] = base
        return name

    def base_of(self, component: str) -> str:
        """The component whose copies serve `component`: its base, or itself."""
        return self._bases.get(component, component)

    def describe(self, name: str) -> dict[str, Any]:
        """The answer of DescribeInferenceComponent."""
        shown: dict[str, Any] = self.sagemaker.describe_inference_component(
            InferenceComponentName=name
        )
        return shown

    def wait_ready(self, name: str, copies: int) -> None:
        """Wait until all copies are ready. Raises TerminalError with the failure's reason."""
        shown: dict[str, Any] = {}

        def ready() -> bool | None:
            nonlocal shown
            shown = self.describe(name)
            status, count = shown["InferenceComponentStatus"], shown.get("RuntimeConfig", {})
            is_ready = status == "InService" and count.get("CurrentCopyCount", 0) >= copies
            return True if is_ready or status == "Failed" else None

        wait_for(ready, READY_S)
        if shown["InferenceComponentStatus"] != "InService":
            reason = shown.get("FailureReason", f"still {shown['InferenceComponentStatus']}")
            raise TerminalError(f"the drill's own component {name} is not ready: {reason}")

    def load_target(self, component: str, body: bytes = BODY) -> LoadTarget:
        """The load's target for the component."""
        return LoadTarget(
            endpoint=self.endpoint,
            component=component,
            content_type="application/json",
            body=body,
        )

    def copies_of(self, component: str) -> list[dict[str, Any]]:
        """The component's copies in control's state."""
        owner = f"component/{component}"
        return [it for it in copies_in(self._platform.known_state()) if it["owner"] == owner]

    def _create(self, **request: Any) -> str:
        name = new_name()
        self.components.append(name)
        self.sagemaker.create_inference_component(
            InferenceComponentName=name, EndpointName=self.endpoint, **request
        )
        return name

    def make(self, instances: int = 1) -> None:
        """Create the endpoint, and wait until it is InService. Raises TerminalError."""
        role = self._platform.credentials.role_arn
        variant = {
            "VariantName": VARIANT,
            "InstanceType": self._instance_type,
            "InitialInstanceCount": instances,
            "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        }
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=self.endpoint, ExecutionRoleArn=role, ProductionVariants=[variant]
        )
        self.sagemaker.create_endpoint(EndpointName=self.endpoint, EndpointConfigName=self.endpoint)

        def in_service() -> bool | None:
            shown = self.sagemaker.describe_endpoint(EndpointName=self.endpoint)
            return True if shown["EndpointStatus"] == "InService" else None

        if wait_for(in_service, READY_S) is None:
            raise TerminalError(f"the endpoint {self.endpoint} is not InService in {READY_S:g} s")

    def remove_components(self) -> None:
        """Delete all components, and wait until they are gone, as far as the platform allows."""
        api = self.sagemaker
        bases = [it for it in self.components if it not in self._bases]
        for names in (self._bases, bases):  # a base with adapters cannot be deleted
            for name in names:
                outcome_of(partial(api.delete_inference_component, InferenceComponentName=name))
            for name in names:
                _wait_refused(partial(self.describe, name))
        self.components.clear()
        self._bases.clear()

    def _remove(self) -> None:
        """Delete all that was created, as far as the platform allows."""
        api = self.sagemaker
        self.remove_components()
        outcome_of(partial(api.delete_endpoint, EndpointName=self.endpoint))
        outcome_of(partial(api.delete_endpoint_config, EndpointConfigName=self.endpoint))
        _wait_refused(partial(api.describe_endpoint, EndpointName=self.endpoint))


def _wait_refused(describe: Callable[[], object]) -> None:
    """Wait until `describe` fails because the resource is gone, or a minute has passed."""
    wait_for(lambda: None if outcome_of(describe) == OK else True, GONE_S)


def specification(
    environment: Mapping[str, str], memory_mb: tuple[int, int | None], startup_timeout_s: int
) -> dict[str, Any]:
    """Specification of a component of the fixture."""
    least_mb, most_mb = memory_mb
    limit = {} if most_mb is None else {"MaxMemoryRequiredInMb": most_mb}
    return {
        "Container": {"Image": IMAGE, "Environment": dict(environment)},
        "StartupParameters": {"ContainerStartupHealthCheckTimeoutInSeconds": startup_timeout_s},
        "ComputeResourceRequirements": {
            "MinMemoryRequiredInMb": least_mb,
            "NumberOfCpuCoresRequired": 0.25,
            **limit,
        },
    }
