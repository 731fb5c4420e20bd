"""Parses and checks a CreateInferenceRecommendationsJob request."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.context import CallContext, Params
from hostelry.api.iam.execution_role import check_execution_role
from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.api.sagemaker.kinds import ENDPOINTS, MODELS
from hostelry.api.sagemaker.model import parse_s3_uri
from hostelry.aws.models import service_model
from hostelry.base.errors import validation_error
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.hidden_endpoint import is_hidden
from hostelry.domain.model import Model
from hostelry.domain.recommendation_job import (
    DEFAULT_PERCENTILE,
    BenchmarkStep,
    RecommendationJob,
    RecommendationJobType,
    RecommendationStatus,
    SamplePayload,
    StoppingRules,
    TrafficPhase,
)
from hostelry.domain.status import RECOMMENDATION_SLACK_S
from hostelry.domain.validation import check_limit
from hostelry.recommendations.configurations import (
    Configuration,
    ConfigurationRange,
    choose_instance_types,
    expand_ranges,
)
from hostelry.recommendations.traffic import (
    DEFAULT_TRAFFIC,
    MAX_USERS,
    build_stairs,
    count_most_users,
    get_duration_s,
)

KIND = "inference-recommendations-job"
MAX_DURATION_S = 18_000
DEFAULT_DURATION_S = {
    RecommendationJobType.DEFAULT: 2_700,
    RecommendationJobType.ADVANCED: 7_200,
}
DEFAULT_TESTS = 10
MAX_TESTS = 100
PERCENTILES = {"P95": 0.95, "P99": 0.99}
FOR_ADVANCED = ("TrafficPattern", "ResourceLimit", "EndpointConfigurations")
RETURNS_HERE = "FlatInvocations"


def build_job(context: CallContext, params: Params) -> RecommendationJob:
    """The job of a request, with its steps. Raises ValidationException."""
    scope, name, now = context.scope, params["JobName"], context.now
    kind = RecommendationJobType(params["JobType"])
    given, stopping = params["InputConfig"], params.get("StoppingConditions")
    refuse_fields(params.get("OutputConfig") or {}, ("CompiledOutputConfig",), "OutputConfig.")
    check_execution_role(context, {"ExecutionRoleArn": params["RoleArn"]})
    if kind is RecommendationJobType.DEFAULT:
        _check_default(given, stopping)
    container = given.get("ContainerConfig") or {}
    _check_endpoint_type(container)
    model = _find_model(context, given)
    limit = given.get("ResourceLimit") or {}
    duration_s = _get_duration_s(given, kind)
    traffic = _build_traffic(given.get("TrafficPattern"), duration_s)
    return RecommendationJob(
        scope=scope,
        name=name,
        arn=scope.arn(KIND, name),
        created_at=now,
        modified_at=now,
        status=RecommendationStatus.PENDING,
        kind=kind,
        model=model,
        payload=_build_payload(container),
        traffic=traffic,
        stopping=_build_stopping(stopping or {}),
        duration_s=duration_s,
        max_parallel=limit.get("MaxParallelOfTests", 1),
        steps=_build_steps(context, given, model),
        deadline_at=now + duration_s + RECOMMENDATION_SLACK_S,
        given={key: value for key, value in params.items() if key != "Tags"},
    )


def _check_default(given: Mapping[str, Any], stopping: Mapping[str, Any] | None) -> None:
    asked = [f"InputConfig.{it}" for it in FOR_ADVANCED if given.get(it) is not None]
    asked += ["StoppingConditions"] if stopping else []
    if asked:
        raise validation_error(
            f"{asked[0]} is for JobType Advanced. A job of JobType Default chooses instance types"
            " and traffic by itself."
        )


def _check_endpoint_type(container: Mapping[str, Any]) -> None:
    if container.get("SupportedEndpointType") == "Serverless":
        raise unsupported(
            "InputConfig.ContainerConfig.SupportedEndpointType=Serverless",
            "Jobs measure instances; give RealTime, or leave it out.",
        )


def _find_model(context: CallContext, given: Mapping[str, Any]) -> Model | None:
    if given.get("ModelPackageVersionArn"):
        raise unsupported(
            "InputConfig.ModelPackageVersionArn",
            "Hostelry has no model registry; create a model, and give its ModelName.",
        )
    name = given.get("ModelName")
    if not name:
        if given.get("Endpoints"):
            return None
        raise validation_error(
            "InputConfig.ModelName is required, unless InputConfig.Endpoints names an endpoint."
        )
    model = MODELS.find(context, name).value
    problem = None
    if model.is_multi_model:
        problem = "a multi-model container, whose requests name a model"
    elif model.is_direct:
        problem = "InferenceExecutionConfig.Mode Direct: its requests name a container"
    if problem is not None:
        raise unsupported(
            f'InputConfig.ModelName "{name}" with {problem}',
            "Create a model of the one model or container that is to be measured.",
        )
    return model


def _get_duration_s(given: Mapping[str, Any], kind: RecommendationJobType) -> float:
    asked = given.get("JobDurationInSeconds", DEFAULT_DURATION_S[kind])
    if asked > MAX_DURATION_S:
        raise validation_error(
            f"InputConfig.JobDurationInSeconds is {asked}; at most {MAX_DURATION_S} is possible."
        )
    return float(asked)


def _build_payload(container: Mapping[str, Any]) -> SamplePayload:
    path = "InputConfig.ContainerConfig.PayloadConfig"
    given = container.get("PayloadConfig") or {}
    if not given.get("SamplePayloadUrl"):
        raise validation_error(
            f"{path}.SamplePayloadUrl is required: a .tar.gz in S3 of one or more request bodies."
        )
    uri = parse_s3_uri(given["SamplePayloadUrl"], f"{path}.SamplePayloadUrl")
    types = tuple(it for it in given.get("SupportedContentTypes") or () if it)
    if not types:
        raise validation_error(
            f"{path}.SupportedContentTypes is required: the content type of the request bodies."
        )
    answers = tuple(container.get("SupportedResponseMIMETypes") or ())
    for content_type in (*types, *answers):
        if not content_type.isprintable() or not content_type.isascii():
            raise validation_error(
                f"InputConfig.ContainerConfig has {content_type!a}, which is no content type."
            )
    accept = ", ".join(answers)
    return SamplePayload(uri=uri, content_types=types, accept=accept or None)


def _build_traffic(given: Mapping[str, Any] | None, duration_s: float) -> tuple[TrafficPhase, ...]:
    if given is None:
        return DEFAULT_TRAFFIC
    path = "InputConfig.TrafficPattern"
    kind = given.get("TrafficType", "PHASES")
    needed, other = ("Phases", "Stairs") if kind == "PHASES" else ("Stairs", "Phases")
    if given.get(needed) is None or given.get(other) is not None:
        raise validation_error(f"{path}: TrafficType {kind} needs {needed}, and excludes {other}.")
    found = _build_stairs(given["Stairs"], path) if needed == "Stairs" else _build_phases(given)
    most = count_most_users(found)
    if most > MAX_USERS:
        raise validation_error(f"{path} has up to {most} users; at most {MAX_USERS} are possible.")
    if get_duration_s(found) > duration_s:
        raise validation_error(
            f"{path} takes {get_duration_s(found):g} s, longer than the job:"
            f" InputConfig.JobDurationInSeconds is {duration_s:g}."
        )
    return found


def _build_phases(given: Mapping[str, Any]) -> tuple[TrafficPhase, ...]:
    found = []
    for number, phase in enumerate(given["Phases"], start=1):
        for member in ("InitialNumberOfUsers", "DurationInSeconds"):
            if phase.get(member) is None:
                raise validation_error(
                    f"InputConfig.TrafficPattern.Phases.{number}.{member} is required."
                )
        found.append(
            TrafficPhase(
                initial_users=phase["InitialNumberOfUsers"],
                users_per_minute=phase.get("SpawnRate", 0),
                duration_s=float(phase["DurationInSeconds"]),
            )
        )
    return tuple(found)


def _build_stairs(given: Mapping[str, Any], path: str) -> tuple[TrafficPhase, ...]:
    for member in ("DurationInSeconds", "NumberOfSteps", "UsersPerStep"):
        if given.get(member) is None:
            raise validation_error(f"{path}.Stairs.{member} is required.")
    num_steps = given["NumberOfSteps"]
    if num_steps > MAX_USERS:
        raise validation_error(
            f"{path}.Stairs.NumberOfSteps is {num_steps}; at most {MAX_USERS} are possible."
        )
    return build_stairs(float(given["DurationInSeconds"]), num_steps, given["UsersPerStep"])


def _build_stopping(given: Mapping[str, Any]) -> StoppingRules:
    most = given.get("MaxInvocations")
    if most is not None and most < 1:
        raise validation_error(f"StoppingConditions.MaxInvocations is {most}; give 1 or more.")
    percentile, latency_ms = DEFAULT_PERCENTILE, None
    for threshold in given.get("ModelLatencyThresholds") or ():
        path = "StoppingConditions.ModelLatencyThresholds.1"
        name, latency_ms = threshold.get("Percentile", "P95"), threshold.get("ValueInMilliseconds")
        if name not in PERCENTILES:
            raise validation_error(
                f'{path}.Percentile is "{name}"; it must be {" or ".join(PERCENTILES)}.'
            )
        if latency_ms is None or latency_ms < 1:
            raise validation_error(f"{path}.ValueInMilliseconds is {latency_ms}; give 1 or more.")
        percentile = PERCENTILES[name]
    return StoppingRules(
        max_invocations=most,
        percentile=percentile,
        latency_ms=None if latency_ms is None else float(latency_ms),
        stops_when_flat=given.get("FlatInvocations", "Stop") == "Stop",
    )


def _build_steps(
    context: CallContext, given: Mapping[str, Any], model: Model | None
) -> tuple[BenchmarkStep, ...]:
    """The steps: the client's endpoint first, then instance types."""
    found = [
        BenchmarkStep(
            number=number,
            endpoint_name=endpoint.name,
            endpoint_created_at=endpoint.created_at,
        )
        for number, endpoint in enumerate(_find_endpoints(context, given), start=1)
    ]
    if model is None:
        _refuse_configurations(given)
        return tuple(found)
    for number, one in enumerate(_choose_configurations(context, given), start=len(found) + 1):
        found.append(
            BenchmarkStep(
                number=number, instance_type=one.instance_type, environment=one.environment
            )
        )
    return tuple(found)


