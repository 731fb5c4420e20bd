"""Asynchronous inference on a whole platform: the SDK's classes, and scaling from and to zero."""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.integration.platform import Platform, until
from tests.integration.sdk_rig import SHORT_WAITS
from tests.integration.served_models import IMAGE, ROLE, Served, sklearn_runtimes
from tests.integration.virtual_environments import virtual_environment

from hostelry.base.runtimes import VARIABLE, runtime_python

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
PROGRAM = Path(__file__).parent / "sdk_programs" / "sdk2_async.py"
ARCHIVE = "s3://models/inside.tar.gz"
TARGET: dict[str, Any] = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/queued/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
OF_QUEUE: dict[str, Any] = {
    "Namespace": "AWS/SageMaker",
    "Dimensions": [{"Name": "EndpointName", "Value": "queued"}],
    "Statistic": "Average",
}
NUM_REQUESTS = 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    runtimes = sklearn_runtimes()
    environment = {VARIABLE: str(runtimes), "HOSTELRY_CUSTOM_CODE": "trusted"}
    home = tmp_path_factory.mktemp("home") / "home"
    # AlarmLow then needs one datapoint, and the cooldowns of 300 s are some seconds.
    with Platform(home, "--pace", "90", environment=environment) as platform:
        python = runtime_python(runtimes, "sklearn-1.2")
        yield Served(platform, tmp_path_factory.mktemp("trained"), python)


@pytest.fixture(scope="module")
def program(served: Served) -> "Iterator[Future[str]]":
    """The output of the SDK's program, which runs at the same time as the other test."""
    topic = served.platform.boto3("sns").create_topic(Name="ends")["TopicArn"]
    sqs = served.platform.boto3("sqs")
    sqs.create_queue(QueueName="ends")
    served.platform.boto3("sns").subscribe(
        TopicArn=topic, Protocol="sqs", Endpoint=topic.replace(":sns:", ":sqs:")
    )
    python = virtual_environment("sdk2", "sagemaker<3", "awscli") / "python"
    rows = json.dumps(served.expected["rows"])
    command = [str(python), "-W", "ignore", str(PROGRAM), ARCHIVE, IMAGE, topic, rows]
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(lambda: served.platform.exec(command, SHORT_WAITS).stdout)


@pytest.mark.slow
@pytest.mark.usefixtures("program")
@pytest.mark.thorough
def test_a_backlog_brings_up_the_first_instance_and_its_end_takes_it_away(served: Served) -> None:
    # Source: "Autoscale an asynchronous endpoint" in the SageMaker developer guide.
    create_queued(served)
    scaling = served.platform.boto3("application-autoscaling")
    cloudwatch = served.platform.boto3("cloudwatch")
    scaling.register_scalable_target(**TARGET, MinCapacity=0, MaxCapacity=2)
    scaling.put_scaling_policy(
        **TARGET,
        PolicyName="backlog",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 5.0,
            "CustomizedMetricSpecification": {
                **OF_QUEUE,
                "MetricName": "ApproximateBacklogSizePerInstance",
            },
            "ScaleInCooldown": 300,
            "ScaleOutCooldown": 300,
        },
    )
    served.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="queued",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 0}],
    )
    until(lambda: num_instances(served) == (0, 0), "the endpoint has no instance", 60)
    steps = scaling.put_scaling_policy(
        **TARGET,
        PolicyName="first",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Average",
            "Cooldown": 300,
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        },
    )
    cloudwatch.put_metric_alarm(
        AlarmName="backlog-without-capacity",
        MetricName="HasBacklogWithoutCapacity",
        **OF_QUEUE,
        Period=10,
        EvaluationPeriods=1,
        DatapointsToAlarm=1,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="missing",
        AlarmActions=[steps["PolicyARN"]],
    )
    keys = [submitted(served, f"r{number}") for number in range(NUM_REQUESTS)]
    until(lambda: num_instances(served)[1] >= 1, "the backlog brings up an instance", 90)
    until(lambda: all(is_there(served, it) for it in keys), "every request is answered", 60)
    predicted = pytest.approx(served.expected["predicted"], abs=1e-5)
    for key in keys:
        body = served.s3.get_object(Bucket="answers", Key=key)["Body"].read()
        assert json.loads(body) == predicted
    until(lambda: num_instances(served) == (0, 0), "a drained queue has no instance", 200)
    found = served.sagemaker.describe_endpoint(EndpointName="queued")
    assert found["EndpointStatus"] == "InService"


@pytest.mark.thorough
def test_the_sdks_async_predictor_waits_for_results_and_raises_failures(
    served: Served, program: "Future[str]"
) -> None:
    found = json.loads(program.result().splitlines()[-1])
    predicted = pytest.approx(served.expected["predicted"], abs=1e-5)
    assert found["waited"] == predicted
    assert found["result"] == predicted
    assert found["output"].endswith("/mine.out")
    assert "error" in found["failure"]
    assert found["settings"]["ClientConfig"] == {"MaxConcurrentInvocationsPerInstance": 2}

    sqs = served.platform.boto3("sqs")
    queue = sqs.get_queue_url(QueueName="ends")["QueueUrl"]
    texts: list[dict[str, Any]] = []

    def all_came() -> bool:
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)
        texts.extend(
            json.loads(json.loads(message["Body"])["Message"])
            for message in answer.get("Messages", [])
        )
        return len(texts) >= 4

    until(all_came, "the test message, two successes and a failure")
    names = sorted(it.get("invocationStatus", it["eventName"]) for it in texts)
    assert names == ["Completed", "Completed", "Failed", "TestNotification"]
    assert all(it["eventSource"] == "aws:sagemaker" for it in texts)


def create_queued(served: Served) -> None:
    """The asynchronous endpoint "queued", in service."""
    served.s3.create_bucket(Bucket="answers")
    served.sagemaker.create_model(
        ModelName="queued",
        ExecutionRoleArn=ROLE,
        PrimaryContainer={"Image": IMAGE, "ModelDataUrl": ARCHIVE},
    )
    served.sagemaker.create_endpoint_config(
        EndpointConfigName="queued",
        ProductionVariants=[
            {
                "VariantName": "AllTraffic",
                "ModelName": "queued",
                "InstanceType": "ml.m5.large",
                "InitialInstanceCount": 1,
            }
        ],
        AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": "s3://answers/out"}},
    )
    served.sagemaker.create_endpoint(EndpointName="queued", EndpointConfigName="queued")
    until(
        lambda: (
            served.platform.looker().describe_endpoint(EndpointName="queued")["EndpointStatus"]
            == "InService"
        ),
        "the endpoint is InService",
        90,
    )


def num_instances(served: Served) -> tuple[int, int]:
    """The instances of "queued" that are desired, and those that serve."""
    found = served.platform.looker().describe_endpoint(EndpointName="queued")
    (shown,) = found["ProductionVariants"]
    return shown["DesiredInstanceCount"], shown["CurrentInstanceCount"]


def submitted(served: Served, name: str) -> str:
    """Submit a request, and return the key of its future answer."""
    answer = served.runtime.invoke_endpoint_async(
        EndpointName="queued",
        Body=json.dumps(served.expected["rows"]).encode(),
        ContentType="application/json",
        Accept="application/json",
        InferenceId=name,
    )
    key: str = answer["OutputLocation"].removeprefix("s3://answers/")
    return key


def is_there(served: Served, key: str) -> bool:
    answer = served.s3.list_objects_v2(Bucket="answers", Prefix=key)
    return any(it["Key"] == key for it in answer.get("Contents", []))
