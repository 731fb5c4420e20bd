"""The permissions that operations of SageMaker, Application Auto Scaling, ECR and EC2 need."""

from collections.abc import Iterable, Mapping, Sequence

from hostelry.api.authorization.row import (
    AskedCall,
    KeyRule,
    NeedRow,
    Rows,
    Target,
    TargetRule,
    build_need,
)
from hostelry.api.authorization.targets import build_arn_rule, fill
from hostelry.permissions.needs.needed import ALL, NeededPermission
from hostelry.permissions.wildcard import Context

PRINCIPAL = "sagemaker.amazonaws.com"


def _sagemaker(kind: str, path: str) -> TargetRule:
    """SageMaker's resources of a kind. Their ARNs have the names in lower case."""

    def find(call: AskedCall) -> Sequence[Target]:
        return [Target(call.scope.arn(kind, it)) for it in call.get_values(path)] or (Target(ALL),)

    return find


def _find_tagged(call: AskedCall) -> Sequence[Target]:
    """The resource of AddTags, ListTags and DeleteTags, which ignore the case of ARNs."""
    return [Target(it.lower()) for it in call.get_values("ResourceArn")] or (Target(ALL),)


def _model_keys(path: str) -> KeyRule:
    """`sagemaker:ModelArn` of the models with the names at `path`."""

    def find(call: AskedCall, _: str) -> Context:
        names = dict.fromkeys(call.get_values(path))
        arns = tuple(call.scope.arn("model", name) for name in names)
        return {"sagemaker:modelarn": arns} if arns else {}

    return find


def _kms_keys(key: str, path: str) -> KeyRule:
    """A context key with the ARNs of KMS keys, which requests may name by id or alias."""

    def find(call: AskedCall, _: str) -> Context:
        names = call.get_values(path)
        arns = tuple(call.lookup.find_arn("key", name) or name for name in names)
        return {key.lower(): arns} if arns else {}

    return find


def _find_isolation(call: AskedCall, _: str) -> Context:
    """`sagemaker:NetworkIsolation`, which is false unless the request asks for isolation."""
    return {"sagemaker:networkisolation": call.get_values("EnableNetworkIsolation") or ("false",)}


def _join_variants(member: str) -> str:
    return f"ProductionVariants.{member}|ShadowProductionVariants.{member}"


VPC_KEYS: Mapping[str, str] = {
    "sagemaker:VpcSubnets": "VpcConfig.Subnets",
    "sagemaker:VpcSecurityGroupIds": "VpcConfig.SecurityGroupIds",
}
TAGGING = "sagemaker:AddTags"


def _create(
    *on: TargetRule,
    keys: Mapping[str, str] = {},
    more: tuple[KeyRule, ...] = (),
    role: str = "",
) -> NeedRow:
    """The row of an operation that makes a resource of SageMaker with tags."""
    return NeedRow(
        on=on,
        creates=True,
        keys=keys,
        more=more,
        tags="Tags",
        tagging=TAGGING,
        passes=((role, PRINCIPAL),) if role else (),
    )


def _named_rows(kind: str, path: str, *operations: str) -> dict[str, NeedRow]:
    """The rows of operations on one resource that exists."""
    return {operation: NeedRow(on=(_sagemaker(kind, path),)) for operation in operations}


