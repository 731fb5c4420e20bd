"""A platform for pictures: endpoints under load, a failing endpoint, an unplaced component."""

import json
import random
import threading
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.drill import NO_RETRIES, ROLE, write_image_rule
from tests.integration.echo_image import ECHO_IMAGE
from tests.integration.platform import Platform, until

SHOP, RECOMMEND, GIANT, AUDIT = "shop", "recommend", "forecast-70b", "audit"
CHECKOUT, BROKEN = "checkout", "invoices"
# Cooldowns and the period of AlarmLow are divided by this number.
PACE = "90"
SLOW_S = 0.6
REFUSAL = "quantity must be at least 1"


class Scene:
    """Endpoints of the drill's model server on a running platform."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.sagemaker = platform.boto3("sagemaker", retries=NO_RETRIES)

    def deploy(self) -> None:
        """Deploy `checkout`, and `shop` with a serving component and an unplaced component."""
        self.config(SHOP, {"InstanceType": "ml.m5.4xlarge", "InitialInstanceCount": 1})
        self.sagemaker.create_endpoint(EndpointName=SHOP, EndpointConfigName=SHOP)
        self.version("v1")
        self.sagemaker.create_endpoint(EndpointName=CHECKOUT, EndpointConfigName=f"{CHECKOUT}-v1")
        self.in_service(SHOP)
        self.component(RECOMMEND, copies=2, memory_mb=4 * 1024)
        self.component(AUDIT, copies=1, memory_mb=128, image="echo:1")
        self.component(GIANT, copies=1, memory_mb=62 * 1024)
        self.in_service(CHECKOUT)

    def version(self, version: str) -> None:
        """A configuration of `checkout` whose model server answers as this version."""
        name = f"{CHECKOUT}-{version}"
        container = {"Image": "drill", "Environment": {"DRILL_ANSWER": version}}
        self.sagemaker.create_model(
            ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        self.config(
            name,
            {"ModelName": name, "InstanceType": "ml.m5.large", "InitialInstanceCount": 2},
            MetricsConfig={"EnableEnhancedMetrics": True, "MetricPublishFrequencyInSeconds": 10},
        )

    def deploy_broken(self) -> None:
        """Deploy `invoices`, whose model server exits at its start."""
        container = {"Image": "drill", "Environment": {"DRILL_EXIT_AFTER_S": "0"}}
        self.sagemaker.create_model(
            ModelName=BROKEN, ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        variant = {"ModelName": BROKEN, "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
        self.config(BROKEN, variant)
        self.sagemaker.create_endpoint(EndpointName=BROKEN, EndpointConfigName=BROKEN)

    def follow_load(self) -> None:
        """Scale `recommend` by its number of concurrent requests."""
        target = {
            "ServiceNamespace": "sagemaker",
            "ResourceId": f"inference-component/{RECOMMEND}",
            "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
        }
        metric = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
        scaling = self.platform.boto3("application-autoscaling")
        scaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=3)
        scaling.put_scaling_policy(
            **target,
            PolicyName="concurrency",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": 2.0,
                "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
                "ScaleInCooldown": 180,
                "ScaleOutCooldown": 180,
            },
        )

    def roll_out(self, version: str, wait_s: int) -> None:
        """Begin a canary update of `checkout`. Errors of the new version roll it back."""
        names = {
            "EndpointName": CHECKOUT,
            "VariantName": "AllTraffic",
            "EndpointConfigName": f"{CHECKOUT}-{version}",
        }
        alarm = f"{CHECKOUT}-{version}-errors"
        self.platform.boto3("cloudwatch").put_metric_alarm(
            AlarmName=alarm,
            Namespace="AWS/SageMaker",
            MetricName="Invocation5XXErrors",
            Dimensions=[{"Name": name, "Value": value} for name, value in names.items()],
            Statistic="Sum",
            Period=10,
            EvaluationPeriods=1,
            Threshold=0.0,
            ComparisonOperator="GreaterThanThreshold",
            TreatMissingData="notBreaching",
        )
        size = {"Type": "CAPACITY_PERCENT", "Value": 50}
        routing = {"Type": "CANARY", "CanarySize": size, "WaitIntervalInSeconds": wait_s}
        policy = {"TrafficRoutingConfiguration": routing, "TerminationWaitInSeconds": 0}
        self.sagemaker.update_endpoint(
            EndpointName=CHECKOUT,
            EndpointConfigName=f"{CHECKOUT}-{version}",
            DeploymentConfig={
                "BlueGreenUpdatePolicy": policy,
                "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm}]},
            },
        )

    def component(self, name: str, *, copies: int, memory_mb: int, image: str = "drill") -> None:
        """Create a component of `shop`."""
        resources = {"MinMemoryRequiredInMb": memory_mb, "NumberOfCpuCoresRequired": 0.25}
        self.sagemaker.create_inference_component(
            InferenceComponentName=name,
            EndpointName=SHOP,
            VariantName="AllTraffic",
            Specification={
                "Container": {"Image": image},
                "ComputeResourceRequirements": resources,
            },
            RuntimeConfig={"CopyCount": copies},
        )

    def in_service(self, endpoint: str, within_s: float = 60.0) -> None:
        """Wait until the endpoint is InService."""

        def serves() -> bool:
            shown = self.sagemaker.describe_endpoint(EndpointName=endpoint)
            return bool(shown["EndpointStatus"] == "InService")

        until(serves, f"{endpoint} is InService", within_s)

    def component_in_service(self, name: str, within_s: float = 60.0) -> None:
        """Wait until the component is InService."""

        def serves() -> bool:
            shown = self.sagemaker.describe_inference_component(InferenceComponentName=name)
            return bool(shown["InferenceComponentStatus"] == "InService")

        until(serves, f"{name} is InService", within_s)

    def config(self, name: str, variant: dict[str, Any], **more: Any) -> None:
        """A configuration with one variant."""
        role = {} if "ModelName" in variant else {"ExecutionRoleArn": ROLE}
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=name,
            ProductionVariants=[{"VariantName": "AllTraffic", **variant}],
            **role,
            **more,
        )


class Load:
    """Clients of `shop` and `checkout`. Each sends again `rest_s` after it is answered."""

    def __init__(
        self, scene: Scene, *, shop: int = 3, checkout: int = 2, rest_s: float = 0.0
    ) -> None:
        self._rest_s = rest_s
        self._runtime = scene.platform.boto3(
            "sagemaker-runtime", retries=NO_RETRIES, max_pool_connections=shop + checkout
        )
        self._over = threading.Event()
        recommend = {"EndpointName": SHOP, "InferenceComponentName": RECOMMEND}
        targets = [recommend] * shop + [{"EndpointName": CHECKOUT}] * checkout
        self._threads = [
            threading.Thread(target=self._call, args=(target, seed), daemon=True)
            for seed, target in enumerate(targets)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _call(self, target: dict[str, str], seed: int) -> None:
        drawn = random.Random(seed)
        while not self._over.is_set():
            body: dict[str, Any] = {"wait_s": min(SLOW_S, drawn.lognormvariate(-2.8, 0.6))}
            if drawn.random() < 0.01:
                body = {"refuse": REFUSAL}
            elif "InferenceComponentName" not in target:
                body["fail_if"] = "v2"
            try:
                self._runtime.invoke_endpoint(**target, Body=json.dumps(body))["Body"].read()
            except (BotoCoreError, ClientError):
                self._over.wait(0.05)
            self._over.wait(self._rest_s)


def platform_of(home: Path) -> Platform:
    """A platform for a scene. Start it by `with`."""
    write_image_rule(home)
    with (home / "images.toml").open("a") as rules:
        rules.write(ECHO_IMAGE)
    return Platform(home, "--pace", PACE)
