"""An endpoint of the drill's own, with components on the built-in drill server; removed after."""

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.errors import TerminalError
from hostelry.chaos.call import OK
from hostelry.chaos.load import Aim, client, outcome_of
from hostelry.chaos.sight import Platform, copies_in, wait_for

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
    """A name that nothing of the operator's has."""
    return PREFIX + secrets.token_hex(4)


class Stage:
    """The drill's own endpoint on a platform; its components are named by `add`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.endpoint = new_name()
        self.components: list[str] = []
        self._bases: dict[str, str] = {}  # of each adapter
        # Made before there is load: a client takes tenths of a second, and the load's threads wait.
        config, credentials = platform.config, platform.credentials
        self.sagemaker = client("sagemaker", config, credentials, tries=5, read_timeout_s=60.0)
        self.runtime = client("sagemaker-runtime", config, credentials)
        self.s3 = client("s3", config, credentials, tries=5)

    @contextlib.contextmanager
    def standing(self) -> Iterator["Stage"]:
        """The endpoint for as long as the block runs; raises TerminalError when it cannot be."""
        try:
            self._make()
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
    ) -> str:
        """Ask for a component, its name; `memory_mb` are minimum and maximum."""
        wanted = specification(environment or {}, memory_mb, startup_timeout_s)
        return self._create(
            VariantName=VARIANT, Specification=wanted, RuntimeConfig={"CopyCount": copies}
        )

    def add_llm(self, model_uri: str) -> str:
        """Ask for a component with one copy of the LLM server; its name."""
        wanted = specification({}, (LLM_MB, None), int(READY_S))
        wanted["Container"] = {
            "Image": LLM_IMAGE,
            "Environment": {"HF_MODEL_ID": model_uri, "OPTION_ENABLE_LORA": "true"},
        }
        return self._create(
            VariantName=VARIANT, Specification=wanted, RuntimeConfig={"CopyCount": 1}
        )

    def add_adapter(self, base: str, archive_uri: str) -> str:
        """Ask for an adapter of the component `base`; its name."""
        wanted = {
            "BaseInferenceComponentName": base,
            "Container": {"ArtifactUrl": archive_uri},
        }
        name = self._create(Specification=wanted)
        self._bases[name] = base
        return name

    def base_of(self, component: str) -> str:
        """The component whose copies answer for it: its base, or itself."""
        return self._bases.get(component, component)

    def described(self, name: str) -> dict[str, Any]:
        """DescribeInferenceComponent."""
        shown: dict[str, Any] = self.sagemaker.describe_inference_component(
            InferenceComponentName=name
        )
        return shown

    def wait_ready(self, name: str, copies: int) -> None:
        """Return once the component has all its copies; raises TerminalError with its reason."""
        shown: dict[str, Any] = {}

        def ready() -> bool | None:
            nonlocal shown
            shown = self.described(name)
            status, count = shown["InferenceComponentStatus"], shown.get("RuntimeConfig", {})
            is_ready = status == "InService" and count.get("CurrentCopyCount", 0) >= copies
            return True if is_ready or status == "Failed" else None

        wait_for(ready, READY_S)
        if shown["InferenceComponentStatus"] != "InService":
            reason = shown.get("FailureReason", f"{shown['InferenceComponentStatus']} for long")
            raise TerminalError(f"the drill's own component {name} is not ready: {reason}")

    def aim(self, component: str, body: bytes = BODY) -> Aim:
        """How the component is invoked."""
        return Aim(
            endpoint=self.endpoint,
            component=component,
            content_type="application/json",
            body=body,
        )

    def copies_of(self, component: str) -> list[dict[str, Any]]:
        """The component's copies as control sees them."""
        owner = f"component/{component}"
        return [it for it in copies_in(self._platform.known_state()) if it["owner"] == owner]

    def _create(self, **wanted: Any) -> str:
        name = new_name()
        self.components.append(name)
        self.sagemaker.create_inference_component(
            InferenceComponentName=name, EndpointName=self.endpoint, **wanted
        )
        return name

    def _make(self) -> None:
        role = self._platform.credentials.role_arn
        variant = {
            "VariantName": VARIANT,
            "InstanceType": INSTANCE_TYPE,
            "InitialInstanceCount": 1,
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

    def _remove(self) -> None:
        """Delete what was made, as far as the platform lets us."""
        api = self.sagemaker
        bases = [it for it in self.components if it not in self._bases]
        for names in (self._bases, bases):  # a base with adapters cannot be deleted
            for name in names:
                outcome_of(partial(api.delete_inference_component, InferenceComponentName=name))
            for name in names:
                _wait_refused(partial(self.described, name))
        outcome_of(partial(api.delete_endpoint, EndpointName=self.endpoint))
        outcome_of(partial(api.delete_endpoint_config, EndpointConfigName=self.endpoint))
        _wait_refused(partial(api.describe_endpoint, EndpointName=self.endpoint))


def _wait_refused(describe: Callable[[], object]) -> None:
    """Return once what `describe` asks for is gone, or after a while."""
    wait_for(lambda: None if outcome_of(describe) == OK else True, GONE_S)


def specification(
    environment: Mapping[str, str], memory_mb: tuple[int, int | None], startup_timeout_s: int
) -> dict[str, Any]:
    """What a component of the stage runs."""
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
