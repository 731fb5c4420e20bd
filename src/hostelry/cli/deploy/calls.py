"""The calls of the public APIs by which `deploy` looks and acts."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.upload import make_bucket, shown_upload
from hostelry.cli.control_requests import control_state
from hostelry.cli.deploy.plan import VARIANT, ModelDeployment
from hostelry.cli.deploy.steps import (
    IN_SERVICE,
    Action,
    DeployStep,
    Present,
    PresentComponent,
    PresentEndpoint,
    missing_objects,
    next_step,
)
from hostelry.cli.logs import kept_logs
from hostelry.cli.models.scale import target_id, tracking_policy
from hostelry.cli.named import describe
from hostelry.cli.work_reporter import WorkReporter
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, Home, UpConfig

POLICY = "hostelry-deploy"
TRIES = 3
BYTES_PER_MB = 1024 * 1024
Described = Mapping[str, Any]
DEPLOYED_TAG = "hostelry:deployed"  # of a model: the name that it was deployed under
PAUSE_S, LONGEST_PAUSE_S = 0.2, 1.0
STATE_EACH_S = 1.0  # control writes all of its state for each look
LOG_LINES = 12
# Of calls that another run made at the same moment.
TAKEN = "Cannot create already existing"


class DeployCalls:
    """Clients of one platform, and the calls for one deployment."""

    def __init__(self, config: UpConfig, credentials: Credentials) -> None:
        self.s3 = aws_client("s3", config, credentials, tries=TRIES, read_timeout_s=120.0)
        self._sagemaker = aws_client("sagemaker", config, credentials, tries=TRIES)
        self._scaling = aws_client("application-autoscaling", config, credentials, tries=TRIES)
        self._role = credentials.role_arn

    def present(self, deployment: ModelDeployment, before: Present | None = None) -> Present:
        """The present state of a deployment. Unchangeable facts are taken from `before`."""
        components = {name: self.component(name) for name in self._changing(deployment, before)}
        bounds, has_policy = (None, False)
        if deployment.scaling is not None:
            bounds, has_policy = self._describe_scaling(deployment)
        before = before or Present()
        has_bucket, objects = before.has_bucket, before.objects
        if len(objects) < len(deployment.objects):
            has_bucket, objects = self._objects(deployment)
        return Present(
            has_bucket=has_bucket,
            objects=objects,
            has_model=before.has_model
            or self._describe("model", deployment.model.name) is not None,
            has_config=before.has_config or self.config(deployment.config.name) is not None,
            endpoint=self.endpoint(deployment.name),
            components={
                name: one
                for name, one in {**before.components, **components}.items()
                if one is not None
            },
            bounds=bounds,
            has_policy=has_policy,
        )

    def _changing(self, deployment: ModelDeployment, before: Present | None) -> list[str]:
        """The components to be looked at: of many adapters not those that are as they should be.

        At the first look all of them, since one may be on another endpoint.
        """
        adapters = {it.component: it.uri for it in deployment.adapters}
        if before is None or not adapters:
            return [deployment.name, *adapters]
        pages = self._sagemaker.get_paginator("list_inference_components")
        listed = {
            component["InferenceComponentName"]: component["InferenceComponentStatus"]
            for page in pages.paginate(
                EndpointNameEquals=deployment.name, PaginationConfig={"PageSize": 100}
            )
            for component in page["InferenceComponents"]
        }
        settled = {
            name
            for name, one in before.components.items()
            if one.uri == adapters.get(name) and one.status == listed.get(name) == IN_SERVICE
        }
        known = [it for it in adapters if it in listed or it in before.components]
        return [deployment.name, *(it for it in known if it not in settled)]

    def endpoint(self, name: str) -> PresentEndpoint | None:
        """The endpoint of that name."""
        shown = self._describe("endpoint", name)
        if shown is None:
            return None
        config = self.config(shown["EndpointConfigName"]) or {}
        variants = config.get("ProductionVariants", [{}])
        return PresentEndpoint(
            status=shown["EndpointStatus"],
            config=shown["EndpointConfigName"],
            reason=shown.get("FailureReason", ""),
            instance_type=variants[0].get("InstanceType"),
            has_models=any("ModelName" in it for it in variants)
            or [it.get("VariantName", VARIANT) for it in variants] != [VARIANT],
        )

    def config(self, name: str) -> Described | None:
        """The endpoint configuration of that name."""
        return self._describe("endpoint_config", name)

    def component(self, name: str) -> PresentComponent | None:
        """The inference component of that name."""
        shown = self._describe("inference_component", name)
        if shown is None:
            return None
        spec = shown.get("Specification", {})
        asked = spec.get("ComputeResourceRequirements", {})
        return PresentComponent(
            endpoint=shown["EndpointName"],
            status=shown["InferenceComponentStatus"],
            reason=shown.get("FailureReason", ""),
            model=spec.get("ModelName", ""),
            memory_mb=asked.get("MinMemoryRequiredInMb", 0),
            cpus=asked.get("NumberOfCpuCoresRequired", 0.0),
            accelerators=asked.get("NumberOfAcceleratorDevicesRequired", 0.0),
            copies=shown.get("RuntimeConfig", {}).get("DesiredCopyCount", 0),
            base=spec.get("BaseInferenceComponentName", ""),
            uri=spec.get("Container", {}).get("ArtifactUrl", ""),
        )

    def take(self, step: DeployStep, deployment: ModelDeployment) -> None:
        """Take a step by one or two calls. Uploads and waits are done elsewhere."""
        taken: Mapping[Action, Callable[[ModelDeployment, str], object]] = {
            Action.CREATE_BUCKET: lambda it, _: make_bucket(self.s3, it.bucket),
            Action.CREATE_MODEL: self._create_model,
            Action.CREATE_CONFIG: self._create_config,
            Action.CREATE_ENDPOINT: lambda it, name: self._sagemaker.create_endpoint(
                EndpointName=name, EndpointConfigName=it.config.name
            ),
            Action.UPDATE_ENDPOINT: lambda it, name: self._sagemaker.update_endpoint(
                EndpointName=name, EndpointConfigName=it.config.name
            ),
            Action.DELETE_ENDPOINT: lambda _, name: self._sagemaker.delete_endpoint(
                EndpointName=name
            ),
            Action.CREATE_COMPONENT: self._create_component,
            Action.UPDATE_COMPONENT: lambda it, name: self._sagemaker.update_inference_component(
                InferenceComponentName=name, Specification=specification(it)
            ),
            Action.SET_COPIES: self._set_copies,
            Action.DELETE_COMPONENT: lambda _, name: self._sagemaker.delete_inference_component(
                InferenceComponentName=name
            ),
            Action.CREATE_ADAPTER: self._create_adapter,
            Action.UPDATE_ADAPTER: lambda it, name: self._sagemaker.update_inference_component(
                InferenceComponentName=name, Specification=adapter_specification(it, name)
            ),
            Action.SCALE: self._scale,
        }
        taken[step.action](deployment, step.name)

    def _create_model(self, deployment: ModelDeployment, name: str) -> None:
        model = deployment.model
        container: dict[str, Any] = {"Image": model.image, "Environment": dict(model.environment)}
        if model.is_archive:
            container["ModelDataUrl"] = model.uri
        elif model.uri:
            source = {"S3Uri": model.uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
            container["ModelDataSource"] = {"S3DataSource": source}
        self._sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=self._role,
            PrimaryContainer=container,
            Tags=[{"Key": DEPLOYED_TAG, "Value": deployment.name}],
        )

    def _create_config(self, deployment: ModelDeployment, name: str) -> None:
        config = deployment.config
        scaling = {
            "Status": "ENABLED",
            "MinInstanceCount": config.min_instances,
            "MaxInstanceCount": config.max_instances,
        }
        variant = {
            "VariantName": VARIANT,
            "InstanceType": config.instance_type,
            "InitialInstanceCount": config.initial_instances,
            "ManagedInstanceScaling": scaling,
            "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        }
        self._sagemaker.create_endpoint_config(
            EndpointConfigName=name, ExecutionRoleArn=self._role, ProductionVariants=[variant]
        )

    def _create_component(self, deployment: ModelDeployment, name: str) -> None:
        self._sagemaker.create_inference_component(
            InferenceComponentName=name,
            EndpointName=name,
            VariantName=VARIANT,
            Specification=specification(deployment),
            RuntimeConfig={"CopyCount": 1 if deployment.copies is None else deployment.copies},
        )

    def _set_copies(self, deployment: ModelDeployment, name: str) -> None:
        self._sagemaker.update_inference_component_runtime_config(
            InferenceComponentName=name, DesiredRuntimeConfig={"CopyCount": deployment.copies}
        )

    def _create_adapter(self, deployment: ModelDeployment, name: str) -> None:
        self._sagemaker.create_inference_component(
            InferenceComponentName=name,
            EndpointName=deployment.name,
            Specification=adapter_specification(deployment, name),
        )

    def _scale(self, deployment: ModelDeployment, name: str) -> None:
        scaling = deployment.scaling
        assert scaling is not None, "a step of scaling has bounds"
        target = target_id(f"inference-component/{name}")
        self._scaling.register_scalable_target(
            **target, MinCapacity=scaling.min_copies, MaxCapacity=scaling.max_copies
        )
        self._scaling.put_scaling_policy(**tracking_policy(target, scaling.target, POLICY))

    def _describe_scaling(self, deployment: ModelDeployment) -> tuple[tuple[int, int] | None, bool]:
        resource = f"inference-component/{deployment.name}"
        targets = self._scaling.describe_scalable_targets(
            ServiceNamespace="sagemaker", ResourceIds=[resource]
        )["ScalableTargets"]
        policies = self._scaling.describe_scaling_policies(
            ServiceNamespace="sagemaker", ResourceId=resource
        )["ScalingPolicies"]
        bounds = next(((it["MinCapacity"], it["MaxCapacity"]) for it in targets), None)
        return bounds, any(it["PolicyName"] == POLICY for it in policies)

    def _objects(self, deployment: ModelDeployment) -> tuple[bool, frozenset[str]]:
        """Whether there is the bucket, and which objects are there with their whole size."""
        found: set[str] = set()
        sizes: dict[str, int] = {}
        try:
            for prefix in {"/".join(it.key.split("/")[:2]) + "/" for it in deployment.objects}:
                pages = self.s3.get_paginator("list_objects_v2")
                for page in pages.paginate(Bucket=deployment.bucket, Prefix=prefix):
                    sizes |= {it["Key"]: it["Size"] for it in page.get("Contents", ())}
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("NoSuchBucket", "404"):
                raise
            return False, frozenset()
        for order in deployment.objects:
            if order.key in sizes and order.size_bytes in (None, sizes[order.key]):
                found.add(order.key)
        return bool(deployment.objects), frozenset(found)

    def _describe(self, kind: str, name: str) -> Described | None:
        return describe(self._sagemaker, kind, name)


def specification(deployment: ModelDeployment) -> dict[str, Any]:
    """The component's Specification."""
    asked = deployment.requirements
    compute: dict[str, Any] = {
        "NumberOfCpuCoresRequired": asked.cpus,
        "MinMemoryRequiredInMb": asked.min_memory_bytes // BYTES_PER_MB,
    }
    if asked.accelerators:
        compute["NumberOfAcceleratorDevicesRequired"] = asked.accelerators
    return {"ModelName": deployment.model.name, "ComputeResourceRequirements": compute}