def _refuse_configurations(given: Mapping[str, Any]) -> None:
    if given.get("EndpointConfigurations"):
        raise validation_error(
            "InputConfig.EndpointConfigurations needs InputConfig.ModelName, the model that they"
            " are measured with."
        )


def _find_endpoints(context: CallContext, given: Mapping[str, Any]) -> list[Endpoint]:
    found = []
    for one in given.get("Endpoints") or ():
        name = one.get("EndpointName")
        if not name or is_hidden(name):
            raise validation_error("InputConfig.Endpoints.1.EndpointName is required.")
        endpoint = ENDPOINTS.find(context, name).value
        problem = explain_unfit(endpoint)
        if problem is not None:
            raise validation_error(f'InputConfig.Endpoints.1: endpoint "{endpoint.arn}" {problem}.')
        found.append(endpoint)
    return found


def explain_unfit(endpoint: Endpoint) -> str | None:
    """Say why an endpoint cannot be measured, or None if it can."""
    active = endpoint.active
    if endpoint.status is not EndpointStatus.IN_SERVICE:
        return f"is {endpoint.status.value}, and must be InService"
    if endpoint.takes_components:
        return "hosts inference components, whose requests name a component"
    if active.config.async_inference is not None:
        return "is asynchronous"
    if len(active.production) != 1:
        return f"has {len(active.production)} production variants; exactly one can be measured"
    (live,) = active.production
    if live.serverless is not None:
        return "is serverless; only endpoints on instances can be measured"
    if any(it.is_multi_model or it.is_direct for it in live.models):
        return "has a model whose requests name a model or container"
    return None