_ENDPOINT = _sagemaker("endpoint", "EndpointName")
_CONFIG = _sagemaker("endpoint-config", "EndpointConfigName")
_COMPONENT = _sagemaker("inference-component", "InferenceComponentName")
_LISTS = (
    "ListModels", "ListEndpointConfigs", "ListEndpoints", "ListInferenceComponents",
    "ListTransformJobs", "ListInferenceExperiments", "ListInferenceRecommendationsJobs",
    "ListInferenceRecommendationsJobSteps", "ListAIWorkloadConfigs", "ListAIBenchmarkJobs",
    "ListAIRecommendationJobs",
)  # fmt: skip
SAGEMAKER: Rows = {
    **{operation: NeedRow() for operation in _LISTS},
    "CreateModel": _create(
        _sagemaker("model", "ModelName"), keys=VPC_KEYS, more=(_find_isolation,),
        role="ExecutionRoleArn",
    ),
    **_named_rows("model", "ModelName", "DescribeModel", "DeleteModel"),
    "CreateEndpointConfig": _create(
        _CONFIG,
        keys={
            **VPC_KEYS,
            "sagemaker:InstanceTypes": _join_variants("InstanceType")
            + "|" + _join_variants("InstancePools.InstanceType"),
            "sagemaker:AcceleratorTypes": _join_variants("AcceleratorType"),
            "sagemaker:ServerlessMaxConcurrency": _join_variants("ServerlessConfig.MaxConcurrency"),
            "sagemaker:ServerlessMemorySize": _join_variants("ServerlessConfig.MemorySizeInMB"),
        },
        more=(
            _find_isolation,
            _model_keys(
                _join_variants("ModelName")
                + "|" + _join_variants("InstancePools.ModelNameOverride")
            ),
            _kms_keys("sagemaker:VolumeKmsKey", "KmsKeyId"),
        ),
        role="ExecutionRoleArn",
    ),
    **_named_rows(
        "endpoint-config", "EndpointConfigName", "DescribeEndpointConfig", "DeleteEndpointConfig"
    ),
    "CreateEndpoint": _create(_ENDPOINT, _CONFIG),
    "UpdateEndpoint": NeedRow(on=(_ENDPOINT, _CONFIG)),
    **_named_rows(
        "endpoint", "EndpointName", "DescribeEndpoint", "UpdateEndpointWeightsAndCapacities",
        "DeleteEndpoint", "PutEndpointPolicy", "GetEndpointPolicy", "DeleteEndpointPolicy",
    ),
    "CreateInferenceComponent": _create(
        _COMPONENT, _ENDPOINT,
        more=(_model_keys("Specification.ModelName|Specifications.ModelName"),),
    ),
    **_named_rows(
        "inference-component", "InferenceComponentName", "DescribeInferenceComponent",
        "UpdateInferenceComponent", "UpdateInferenceComponentRuntimeConfig",
        "DeleteInferenceComponent",
    ),
    "CreateTransformJob": _create(
        _sagemaker("transform-job", "TransformJobName"),
        keys={"sagemaker:InstanceTypes": "TransformResources.InstanceType"},
        more=(
            _model_keys("ModelName"),
            _kms_keys("sagemaker:OutputKmsKey", "TransformOutput.KmsKeyId"),
            _kms_keys("sagemaker:VolumeKmsKey", "TransformResources.VolumeKmsKeyId"),
        ),
    ),
    **_named_rows("transform-job", "TransformJobName", "DescribeTransformJob", "StopTransformJob"),
    "CreateInferenceRecommendationsJob": _create(
        _sagemaker("inference-recommendations-job", "JobName"), role="RoleArn"
    ),
    **_named_rows(
        "inference-recommendations-job", "JobName", "DescribeInferenceRecommendationsJob",
        "StopInferenceRecommendationsJob",
    ),
    **_named_rows(
        "inference-recommendations-job", "InferenceRecommendationsJobName",
        "GetScalingConfigurationRecommendation",
    ),
    "CreateInferenceExperiment": _create(
        _sagemaker("inference-experiment", "Name"), role="RoleArn"
    ),
    **_named_rows(
        "inference-experiment", "Name", "DescribeInferenceExperiment", "StartInferenceExperiment",
        "StopInferenceExperiment", "UpdateInferenceExperiment", "DeleteInferenceExperiment",
    ),
    "CreateAIWorkloadConfig": _create(_sagemaker("ai-workload-config", "AIWorkloadConfigName")),
    **_named_rows(
        "ai-workload-config", "AIWorkloadConfigName", "DescribeAIWorkloadConfig",
        "DeleteAIWorkloadConfig",
    ),
    "CreateAIBenchmarkJob": _create(
        _sagemaker("ai-benchmark-job", "AIBenchmarkJobName"), role="RoleArn"
    ),
    **_named_rows(
        "ai-benchmark-job", "AIBenchmarkJobName", "DescribeAIBenchmarkJob", "StopAIBenchmarkJob",
        "DeleteAIBenchmarkJob",
    ),
    "CreateAIRecommendationJob": _create(
        _sagemaker("ai-recommendation-job", "AIRecommendationJobName"), role="RoleArn"
    ),
    **_named_rows(
        "ai-recommendation-job", "AIRecommendationJobName", "DescribeAIRecommendationJob",
        "StopAIRecommendationJob", "DeleteAIRecommendationJob",
    ),
    "AddTags": NeedRow(on=(_find_tagged,), tags="Tags"),
    "ListTags": NeedRow(on=(_find_tagged,)),
    "DeleteTags": NeedRow(on=(_find_tagged,), tag_keys="TagKeys"),
}  # fmt: skip