def adapter_specification(deployment: ModelDeployment, name: str) -> dict[str, Any]:
    """The Specification of an adapter's component."""
    uri = next(it.uri for it in deployment.adapters if it.component == name)
    return {"BaseInferenceComponentName": deployment.name, "Container": {"ArtifactUrl": uri}}


def carry_out(
    calls: DeployCalls,
    deployment: ModelDeployment,
    reporter: WorkReporter,
    home: Home,
    running: tuple[UpConfig, Credentials],
) -> None:
    """Take every step until all is in service. Raises TerminalError with the cause of a failure."""
    tried: list[DeployStep] = []
    present = None
    state: Mapping[str, Any] | None = None
    state_at_s = -STATE_EACH_S
    while True:
        present = calls.present(deployment, present)
        step = next_step(deployment, present, tried)
        if step is None:
            return
        match step.action:
            case Action.FAIL:
                raise failure(step, deployment.name, home)
            case Action.WAIT:
                if reporter.elapsed_s - state_at_s >= STATE_EACH_S:
                    state, state_at_s = control_state(*running), reporter.elapsed_s
                reporter.waits(waiting_text(step.name, deployment.name, state))
                time.sleep(min(max(PAUSE_S, reporter.elapsed_s / 20), LONGEST_PAUSE_S))
            case Action.UPLOAD:
                missing = missing_objects(deployment, present)
                shown_upload(calls.s3, deployment.bucket, missing, step.name, reporter)
            case _:
                if step in tried:
                    raise TerminalError(f"{step.text}: the call was taken, and nothing came of it")
                take(calls, step, deployment)
                reporter.line(step.text)
                tried.append(step)


