"""Resources of the drill: bucket, topics, asynchronous endpoint and transform job."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.errors import TerminalError
from hostelry.home.aws_client import aws_client
from hostelry_lab.call import OK
from hostelry_lab.fixture import IMAGE, VARIANT, new_name
from hostelry_lab.load import outcome_of
from hostelry_lab.observer import PlatformObserver, wait_for

INSTANCE_TYPE = "ml.m5.large"
INSTANCES, JOB_INSTANCES = 2, 2
MAX_CONCURRENT = 8  # requests on an instance
MAX_CONCURRENT_TRANSFORMS = 2
READY_S, GONE_S = 120.0, 60.0
TRIES = 8
DELETED_AT_ONCE = 1000
REQUESTS, FILES, ANSWERS, RECORDS = "requests/", "files/", "answers/", "records/"


class JobsDeployment:
    """Names and clients of the drill's resources. All of them have the same name."""

    def __init__(self, platform: PlatformObserver) -> None:
        self._platform = platform
        self.name = new_name()
        make = partial(aws_client, config=platform.config, credentials=platform.credentials)
        self.sagemaker = make("sagemaker", tries=TRIES, read_timeout_s=60.0)
        self.sns = make("sns", tries=TRIES)
        self.s3 = make("s3", tries=TRIES)
        # Only the drill repeats submissions, since it counts the acknowledged ones.
        self.runtime = make("sagemaker-runtime")
        self._undo: list[Callable[[], object]] = []

    @property
    def job_endpoint(self) -> str:
        """The hidden endpoint of the transform job."""
        return f"transform-job/{self.name}"

    def topic_files(self, end: str) -> list[Path]:
        """The files of a topic's notifications, the oldest first. `end` is ok or error."""
        path = self._platform.home.root / "topics" / f"{self.name}-{end}.jsonl"
        older = sorted(path.parent.glob(f"{path.name}.[0-9]"), reverse=True)
        return [*older, *([path] if path.exists() else [])]

    @contextlib.contextmanager
    def deploy(self) -> Iterator["JobsDeployment"]:
        """Deploy all but the transform job for the block. Raises TerminalError if that fails."""
        try:
            self._make()
            yield self
        except (ClientError, BotoCoreError) as error:
            raise TerminalError(f"the drill's own resources {self.name}: {error}") from error
        finally:
            for undo in reversed(self._undo):
                outcome_of(undo)

    def start_job(self) -> None:
        """Create the transform job over all files."""
        self.sagemaker.create_transform_job(
            TransformJobName=self.name,
            ModelName=self.name,
            BatchStrategy="SingleRecord",
            MaxConcurrentTransforms=MAX_CONCURRENT_TRANSFORMS,
            TransformInput={
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "S3Prefix",
                        "S3Uri": f"s3://{self.name}/{FILES}",
                    }
                },
                "ContentType": "application/json",
                "SplitType": "Line",
            },
            TransformOutput={
                "S3OutputPath": f"s3://{self.name}/{RECORDS}",
                "Accept": "text/plain",
                "AssembleWith": "Line",
            },
            TransformResources={"InstanceType": INSTANCE_TYPE, "InstanceCount": JOB_INSTANCES},
        )
        self._undo.append(partial(self.sagemaker.stop_transform_job, TransformJobName=self.name))

    def _make(self) -> None:
        self.s3.create_bucket(Bucket=self.name)
        self._undo.append(self._remove_bucket)
        topics = {end: self._topic(end) for end in ("ok", "error")}
        self._make_endpoint(topics)

    def _topic(self, end: str) -> str:
        arn: str = self.sns.create_topic(Name=f"{self.name}-{end}")["TopicArn"]
        self._undo.append(partial(self._remove_topic, arn, end))
        self.sns.subscribe(TopicArn=arn, Protocol="file", Endpoint=f"{self.name}-{end}.jsonl")
        return arn

    def _make_endpoint(self, topics: dict[str, str]) -> None:
        api, name = self.sagemaker, self.name
        api.create_model(
            ModelName=name,
            ExecutionRoleArn=self._platform.credentials.role_arn,
            PrimaryContainer={"Image": IMAGE},
        )
        self._undo.append(partial(api.delete_model, ModelName=name))
        api.create_endpoint_config(
            EndpointConfigName=name,
            ProductionVariants=[
                {
                    "VariantName": VARIANT,
                    "ModelName": name,
                    "InstanceType": INSTANCE_TYPE,
                    "InitialInstanceCount": INSTANCES,
                }
            ],
            AsyncInferenceConfig={
                "ClientConfig": {"MaxConcurrentInvocationsPerInstance": MAX_CONCURRENT},
                "OutputConfig": {
                    "S3OutputPath": f"s3://{name}/{ANSWERS.rstrip('/')}",
                    "NotificationConfig": {
                        "SuccessTopic": topics["ok"],
                        "ErrorTopic": topics["error"],
                    },
                },
            },
        )
        self._undo.append(partial(api.delete_endpoint_config, EndpointConfigName=name))
        api.create_endpoint(EndpointName=name, EndpointConfigName=name)
        self._undo.append(self._remove_endpoint)

        def in_service() -> bool | None:
            shown = api.describe_endpoint(EndpointName=name)["EndpointStatus"]
            if shown == "Failed":
                raise TerminalError(f"the drill's own endpoint {name} is Failed")
            return True if shown == "InService" else None

        if wait_for(in_service, READY_S) is None:
            raise TerminalError(f"the endpoint {name} is not InService in {READY_S:g} s")

    def _remove_endpoint(self) -> None:
        api, name = self.sagemaker, self.name
        api.delete_endpoint(EndpointName=name)
        gone = partial(api.describe_endpoint, EndpointName=name)
        wait_for(lambda: None if outcome_of(gone) == OK else True, GONE_S)

    def _remove_topic(self, arn: str, end: str) -> None:
        self.sns.delete_topic(TopicArn=arn)
        for path in self.topic_files(end):
            path.unlink(missing_ok=True)

    def _remove_bucket(self) -> None:
        for keys in self.pages(""):
            for first in range(0, len(keys), DELETED_AT_ONCE):
                objects = [{"Key": it} for it in keys[first : first + DELETED_AT_ONCE]]
                self.s3.delete_objects(Bucket=self.name, Delete={"Objects": objects, "Quiet": True})
        self.s3.delete_bucket(Bucket=self.name)

    def pages(self, prefix: str) -> Iterator[list[str]]:
        """The keys below `prefix`, page by page."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        for page in pages:
            yield [it["Key"] for it in page.get("Contents", ())]
