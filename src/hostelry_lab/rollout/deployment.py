"""Resources of the drill `rollout`: an endpoint, its versions, and an alarm."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.errors import TerminalError
from hostelry.home.aws_client import aws_client
from hostelry_lab.call import OK
from hostelry_lab.fixture import IMAGE, VARIANT, new_name
from hostelry_lab.load import outcome_of
from hostelry_lab.observer import PlatformObserver, wait_for

INSTANCE_TYPE = "ml.m5.large"
READY_S, GONE_S = 120.0, 60.0
TRIES = 8
STARTS_S = 6.0  # start time of a new version, so that processes can be killed during it
STEP_S = 12.0
ALARM_PERIOD_S = 10
LIMIT_S = 600
FIRST, GOOD, BROKEN, LATER = "first", "good", "broken", "later"
BODY = json.dumps({"wait_s": 0.01, "fail_if": BROKEN}).encode()


class RolloutDeployment:
    """Names and clients of the drill's resources."""

    def __init__(self, platform: PlatformObserver) -> None:
        self._platform = platform
        self._pace = platform.config.pace
        self.name = new_name()
        make = partial(aws_client, config=platform.config, credentials=platform.credentials)
        self.sagemaker = make("sagemaker", tries=TRIES, read_timeout_s=60.0)
        self.cloudwatch = make("cloudwatch", tries=TRIES)
        self.runtime = make("sagemaker-runtime")
        self._undo: list[Callable[[], object]] = []

    @contextlib.contextmanager
    def deploy(self, instances: int) -> Iterator["RolloutDeployment"]:
        """The endpoint with its first version for the block. Raises TerminalError if that fails."""
        try:
            self.configure(FIRST, instances)
            config = self.config(FIRST)
            self.sagemaker.create_endpoint(EndpointName=self.name, EndpointConfigName=config)
            self._undo.append(self._remove_endpoint)
            self.wait_in_service()
            yield self
        except (ClientError, BotoCoreError) as error:
            raise TerminalError(f"the drill's own endpoint {self.name}: {error}") from error
        finally:
            for undo in reversed(self._undo):
                outcome_of(undo)

    def config(self, version: str) -> str:
        """The name of a version's configuration and model."""
        return f"{self.name}-{version}"

    def configure(self, version: str, instances: int) -> None:
        """Create the model and the configuration of a version, on `instances` instances."""
        api, config = self.sagemaker, self.config(version)
        environment = {"DRILL_ANSWER": version}
        if version != FIRST:
            environment["DRILL_START_S"] = f"{STARTS_S:g}"
        api.create_model(
            ModelName=config,
            ExecutionRoleArn=self._platform.credentials.role_arn,
            PrimaryContainer={"Image": IMAGE, "Environment": environment},
        )
        self._undo.append(partial(api.delete_model, ModelName=config))
        api.create_endpoint_config(
            EndpointConfigName=config,
            ProductionVariants=[
                {
                    "VariantName": VARIANT,
                    "ModelName": config,
                    "InstanceType": INSTANCE_TYPE,
                    "InitialInstanceCount": instances,
                }
            ],
            MetricsConfig={
                "EnableEnhancedMetrics": True,
                "MetricPublishFrequencyInSeconds": ALARM_PERIOD_S,
            },
        )
        self._undo.append(partial(api.delete_endpoint_config, EndpointConfigName=config))

    def update(self, version: str, traffic: Mapping[str, Any] | None) -> None:
        """Request an update, watched by an alarm on the version's own errors.

        Its steps are `traffic`, or batches of one instance if `traffic` is `None`.
        """
        wait_s = round(STEP_S * self._pace)
        limit_s = max(LIMIT_S, 4 * wait_s)
        policy = rolling(wait_s, limit_s) if traffic is None else gradual(traffic, wait_s, limit_s)
        alarm = self._watch_errors_of(version)
        self.sagemaker.update_endpoint(
            EndpointName=self.name,
            EndpointConfigName=self.config(version),
            DeploymentConfig={
                **policy,
                "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm}]},
            },
        )

    def find_endpoint(self) -> dict[str, Any] | None:
        """The endpoint in control's state, or None while control does not answer."""
        state = self._platform.state()
        if state is None:
            return None
        return next((it for it in state["endpoints"] if it["name"] == self.name), None)

    def wait_in_service(self) -> None:
        """Wait until the endpoint is InService. Raises TerminalError if it never is."""

        def status() -> str | None:
            shown = self.find_endpoint()
            found = None if shown is None else str(shown["status"])
            return found if found in ("InService", "Failed") else None

        found = wait_for(status, READY_S)
        if found != "InService":
            raise TerminalError(f"the drill's own endpoint {self.name} is {found or 'not'} in time")

    def _watch_errors_of(self, version: str) -> str:
        alarm = self.config(version)
        names = {
            "EndpointName": self.name,
            "VariantName": VARIANT,
            "EndpointConfigName": self.config(version),
        }
        self.cloudwatch.put_metric_alarm(
            AlarmName=alarm,
            Namespace="AWS/SageMaker",
            MetricName="Invocation5XXErrors",
            Dimensions=[{"Name": name, "Value": value} for name, value in names.items()],
            Statistic="Sum",
            Period=ALARM_PERIOD_S,
            EvaluationPeriods=1,
            Threshold=0.0,
            ComparisonOperator="GreaterThanThreshold",
            TreatMissingData="notBreaching",
        )
        self._undo.append(partial(self.cloudwatch.delete_alarms, AlarmNames=[alarm]))
        return alarm

    def _remove_endpoint(self) -> None:
        api = self.sagemaker
        api.delete_endpoint(EndpointName=self.name)
        gone = partial(api.describe_endpoint, EndpointName=self.name)
        wait_for(lambda: None if outcome_of(gone) == OK else True, GONE_S)


def gradual(traffic: Mapping[str, Any], wait_s: int, limit_s: int) -> dict[str, Any]:
    """The policy of an update in steps of traffic."""
    return {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {**traffic, "WaitIntervalInSeconds": wait_s},
            "TerminationWaitInSeconds": wait_s,
            "MaximumExecutionTimeoutInSeconds": limit_s,
        }
    }


def rolling(wait_s: int, limit_s: int) -> dict[str, Any]:
    """The policy of an update in batches of one instance."""
    return {
        "RollingUpdatePolicy": {
            "MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1},
            "WaitIntervalInSeconds": wait_s,
            "MaximumExecutionTimeoutInSeconds": limit_s,
        }
    }