def take(calls: DeployCalls, step: DeployStep, deployment: ModelDeployment) -> None:
    """Take a step, also if another run of the same command has just taken it."""
    try:
        calls.take(step, deployment)
    except ClientError as error:
        if not error.response["Error"]["Message"].startswith(TAKEN):
            raise


def failure(step: DeployStep, name: str, home: Home) -> TerminalError:
    """The error of a failure, with its cause, the last lines of the log, and the remedy."""
    lines = [f"{step.name} failed: {step.reason or 'without a reason'}"]
    for title, messages in list(kept_logs(home, name, LOG_LINES).items())[-1:]:
        lines += [f"the last lines of {title}:", *(f"  {it}" for it in messages)]
    lines.append(
        "Once the cause is mended, the same command continues; "
        f"`hostelry rm {name}` removes what is left"
    )
    return TerminalError("\n".join(lines))


def waiting_text(waits_for: str, name: str, state: Mapping[str, Any] | None) -> str:
    """The text of a wait with the progress of copies. `state` is None if control does not answer.

    It names the phase of the first copy that is not ready, and its reason if known.
    """
    if state is None:
        return f"{waits_for}: control does not answer"
    found = [it for it in state.get("endpoints", ()) if it["name"] == name]
    copies: Sequence[Mapping[str, Any]] = found[0]["copies"] if found else ()
    starting = [it for it in copies if it["phase"] not in ("ready", "stopping")]
    notes = [it.get("placement_note") for it in found[0].get("components", ())] if found else []
    if starting:
        reason = f", {starting[0]['reason']}" if starting[0].get("reason") else ""
        return f"{waits_for}: copy {starting[0]['phase']}{reason}"
    note = next((it for it in notes if it), None)
    return f"{waits_for}: {note}" if note else waits_for