def _find_scalable_target(call: AskedCall) -> Sequence[Target]:
    """The target of a resource and dimension. A target that is not registered has no id yet."""
    pattern = "arn:aws:application-autoscaling:{region}:{account}:scalable-target/{name}"
    resources, dimensions = call.get_values("ResourceId"), call.get_values("ScalableDimension")
    if not resources or not dimensions:
        return (Target(ALL),)
    fallback = fill(pattern, call, "*")
    arn = call.lookup.find_arn("scalable-target", f"{resources[0]}|{dimensions[0]}")
    return (Target(arn or fallback, fallback),)


def _change_capacity(call: AskedCall) -> Iterable[NeededPermission]:
    """The permission to change the scaled capacity oneself.

    Application Auto Scaling's guide asks for it in addition to the service's own actions ("make
    sure that end users have permissions for the target service").
    """
    for resource in call.get_values("ResourceId"):
        kind, _, rest = resource.partition("/")
        name = rest.partition("/")[0]
        if kind == "endpoint":
            action = "sagemaker:UpdateEndpointWeightsAndCapacities"
        elif kind == "inference-component":
            action = "sagemaker:UpdateInferenceComponentRuntimeConfig"
        else:
            continue  # the operations refuse other resources
        yield build_need(call, action, Target(call.scope.arn(kind, name)), {})


_SCALING_KEYS = {
    "application-autoscaling:service-namespace": "ServiceNamespace",
    "application-autoscaling:scalable-dimension": "ScalableDimension",
}
_SCALING_ROLE = ("RoleARN", "application-autoscaling.amazonaws.com")
_CHANGE = NeedRow(on=(_find_scalable_target,), keys=_SCALING_KEYS, further=(_change_capacity,))
_REMOVE = NeedRow(on=(_find_scalable_target,), keys=_SCALING_KEYS)
_DESCRIPTIONS = (
    "DescribeScalableTargets", "DescribeScalingPolicies", "DescribeScheduledActions",
    "DescribeScalingActivities",
)  # fmt: skip
SCALING: Rows = {
    **{operation: NeedRow() for operation in _DESCRIPTIONS},
    "RegisterScalableTarget": NeedRow(
        on=(_find_scalable_target,), keys=_SCALING_KEYS, tags="Tags",
        tagging="application-autoscaling:TagResource", passes=(_SCALING_ROLE,),
        further=(_change_capacity,),
    ),
    "PutScalingPolicy": _CHANGE,
    "PutScheduledAction": _CHANGE,
    "DeregisterScalableTarget": _REMOVE,
    "DeleteScalingPolicy": _REMOVE,
    "DeleteScheduledAction": _REMOVE,
    "TagResource": NeedRow(on=(build_arn_rule("ResourceARN"),), tags="Tags"),
    "UntagResource": NeedRow(on=(build_arn_rule("ResourceARN"),), tag_keys="TagKeys"),
    "ListTagsForResource": NeedRow(on=(build_arn_rule("ResourceARN"),)),
}  # fmt: skip


def _find_repositories(call: AskedCall) -> Sequence[Target]:
    """Repositories in the registry of the request, which is an account."""
    registry = next(iter(call.get_values("registryId")), call.scope.account)
    names = call.get_values("repositoryName|repositoryNames") or ("*",)
    place = f"arn:aws:ecr:{call.scope.region}:{registry}:repository/"
    return [Target(place + name) for name in names]


_REPOSITORY = NeedRow(on=(_find_repositories,))
IMAGES: Rows = {
    "CreateRepository": NeedRow(
        on=(_find_repositories,), creates=True, tags="tags", tagging="ecr:TagResource"
    ),
    "DescribeRepositories": _REPOSITORY,
    "DeleteRepository": _REPOSITORY,
    "ListImages": _REPOSITORY,
    "DescribeImages": _REPOSITORY,
    "BatchGetImage": _REPOSITORY,
    "TagResource": NeedRow(on=(build_arn_rule("resourceArn"),), tags="tags"),
    "UntagResource": NeedRow(on=(build_arn_rule("resourceArn"),), tag_keys="tagKeys"),
    "ListTagsForResource": NeedRow(on=(build_arn_rule("resourceArn"),)),
}


def _find_region(call: AskedCall, _: str) -> Context:
    return {"ec2:region": (call.scope.region,)}


_MACHINES = (
    "DescribeInstanceTypes", "DescribeInstanceTypeOfferings", "DescribeAvailabilityZones",
    "DescribeRegions",
)  # fmt: skip
ROWS: Mapping[str, Rows] = {
    "sagemaker": SAGEMAKER,
    "application-autoscaling": SCALING,
    "ecr": IMAGES,
    "ec2": {operation: NeedRow(more=(_find_region,)) for operation in _MACHINES},
}
