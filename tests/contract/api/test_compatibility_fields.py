"""Each field that docs/compatibility.md says is refused is refused by its name."""

import copy
import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from botocore.model import StructureShape
from tests.contract.api.rig import Api
from tests.contract.wire.conftest import AnyValue

from hostelry.api.compatibility import SERVICES, get_notes
from hostelry.aws.models import service_model
from hostelry.base.errors import ServiceError

ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"
VARIANT = {"VariantName": "v", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}
CONFIG = {"EndpointConfigName": "c", "ProductionVariants": [VARIANT], "ExecutionRoleArn": ROLE}
SOURCE = {"S3Uri": "s3://b/k/", "S3DataType": "S3Prefix", "CompressionType": "None"}
CONTAINER = {"Image": "i", "ModelDataSource": {"S3DataSource": SOURCE}}
MODEL = {"ModelName": "n", "PrimaryContainer": CONTAINER, "ExecutionRoleArn": ROLE}
TRAFFIC = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
GUARD = {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": TRAFFIC}}
ENDPOINT = {"EndpointName": "e", "EndpointConfigName": "there", "DeploymentConfig": GUARD}
NEEDS = {"MinMemoryRequiredInMb": 128}
COMPONENT = {
    "InferenceComponentName": "ic",
    "EndpointName": "e0",
    "VariantName": "v",
    "Specification": {"ModelName": "there", "ComputeResourceRequirements": NEEDS},
    "RuntimeConfig": {"CopyCount": 1},
}
WEIGHT = {"VariantName": "v", "DesiredWeight": 1.0}
WEIGHTS = {"EndpointName": "e0", "DesiredWeightsAndCapacities": [WEIGHT]}
METRIC = {"MetricName": "m", "Namespace": "n"}
ALARM = {
    **METRIC,
    "AlarmName": "a",
    "Statistic": "Sum",
    "Period": 60,
    "EvaluationPeriods": 1,
    "Threshold": 1.0,
    "ComparisonOperator": "GreaterThanThreshold",
}
STAT = {"Metric": METRIC, "Period": 60, "Stat": "Sum"}
DATA = {
    "MetricDataQueries": [{"Id": "q", "MetricStat": STAT}],
    "StartTime": 1_700_000_000.0,
    "EndTime": 1_700_000_600.0,
}
TOPIC = "arn:aws:sns:us-west-2:123456789012:there"
QUEUE = "http://127.0.0.1:8787/123456789012/there"
S3_KEY = "alias/aws/s3"
DATA_KEY = {"KeyId": S3_KEY, "KeySpec": "AES_256"}
TRANSFORM_SOURCE = {"S3DataType": "S3Prefix", "S3Uri": "s3://b/k/"}
TRANSFORM = {
    "TransformJobName": "t",
    "ModelName": "there",
    "TransformInput": {"DataSource": {"S3DataSource": TRANSFORM_SOURCE}},
    "TransformOutput": {"S3OutputPath": "s3://b/out/"},
    "TransformResources": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
}
RECOMMENDATIONS = {
    "JobName": "j",
    "JobType": "Advanced",
    "RoleArn": ROLE,
    "InputConfig": {
        "ModelName": "there",
        "ContainerConfig": {
            "PayloadConfig": {
                "SamplePayloadUrl": "s3://b/k.tar.gz",
                "SupportedContentTypes": ["text/csv"],
            }
        },
        "EndpointConfigurations": [{"InstanceType": "ml.m5.xlarge"}],
    },
    "OutputConfig": {},
}
WORKLOAD = {
    "AIWorkloadConfigName": "w",
    "AIWorkloadConfigs": {
        "WorkloadSpec": {
            "Inline": '{"benchmark": {"type": "aiperf"}, "parameters":'
            ' {"prompt_input_tokens_mean": 550}}'
        }
    },
}
AI_BENCHMARK = {
    "AIBenchmarkJobName": "j",
    "BenchmarkTarget": {"Endpoint": {"Identifier": "e0"}},
    "OutputConfig": {"S3OutputLocation": "s3://b/out/"},
    "AIWorkloadConfigIdentifier": "there",
    "RoleArn": ROLE,
}
AI_RECOMMENDATION = {
    "AIRecommendationJobName": "j",
    "ModelSource": {"S3": {"S3Uri": "s3://b/k/"}},
    "OutputConfig": {"S3OutputLocation": "s3://b/out/"},
    "AIWorkloadConfigIdentifier": "there",
    "PerformanceTarget": {"Constraints": [{"Metric": "throughput"}]},
    "RoleArn": ROLE,
    "ComputeSpec": {"InstanceTypes": ["ml.g5.xlarge"]},
}
AI_RECOMMEND = "CreateAIRecommendationJob"
RECOMMEND = "CreateInferenceRecommendationsJob"
Base = tuple[str, dict[str, Any], tuple[str | int, ...]]
# Shape -> operation, a request that is valid without the field, and the shape's place in it.
SCHEDULER_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "scheduler.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}
SCHEDULE = {
    "Name": "new",
    "ScheduleExpression": "rate(1 day)",
    "FlexibleTimeWindow": {"Mode": "OFF"},
    "Target": {
        "Arn": "arn:aws:scheduler:::aws-sdk:sagemaker:deleteModel",
        "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
        "Input": "{}",
    },
}
RULE = {"Name": "there", "EventPattern": '{"source": ["a"]}'}
RULE_TARGETS = {"Rule": "there", "Targets": [{"Id": "1", "Arn": "arn:aws:sqs:r:123456789012:q"}]}
EVENT = {"Source": "a", "DetailType": "b", "Detail": "{}"}
BASES: dict[tuple[str, str], Base] = {
    ("scheduler", "CreateScheduleInput"): ("CreateSchedule", SCHEDULE, ()),
    ("scheduler", "UpdateScheduleInput"): ("UpdateSchedule", {**SCHEDULE, "Name": "there"}, ()),
    ("events", "PutRuleRequest"): ("PutRule", RULE, ()),
    ("events", "Target"): ("PutTargets", RULE_TARGETS, ("Targets", 0)),
    ("events", "PutEventsRequest"): ("PutEvents", {"Entries": [EVENT]}, ()),
    ("scheduler", "Target"): ("CreateSchedule", SCHEDULE, ("Target",)),
    ("sagemaker", "CreateEndpointConfigInput"): ("CreateEndpointConfig", CONFIG, ()),
    ("sagemaker", "ProductionVariant"): ("CreateEndpointConfig", CONFIG, ("ProductionVariants", 0)),
    ("sagemaker", "ProductionVariantRoutingConfig"): (
        "CreateEndpointConfig",
        {
            **CONFIG,
            "ProductionVariants": [{**VARIANT, "RoutingConfig": {"RoutingStrategy": "RANDOM"}}],
        },
        ("ProductionVariants", 0, "RoutingConfig"),
    ),
    ("sagemaker", "ContainerDefinition"): ("CreateModel", MODEL, ("PrimaryContainer",)),
    ("sagemaker", "InferenceExecutionConfig"): (
        "CreateModel",
        {**MODEL, "InferenceExecutionConfig": {"Mode": "Serial"}},
        ("InferenceExecutionConfig",),
    ),
    ("sagemaker", "S3ModelDataSource"): (
        "CreateModel",
        MODEL,
        ("PrimaryContainer", "ModelDataSource", "S3DataSource"),
    ),
    ("sagemaker", "TransformS3DataSource"): (
        "CreateTransformJob",
        TRANSFORM,
        ("TransformInput", "DataSource", "S3DataSource"),
    ),
    ("sagemaker", "CreateAIWorkloadConfigRequest"): ("CreateAIWorkloadConfig", WORKLOAD, ()),
    ("sagemaker", "CreateAIRecommendationJobRequest"): (AI_RECOMMEND, AI_RECOMMENDATION, ()),
    ("sagemaker", "AIRecommendationOutputConfig"): (
        AI_RECOMMEND,
        AI_RECOMMENDATION,
        ("OutputConfig",),
    ),
    ("sagemaker", "AIRecommendationComputeSpec"): (
        AI_RECOMMEND,
        AI_RECOMMENDATION,
        ("ComputeSpec",),
    ),
    ("sagemaker", "CreateAIBenchmarkJobRequest"): ("CreateAIBenchmarkJob", AI_BENCHMARK, ()),
    ("sagemaker", "AIBenchmarkOutputConfig"): (
        "CreateAIBenchmarkJob",
        AI_BENCHMARK,
        ("OutputConfig",),
    ),
    ("sagemaker", "AIBenchmarkEndpoint"): (
        "CreateAIBenchmarkJob",
        AI_BENCHMARK,
        ("BenchmarkTarget", "Endpoint"),
    ),
    ("sagemaker", "EndpointInputConfiguration"): (
        RECOMMEND,
        RECOMMENDATIONS,
        ("InputConfig", "EndpointConfigurations", 0),
    ),
    ("sagemaker", "RecommendationJobContainerConfig"): (
        RECOMMEND,
        RECOMMENDATIONS,
        ("InputConfig", "ContainerConfig"),
    ),
    ("sagemaker", "RecommendationJobInputConfig"): (RECOMMEND, RECOMMENDATIONS, ("InputConfig",)),
    ("sagemaker", "RecommendationJobOutputConfig"): (RECOMMEND, RECOMMENDATIONS, ("OutputConfig",)),
    ("sagemaker", "DeploymentConfig"): ("CreateEndpoint", ENDPOINT, ("DeploymentConfig",)),
    ("sagemaker", "TrafficRoutingConfig"): (
        "CreateEndpoint",
        ENDPOINT,
        ("DeploymentConfig", "BlueGreenUpdatePolicy", "TrafficRoutingConfiguration"),
    ),
    ("sagemaker", "DesiredWeightAndCapacity"): (
        "UpdateEndpointWeightsAndCapacities",
        WEIGHTS,
        ("DesiredWeightsAndCapacities", 0),
    ),
    ("sagemaker", "InferenceComponentComputeResourceRequirements"): (
        "CreateInferenceComponent",
        COMPONENT,
        ("Specification", "ComputeResourceRequirements"),
    ),
    ("cloudwatch", "PutMetricAlarmInput"): ("PutMetricAlarm", ALARM, ()),
    ("cloudwatch", "PutCompositeAlarmInput"): (
        "PutCompositeAlarm",
        {"AlarmName": "c", "AlarmRule": "FALSE"},
        (),
    ),
    ("cloudwatch", "GetMetricDataInput"): ("GetMetricData", DATA, ()),
    ("logs", "CreateLogGroupRequest"): ("CreateLogGroup", {"logGroupName": "g"}, ()),
    ("sts", "AssumeRoleRequest"): (
        "AssumeRole",
        {"RoleArn": ROLE, "RoleSessionName": "me"},
        (),
    ),
    ("sts", "GetSessionTokenRequest"): ("GetSessionToken", {}, ()),
    ("sts", "AssumeRoleWithWebIdentityRequest"): (
        "AssumeRoleWithWebIdentity",
        {"RoleArn": ROLE, "RoleSessionName": "me", "WebIdentityToken": "token"},
        (),
    ),
    ("iam", "CreateOpenIDConnectProviderRequest"): (
        "CreateOpenIDConnectProvider",
        {"Url": "https://id.example"},
        (),
    ),
    ("iam", "CreateRoleRequest"): (
        "CreateRole",
        {"RoleName": "r2", "AssumeRolePolicyDocument": json.dumps(SCHEDULER_TRUST)},
        (),
    ),
    ("iam", "UpdateRoleRequest"): ("UpdateRole", {"RoleName": "scheduler"}, ()),
    ("iam", "SimulatePrincipalPolicyRequest"): (
        "SimulatePrincipalPolicy",
        {"PolicySourceArn": ROLE, "ActionNames": ["s3:GetObject"]},
        (),
    ),
    ("iam", "SimulateCustomPolicyRequest"): (
        "SimulateCustomPolicy",
        {"PolicyInputList": [], "ActionNames": ["s3:GetObject"]},
        (),
    ),
    ("sns", "CreateTopicInput"): ("CreateTopic", {"Name": "t2"}, ()),
    ("sns", "PublishInput"): ("Publish", {"TopicArn": TOPIC, "Message": "m"}, ()),
    ("sqs", "SendMessageRequest"): ("SendMessage", {"QueueUrl": QUEUE, "MessageBody": "m"}, ()),
    ("sqs", "ReceiveMessageRequest"): ("ReceiveMessage", {"QueueUrl": QUEUE}, ()),
    ("sqs", "MessageAttributeValue"): (
        "SendMessage",
        {
            "QueueUrl": QUEUE,
            "MessageBody": "m",
            "MessageAttributes": {"a": {"DataType": "String", "StringValue": "v"}},
        },
        ("MessageAttributes", "a"),
    ),
    ("kms", "CreateKeyRequest"): ("CreateKey", {}, ()),
    ("kms", "EncryptRequest"): ("Encrypt", {"KeyId": S3_KEY, "Plaintext": b"p"}, ()),
    ("kms", "DecryptRequest"): ("Decrypt", {"KeyId": S3_KEY, "CiphertextBlob": b"c"}, ()),
    ("kms", "ReEncryptRequest"): (
        "ReEncrypt",
        {"CiphertextBlob": b"c", "DestinationKeyId": S3_KEY},
        (),
    ),
    ("kms", "GenerateDataKeyRequest"): ("GenerateDataKey", DATA_KEY, ()),
    ("kms", "GenerateDataKeyWithoutPlaintextRequest"): (
        "GenerateDataKeyWithoutPlaintext",
        DATA_KEY,
        (),
    ),
    ("kms", "GenerateRandomRequest"): ("GenerateRandom", {"NumberOfBytes": 8}, ()),
    ("secretsmanager", "CreateSecretRequest"): (
        "CreateSecret",
        {"Name": "s2", "SecretString": "v"},
        (),
    ),
    ("secretsmanager", "PutSecretValueRequest"): (
        "PutSecretValue",
        {"SecretId": "s", "SecretString": "v"},
        (),
    ),
    ("secretsmanager", "UpdateSecretRequest"): ("UpdateSecret", {"SecretId": "s"}, ()),
    ("ecr", "CreateRepositoryRequest"): ("CreateRepository", {"repositoryName": "r2"}, ()),
}
REFUSED = [
    pytest.param(service, *key.partition("=")[::2], id=f"{service} {key}")
    for service in SERVICES
    for key in get_notes(service)["refused"]
    if service not in ("application-autoscaling", "cloudtrail")  # their own tests have them
]


TRUST = json.dumps(SCHEDULER_TRUST)
ROLE_OF_SCHEDULES = ("CreateRole", {"RoleName": "scheduler", "AssumeRolePolicyDocument": TRUST})
# The resources in the requests above: a model, a configuration, an endpoint for components ...
THERE: Mapping[str, Sequence[tuple[str, dict[str, Any]]]] = {
    "sagemaker": [
        ("CreateModel", {**MODEL, "ModelName": "there"}),
        ("CreateEndpointConfig", {**CONFIG, "EndpointConfigName": "there"}),
        ("CreateEndpoint", {"EndpointName": "e0", "EndpointConfigName": "there"}),
        ("CreateAIWorkloadConfig", {**WORKLOAD, "AIWorkloadConfigName": "there"}),
    ],
    "secretsmanager": [("CreateSecret", {"Name": "s", "SecretString": "v"})],
    "sns": [("CreateTopic", {"Name": "there"})],
    "sqs": [("CreateQueue", {"QueueName": "there"})],
    "events": [("PutRule", RULE)],
    "iam": [ROLE_OF_SCHEDULES],
    "scheduler": [("CreateSchedule", {**SCHEDULE, "Name": "there"})],
}


@pytest.fixture
def there(api: Api, service: str) -> None:
    """The resources that requests to the service name."""
    if service == "scheduler":
        api.call("CreateRole", "iam", **dict(ROLE_OF_SCHEDULES[1]))
    for operation, params in THERE.get(service, ()):
        api.call(operation, service, **params)


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(("service", "field", "value"), REFUSED)
def test_a_refused_field_is_named_in_the_error(
    api: Api, service: str, field: str, value: str
) -> None:
    shape_name, _, member = field.partition(".")
    operation, base, place = BASES[service, shape_name]
    shape = service_model(service).shape_for(shape_name)
    assert isinstance(shape, StructureShape)
    request = copy.deepcopy(base)
    inner: Any = request
    for step in place:
        inner = inner[step]
    sample = AnyValue(random=Random(1), full=True, constrained=True)
    is_flag = shape.members[member].type_name == "boolean"
    given = value == "true" if is_flag else value
    inner[member] = given or sample.of(shape.members[member])
    with pytest.raises(ServiceError) as refused:
        api.call(operation, service, **request)
    assert refused.value.code.startswith(("Validation", "InvalidParameter", "Unsupported"))
    assert member.removesuffix("PolicyConfiguration") in refused.value.message


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("service", "operation", "base"),
    [(service, operation, base) for (service, _), (operation, base, _) in BASES.items()],
)
def test_the_request_without_the_field_is_accepted_by_the_checks(
    api: Api, service: str, operation: str, base: dict[str, Any]
) -> None:
    refusal = ""
    try:
        api.call(operation, service, **base)
    except ServiceError as error:
        refusal = error.message
    # The endpoint is Creating yet: that is looked at after the fields.
    may_say = ("in-progress", "Creating", "not a valid JWT")  # the token is looked at then, too
    assert not refusal or any(it in refusal for it in may_say), refusal
