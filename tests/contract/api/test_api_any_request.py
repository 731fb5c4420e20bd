"""Any request that the service models allow: an answer in its shape, or a modelled refusal."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from botocore.model import Shape as ModelShape
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hostelry.api.context import CallContext
from hostelry.api.operations import perform
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.inference_experiment import ExperimentStatus
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

HERE = Scope("123456789012", "us-west-2")
ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"
MAIN = {"VariantName": "main", "InstanceType": "ml.g5.12xlarge", "InitialInstanceCount": 1}
NEEDS = {"MinMemoryRequiredInMb": 1024}
# Few names, so that requests often name existing resources, and odd but valid values.
WORDS = (
    *("m", "c", "c2", "e", "base", "es", "main", "E", "new", "-", ""),
    *("s3://b/k", "s3://b/k/", "https://h/k", "/metrics", "text/csv", "mig-1g.5gb", ROLE),
    HERE.arn("model", "m"),
    HERE.arn("endpoint", "e"),
    "arn:aws:sns:us-west-2:123456789012:topic",
)
OPERATIONS = (
    "CreateModel",
    "CreateEndpointConfig",
    "CreateEndpoint",
    "CreateInferenceComponent",
    "UpdateEndpoint",
    "UpdateEndpointWeightsAndCapacities",
    "UpdateInferenceComponent",
    "UpdateInferenceComponentRuntimeConfig",
    "CreateTransformJob",
    "StopTransformJob",
    "CreateInferenceExperiment",
    "StartInferenceExperiment",
    "StopInferenceExperiment",
    "UpdateInferenceExperiment",
    "DeleteInferenceExperiment",
    "AddTags",
    "DeleteModel",
    "DeleteEndpoint",
    "DeleteInferenceComponent",
)
CODES = (
    *("", "ValidationException", "ResourceLimitExceeded", "ResourceInUse"),
    *("ResourceNotFound", "ConflictException"),
)
READS: tuple[tuple[str, str, str, str], ...] = (
    ("ListModels", "Models", "DescribeModel", "ModelName"),
    ("ListEndpointConfigs", "EndpointConfigs", "DescribeEndpointConfig", "EndpointConfigName"),
    ("ListEndpoints", "Endpoints", "DescribeEndpoint", "EndpointName"),
    (
        "ListInferenceComponents",
        "InferenceComponents",
        "DescribeInferenceComponent",
        "InferenceComponentName",
    ),
    ("ListTransformJobs", "TransformJobSummaries", "DescribeTransformJob", "TransformJobName"),
    (
        "ListAIWorkloadConfigs",
        "AIWorkloadConfigs",
        "DescribeAIWorkloadConfig",
        "AIWorkloadConfigName",
    ),
    ("ListAIBenchmarkJobs", "AIBenchmarkJobs", "DescribeAIBenchmarkJob", "AIBenchmarkJobName"),
    (
        "ListAIRecommendationJobs",
        "AIRecommendationJobs",
        "DescribeAIRecommendationJob",
        "AIRecommendationJobName",
    ),
    ("ListInferenceExperiments", "InferenceExperiments", "DescribeInferenceExperiment", "Name"),
)


def requests(shape: ModelShape) -> st.SearchStrategy[Any]:
    """Values of `shape`: required members always, and at most three of the others."""
    if shape.type_name == "structure":
        return st.deferred(lambda: structures(shape))
    if shape.type_name == "list":
        least = shape.metadata.get("min", 0)
        return st.lists(requests(shape.member), min_size=least, max_size=least + 1)
    if shape.type_name == "map":
        return st.dictionaries(st.sampled_from("AB"), requests(shape.value), max_size=2)
    return scalars(shape)


@st.composite
def structures(draw: st.DrawFn, shape: Any) -> dict[str, Any]:
    optional = sorted(set(shape.members) - set(shape.required_members))
    chosen = draw(st.lists(st.sampled_from(optional), max_size=3, unique=True)) if optional else []
    names = [*shape.required_members, *chosen]
    return {name: draw(requests(shape.members[name])) for name in names}


def scalars(shape: ModelShape) -> st.SearchStrategy[Any]:
    least, most = shape.metadata.get("min", 0), shape.metadata.get("max", 10**6)
    if shape.type_name == "string":
        pattern = shape.metadata.get("pattern", ".*").replace(r"\p{L}\p{Z}\p{N}", r"\w")
        allowed = [it for it in WORDS if re.fullmatch(pattern, it) and least <= len(it) <= most]
        return st.sampled_from(shape.enum or allowed)
    if shape.type_name == "boolean":
        return st.booleans()
    if shape.type_name in ("integer", "long"):
        return st.integers(least, min(most, least + 2000))
    return st.floats(least, least + 4.0)


def run(state: State, operation: str, **params: Any) -> dict[str, Any]:
    context = CallContext(
        scope=HERE,
        state=state,
        now=1_700_000_000.0,
        get_shape=lambda _: Shape(cpus=48, memory_bytes=2**38, accelerators=4),
        role_arn=ROLE,
        role_name="HostelryExecutionRole",
        metrics=MemoryMetrics(ManualClock()),
    )
    return perform(context, "sagemaker", operation, params)


def experiment_variant(name: str) -> dict[str, Any]:
    instances = {"InstanceType": "ml.g5.12xlarge", "InstanceCount": 1}
    real_time = {
        "InfrastructureType": "RealTimeInference",
        "RealTimeInferenceConfig": instances,
    }
    return {"ModelName": "m", "VariantName": name, "InfrastructureConfig": real_time}


def settled() -> State:
    """An endpoint with a base component and an adapter in service, and a waiting experiment."""
    state = open_state(MemoryStore())
    run(state, "CreateModel", ModelName="m", PrimaryContainer={"Image": "i"})
    for name in ("c", "c2"):
        config = {"ExecutionRoleArn": ROLE, "ProductionVariants": [MAIN]}
        run(state, "CreateEndpointConfig", EndpointConfigName=name, **config)
    run(state, "CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    of_base = {"ModelName": "m", "ComputeResourceRequirements": NEEDS}
    of_adapter = {"BaseInferenceComponentName": "base", "Container": {"ArtifactUrl": "s3://b/k"}}
    for name, specification in (("base", of_base), ("es", of_adapter)):
        given = {"InferenceComponentName": name, "Specification": specification}
        run(state, "CreateInferenceComponent", EndpointName="e", **given)
        component = state.components.get(HERE, name)
        assert component is not None
        ready = replace(component.value, status=ComponentStatus.IN_SERVICE)
        state.components.put(HERE, name, ready, expect=component.version)
    variants = [experiment_variant(name) for name in ("main", "es")]
    shadow = {"ShadowModelVariantName": "es", "SamplingPercentage": 50}
    run(
        state,
        "CreateInferenceExperiment",
        Name="base",
        Type="ShadowMode",
        RoleArn=ROLE,
        EndpointName="new",
        ModelVariants=variants,
        ShadowModeConfig={"SourceModelVariantName": "main", "ShadowModelVariants": [shadow]},
    )
    experiment = state.inference_experiments.get(HERE, "base")
    assert experiment is not None
    waiting = replace(experiment.value, status=ExperimentStatus.CREATED)
    state.inference_experiments.put(HERE, "base", waiting, expect=experiment.version)
    endpoint = state.endpoints.get(HERE, "e")
    assert endpoint is not None
    serving = replace(endpoint.value, status=EndpointStatus.IN_SERVICE)
    state.endpoints.put(HERE, "e", serving, expect=endpoint.version)
    return state


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(draw=st.data())
def test_any_request_is_answered_or_refused(
    service_models: Callable[[str], Any],
    check: Callable[[Any, Any], None],
    operation: str,
    draw: st.DataObject,
) -> None:
    model = service_models("sagemaker")
    state = settled()
    params = draw.draw(requests(model.operation_model(operation).input_shape))
    code = ""
    try:
        result = run(state, operation, **params)
        check(model.operation_model(operation).output_shape, result)
    except ServiceError as error:
        code = error.code
    event(code or "answered")
    assert code in CODES
    for listing, member, describe, name in READS:
        for shown in run(state, listing, MaxResults=100)[member]:
            described = run(state, describe, **{name: shown[name]})
            check(model.operation_model(describe).output_shape, described)
