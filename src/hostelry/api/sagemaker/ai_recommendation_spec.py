"""Parses and checks a CreateAIRecommendationJob request."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, Params
from hostelry.api.iam.execution_role import check_execution_role
from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.api.sagemaker.ai_benchmark_job import find_identified
from hostelry.api.sagemaker.model import ARCHIVE_SUFFIXES, build_archive_source, parse_s3_uri
from hostelry.aws.models import service_model
from hostelry.base.errors import validation_error
from hostelry.domain.ai_benchmark_job import AiWorkloadConfig
from hostelry.domain.model import ArtifactSource, Container, Model, SourceKind
from hostelry.domain.recommendation_job import (
    SEARCH_S,
    BenchmarkStep,
    LlmObjective,
    LlmSearch,
    RecommendationJob,
    RecommendationJobType,
    RecommendationStatus,
)
from hostelry.domain.status import RECOMMENDATION_SLACK_S
from hostelry.recommendations.configurations import choose_llm_types

KIND = "ai-recommendation-job"
MAX_TYPES = 3
START_S = 5_400.0  # of the job's duration, for an instance to run and its model to be loaded
DEFAULT_FRAMEWORK = "LMI"
REGISTRY = "763104351884.dkr.ecr.{}.amazonaws.com/"
IMAGES: Mapping[str, str] = {
    "LMI": REGISTRY + "djl-inference:0.33.0-lmi15.0.0-cu128",
    "VLLM": REGISTRY + "vllm:0.11.2-gpu-py312-cu129-ubuntu22.04-sagemaker",
}


def build_ai_job(context: CallContext, params: Params) -> RecommendationJob:
    """The job of a request, with a step for each instance type. Raises ValidationException."""
    scope, name, now = context.scope, params["AIRecommendationJobName"], context.now
    _refuse_unsupported(params)
    check_execution_role(context, {"ExecutionRoleArn": params["RoleArn"]})
    search = _build_search(context, params)
    types = _choose_types(context, params)
    if search.objective is LlmObjective.COST:
        _check_prices(context, types)
    duration_s = len(types) * (START_S + SEARCH_S)
    return RecommendationJob(
        scope=scope,
        name=name,
        arn=scope.arn(KIND, name),
        created_at=now,
        modified_at=now,
        status=RecommendationStatus.PENDING,
        kind=RecommendationJobType.DEFAULT,
        model=_build_model(context, params),
        search=search,
        duration_s=duration_s,
        steps=tuple(
            BenchmarkStep(number=number, instance_type=it)
            for number, it in enumerate(types, start=1)
        ),
        deadline_at=now + duration_s + RECOMMENDATION_SLACK_S,
        given={key: value for key, value in params.items() if key != "Tags"},
    )


def _refuse_unsupported(params: Params) -> None:
    output, compute = params["OutputConfig"], params.get("ComputeSpec") or {}
    refuse_fields(output, ("ModelPackageGroupIdentifier", "MlflowConfig"), "OutputConfig.")
    refuse_fields(compute, ("CapacityReservationConfig",), "ComputeSpec.")
    if params.get("AdapterSource") is not None:
        raise unsupported(
            "AdapterSource",
            "Create inference components of the adapters, and an AI benchmark job that names them.",
        )
    if params.get("OptimizeModel"):
        raise unsupported(
            "OptimizeModel=true",
            "Models are measured as they are, without quantization, speculative decoding or"
            " kernel tuning; give false, or leave it out.",
        )


def _build_search(context: CallContext, params: Params) -> LlmSearch:
    identifier = params["AIWorkloadConfigIdentifier"]
    config: AiWorkloadConfig = find_identified(context, "ai-workload-config", identifier)
    if config.workload.request_rate_per_s is not None:
        raise validation_error(
            f'AIWorkloadConfigIdentifier: the workload "{config.arn}" has request_rate; the job'
            " searches the highest number of users, so give concurrency, the most of them."
        )
    output = params["OutputConfig"].get("S3OutputLocation")
    path = "OutputConfig.S3OutputLocation"
    if not output:
        raise validation_error(f"{path} is required: the prefix of the results.")
    return LlmSearch(
        workload_name=config.name,
        workload=config.workload,
        objective=_parse_objective(params["PerformanceTarget"]["Constraints"]),
        output_uri=parse_s3_uri(output, path, is_prefix=True),
        chain_length=context.chain_length,
    )


def _parse_objective(constraints: Any) -> LlmObjective:
    if len(constraints) != 1:
        raise validation_error(
            f"PerformanceTarget.Constraints has {len(constraints)} entries; give one Metric, by"
            " which recommendations are ordered."
        )
    return LlmObjective(constraints[0]["Metric"])


def _build_model(context: CallContext, params: Params) -> Model:
    """The job's own model, which no client sees."""
    scope, name = context.scope, params["AIRecommendationJobName"]
    uri = (params["ModelSource"].get("S3") or {}).get("S3Uri")
    if not uri:
        raise validation_error("ModelSource.S3.S3Uri is required: the model's files.")
    framework = (params.get("InferenceSpecification") or {}).get("Framework", DEFAULT_FRAMEWORK)
    image = IMAGES[framework].format(scope.region)
    return Model(
        scope=scope,
        name=name,
        arn=scope.arn(KIND, name),
        created_at=context.now,
        containers=(Container(image=image, source=_build_source(uri)),),
        given={},
    )


def _build_source(uri: str) -> ArtifactSource:
    """An archive, or the objects under a prefix, which may lack its slash."""
    path = "ModelSource.S3.S3Uri"
    if uri.endswith(ARCHIVE_SUFFIXES):
        return build_archive_source(uri, path)
    found = parse_s3_uri(uri, path).rstrip("/")
    return ArtifactSource(uri=f"{found}/", kind=SourceKind.PREFIX)


def _choose_types(context: CallContext, params: Params) -> tuple[str, ...]:
    """The instance types of the request, or types that the platform chooses."""
    asked = (params.get("ComputeSpec") or {}).get("InstanceTypes") or ()
    unknown = [it for it in asked if it not in context.instance_types]
    if unknown:
        raise validation_error(
            f'ComputeSpec.InstanceTypes has "{unknown[0]}", which is not an instance type that'
            " Hostelry knows."
        )
    if asked:
        return tuple(dict.fromkeys(asked))
    names = service_model("sagemaker").shape_for("ProductionVariantInstanceType").enum
    known = [it for name, it in context.instance_types.items() if name in names]
    return choose_llm_types(known, context.machine, MAX_TYPES)


def _check_prices(context: CallContext, types: tuple[str, ...]) -> None:
    for name in types:
        if context.find_price(name) is None:
            raise validation_error(
                f"PerformanceTarget.Constraints has the metric cost, and the price of {name} is"
                " not known; add it to prices.toml."
            )