def _choose_configurations(
    context: CallContext, given: Mapping[str, Any]
) -> Sequence[Configuration]:
    """The configurations of the request, or on types that the platform chooses."""
    most = (given.get("ResourceLimit") or {}).get("MaxNumberOfTests", DEFAULT_TESTS)
    check_limit("InputConfig.ResourceLimit.MaxNumberOfTests", most, MAX_TESTS)
    supported = _get_supported_types(context, given)
    asked = given.get("EndpointConfigurations")
    if asked:
        ranges = [_build_range(it, f"{number}") for number, it in enumerate(asked, start=1)]
        named = [it.instance_type for it in ranges]
        _check_types(context, "EndpointConfigurations", named)
        outside = [it for it in named if supported and it not in supported]
        if outside:
            raise validation_error(
                f"InputConfig.EndpointConfigurations has InstanceType {outside[0]}, which is not"
                " among ContainerConfig.SupportedInstanceTypes."
            )
        return expand_ranges(ranges, most)
    types = supported or _choose_types(context)
    return expand_ranges([ConfigurationRange(instance_type=it) for it in types], most)


def _choose_types(context: CallContext) -> tuple[str, ...]:
    """Types that the service's model has, too, because clients deploy recommendations."""
    names = service_model("sagemaker").shape_for("ProductionVariantInstanceType").enum
    known = [it for name, it in context.instance_types.items() if name in names]
    return choose_instance_types(known, context.machine)


def _get_supported_types(context: CallContext, given: Mapping[str, Any]) -> tuple[str, ...]:
    container = given.get("ContainerConfig") or {}
    found = tuple(container.get("SupportedInstanceTypes") or ())
    _check_types(context, "ContainerConfig.SupportedInstanceTypes", found)
    return found


def _check_types(context: CallContext, member: str, types: Sequence[str]) -> None:
    unknown = [it for it in types if it not in context.instance_types]
    if unknown:
        raise validation_error(
            f'InputConfig.{member} has "{unknown[0]}", which is not an instance type that Hostelry'
            " knows."
        )


def _build_range(given: Mapping[str, Any], number: str) -> ConfigurationRange:
    path = f"InputConfig.EndpointConfigurations.{number}"
    if given.get("ServerlessConfig") is not None:
        raise unsupported(
            f"{path}.ServerlessConfig", "Jobs measure instances; give an InstanceType."
        )
    if given.get("InferenceSpecificationName") is not None:
        raise unsupported(f"{path}.InferenceSpecificationName", "Hostelry has no model registry.")
    if not given.get("InstanceType"):
        raise validation_error(f"{path}.InstanceType is required.")
    ranges = given.get("EnvironmentParameterRanges") or {}
    values = tuple(
        (one["Name"], tuple(one["Value"])) for one in ranges.get("CategoricalParameterRanges") or ()
    )
    names = [name for name, _ in values]
    twice = next((it for it in names if names.count(it) > 1), None)
    if twice is not None:
        raise validation_error(f'{path}: the variable "{twice}" is given twice.')
    return ConfigurationRange(instance_type=given["InstanceType"], values=values)
